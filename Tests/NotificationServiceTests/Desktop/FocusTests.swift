// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Who can be active, and who is when no window has the focus (docs/activity.md), on real desktops.
@Suite("A1, A2: windows that decide the activity of applications", .serialized, .limited)
struct FocusTests {
    typealias Scene = DesktopTests.Scene

    private func expect(_ scene: Scene, _ program: WindowProgram, _ suspension: String) throws {
        try eventually("\(program.title) is \(suspension): \(scene.transcript)") {
            try scene.client.suspension(of: program.name) == suspension
        }
    }

    @Test("A2: an application that has only a panel is not suspended when its panel has lost the focus")
    func dock() throws {
        let scene = try Scene { try X11Desktop(on: $0) }
        let panel = try WindowProgram("Panel", on: scene.desktop, control: scene.client, arguments: ["--dock"])
        try scene.desktop.activate("Panel")
        try scene.b.expectLine("suspended activity")
        try scene.desktop.activate("B")
        try scene.b.expectLine("resumed activity")
        try scene.desktop.activate("A")
        try scene.b.expectLine("suspended activity")
        // B was inactive for as long, and later.
        #expect(try scene.client.suspension(of: panel.name) == "resumed none", scene.transcript)
    }

    @Test("A1: an application remains active while another process shows an active dialog for its window")
    func transient() throws {
        let scene = try Scene { try X11Desktop(on: $0) }
        let found = try Command.run(
            "xdotool", ["search", "--onlyvisible", "--name", "^B$"], environment: scene.desktop.environment)
        let window = try #require(found.standardOutput.split(separator: "\n").first)
        let chooser = try WindowProgram(
            "Chooser", on: scene.desktop, control: scene.client, arguments: ["--transient-for", String(window)])
        try chooser.expectLine("resumed activity")
        // It was active, and A is inactive for longer than a moment in which B would be told.
        try scene.desktop.activate("A")
        try chooser.expectLine("suspended activity")
        try scene.b.expectLine("suspended activity")
        try scene.desktop.activate("Chooser")
        try scene.a.expectLine("suspended activity")
        #expect(try scene.client.suspension(of: scene.b.name) == "resumed activity", scene.transcript)
        #expect(try scene.client.suspension(of: chooser.name) == "resumed activity", scene.transcript)
        chooser.send("Close")
        try chooser.expectLine("resumed none")
    }

    @Test(
        "A1: an empty workspace has no active application, and a focused container has that of its window",
        arguments: ["i3", "sway"])
    func containers(kind: String) throws {
        let scene = try Scene { bus -> any Desktop in
            if kind == "sway" { return try SwayDesktop(on: bus) }
            return try X11Desktop(on: bus, manager: .i3)
        }
        func message(_ command: String) throws {
            if let sway = scene.desktop as? SwayDesktop { return try sway.message(command) }
            let result = try Command.run("i3-msg", ["-q", command], environment: scene.desktop.environment)
            guard result.exitCode == 0 else { throw NotInTime("\(result)") }
        }
        for _ in 1...3 {
            try message("workspace 2")
            try expect(scene, scene.b, "suspended activity")
            try message("workspace 1")
            try expect(scene, scene.b, "resumed activity")
        }
        try message("splitv")
        try message("focus parent")
        letPass(.milliseconds(600), because: "B would be suspended: it is, a moment later, on an empty workspace")
        #expect(try scene.client.suspension(of: scene.b.name) == "resumed activity", scene.transcript)
        #expect(try scene.client.suspension(of: scene.a.name) == "suspended activity", scene.transcript)
        try message("workspace 2")
        try expect(scene, scene.b, "suspended activity")
        try message("workspace 1")
        try expect(scene, scene.b, "resumed activity")
    }

