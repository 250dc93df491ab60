// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The state that services have left for buses that are gone (E3). If a bus ends while no service runs on it, its files
/// stay, and no service of another bus would read them.
///
/// State is kept if its bus may still exist: a service holds its lock, or a process listens at the address that it
/// names. If the state names no address that can be tried, the newest are kept, up to ``maxUnknown`` and a total size.
enum AbandonedState {
    private enum Bus {
        case gone
        case there
        case unknown
    }

    private struct Unknown {
        let log: RecoveryLog
        let id: String
        let time: Duration
        let size: Int
    }

    private static let maxUnknown = 8
    private static let suffixes = ["log", "counts", "log.new"]

    /// Removes the state of buses that are gone.
    ///
    /// - Parameters:
    ///   - directory: the directory of the state.
    ///   - files: the file system that has the directory.
    ///   - busID: the id of the bus whose state is in use here.
    ///   - address: the address of that bus. Another bus that had the same address is gone.
    ///   - limit: the maximum total size, in bytes, of the state of buses about which nothing is known.
    static func remove(
        in directory: String, of files: any StateFiles, except busID: String, address: String, atMost limit: Int
    ) {
        var removed = 0
        var unknown: [Unknown] = []
        for id in busIDs(in: files.names(in: directory)) where id != busID {
            // The lock shows that no service holds the state, and prevents that one takes it meanwhile.
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
        // The log is removed last, because it has the lock.
        log.remove()
    }

    /// Returns the ids in the names of files.
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

    /// Returns the socket of an address such as `unix:path=/run/user/1000/bus,guid=…`; nil for another kind of address,
    /// or several addresses. The name of an abstract socket begins with a zero.
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
