// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Real desktops, without a screen, and real GTK programs that know nothing of suspension.
@Suite("A1, A2, A3 on real desktops", .serialized, .limited)
struct DesktopTests {
    /// Two programs with a window each, "A" and "B", of which B came last and is active.
    struct Scene {
        let bus: PrivateBus
        let desktop: any Desktop
        let service: ServiceProcess
        let client: Client
        let a: WindowProgram
        let b: WindowProgram

        init(_ makeDesktop: (PrivateBus) throws -> any Desktop, busKind: BusKind = .dbusDaemon) throws {
            bus = try PrivateBus(busKind)
            desktop = try makeDesktop(bus)
            service = try ServiceProcess(on: bus, arguments: ["--verbose"], environment: desktop.environment)
            client = try Client(on: bus)
            do {
                a = try WindowProgram("A", on: desktop, control: client)
                try a.expectLine("resumed activity")
                b = try WindowProgram("B", on: desktop, control: client)
                try b.expectLine("resumed activity")
                try a.expectLine("suspended activity")
            } catch {
                throw NotInTime("\(error)\n\(service.transcript)\n\(desktop.transcript)")
            }
        }

        var transcript: Comment {
            "\(a.transcript)\n\(b.transcript)\n\(service.transcript)\n\(desktop.transcript)"
        }

        /// Posts a notification under the name of a behavior.
        func post(_ name: String, _ number: Int64) throws {
            #expect(try client.post(name, number: number) == 2)
        }
    }

    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case x11, sway

        var testDescription: String { rawValue }

