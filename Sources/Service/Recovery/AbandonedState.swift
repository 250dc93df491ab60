// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The removal of state files of buses that no longer exist (E3). If a bus ends while no service runs on it, the files
/// of its state stay, and no service of another bus would use them.
///
/// ``RecoveryStore`` calls this when it restores its own state. The files of another bus are treated as follows:
///
/// - A service has the log locked: they stay.
/// - A process listens at the address of the bus, which the log names: they stay.
/// - No process listens there, or this service's own bus has that address now: they are removed.
/// - The log names no Unix socket, or that can't be found out: the newest ``maxUnknown`` of these stay, up to a total
///   size.
enum AbandonedState {
    /// The existence of a bus.
    private enum Bus {
        case gone
        case there
        case unknown
    }

    /// State whose bus may exist.
    private struct Unknown {
        /// The log, which stays locked while this value exists.
        let log: RecoveryLog
        let id: String
        let time: Duration
        let size: Int
    }

    /// The maximum number of buses of unknown existence whose state stays.
    private static let maxUnknown = 8
    /// The suffixes of the files of a bus.
    private static let suffixes = ["log", "counts", "log.new"]

    /// Removes the state of buses that are gone.
    ///
    /// - Parameters:
    ///   - directory: the directory of the state.
    ///   - files: the file system that has the directory.
    ///   - busID: the id of the bus whose state is in use here.
    ///   - address: the address of that bus. Another bus that had the same address is gone.
    ///   - limit: the maximum total size, in bytes, of the logs of buses of unknown existence.
    static func remove(
        in directory: String, of files: any StateFiles, except busID: String, address: String, atMost limit: Int
    ) {
        var removed = 0
        var unknown: [Unknown] = []
        for id in busIDs(in: files.names(in: directory)) where id != busID {
            // Opening takes the lock. It fails if a service uses the state, and keeps others from using it meanwhile.
            guard let log = try? RecoveryLog(path: "\(directory)/\(id).log", in: files) else { continue }
            switch bus(of: log, ours: address, files) {
            case .there: break
            case .gone:
                remove(id, log, in: directory, files)
                removed += 1
            case .unknown:
                guard let status = files.status(of: "\(directory)/\(id).log") else { continue }
                unknown.append(Unknown(log: log, id: id, time: status.modified, size: status.size))
            }
        }
        unknown.sort { $0.time > $1.time }
        var size = 0
        for (number, state) in unknown.enumerated() {
            size += state.size
            guard number >= maxUnknown || size > limit else { continue }
            remove(state.id, state.log, in: directory, files)
            removed += 1
        }
        if removed > 0 { Log.notice("removed the state of \(removed) buses that are gone") }
    }

    private static func remove(_ id: String, _ log: RecoveryLog, in directory: String, _ files: any StateFiles) {
        for suffix in suffixes where suffix != "log" { files.remove("\(directory)/\(id).\(suffix)") }
        // The log is removed last, because its lock protects the other files.
        log.remove()
    }

    /// Returns the IDs of buses in the names of files.
    private static func busIDs(in names: [String]) -> Set<String> {
        var ids: Set<String> = []
        for name in names {
            let parts = name.split(separator: ".", maxSplits: 1)
            if parts.count == 2, parts[0].allSatisfy(\.isHexDigit), suffixes.contains(String(parts[1])) {
                ids.insert(String(parts[0]))
            }
        }
        return ids
    }

    /// Finds out whether the bus of a log exists.
    ///
    /// - Parameter ours: the address of this service's own bus.
    private static func bus(of log: RecoveryLog, ours: String, _ files: any StateFiles) -> Bus {
        var decoder = ChangeDecoder()
        var address: String?
        // The address is in the first record.
        _ = try? log.read { record in
            if case .bus(let text) = try? decoder.decode(record, counts: { _, _, _ in nil }) { address = text }
            return false
        }
        guard let address, let path = socketPath(address) else { return .unknown }
        if path == socketPath(ours) { return .gone }
        return files.isListening(at: path).map { $0 ? .there : .gone } ?? .unknown
    }

    /// Returns the socket path in a D-Bus address such as `unix:path=/run/user/1000/bus,guid=…`. The name of an
    /// abstract socket begins with a zero byte. Nil for another type of address, and for a list of addresses.
    private static func socketPath(_ address: String) -> [UInt8]? {
        guard address.hasPrefix("unix:"), !address.contains(";") else { return nil }
        for pair in address.dropFirst("unix:".count).split(separator: ",") {
            let parts = pair.split(separator: "=", maxSplits: 1)
            guard parts.count == 2, let value = unescaped(parts[1]) else { return nil }
            if parts[0] == "path" { return value }
            if parts[0] == "abstract" { return [0] + value }
        }
        return nil
    }

    /// Returns the bytes of a value in an address, in which `%XX` stands for a byte; nil if it is malformed.
    private static func unescaped(_ text: Substring) -> [UInt8]? {
        var bytes: [UInt8] = []
        var rest = text.utf8
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let digits = String(rest.prefix(2)), digits.utf8.count == 2, let value = UInt8(digits, radix: 16)
            else {
                return nil
            }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return bytes
    }
}
