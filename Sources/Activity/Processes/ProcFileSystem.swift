// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The process table of the kernel, read from `/proc`. Facts that can't be read are unknown. The service wraps it in
/// ``RecentProcesses``.
///
/// Most reads from `/proc` return at once. Two kinds of read may block, so they are returned as
/// ``Lookup/mayBlock(_:)``:
///
/// - Files in the root directory of a process, which may be in any file system, also one whose server does not answer.
///   Processes with the same root directory as this process are excepted, because no such file is read for them.
/// - The environment of a process: it is read from the process's memory, which may be mapped from such a file.
package struct ProcFileSystem: ProcessTable, Sendable {
    /// The mount point of the file system; tests replace it.
    var root = "/proc"

    package init() {}

    init(root: String) {
        self.root = root
    }

    /// The maximum number of ancestors, beyond any real process tree.
    private static let maximumDepth = 64

    package func name(of processID: UInt32) -> String {
        let name = file("\(root)/\(processID)/comm") ?? []
        return String(decoding: name.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    }

    /// Returns the sandbox of a process. For Flatpak the proof is the file `.flatpak-info` in the root directory of the
    /// sandbox, where the application can't write. The process that the bus reports for a Flatpak application is
    /// Flatpak's proxy, which has a sandbox with the same file. For snap the proof is the name of the cgroup.
    package func confinement(of processID: UInt32) -> Lookup<Confinement> {
        hasOwnRoot(processID)
            ? .known(confinement(byCgroup: processID)) : .mayBlock { confinementByRoot(of: processID) }
    }

    /// Whether a process has the same mount namespace and root directory as this process. Such a process is in no
    /// Flatpak sandbox.
    private func hasOwnRoot(_ processID: UInt32) -> Bool {
        guard let namespace = link("\(root)/self/ns/mnt"), let directory = link("\(root)/self/root") else {
            return false
        }
        return link("\(root)/\(processID)/ns/mnt") == namespace && link("\(root)/\(processID)/root") == directory
    }

    /// Returns the target of a symbolic link; nil if it can't be read.
    private func link(_ path: String) -> [UInt8]? {
        var target = [UInt8](repeating: 0, count: 256)
        let count = target.withUnsafeMutableBytes {
            readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
        }
        return count > 0 && count < target.count ? Array(target[..<count]) : nil
    }

    /// Returns whether the process is in a snap; it is known to be in no Flatpak sandbox.
    private func confinement(byCgroup processID: UInt32) -> Confinement {
        let cgroups = file("\(root)/\(processID)/cgroup")
        if let snap = Self.snap(inCgroups: cgroups ?? []) { return .sandbox(snap) }
        // Without the file, the process may have ended, or the kernel has no cgroups.
        return cgroups != nil || status(of: processID) != nil ? .none : .unknown
    }

    /// Returns the sandbox of a process by the files in its root directory. It may block.
    private func confinementByRoot(of processID: UInt32) -> Confinement {
        // The open descriptor pins the root of this process during the lookup.
        let directory = open("\(root)/\(processID)/root", O_RDONLY | O_DIRECTORY | O_NOCTTY | O_CLOEXEC)
        let reason = errno
        defer { if directory >= 0 { close(directory) } }
        if directory >= 0 {
            var attributes = stat()
            if fstatat(directory, ".flatpak-info", &attributes, AT_SYMLINK_NOFOLLOW) == 0 {
                guard let info = file(".flatpak-info", in: directory) else { return .unknown }
                var facts = ProcessFacts(identity: ProcessIdentity(id: processID, start: 0))
                facts.readFlatpakInfo(info)
                // A sandbox without an application id gets a placeholder name.
                return .sandbox(facts.sandbox?.application ?? "unknown")
            }
            guard errno == ENOENT else { return .unknown }
        }
        let confinement = confinement(byCgroup: processID)
        if directory >= 0 || confinement.sandbox != nil { return confinement }
        // The kernel denies access to the root of a program with more privileges than its user, which is in no sandbox.
        // A sandboxed program can cause the same denial, but Flatpak sets the no-new-privileges flag, which it can't
        // clear.
        return reason == EACCES && !hasNoNewPrivileges(processID) ? .none : .unknown
    }

    /// Whether the process has the no-new-privileges flag; also true if unknown.
    private func hasNoNewPrivileges(_ processID: UInt32) -> Bool {
        let lines = String(decoding: file("\(root)/\(processID)/status") ?? [], as: UTF8.self).split(separator: "\n")
        return !lines.contains("NoNewPrivs:\t0")
    }

    /// Returns `snap.NAME` for a process in a cgroup such as `…/snap.NAME.APP-UUID.scope`; nil for other cgroups.
    ///
    /// - Parameter bytes: The contents of `/proc/PID/cgroup`.
    static func snap(inCgroups bytes: [UInt8]) -> String? {
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
            for part in line.split(separator: "/").reversed() where part.hasPrefix("snap.") {
                let name = part.dropFirst("snap.".count).prefix { $0 != "." }
                if !name.isEmpty { return "snap." + name }
            }
        }
        return nil
    }

    package func description(of processID: UInt32, startedBy moment: UInt64) -> ProcessDescription? {
        guard let status = status(of: processID), status.identity.start <= moment else { return nil }
        let cgroups = file("\(root)/\(processID)/cgroup") ?? []
        var facts = ProcessFacts(identity: status.identity)
        facts.readCgroups(cgroups)
        // The id may have been reused meanwhile.
        guard self.status(of: processID)?.identity == status.identity else { return nil }
        return ProcessDescription(
            name: status.name, unit: Self.unit(inCgroups: cgroups), application: facts.unitApplication)
    }

    /// Returns the innermost unit of `/proc/PID/cgroup`, from the only line of cgroup v2, or from systemd's line among
    /// others.
    static func unit(inCgroups bytes: [UInt8]) -> String? {
        // Each line holds the hierarchy, its controllers, and the path. The path of cgroup v2 is `/` where systemd uses
        // only the older hierarchies.
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n").map {
            $0.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
        }
        guard
            let line = lines.first(where: { $0.count == 3 && $0[0] == "0" && $0[1].isEmpty && $0[2] != "/" })
                ?? lines.first(where: { $0.count == 3 && $0[1] == "name=systemd" })
        else { return nil }
        return line[2].split(separator: "/").last { $0.hasSuffix(".service") || $0.hasSuffix(".scope") }.map(
            String.init)
    }

    package func identity(of processID: UInt32) -> ProcessIdentity? { status(of: processID)?.identity }

    package func facts(of processID: UInt32) -> Lookup<ProcessFacts?> {
        hasOwnRoot(processID) ? .known(facts(of: processID, root: nil)) : .mayBlock { factsByRoot(of: processID) }
    }

    /// Returns the facts including Flatpak's file in the root directory. It may block.
    private func factsByRoot(of processID: UInt32) -> ProcessFacts? {
        facts(of: processID, root: "\(root)/\(processID)/root")
    }

    /// Returns the facts of a process; nil if there is none.
    ///
    /// - Parameter directory: The root directory of the process; nil if it need not be searched for Flatpak's file.
    private func facts(of processID: UInt32, root directory: String?) -> ProcessFacts? {
        guard let status = status(of: processID) else { return nil }
        var facts = ProcessFacts(identity: status.identity)
        facts.session = status.session
        var parent = status.parent
        while parent > 1, facts.ancestors.count < Self.maximumDepth, let next = self.status(of: parent) {
            facts.ancestors.append(next.identity)
            parent = next.parent
        }
        facts.readCgroups(file("\(root)/\(processID)/cgroup") ?? [])
        // The sandboxed program can't write to the root directory of its sandbox.
        if let directory, let info = file("\(directory)/.flatpak-info") { facts.readFlatpakInfo(info) }
        // The id may have been reused during these reads.
        guard self.status(of: processID)?.identity == facts.identity else { return nil }
        return facts
    }

    package func environment(of processID: UInt32) -> Lookup<SessionEnvironment?> {
        .mayBlock { environmentInMemory(of: processID) }
    }

    /// Returns the desktop variables of a process; nil for a process in Flatpak, whose environment describes its
    /// sandbox.
    private func environmentInMemory(of processID: UInt32) -> SessionEnvironment? {
        guard file("\(root)/\(processID)/root/.flatpak-info") == nil,
            let bytes = file("\(root)/\(processID)/environ", limit: 1 << 20)
        else { return nil }
        return SessionEnvironment(environ: bytes)
    }

    /// The time since boot, in clock ticks.
    package var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        let ticks = UInt64(sysconf(Int32(_SC_CLK_TCK)))
        return UInt64(time.tv_sec) * ticks + UInt64(time.tv_nsec) * ticks / 1_000_000_000
    }

    /// Parses `/proc/PID/stat`; nil if there is no such process.
    private func status(
        of processID: UInt32
    ) -> (identity: ProcessIdentity, name: String, parent: UInt32, session: UInt32)? {
        guard processID > 0, let bytes = file("\(root)/\(processID)/stat"),
            // The program's name is in parentheses, and may itself contain parentheses.
            let begin = bytes.firstIndex(of: UInt8(ascii: "(")), let end = bytes.lastIndex(of: UInt8(ascii: ")")),
            begin < end
        else { return nil }
        let fields = bytes[(end + 1)...].split(separator: UInt8(ascii: " "))
        // The first field is the state, field 3 of proc(5).
        func number(_ field: Int) -> UInt64? {
            fields.indices.contains(field - 3) ? UInt64(String(decoding: fields[field - 3], as: UTF8.self)) : nil
        }
        guard let parent = number(4), let session = number(6), let start = number(22) else { return nil }
        return (
            ProcessIdentity(id: processID, start: start), String(decoding: bytes[(begin + 1)..<end], as: UTF8.self),
            UInt32(parent), UInt32(session)
        )
    }

    private func file(_ path: String, in directory: Int32 = AT_FDCWD, limit: Int = 1 << 16) -> [UInt8]? {
        Self.contents(of: path, in: directory, limit: limit)
    }

    /// Returns the contents of a regular file; nil for any other object, which is opened without blocking. A sandbox
    /// could put a pipe in place of the file.
    ///
    /// - Parameters:
    ///   - directory: The descriptor of the directory of a relative `path`.
    ///   - limit: The size in bytes at which reading ends; the rest of a larger file is ignored.
    static func contents(of path: String, in directory: Int32 = AT_FDCWD, limit: Int = 1 << 16) -> [UInt8]? {
        let descriptor = openat(directory, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var attributes = stat()
        guard fstat(descriptor, &attributes) == 0, attributes.st_mode & S_IFMT == S_IFREG else { return nil }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while bytes.count < limit {
            let count = read(descriptor, &buffer, buffer.count)
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return count == 0 ? bytes : nil }
            bytes += buffer[..<count]
        }
        return bytes
    }
}