    @Test(
        "A1: no application is active while the screen is locked, and the focused one is active after unlocking",
        arguments: [true, false])
    func swayLock(byProcess: Bool) throws {
        try DesktopSupport.require(["swaylock"])
        let bus = try PrivateBus()
        let desktop = try SwayDesktop(on: bus)
        let source = byProcess ? "sway" : "wlr-foreign-toplevel"
        let service = try ServiceProcess(
            on: bus, arguments: ["--verbose"],
            environment: desktop.environment.merging(byProcess ? [:] : ["SWAYSOCK": ""]) { $1 })
        let client = try Client(on: bus)
        try client.waitForActivity()
        #expect(try client.property(.activitySource) == source)
        let a = try WindowProgram("org.example.A", on: desktop, control: client, arguments: ["--own-name"])
        try a.expectLine("resumed activity")
        let locker = try RunningCommand("swaylock", ["--color", "000000"], environment: desktop.environment)
        defer { locker.kill() }
        do {
            try a.expectLine("suspended activity")
        } catch {
            throw NotInTime("\(error)\n\(locker.transcript)\n\(service.transcript)")
        }
        try eventually("it can be asked to unlock: \(locker.transcript)", within: .start) {
            try ProcessState.handles(SIGUSR1, locker.pid)
        }
        locker.signal(SIGUSR1)
        _ = locker.exit(within: .work(.seconds(1), because: "a locker that takes no such signal is ended"))
        locker.terminate()
        try a.expectLine("resumed activity")
    }

    @Test("A1: only the owner of the screen saver's bus name can report that the screen is locked")
    func screenSaver() throws {
        let scene = try Scene { try X11Desktop(on: $0) }
        let saver = try Client(on: scene.bus)
        func tell(_ isActive: Bool) throws {
            let message = Message.signal(
                to: nil, path: "/org/freedesktop/ScreenSaver", interface: "org.freedesktop.ScreenSaver",
                member: "ActiveChanged")
            var writer = MessageWriter(message)
            writer.append(isActive)
            saver.connection.send(message)
            _ = try saver.processID(of: "org.freedesktop.DBus")
        }
        try tell(true)
        _ = try scene.client.property(.version)
        var result: Result<NameRequest, BusError>?
        saver.connection.requestName("org.freedesktop.ScreenSaver") { result = $0 }
        try saver.run("the name") { result != nil }
        #expect(try scene.client.suspension(of: scene.b.name) == "resumed activity")
        // The service has to have heard of the name first.
        try eventually("B is suspended: \(scene.transcript)") {
            try tell(true)
            return try scene.client.suspension(of: scene.b.name) == "suspended activity"
        }
        // Behind the lock screen.
        try scene.desktop.activate("A")
        #expect(try scene.client.suspension(of: scene.a.name) == "suspended activity")
        try tell(false)
        try expect(scene, scene.a, "resumed activity")
        try tell(true)
        try expect(scene, scene.a, "suspended activity")
        // One that is gone locks nothing.
        saver.connection.releaseName("org.freedesktop.ScreenSaver") { _ in }
        _ = try saver.processID(of: "org.freedesktop.DBus")
        try expect(scene, scene.a, "resumed activity")
    }

    @Test("A1, D1: the client whose call activates the service is followed, and provides the session's display")
    func firstCall() throws {
        let bus = try PrivateBus(activations: [try .service()])
        let desktop = try X11Desktop(on: bus, cookie: true)
        // Calls nothing.
        let client = try Client(on: bus)
        let a = try WindowProgram("A", on: desktop, control: client)
        defer { if let pid = try? bus.processID(ofOwner: ServiceProcess.busName) { kill(pid, SIGTERM) } }
        try a.expectLine("resumed activity")
        let b = try WindowProgram("B", on: desktop, control: client)
        try b.expectLine("resumed activity")
        try a.expectLine("suspended activity")
        #expect(try client.property(.activitySource) == "x11")
    }

    @Test("A2: a sway that does not respond is detected, suspended clients resume, and sway is followed again later")
    func stuckSway() throws {
        let scene = try Scene { try SwayDesktop(on: $0) }
        let desktop = try #require(scene.desktop as? SwayDesktop)
        try scene.post("hold", 1)
        try desktop.stop()
        defer { desktop.goOn() }
        try scene.client.waitForActivity("lost")
        try scene.a.expectLine("resumed none")
        #expect(try scene.a.lines() == ["got hold 1"])
        #expect(try scene.client.property(.activityReason).contains("SWAYSOCK"))
        desktop.goOn()
        try scene.client.waitForActivity()
    }
}