        func makeDesktop(on bus: PrivateBus) throws -> any Desktop {
            switch self {
            case .x11: try X11Desktop(on: bus)
            case .sway: try SwayDesktop(on: bus)
            }
        }
    }

    @Test(
        "A1: a program without the focus is suspended, and with the focus it receives according to its behaviors",
        arguments: Kind.allCases, BusKind.available)
    func behaviors(kind: Kind, busKind: BusKind) throws {
        let scene = try Scene(kind.makeDesktop, busKind: busKind)
        #expect(try scene.client.property(.activitySource) == kind.rawValue)
        #expect(try scene.client.property(.activityState) == "following")
        #expect(try scene.client.suspension(of: scene.a.name) == "suspended activity")
        #expect(try scene.client.suspension(of: scene.b.name) == "resumed activity")
        for name in ["drop", "coalesce", "hold"] {
            for number in [1, 2, 3] as [Int64] { try scene.post(name, number) }
        }
        #expect(try scene.a.lines() == [], scene.transcript)
        let all = ["drop", "coalesce", "hold"].flatMap { name in [1, 2, 3].map { "got \(name) \($0)" } }
        #expect(try scene.b.lines() == all, scene.transcript)

        // No window may be active for a while in between, so that the one is suspended before the other is resumed.
        try scene.desktop.activate("A")
        try scene.a.expectLine("resumed activity")
        #expect(
            try scene.a.lines() == ["got coalesce 3", "got hold 1", "got hold 2", "got hold 3"], scene.transcript)
        try scene.b.expectLine("suspended activity")

        // The fourth behavior: at once, behind what is held, and it stays suspended.
        try scene.desktop.activate("B")
        try scene.a.expectLine("suspended activity")
        try scene.post("drop", 4)
        try scene.post("hold", 4)
        try scene.post("deliver-immediately", 4)
        try scene.post("hold", 5)
        #expect(try scene.a.lines() == ["got hold 4", "got deliver-immediately 4"], scene.transcript)
        #expect(try scene.client.suspension(of: scene.a.name) == "suspended activity")
        try scene.desktop.activate("A")
        try scene.a.expectLine("resumed activity")
        #expect(try scene.a.lines() == ["got hold 5"], scene.transcript)
    }

    @Test(
        "A2: a program that closes its window is resumed, and with a new window it is followed again",
        arguments: Kind.allCases)
    func closing(kind: Kind) throws {
        let scene = try Scene(kind.makeDesktop)
        try scene.post("hold", 1)
        scene.a.send("Close")
        try scene.a.expectLine("resumed none")
        #expect(try scene.a.lines().filter { $0 != "closed" } == ["got hold 1"], scene.transcript)
        scene.a.send("Open")
        try scene.a.expectLine("resumed activity")
        try scene.b.expectLine("suspended activity")
        try scene.desktop.activate("B")
        try scene.a.expectLine("suspended activity")
        // The active one, too.
        scene.b.send("Close")
        try scene.b.expectLine("closed")
        try scene.b.expectLine("resumed none")
    }

    @Test(
        "S5: rapid switching of windows causes no loss or duplicate, and the last switch decides",
        arguments: Kind.allCases)
    func rapid(kind: Kind) throws {
        let scene = try Scene(kind.makeDesktop)
        var number: Int64 = 0
        for _ in 0..<15 {
            for title in ["A", "B"] {
                try scene.desktop.activate(title)
                for _ in 0..<5 {
                    number += 1
                    try scene.post("hold", number)
                }
            }
        }
        try scene.desktop.activate("A")
        try eventually("A is active, B is not") {
            try scene.client.suspension(of: scene.a.name) == "resumed activity"
                && scene.client.suspension(of: scene.b.name) == "suspended activity"
        }
        let expected = (1...number).map { "got hold \($0)" }
        #expect(try scene.a.lines().filter { $0.hasPrefix("got") } == expected, scene.transcript)
        try scene.desktop.activate("B")
        try scene.b.expectLine("resumed activity")
    }

    @Test(
        "A2: SetSuspended, disabled automatic suspension or a missing window takes precedence over activity",
        arguments: Kind.allCases)
    func exceptions(kind: Kind) throws {
        let scene = try Scene(kind.makeDesktop)
        let always = try WindowProgram("C", on: scene.desktop, control: scene.client, arguments: ["--always"])
        try scene.b.expectLine("suspended activity")
        try scene.desktop.activate("B")
        try scene.b.expectLine("resumed activity")
        // Inactive, and as long as A was when it was suspended.
        try scene.desktop.activate("A")
        try scene.b.expectLine("suspended activity")
        #expect(try scene.client.suspension(of: always.name) == "resumed none")

        let daemon = try Client(on: scene.bus)
        try daemon.addObserver("hold", behavior: .hold)
        #expect(try scene.client.suspension(of: daemon.name) == "resumed none")
        try daemon.setSuspended(true)
        #expect(try scene.client.suspension(of: daemon.name) == "suspended explicit")
        try daemon.call(FollowActivity())
        #expect(try scene.client.suspension(of: daemon.name) == "resumed none")
    }

    @Test(
        "E3, A2: a restarted service counts all clients as active and delivers held notifications once",
        arguments: Kind.allCases)
    func restart(kind: Kind) throws {
        let scene = try Scene(kind.makeDesktop)
        try scene.post("hold", 1)
        try scene.post("coalesce", 2)
        #expect(try scene.a.lines() == [])
        try scene.service.kill()
        let next = try ServiceProcess(on: scene.bus, environment: scene.desktop.environment)
        try scene.a.expectLine("resumed none")
        #expect(try scene.a.lines() == ["got hold 1", "got coalesce 2"], scene.transcript)
        // Who is active is seen anew, who was not has to be seen first.
        try scene.client.waitForActivity()
        #expect(try scene.client.suspension(of: scene.b.name) == "resumed activity")
        #expect(try scene.client.suspension(of: scene.a.name) == "resumed none")
        try scene.desktop.activate("A")
        try scene.b.expectLine("suspended activity")
        #expect(next.isRunning)
    }

    @Test("A2: the configuration switches automatic suspension off and on at run time", arguments: Kind.allCases)
    func configuration(kind: Kind) throws {
        let scene = try Scene(kind.makeDesktop)
        try scene.post("hold", 1)
        for off in ["automatic-suspension=false", "source=none"] {
            try scene.bus.configure("[Activity]\n\(off)\n")
            try scene.client.call(ReloadConfiguration())
            try scene.a.expectLine("resumed none")
            #expect(try scene.client.property(.activitySource) == "none")
            #expect(try scene.client.property(.activityState) == "off")
            try scene.bus.configure("[Activity]\n")
            try scene.client.call(ReloadConfiguration())
            try scene.client.waitForActivity()
            // The new source has to see it active first.
            try scene.desktop.activate("A")
            try scene.a.expectLine("resumed activity")
            try scene.desktop.activate("B")
            try scene.a.expectLine("suspended activity")
        }
    }
}

