// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The storage of ``SavedState`` between two processes of the bridge: ``StateFile``, or the substitute of a simulation.
package protocol StateStore {
    /// Returns the unguessable part of the bridge's MQTT client identifier, which is created once and stored.
    ///
    /// - Returns: nil if it can't be stored. A new identifier in each process would leave a session at the broker each
    ///   time.
    func clientID() -> String?
    /// Returns and removes the state that an earlier bridge has saved; nil if there is none.
    func take() -> SavedState?
    /// Saves the state.
    ///
    /// - Returns: whether the state is saved.
    func save(_ state: SavedState) -> Bool
}

/// The file that stores ``SavedState`` between two processes of the bridge: `bridge-state.json` in `carillon` below
/// `$XDG_STATE_HOME`, or in the state directory that systemd sets.
///
/// The bridge writes the file at its end and removes it at its start. After a crash there is no state, and never an
/// outdated one.
struct StateFile: StateStore {
    /// The directory of the files; nil if there is none, so that nothing is stored.
    private let directory: String?

    /// Uses the standard directory of this user.
    init() {
        directory = Self.standardDirectory
    }

    /// - Parameter directory: nil to store nothing.
    init(directory: String?) {
        self.directory = directory
    }

    /// The state directory of systemd, or that of the XDG specification; nil if the environment names none.
    private static var standardDirectory: String? {
        func variable(_ name: String) -> String? {
            guard let value = getenv(name), value.pointee == CChar(bitPattern: UInt8(ascii: "/")) else { return nil }
            return String(cString: value)
        }
        // systemd sets a list if a unit names several directories.
        if let given = variable("STATE_DIRECTORY") { return given.split(separator: ":").first.map(String.init) }
        if let home = variable("XDG_STATE_HOME") { return home + "/carillon" }
        return variable("HOME").map { $0 + "/.local/state/carillon" }
    }

    private var path: String? { directory.map { $0 + "/bridge-state.json" } }

    func clientID() -> String? {
        guard let directory else { return nil }
        let path = directory + "/bridge-id"
        do throws(FileError) {
            if let bytes = try RegularFile.contents(of: path, atMost: 64) {
                let text = String(decoding: bytes, as: UTF8.self)
                if !text.isEmpty, text.utf8.allSatisfy(Self.isPlain) { return text }
            }
            makeDirectory(directory)
            let id = (0..<2).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }.joined()
            try RegularFile(path, for: .newLog)?.append(Array(id.utf8))
            return id
        } catch {
            Log.warning("the client identifier of the bridge can't be stored: \(error)")
            return nil
        }
    }

    /// Whether a byte can be part of an identifier: a digit or a lowercase letter. The file may have been edited.
    private static func isPlain(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
    }

    func take() -> SavedState? {
        guard let path else { return nil }
        do throws(FileError) {
            guard let bytes = try RegularFile.contents(of: path, atMost: SavedState.maxBytes) else { return nil }
            guard let state = SavedState(bytes, now: WallClock.microseconds()) else {
                rename(path, path + ".bad")
                Log.warning("\(path) is not the state of a bridge, and is not used; it is now \(path).bad")
                return nil
            }
            // The removal is synced: if the file reappeared after a power failure, its numbers would be used twice.
            unlink(path)
            RegularFile.syncDirectory(of: path)
            return state
        } catch {
            Log.warning("the saved state of an earlier bridge can't be read: \(error)")
            return nil
        }
    }

    func save(_ state: SavedState) -> Bool {
        guard let directory, let path else { return false }
        do throws(FileError) {
            makeDirectory(directory)
            guard let file = try RegularFile(path + ".new", for: .newLog) else { return false }
            try file.append(state.bytes(now: WallClock.microseconds()))
            try file.rename(to: path)
            RegularFile.syncDirectory(of: path)
            return true
        } catch {
            Log.warning("the state can't be saved for the next bridge: \(error)")
            return false
        }
    }

    /// Creates a directory and its parents. A failure is noticed when the file is opened.
    private func makeDirectory(_ path: String) {
        var end = path.startIndex
        while let slash = path[end...].dropFirst().firstIndex(of: "/") {
            end = slash
            mkdir(String(path[..<slash]), 0o700)
        }
        mkdir(path, 0o700)
    }
}
