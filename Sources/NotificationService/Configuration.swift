import MainLoop
import NotificationCore

/// What an administrator or a user can set: `carillon/carillon.conf` in the XDG configuration directories.
///
/// Each file may set any of the keys; the user's own counts before the system's.
struct Configuration: Equatable {
    var limits = Limits()

    /// Reads all files there are.
    ///
    /// - Throws: the first fault: a file that can't be read, a group or key that does not exist, a value that is no
    ///   number or beyond what is allowed.
    init() throws(KeyFile.Fault) {
        for directory in configurationDirectories().reversed() {
            guard let file = try KeyFile(path: directory + "/carillon/carillon.conf") else { continue }
            for entry in file.entries { try apply(entry, of: file) }
        }
    }

    private mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        guard entry.group == "Limits" else {
            throw file.fault(entry, "there is no group [\(entry.group)], only [Limits]")
        }
        guard let key = Limits.Key(rawValue: entry.key) else {
            let known = Limits.Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "there is no limit '\(entry.key)', only: \(known)")
        }
        let maximum = Limits.row(key).hardMaximum
        guard let value = UInt64(entry.value), value > 0, value <= maximum else {
            throw file.fault(entry, "'\(entry.value)' is no number from 1 to \(maximum) for \(entry.key)")
        }
        limits[key] = value
    }
}