/// What only an X session has.
@Suite("A3: X11", .serialized, .limited)
struct X11DesktopTests {
    @Test("A2: a kill of the window manager resumes suspended clients, and the next window manager is followed")
    func windowManager() throws {
        let scene = try DesktopTests.Scene { try X11Desktop(on: $0) }
        let desktop = try #require(scene.desktop as? X11Desktop)
        try scene.post("hold", 1)
        try desktop.killManager()
        try scene.a.expectLine("resumed none")
        #expect(try scene.a.lines() == ["got hold 1"])
        #expect(try scene.client.property(.activityState) == "waiting")
        _ = try scene.service.nextLogLine { $0.contains("the window manager ended") }

        try desktop.startManager()
        try scene.client.waitForActivity()
        for (title, program) in [("A", scene.a), ("B", scene.b)] {
            try desktop.activate(title)
            try eventually("\(title) is active: \(scene.transcript)") {
                try scene.client.suspension(of: program.name) == "resumed activity"
            }
        }
        try scene.a.expectLine("suspended activity")
    }

    @Test("A3: the service survives a kill of the X server and follows the next one")
    func server() throws {
        let scene = try DesktopTests.Scene { try X11Desktop(on: $0) }
        let desktop = try #require(scene.desktop as? X11Desktop)
        let daemon = try Client(on: scene.bus)
        try daemon.addObserver("hold")
        try desktop.killServer()
        try scene.client.waitForActivity("lost")
        #expect(try scene.client.post("hold", number: 1) ?? 0 >= 1)
        try daemon.run("the post") { daemon.numbers == [1] }
        try desktop.restartServer()
        try scene.client.waitForActivity()
        _ = try scene.service.nextLogLine { $0.contains("following x11 again") }
        let warnings = scene.service.log.split(separator: "\n").filter { $0.contains("WARNING") }
        #expect(warnings.count == 1, "said once: \(warnings)")
    }

    @Test("A3: an X server that does not answer delays neither the start nor a post")
    func stoppedServer() throws {
        let bus = try PrivateBus()
        let desktop = try X11Desktop(on: bus, withManager: false)
        try ProcessState.stop(desktop.server.pid)
        let service = try ServiceProcess(on: bus, environment: desktop.environment)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        #expect(try client.post("Ding") == 1)
        try client.run("the post") { client.signals.count == 1 }
        #expect(["waiting", "lost"].contains(try client.property(.activityState)))
        // However often it is tried again, one thread waits.
        for source in ["none", "x11", "none", "auto"] {
            try bus.configure("[Activity]\nsource=\(source)\n")
            try client.call(ReloadConfiguration())
        }
        try client.waitForActivity("lost")
        try service.waitForLog("an earlier attempt still waits")
        desktop.server.signal(SIGCONT)
        try desktop.startManager()
        try client.waitForActivity()
        #expect(try service.terminate() == .exited(0))
    }

    @Test("A3: a service whose X server never responds still exits on SIGTERM")
    func endsBesideAStoppedServer() throws {
        let bus = try PrivateBus()
        let desktop = try X11Desktop(on: bus, withManager: false)
        try ProcessState.stop(desktop.server.pid)
        let service = try ServiceProcess(on: bus, environment: desktop.environment)
        #expect(try service.terminate() == .exited(0))
    }

