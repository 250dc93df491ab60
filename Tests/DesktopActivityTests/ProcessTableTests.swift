// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import CarillonActivity

/// What is read of processes.
@Suite("A2: processes, their units and sandboxes", .limited)
struct ProcessTableTests {
    @Test("The process table has the facts, ancestors and environment of running processes")
    func own() throws {
        let table = ProcFileSystem()
        let own = try #require(table.facts(of: UInt32(getpid())).value)
        #expect(own.identity.id == UInt32(getpid()))
        #expect(own.identity.start > 0 && own.identity.start <= table.now)
        #expect(own.ancestors.first.map(\.id) ?? 0 == (getppid() > 1 ? UInt32(getppid()) : 0))
        #expect(own.session == UInt32(getsid(0)))
        #expect(own.sandbox == nil)

        let before = table.now
        let child = try RunningCommand("sleep", ["1000"], environment: ["PATH": "/usr/bin:/bin", "DISPLAY": ":4711"])
        let facts = try #require(table.facts(of: UInt32(child.pid)).value)
        #expect(facts.identity.start + 1 >= before, "its start is counted on the same clock")
        #expect(facts.ancestors.first == own.identity)
        try eventually("it runs its own program") {
            table.environment(of: UInt32(child.pid)).value == SessionEnvironment([.display: ":4711"])
        }
        child.kill()
        _ = try child.waitForExit()
        #expect(table.facts(of: UInt32(child.pid)).value == nil)
    }

    /// A made-up `/proc` with one process.
    private func table(
        name: String = "app", parent: Int = 1, cgroup: String = "0::/\n", flatpakInfo: String? = nil
    ) throws -> (ProcFileSystem, TemporaryDirectory) {
        let directory = try TemporaryDirectory()
        let fields = (7...21).map(String.init).joined(separator: " ")
        try directory.write("10 (\(name)) S \(parent) 5 6 \(fields) 4711 23 24\n", to: "10/stat")
        try directory.write("\(name)\n", to: "10/comm")
        try directory.write(cgroup, to: "10/cgroup")
        if let flatpakInfo { try directory.write(flatpakInfo, to: "10/root/.flatpak-info") }
        return (ProcFileSystem(root: directory.path), directory)
    }

    @Test("The name of a program may contain any characters", arguments: ["a", "a b", ") S 1 1 1", "((", ""])
    func names(name: String) throws {
        let (table, directory) = try table(name: name)
        let facts = try #require(table.facts(of: 10).value)
        #expect(facts.identity == ProcessIdentity(id: 10, start: 4711))
        #expect(facts.session == 6)
        #expect(table.name(of: 10) == name)
        #expect(table.name(of: 11).isEmpty)
        withExtendedLifetime(directory) {}
    }

    @Test("A process that is its own ancestor gives a list of 64 ancestors, not an endless loop")
    func cycle() throws {
        let (table, directory) = try table(parent: 10)
        #expect(try #require(table.facts(of: 10).value).ancestors.count == 64)
        withExtendedLifetime(directory) {}
    }

