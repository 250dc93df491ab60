// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The runs of Flatpak applications in this session, as Flatpak itself notes them: `$XDG_RUNTIME_DIR/.flatpak/ID/info`.
///
/// The directory of a run that has ended stays for three seconds from its beginning at least, and until Flatpak is used
/// again. So what a connection sent that left just now came from a run that is still noted, if from any.
package final class FlatpakInstances {
    private let directory: String
    /// When the directory had changed last as nothing was found in it: as long as it is so no run has begun since.
    private var unchangedSince: timespec?
    /// More than anybody runs at a time.
    private static let most = 1024

    /// - Parameter runtimeDirectory: of the user; nil where there is none, and no Flatpak either.
    init(runtimeDirectory: String?) {
        directory = (runtimeDirectory ?? "") + "/.flatpak"
    }

    /// Those of this process's session.
    package static func ofSession() -> FlatpakInstances {
        FlatpakInstances(runtimeDirectory: SessionEnvironment.own[.runtimeDirectory])
    }

    /// Whether one of them has a permission by which it could have sent something to the owner of `name`, always the same
    /// one, on the session bus; also where there are too many to look at.
    package func mayTalk(to name: WellKnownName) -> Bool {
        var status = stat()
        guard stat(directory, &status) == 0 else { return false }
        let changed = status.st_mtim
        if let before = unchangedSince, before.tv_sec == changed.tv_sec, before.tv_nsec == changed.tv_nsec {
            return false
        }
        unchangedSince = nil
        // One that begins in the same tick of the clock would not be seen by it.
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
            guard count <= Self.most else { return true }
            if let info = ProcFileSystem.contents(of: "\(directory)/\(instance)/info") {
                if Self.mayTalk(to: name.rawValue, info: info) { return true }
            } else {
                areAllNoted = false
            }
        }
        if isCertain, areAllNoted { unchangedSince = changed }
        return false
    }

    /// In milliseconds of the clock by which files change.
    private static var now: Int {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int(time.tv_sec) * 1000 + Int(time.tv_nsec) / 1_000_000
    }

    /// Reads the permissions in a `.flatpak-info`, a key file.
    static func mayTalk(to name: String, info: [UInt8]) -> Bool {
        var group = Substring()
        for line in String(decoding: info, as: UTF8.self).split(separator: "\n") {
            if line.hasPrefix("[") { group = line }
            guard let separator = line.firstIndex(of: "=") else { continue }
            let (key, value) = (line[..<separator], line[line.index(after: separator)...])
            switch group {
            // Not by way of the proxy, which is the one that asks for the permissions below.
            case "[Context]": if key == "sockets", value.split(separator: ";").contains("session-bus") { return true }
            case "[Session Bus Policy]":
                guard ["talk", "own"].contains(value) else { continue }
                if key == name || key == "*" { return true }
                // `org.example.*` is for `org.example` itself, too.
                if key.hasSuffix(".*"), (name + ".").hasPrefix(key.dropLast()) { return true }
            default: break
            }
        }
        return false
    }
}
