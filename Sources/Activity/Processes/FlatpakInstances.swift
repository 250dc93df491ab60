// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The running Flatpak instances of this session, as Flatpak records them: `$XDG_RUNTIME_DIR/.flatpak/ID/info`. The
/// service asks whether any sandboxed application may call it. If so, it treats a caller that left before its
/// identification as a sandbox.
///
/// Flatpak keeps the directory of an instance for at least three seconds from the instance's start, and until the next
/// use of Flatpak. A connection that has just left the bus therefore still has its directory, if it was of an instance.
package final class FlatpakInstances {
    private let directory: String
    /// The modification time of the directory when no instance with the permission was found; otherwise nil. While the
    /// time is unchanged, no instance has started, so the answer is still no.
    private var unchangedSince: timespec?
    /// The maximum number of instances that are examined; a user does not run that many.
    private static let maxInstances = 1024

    /// - Parameter runtimeDirectory: The user's runtime directory; nil if there is none, and therefore no Flatpak.
    init(runtimeDirectory: String?) {
        directory = (runtimeDirectory ?? "") + "/.flatpak"
    }

    /// Returns the instances of this process's session.
    package static func ofSession() -> FlatpakInstances {
        FlatpakInstances(runtimeDirectory: SessionEnvironment.own[.runtimeDirectory])
    }

    /// Whether any instance has the permission to send messages to the owner of `name` on the session bus. The answer
    /// is also true if there are too many instances to examine. All calls must pass the same name, because a negative
    /// answer is cached.
    package func mayTalk(to name: WellKnownName) -> Bool {
        var status = stat()
        guard stat(directory, &status) == 0 else { return false }
        let changed = status.st_mtim
        if let before = unchangedSince, before.tv_sec == changed.tv_sec, before.tv_nsec == changed.tv_nsec {
            return false
        }
        unchangedSince = nil
        // A recent modification time may be the same for an instance that starts later, in the same clock tick. Then
        // the answer is not cached.
        let isCertain = Self.now - (Int(changed.tv_sec) * 1000 + Int(changed.tv_nsec) / 1_000_000) > 100
        guard let entries = opendir(directory) else { return false }
        defer { closedir(entries) }
        var (count, areAllNoted) = (0, true)
        while let entry = readdir(entries) {
            let instance = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard !instance.hasPrefix(".") else { continue }
            count += 1
            guard count <= Self.maxInstances else { return true }
            if let info = ProcFileSystem.contents(of: "\(directory)/\(instance)/info") {
                if Self.mayTalk(to: name.rawValue, info: info) { return true }
            } else {
                areAllNoted = false
            }
        }
        if isCertain, areAllNoted { unchangedSince = changed }
        return false
    }

    /// The time in milliseconds, of the clock for file changes.
    private static var now: Int {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int(time.tv_sec) * 1000 + Int(time.tv_nsec) / 1_000_000
    }

    /// Whether the permissions in a `.flatpak-info` (a key file) allow messages to `name`.
    static func mayTalk(to name: String, info: [UInt8]) -> Bool {
        var group = Substring()
        for line in String(decoding: info, as: UTF8.self).split(separator: "\n") {
            if line.hasPrefix("[") { group = line }
            guard let separator = line.firstIndex(of: "=") else { continue }
            let (key, value) = (line[..<separator], line[line.index(after: separator)...])
            switch group {
            // This permission bypasses the proxy, which enforces the permissions below.
            case "[Context]": if key == "sockets", value.split(separator: ";").contains("session-bus") { return true }
            case "[Session Bus Policy]":
                guard ["talk", "own"].contains(value) else { continue }
                if key == name || key == "*" { return true }
                // `org.example.*` includes `org.example` itself.
                if key.hasSuffix(".*"), (name + ".").hasPrefix(key.dropLast()) { return true }
            default: break
            }
        }
        return false
    }
}