    @Test(
        "The cgroup of a process gives its unit, its application, and whether it is a part of the session",
        arguments: [
            ("app.slice/app-gnome-firefox-4711.scope", "app-gnome-firefox-4711.scope", "firefox", false),
            ("app.slice/app-org.kde.kate-1f.scope", "app-org.kde.kate-1f.scope", "org.kde.kate", false),
            (#"app.slice/app-gnome-my\x2dapp-1.scope"#, #"app-gnome-my\x2dapp-1.scope"#, "my-app", false),
            ("app.slice/app-org.x.Y@autostart.service", "app-org.x.Y@autostart.service", "org.x.Y", false),
            ("app.slice/app-flatpak-org.x.Y-12.scope/inner", "app-flatpak-org.x.Y-12.scope", "org.x.Y", false),
            ("app.slice/snap.spotify.spotify-1-2.scope", "snap.spotify.spotify-1-2.scope", "spotify", false),
            ("app.slice/dbus-:1.2-org.x.Y@0.service", "dbus-:1.2-org.x.Y@0.service", nil, false),
            ("app.slice/vte-spawn-1.scope", nil, nil, false),
            ("session.slice/org.gnome.Shell@wayland.service", nil, nil, true),
            ("background.slice/tracker.service", nil, nil, true),
        ] as [(String, String?, String?, Bool)])
    func units(path: String, unit: String?, application: String?, isPartOfSession: Bool) throws {
        let prefix = "0::/user.slice/user-1000.slice/user@1000.service/"
        let (table, directory) = try table(cgroup: "1:name=systemd:/x\n\(prefix)\(path)\n")
        let facts = try #require(table.facts(of: 10).value)
        #expect(facts.unit == unit)
        #expect(facts.unitApplication == application)
        #expect(facts.isPartOfSession == isPartOfSession)
        withExtendedLifetime(directory) {}
    }

    @Test("P1: a process description has name, unit and application, and is refused for a process that started later")
    func description() throws {
        let (table, directory) = try table(
            name: "b (c) d", cgroup: "0::/user.slice/user@1000.service/app.slice/app-gnome-org.x.Y-12.scope\n")
        let description = ProcessDescription(
            name: "b (c) d", unit: "app-gnome-org.x.Y-12.scope", application: "org.x.Y")
        #expect(table.description(of: 10, startedBy: 4711) == description)
        #expect(table.description(of: 10, startedBy: 4710) == nil)
        #expect(table.description(of: 11, startedBy: .max) == nil)
        let own = ProcFileSystem()
        #expect(own.description(of: UInt32(getpid()), startedBy: own.now)?.name == own.name(of: UInt32(getpid())))
        withExtendedLifetime(directory) {}
    }

    @Test(
        "P1: the unit of a process is the innermost one of its cgroup, under any user",
        arguments: [
            ("0::/\n", nil), ("", nil), ("12:cpu:/x.service\n", nil), ("0::/user.slice/user-0.slice\n", nil),
            ("0::/system.slice/runner.service\n", "runner.service"),
            ("0::/user.slice/user-0.slice/session-2.scope\n", "session-2.scope"),
            ("0::/user.slice/user@1000.service/app.slice/backup.service/inner\n", "backup.service"),
            ("0::/\n1:name=systemd:/system.slice/cron.service\n", "cron.service"),
        ] as [(String, String?)])
    func cgroupUnits(cgroup: String, unit: String?) throws {
        #expect(ProcFileSystem.unit(inCgroups: Array(cgroup.utf8)) == unit)
    }

    @Test(
        "Without a user's service manager, no unit belongs to an application",
        arguments: ["0::/\n", "0::/system.slice/runner.service\n", "", "12:cpu:/x\n"])
    func noUnits(cgroup: String) throws {
        let (table, directory) = try table(cgroup: cgroup)
        let facts = try #require(table.facts(of: 10).value)
        #expect(facts.unit == nil && !facts.isPartOfSession)
        withExtendedLifetime(directory) {}
    }

    @Test("A Flatpak's id and instance come from .flatpak-info, and an incomplete file means no sandbox")
    func flatpak() throws {
        let (table, directory) = try table(
            flatpakInfo: "[Application]\nname=org.x.Y\nruntime=r\n\n[Instance]\ninstance-id=123\nname=not this\n")
        #expect(try #require(table.facts(of: 10).value).sandbox == .init(application: "org.x.Y", instance: "123"))
        #expect(table.environment(of: 10).value == nil, "what a sandbox says of the session is not believed")
        try directory.write("name=org.x.Y\n", to: "10/root/.flatpak-info")
        #expect(try #require(table.facts(of: 10).value).sandbox == nil)
    }

    @Test("A FIFO in place of .flatpak-info does not block the lookup")
    func fifo() throws {
        let (table, directory) = try table()
        try directory.createSubdirectory("10/root")
        #expect(mkfifo(directory.entry("10/root/.flatpak-info"), 0o600) == 0)
        #expect(try #require(table.facts(of: 10).value).sandbox == nil)
    }

    @Test("P2: a sandbox is recognized by the process's root directory or its cgroup")
    func confinement() throws {
        let (session, sessionDirectory) = try table()
        try sessionDirectory.createSubdirectory("10/root")
        #expect(session.confinement(of: 10).value == .none)
        #expect(session.confinement(of: 11).value == .unknown, "there is none")

        let (flatpak, flatpakDirectory) = try table(flatpakInfo: "[Application]\nname=org.x.Y\n")
        #expect(flatpak.confinement(of: 10).value == .sandbox("org.x.Y"))
        try flatpakDirectory.write("[Runtime]\nruntime=org.x.Platform\n", to: "10/root/.flatpak-info")
        #expect(flatpak.confinement(of: 10).value == .sandbox("unknown"))

        let (snap, snapDirectory) = try table(cgroup: "0::/user.slice/snap.name.app-1234.scope\n")
        try snapDirectory.createSubdirectory("10/root")
        #expect(snap.confinement(of: 10).value == .sandbox("snap.name"))
    }

    @Test("P2: a process with an unreadable .flatpak-info has unknown confinement")
    func unreadable() throws {
        let (table, directory) = try table()
        try directory.createSubdirectory("10/root")
        #expect(symlink("/nonexistent", directory.entry("10/root/.flatpak-info")) == 0)
        #expect(table.confinement(of: 10).value == .unknown)
    }

    @Test("P2: this process is unconfined, and an ended process has unknown confinement, before and after reaping")
    func ended() throws {
        let table = ProcFileSystem()
        #expect(table.confinement(of: UInt32(getpid())).value == .none)
        var child = pid_t()
        var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("true"), nil]
        defer { free(arguments[0]) }
        try #require(posix_spawn(&child, "/bin/true", nil, nil, &arguments, nil) == 0)
        var information = siginfo_t()
        #expect(waitid(P_PID, id_t(child), &information, WEXITED | WNOWAIT) == 0)
        #expect(table.confinement(of: UInt32(child)).value == .unknown)
        waitpid(child, nil, 0)
        #expect(table.confinement(of: UInt32(child)).value == .unknown)
    }