extension ProcessFacts {
    /// Sets `unit` and `isPartOfSession` from `/proc/PID/cgroup`, by the line of cgroup v2: `0::/user.slice/…`.
    mutating func readCgroups(_ bytes: [UInt8]) {
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
        guard let path = lines.first(where: { $0.hasPrefix("0::") })?.dropFirst(3) else { return }
        let parts = path.split(separator: "/").map(String.init)
        // The units of a user's systemd manager are below `user@UID.service`. systemd's document DESKTOP_ENVIRONMENTS
        // defines their slices and the names of application units.
        guard let manager = parts.firstIndex(where: { $0.hasPrefix("user@") }) else { return }
        let own = parts[(manager + 1)...]
        isPartOfSession = own.contains("session.slice") || own.contains("background.slice")
        unit = own.last { part in
            (part.hasSuffix(".scope") || part.hasSuffix(".service"))
                && ["app-", "snap.", "dbus-"].contains(where: part.hasPrefix)
        }
    }

    /// Sets `sandbox` from `/.flatpak-info`, a key file.
    mutating func readFlatpakInfo(_ bytes: [UInt8]) {
        var group = Substring()
        var application = ""
        var instance = ""
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
            if line.hasPrefix("[") { group = line }
            if group == "[Application]", line.hasPrefix("name=") { application = String(line.dropFirst(5)) }
            if group == "[Instance]", line.hasPrefix("instance-id=") { instance = String(line.dropFirst(12)) }
        }
        if !application.isEmpty { sandbox = Sandbox(application: application, instance: instance) }
    }
}
