// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Desktops that report over the bus, played by this process: it owns their names.
@Suite("A3: desktops that report over the bus", .serialized, .limited)
struct ReportTests {
    /// A client that owns a desktop's name, and notes what it is asked.
    final class Shell {
        let client: Client
        private(set) var asked: [String] = []

        init(_ name: WellKnownName, on bus: PrivateBus) throws {
            client = try Client(on: bus)
            client.connection.onMessage = { [unowned self] message in
                if ActivityInterface.ReportRequested(message) != nil { asked.append("ReportRequested") }
                guard message.kind == .methodCall, message.hasInterface("org.kde.kwin.Scripting") else { return false }
                var reader = MessageReader(message)
                let reply = message.methodReturn()
                switch message.member {
                case "loadScript":
                    let path = try? reader.readString()
                    asked.append(
                        "loadScript \(path.flatMap { try? String(contentsOfFile: $0, encoding: .utf8) } ?? "")")
                    var writer = MessageWriter(reply)
                    writer.append(Int32(0))
                case "isScriptLoaded":
                    var writer = MessageWriter(reply)
                    writer.append(true)
                default: asked.append(message.member?.rawValue ?? "")
                }
                if !message.expectsNoReply { client.connection.send(reply) }
                return true
            }
            var result: Result<NameRequest, BusError>?
            client.connection.requestName(name) { result = $0 }
            try client.run("the name") { result != nil }
        }

        func run(until what: String) throws {
            try client.run(what) { asked.contains { $0.hasPrefix(what) } }
        }

        /// Reports the focus, as the extension and the script do.
        func focus(_ window: String, pid: Int32, application: String = "") throws {
            try report(ActivityInterface.Focused(window: window, processID: pid, application: application))
        }

        func close(_ window: String) throws { try report(ActivityInterface.Closed(window: window)) }

        private func report(_ report: some ActivityReport) throws {
            _ = try client.send(report.call(to: Wire.busName))
        }
    }

    private static let accessDenied: InterfaceName = "org.freedesktop.DBus.Error.AccessDenied"

    @Test(
        "Only reports of the desktop are followed, and activity is lost when the desktop leaves",
        arguments: [
            ("org.gnome.Shell", "gnome", "GNOME", "ReportRequested"), ("org.kde.KWin", "kwin", "KDE", "start"),
        ])
    func reports(name: String, kind: String, desktop: String, asked: String) throws {
        let bus = try PrivateBus()
        let shell = try Shell(try #require(WellKnownName(rawValue: name)), on: bus)
        // A process that has a window: this one can't be it, as it is the desktop.
        let program = try RunningCommand("sleep", ["1000"], environment: bus.environment)
        let service = try ServiceProcess(
            on: bus, environment: ["XDG_SESSION_TYPE": "wayland", "XDG_CURRENT_DESKTOP": desktop])
        try shell.run(until: asked)
        let client = try Client(on: bus)
        try client.addObserver("Ding", behavior: .hold)
        #expect(try client.property(.activitySource) == kind)
        #expect(try client.property(.activityState) == "waiting")

        try shell.focus("1", pid: program.pid)
        #expect(try client.property(.activityState) == "following")
        // The desktop's own process is never suspended, and all clients here are in it.
        try shell.focus("2", pid: getpid())
        try shell.focus("1", pid: program.pid)
        #expect(try client.suspension(of: client.name) == "resumed none")
        try shell.close("1")

        // Somebody else.
        let stranger = try Shell("org.example.Stranger", on: bus)
        let error = #expect(throws: BusError.self) { try stranger.focus("1", pid: 1) }
        #expect(error?.name == Self.accessDenied)

        shell.client.connection.send(
            Message.methodCall(
                to: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
                member: "ReleaseName"
            ).with(name))
        _ = try shell.client.processID(of: "org.freedesktop.DBus")
        try client.waitForActivity("lost")
        let late = #expect(throws: BusError.self) { try shell.focus("1", pid: program.pid) }
        #expect(late?.name == Self.accessDenied)
        #expect(service.isRunning)
    }

    @Test("KWin's script calls the service by its unique name, and is unloaded when the source is switched off")
    func script() throws {
        let bus = try PrivateBus()
        let shell = try Shell("org.kde.KWin", on: bus)
        let service = try ServiceProcess(
            on: bus, environment: ["XDG_SESSION_TYPE": "wayland", "XDG_CURRENT_DESKTOP": "KDE"])
        try shell.run(until: "start")
        let script = try #require(shell.asked.first { $0.hasPrefix("loadScript") })
        let line = try service.nextLogLine { $0.contains("serving org.carillon") }
        let name = try #require(line.split(separator: " ").last)
        #expect(script.contains("\"\(name)\""))
        #expect(shell.asked.first == "unloadScript", "that of an earlier process")
        try bus.configure("[Activity]\nsource=none\n")
        try shell.client.call(ReloadConfiguration())
        try shell.client.run("the script is unloaded") { shell.asked.filter { $0 == "unloadScript" }.count == 2 }
    }

    @Test("A service whose desktop is not on the bus runs on and logs the missing name")
    func missing() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(
            on: bus, environment: ["XDG_SESSION_TYPE": "wayland", "XDG_CURRENT_DESKTOP": "GNOME"])
        let client = try Client(on: bus)
        try client.waitForActivity("lost")
        try service.waitForLog("org.gnome.Shell is not on the bus")
    }

    @Test("The introspection of the interface for reports equals its XML file")
    func introspection() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        let message = Message.methodCall(
            to: Wire.busName, path: "/org/carillon/Activity", interface: "org.freedesktop.DBus.Introspectable",
            member: "Introspect")
        var reader = MessageReader(try client.send(message))
        let actual = try elements(of: reader.readString())
        let file = Executables.packageRoot + "/dbus-interfaces/org.carillon.Activity1.xml"
        let documented = try elements(of: String(contentsOfFile: file, encoding: .utf8))
        #expect(!documented.isEmpty)
        #expect(actual == documented)
        withExtendedLifetime(service) {}
    }

    /// The elements of our interface, without comments and layout.
    private func elements(of document: String) throws -> [String] {
        let text = document.replacing(/<!--(.|\n)*?-->/, with: "")
        let interface = try #require(text.firstMatch(of: /<interface name="org.carillon[^>]*>(.|\n)*?<\/interface>/))
        return String(interface.0).matches(of: /<[^>]+>/).flatMap { match -> [String] in
            let words = String(match.0).dropFirst().dropLast().replacing("/", with: "").split(separator: " ")
            return words.isEmpty ? [] : [words.sorted().joined(separator: " ")]
        }.filter { !["method", "signal", "interface"].contains($0) }
    }
}

extension Message {
    fileprivate func with(_ argument: String) -> Message {
        var writer = MessageWriter(self)
        writer.append(argument)
        return self
    }
}