    @Test(
        "A3: a missing or unusable X server does not prevent the service from delivering",
        arguments: [
            (":4711", "x11", "lost"), (":", "x11", "lost"), ("elsewhere.example:0", "none", "off"),
            ("rubbish", "none", "off"),
        ])
    func noServer(display: String, source: String, state: String) throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus, environment: ["DISPLAY": display])
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        #expect(try client.post("Ding") == 1)
        try client.run("the post") { client.signals.count == 1 }
        try client.waitForActivity(state)
        #expect(try client.property(.activitySource) == source)
        #expect(try service.terminate() == .exited(0))
    }

    @Test(
        "A3: a service started before the desktop gets the display and its cookie from a program with a window"
    )
    func lateEnvironment() throws {
        let bus = try PrivateBus(activations: [try .service()])
        let desktop = try X11Desktop(on: bus, cookie: true)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        #expect(try client.property(.activitySource) == "none")
        let a = try WindowProgram("A", on: desktop, control: client)
        try a.expectLine("resumed activity")
        #expect(try client.property(.activitySource) == "x11")
        let b = try WindowProgram("B", on: desktop, control: client)
        try b.expectLine("resumed activity")
        try a.expectLine("suspended activity")
    }

    @Test("A2: a program in a terminal is not suspended while another window is active")
    func terminal() throws {
        try DesktopSupport.require(["xterm"])
        let scene = try DesktopTests.Scene { try X11Desktop(on: $0) }
        let observe = [
            DesktopSupport.python, "-B", Executables.packageRoot + "/Examples/python/observe.py", "hold",
        ]
        let before = try scene.client.listClients()
        let terminal = try RunningCommand(
            "xterm", ["-title", "Terminal", "-e"] + observe, environment: scene.desktop.environment)
        var observer = ""
        try eventually("it observes: \(terminal.transcript)") {
            guard let new = try scene.client.listClients().first(where: { before[$0.key] == nil }) else { return false }
            observer = new.key
            return true
        }
        try eventually("its window is there") { (try? scene.desktop.activate("Terminal")) != nil }
        try scene.b.expectLine("suspended activity")
        try scene.desktop.activate("B")
        try scene.b.expectLine("resumed activity")
        // Longer than the terminal needed to be counted as inactive: B takes as long, and later.
        try scene.desktop.activate("A")
        try scene.b.expectLine("suspended activity")
        #expect(try scene.client.suspension(of: observer) == "resumed none", scene.transcript)
    }

    @Test("A3: the service has no wake-ups while the desktop is idle")
    func asleep() throws {
        let scene = try DesktopTests.Scene { try X11Desktop(on: $0) }
        let desktop = try #require(scene.desktop as? X11Desktop)
        let manager = try #require(desktop.manager)
        let others = [scene.bus.pid, desktop.server.pid, manager.pid, scene.a.pid, scene.b.pid]
        let (before, after) = try Wakefulness.overASecond(of: scene.service.pid, beside: others) {
            _ = try scene.client.processID(of: "org.carillon.NotificationCenter1")
        }
        #expect(after == before, scene.transcript)
        // GLib has one of its own, for Unix signals.
        let tasks = "/proc/\(scene.service.pid)/task"
        let names = try FileManager.default.contentsOfDirectory(atPath: tasks).map { task in
            try String(contentsOfFile: "\(tasks)/\(task)/comm", encoding: .utf8)
        }
        #expect(names.filter { $0 != "gmain\n" }.count == 1, "the thread that connected has ended: \(names)")
    }
}

/// What only sway has.
@Suite("A3: sway", .serialized, .limited)
struct SwayDesktopTests {
    @Test("A1: no application is active on an empty workspace, and a return activates the previous window's again")
    func emptyWorkspace() throws {
        let scene = try DesktopTests.Scene { try SwayDesktop(on: $0) }
        let desktop = try #require(scene.desktop as? SwayDesktop)
        try desktop.message("workspace 2")
        try scene.b.expectLine("suspended activity")
        try desktop.message("workspace 1")
        try scene.b.expectLine("resumed activity")
        #expect(try scene.client.suspension(of: scene.a.name) == "suspended activity")
    }

    @Test(
        "A3: the source wlr-foreign-toplevel, which reports no processes, finds applications by their bus names"
    )
    func foreignToplevel() throws {
        let bus = try PrivateBus()
        let desktop = try SwayDesktop(on: bus)
        let service = try ServiceProcess(
            on: bus, arguments: ["--verbose"], environment: desktop.environment.merging(["SWAYSOCK": ""]) { $1 })
        let client = try Client(on: bus)
        try client.waitForActivity()
        #expect(try client.property(.activitySource) == "wlr-foreign-toplevel")
        let a = try WindowProgram("org.example.A", on: desktop, control: client, arguments: ["--own-name"])
        try a.expectLine("resumed activity")
        let b = try WindowProgram("org.example.B", on: desktop, control: client, arguments: ["--own-name"])
        try b.expectLine("resumed activity")
        try a.expectLine("suspended activity")
        _ = try client.post("hold", number: 1)
        #expect(try a.lines() == [], "\(service.transcript)")
        try desktop.activate("org.example.A")
        try a.expectLine("resumed activity")
        #expect(try a.lines() == ["got hold 1"])
        try b.expectLine("suspended activity")
        // One that can't be mapped takes the focus: nobody else has it.
        let c = try WindowProgram("C", on: desktop, control: client)
        try a.expectLine("suspended activity")
        #expect(try client.suspension(of: c.name) == "resumed none")
        a.send("Close")
        try a.expectLine("resumed none")
        try desktop.kill()
        try client.waitForActivity("lost")
    }

    @Test("A2: after a kill of the compositor, the service runs on and delivers to a client without a window")
    func killed() throws {
        let scene = try DesktopTests.Scene { try SwayDesktop(on: $0) }
        let desktop = try #require(scene.desktop as? SwayDesktop)
        try desktop.kill()
        try scene.client.waitForActivity("lost")
        let daemon = try Client(on: scene.bus)
        try daemon.addObserver("Ding")
        #expect(try daemon.post("Ding") == 1)
        try daemon.run("the post") { daemon.signals.count == 1 }
        #expect(scene.service.isRunning)
    }
}
