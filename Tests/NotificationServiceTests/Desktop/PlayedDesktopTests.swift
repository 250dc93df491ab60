// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Our scripts inside desktops that can't be had here, run by gjs with what they use of the desktop played
/// (`Tests/Desktop/gnome-shell`, `Tests/Desktop/kwin`), and the real service beside them.
@Suite("A1, A2, A3: scripts inside desktops", .serialized, .limited)
struct PlayedDesktopTests {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case gnome43, gnome45, kwin5, kwin6

        var testDescription: String { rawValue }
        var source: String { self == .gnome43 || self == .gnome45 ? "gnome" : "kwin" }
        var desktop: String { source == "gnome" ? "GNOME" : "KDE" }

        /// What the desktop calls a window of a kind.
        func type(_ kind: String) -> String {
            guard source == "gnome" else { return kind }
            // Meta.WindowType.
            return ["normal": "0", "dock": "2", "desktopWindow": "1", "notification": "12"][kind]!
        }
    }

    /// A played desktop, the service, and two programs without windows of their own: the desktop says which they have.
    final class Scene {
        let kind: Kind
        let bus: PrivateBus
        let desktop: RunningCommand
        let service: ServiceProcess
        let client: Client
        private(set) var programs: [String: (process: RunningCommand, name: String)] = [:]

        init(_ kind: Kind, configuration: String? = nil) throws {
            var needed = ["gjs"]
            if kind == .gnome45 { needed.append("glib-compile-resources") }
            try DesktopSupport.require(needed)
            self.kind = kind
            bus = try PrivateBus()
            if let configuration { try bus.configure(configuration) }
            let directory = Executables.packageRoot + "/Tests/Desktop"
            let script = directory + (kind.source == "gnome" ? "/gnome-shell/shell.js" : "/kwin/kwin.js")
            desktop = try RunningCommand(
                "gjs", ["-m", script, String(kind.rawValue.drop { !$0.isNumber }), bus.directory.path],
                environment: bus.environment)
            _ = try desktop.nextLine(within: .desktop) { $0 == "ready" }
            service = try ServiceProcess(
                on: bus, arguments: ["--verbose"],
                environment: ["XDG_SESSION_TYPE": "wayland", "XDG_CURRENT_DESKTOP": kind.desktop])
            client = try Client(on: bus)
            for label in ["a", "b"] {
                let process = try RunningCommand(
                    DesktopSupport.python, ["-B", Executables.packageRoot + "/Examples/python/observe.py", "hold"],
                    environment: bus.environment)
                try eventually("\(label) observes: \(process.transcript)") {
                    guard let new = try client.listClients().first(where: { $0.value == UInt32(process.pid) }) else {
                        return false
                    }
                    programs[label] = (process, new.key)
                    return true
                }
            }
        }

        deinit { for (process, _) in programs.values { process.kill() } }

        func pid(_ label: String) -> Int32 { programs[label]!.process.pid }

        func happen(_ line: String) throws {
            desktop.write(line + "\n")
            let answer = try desktop.nextLine { $0 == "done" || $0.hasPrefix("failed") }
            guard answer == "done" else { throw NotInTime("\(line): \(answer)") }
        }

        func open(_ id: Int, of pid: Int32, _ type: String = "normal", for owner: Int? = nil) throws {
            try happen("window \(id) \(pid) \(kind.type(type))" + (owner.map { " \($0)" } ?? ""))
        }

        func expect(_ label: String, _ suspension: String, _ comment: String = "") throws {
            try eventually("\(label) is \(suspension) \(comment)\n\(service.transcript)\n\(desktop.transcript)") {
                try client.suspension(of: programs[label]!.name) == suspension
            }
        }

        /// A has window 1, which was active; B has window 2, which is.
        func begin() throws {
            try open(1, of: pid("a"))
            try happen("focus 1")
            try expect("a", "resumed activity")
            try open(2, of: pid("b"))
            try happen("focus 2")
            try expect("b", "resumed activity")
            try expect("a", "suspended activity")
        }
    }

    @Test(
        "The desktop's focus is followed, across dialogs of other processes and without parts of the desktop",
        arguments: Kind.allCases)
    func following(kind: Kind) throws {
        let scene = try Scene(kind)
        try scene.begin()
        #expect(try scene.client.property(.activitySource) == kind.source)
        #expect(try scene.client.property(.activityReason).isEmpty)
        // A dialog of A's that another process shows, and a dialog of that.
        try scene.open(3, of: scene.desktop.pid, for: 1)
        try scene.open(4, of: scene.desktop.pid, for: 3)
        try scene.happen("focus 4")
        try scene.expect("a", "resumed activity")
        try scene.expect("b", "suspended activity")
        try scene.happen("focus 2")
        try scene.expect("a", "suspended activity")
        // No window has the focus.
        try scene.happen("focus")
        try scene.expect("b", "suspended activity")
        try scene.happen("focus 2")
        try scene.expect("b", "resumed activity")
        // A has a panel now, which is never active.
        for type in ["dock", "desktopWindow"] {
            try scene.open(5, of: scene.pid("a"), type)
            try scene.expect("a", "resumed none", type)
            try scene.happen("close 5")
            try scene.expect("a", "suspended activity")
        }
        // A program that has nothing but a notification.
        try scene.happen("close 1")
        try scene.expect("a", "resumed none")
        try scene.open(6, of: scene.pid("a"), "notification")
        try scene.happen("focus 6")
        try scene.expect("b", "suspended activity")
        try scene.happen("focus 2")
        try scene.expect("b", "resumed activity")
        #expect(try scene.client.suspension(of: scene.programs["a"]!.name) == "resumed none")
        #expect(!scene.desktop.transcript.contains("refused"), "\(scene.desktop.transcript)")
    }

    @Test(
        "A1: with inactive-when=hidden, only applications whose windows are all minimized or elsewhere are inactive",
        arguments: Kind.allCases)
    func hidden(kind: Kind) throws {
        let scene = try Scene(kind, configuration: "[Activity]\ninactive-when=hidden\n")
        try scene.open(1, of: scene.pid("a"))
        try scene.happen("focus 1")
        try scene.expect("a", "resumed activity")
        try scene.open(2, of: scene.pid("b"))
        try scene.happen("focus 2")
        try scene.expect("b", "resumed activity")
        try scene.happen("minimize 1")
        try scene.expect("a", "suspended activity")
        try scene.happen("restore 1")
        try scene.expect("a", "resumed activity", "without the focus")
        // Another window of A's, which never has the focus.
        try scene.open(3, of: scene.pid("a"))
        try scene.happen("minimize 1")
        try scene.happen("move 3 1")
        try scene.expect("a", "suspended activity")
        try scene.happen("workspace 1")
        try scene.expect("a", "resumed activity")
        try scene.happen("focus 3")
        try scene.expect("b", "suspended activity")
        try scene.happen("focus")
        #expect(try scene.client.suspension(of: scene.programs["a"]!.name) == "resumed activity")
        try scene.happen("close 3")
        try scene.expect("a", "suspended activity", "what is left is minimised, and elsewhere")
        try scene.happen("workspace 0")
        try scene.expect("b", "resumed activity")
        if kind.source == "gnome" {
            try scene.happen("lock")
            try scene.expect("b", "suspended activity")
            try scene.happen("unlock")
            try scene.expect("b", "resumed activity")
            try scene.happen("disable")
        }
        #expect(!scene.desktop.transcript.contains("refused"), "\(scene.desktop.transcript)")
    }

    @Test("No application is active behind a lock screen", arguments: [Kind.gnome43, .gnome45])
    func locked(kind: Kind) throws {
        let scene = try Scene(kind)
        try scene.begin()
        try scene.happen("lock")
        try scene.expect("b", "suspended activity")
        try scene.happen("focus 1")
        #expect(try scene.client.suspension(of: scene.programs["a"]!.name) == "suspended activity")
        try scene.happen("unlock")
        try scene.expect("a", "resumed activity")
    }

    @Test(
        "A disabled extension reports its end, and all clients are resumed; a re-enabled one is followed again",
        arguments: [Kind.gnome43, .gnome45])
    func turnedOff(kind: Kind) throws {
        let scene = try Scene(kind)
        try scene.begin()
        try scene.happen("disable")
        try scene.expect("a", "resumed none")
        #expect(try scene.client.property(.activityState) == "lost")
        #expect(try scene.client.property(.activityReason).contains("gnome-extensions enable"))
        try scene.happen("enable")
        try scene.client.waitForActivity()
        try scene.happen("focus 1")
        try scene.happen("focus 2")
        try scene.expect("a", "suspended activity")
    }

    @Test(
        "A desktop that falls silent is detected when the service is used, and followed again when it reports",
        arguments: Kind.allCases)
    func silent(kind: Kind) throws {
        let scene = try Scene(kind)
        try scene.begin()
        if kind.source == "kwin" {
            // As a person, or another program, unloads it. It is loaded again.
            try scene.happen("unload")
        } else {
            try ProcessState.stop(scene.desktop.pid)
        }
        try scene.client.waitForActivity(kind.source == "kwin" ? "following" : "lost")
        if kind.source == "kwin" {
            try eventually("it is found out: \(scene.service.transcript)") {
                _ = try scene.client.property(.version)
                return scene.service.log.contains("KWin has unloaded the script")
            }
        }
        try scene.expect("a", "resumed none")
        if kind.source == "gnome" {
            #expect(try scene.client.property(.activityReason).contains("gnome-extensions enable"))
            scene.desktop.signal(SIGCONT)
        }
        try scene.client.waitForActivity()
        try scene.happen("focus 1")
        try scene.happen("focus 2")
        try scene.expect("a", "suspended activity")
    }

    @Test("ReloadConfiguration restarts the activity source", arguments: Kind.allCases)
    func reload(kind: Kind) throws {
        let scene = try Scene(kind)
        try scene.begin()
        try scene.client.call(ReloadConfiguration())
        try scene.expect("a", "resumed none")
        try scene.client.waitForActivity()
        try scene.expect("b", "resumed activity")
        try scene.happen("focus 1")
        try scene.expect("b", "suspended activity")
    }

    @Test("The extensions for GNOME 43 and for GNOME 45 share their code")
    func sameExtension() throws {
        let texts = try ["43", "45"].map { version in
            try String(
                contentsOfFile: Executables.packageRoot + "/data/gnome-shell/\(version)/extension.js", encoding: .utf8)
        }
        let shared = try texts.map { text in
            try String(#require(text.firstMatch(of: /\/\/ From here on(.|\n)*\/\/ To here\.\n/)).0)
        }
        #expect(shared[0] == shared[1])
        #expect(shared[0].contains("class Reporter"))
    }
}