    @Test(
        "P2: the permissions of a Flatpak determine whether it may talk to a name",
        arguments: [
            ("", false), ("[Application]\nname=org.x.Y\n", false),
            ("[Session Bus Policy]\norg.x.Bell=talk\n", true), ("[Session Bus Policy]\norg.x.Bell=own\n", true),
            ("[Session Bus Policy]\norg.x.Bell=see\n", false), ("[Session Bus Policy]\norg.x.Bell=none\n", false),
            ("[Session Bus Policy]\norg.x.*=talk\n", true), ("[Session Bus Policy]\norg.x.Bell.*=talk\n", true),
            ("[Session Bus Policy]\norg.x.Be.*=talk\n", false), ("[Session Bus Policy]\n*=talk\n", true),
            ("[System Bus Policy]\norg.x.Bell=talk\n", false),
            ("[Context]\nsockets=x11;session-bus;\n", true), ("[Context]\nsockets=x11;wayland;\n", false),
        ])
    func permissions(info: String, mayTalk: Bool) throws {
        #expect(FlatpakInstances.mayTalk(to: "org.x.Bell", info: Array(info.utf8)) == mayTalk)
        let directory = try TemporaryDirectory()
        let instances = FlatpakInstances(runtimeDirectory: directory.path)
        #expect(!instances.mayTalk(to: "org.x.Bell"))
        try directory.write("[Application]\nname=org.x.Z\n", to: ".flatpak/1/info")
        try directory.write(info, to: ".flatpak/2/info")
        try directory.createSubdirectory(".flatpak/.ref")
        #expect(instances.mayTalk(to: "org.x.Bell") == mayTalk)
        #expect(!FlatpakInstances(runtimeDirectory: nil).mayTalk(to: "org.x.Bell"))
    }

    @Test("E4: Flatpak instances are searched again if one has started, or had no information yet")
    func newRuns() throws {
        let directory = try TemporaryDirectory()
        let instances = FlatpakInstances(runtimeDirectory: directory.path)
        func age() throws {
            let changed = Date(timeIntervalSinceNow: -10)
            try FileManager.default.setAttributes(
                [.modificationDate: changed], ofItemAtPath: directory.path + "/.flatpak")
        }
        let permission = "[Session Bus Policy]\norg.x.Bell=talk\n"
        try directory.write("[Application]\nname=org.x.Z\n", to: ".flatpak/1/info")
        #expect(!instances.mayTalk(to: "org.x.Bell"))
        // At once, and after it had been so for long.
        try directory.createSubdirectory(".flatpak/2")
        try age()
        #expect(!instances.mayTalk(to: "org.x.Bell"), "it is not noted what it may")
        try directory.write(permission, to: ".flatpak/2/info")
        try age()
        #expect(instances.mayTalk(to: "org.x.Bell"))
        try directory.write("", to: ".flatpak/2/info")
        #expect(!instances.mayTalk(to: "org.x.Bell"))
        #expect(!instances.mayTalk(to: "org.x.Bell"))
        try directory.write(permission, to: ".flatpak/3/info")
        #expect(instances.mayTalk(to: "org.x.Bell"))
    }
}
