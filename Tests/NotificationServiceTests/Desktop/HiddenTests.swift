// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// `inactive-when=hidden`: who can be seen is active, with the focus or without, on real desktops.
@Suite("A1: applications that are inactive when hidden", .serialized, .limited)
struct HiddenTests {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case openbox, i3, sway

        var testDescription: String { rawValue }
    }

    /// Two programs with a window each, "A" and "B", of which B came last and has the focus.
    private struct Scene {
        let kind: Kind
        let bus: PrivateBus
        let desktop: any Desktop
        let service: ServiceProcess
        let client: Client
        let a: WindowProgram
        let b: WindowProgram

        init(_ kind: Kind, _ configuration: String) throws {
            self.kind = kind
            bus = try PrivateBus()
            try bus.configure(configuration)
            switch kind {
            case .openbox: desktop = try X11Desktop(on: bus)
            case .i3: desktop = try X11Desktop(on: bus, manager: .i3)
            case .sway: desktop = try SwayDesktop(on: bus)
            }
            service = try ServiceProcess(on: bus, arguments: ["--verbose"], environment: desktop.environment)
            client = try Client(on: bus)
            a = try WindowProgram("A", on: desktop, control: client)
            try a.expectLine("resumed activity")
            b = try WindowProgram("B", on: desktop, control: client)
            try b.expectLine("resumed activity")
        }

        func run(_ command: String...) throws {
            let result = try Command.run(
                command[0], Array(command.dropFirst()), environment: desktop.environment)
            guard result.exitCode == 0 else { throw NotInTime("\(result)") }
        }

        /// What the workspace is called that is shown.
        func show(_ workspace: Int) throws {
            switch kind {
            case .openbox: try run("xdotool", "set_desktop", "\(workspace - 1)")
            case .i3: try run("i3-msg", "-q", "workspace \(workspace)")
            case .sway: try (desktop as? SwayDesktop)?.message("workspace \(workspace)")
            }
        }

        /// Hides the window of a program alone.
        func hide(_ title: String) throws {
            switch kind {
            case .openbox: try run("xdotool", "search", "--name", "^\(title)$", "windowminimize", "%@")
            case .i3: try run("i3-msg", "-q", "[title=\"^\(title)$\"] move scratchpad")
            case .sway: try (desktop as? SwayDesktop)?.message("[title=\"^\(title)$\"] move scratchpad")
            }
        }

        func restore(_ title: String) throws {
            switch kind {
            case .openbox: try run("xdotool", "search", "--name", "^\(title)$", "windowactivate", "%@")
            case .i3: try run("i3-msg", "-q", "[title=\"^\(title)$\"] scratchpad show")
            case .sway: try (desktop as? SwayDesktop)?.message("[title=\"^\(title)$\"] scratchpad show")
            }
        }

        func expect(_ program: WindowProgram, _ suspension: String, _ comment: String) throws {
            try eventually("\(comment): \(service.transcript)\n\(desktop.transcript)") {
                try client.suspension(of: program.name) == suspension
            }
        }

        /// Longer than an application is inactive before it is suspended.
        func expectActive(_ program: WindowProgram, _ comment: Comment) throws {
            letPass(.milliseconds(600), because: "it would be suspended")
            #expect(try client.suspension(of: program.name) == "resumed activity", comment)
        }
    }

    @Test(
        "A visible application is active without the focus, and a minimized one or one on a hidden workspace is not",
        arguments: Kind.allCases)
    func hidden(kind: Kind) throws {
        let scene = try Scene(kind, "[Activity]\ninactive-when=hidden\n")
        try scene.expectActive(scene.a, "it is seen beside B: \(scene.service.transcript)")
        #expect(try scene.client.post("hold", number: 1) == 2)
        try scene.a.expectLine("got hold 1")
        try scene.hide("A")
        try scene.expect(scene.a, "suspended activity", "A is hidden")
        #expect(try scene.client.post("hold", number: 2) == 2)
        try scene.restore("A")
        try scene.a.expectLine("got hold 2")
        try scene.expectActive(scene.b, "it is seen beside A")
        try scene.show(2)
        try scene.expect(scene.b, "suspended activity", "another workspace is shown")
        if kind == .openbox { try scene.expect(scene.a, "suspended activity", "another workspace is shown") }
        try scene.show(1)
        try scene.expect(scene.b, "resumed activity", "its workspace is shown")
        let reasons = try scene.client.call(Explain(scene.b.name, name: "hold"))
        #expect(reasons.first?.hasSuffix("now.") == true, "\(reasons)")
    }

    @Test("A window on another screen counts as visible without the focus")
    func screens() throws {
        let scene = try Scene(.sway, "[Activity]\ninactive-when=hidden\n")
        let sway = try #require(scene.desktop as? SwayDesktop)
        try sway.message("create_output")
        try sway.message("[title=\"^A$\"] move container to output HEADLESS-2")
        try sway.message("[title=\"^B$\"] focus")
        try scene.expectActive(scene.a, "it is on the other screen: \(scene.service.transcript)")
        try sway.message("[title=\"^A$\"] fullscreen enable")
        try scene.expectActive(scene.b, "it is on the other screen")
        try sway.message("[title=\"^A$\"] fullscreen disable")
        try sway.message("[title=\"^A$\"] move container to workspace 9")
        try scene.expect(scene.a, "suspended activity", "on a workspace that is not shown")
    }

    @Test("A configuration group for one program sets inactive-when for that program only")
    func one() throws {
        let scene = try Scene(.openbox, "[Activity]\ninactive-when=hidden\n")
        let name = try scene.client.call(GetClient(scene.a.name)).identity?.process ?? ""
        try scene.run("xdotool", "search", "--onlyvisible", "--name", "^B$", "windowactivate", "--sync")
        try scene.bus.configure("[Activity \(name)]\ninactive-when=unfocused\n[Activity]\ninactive-when=hidden\n")
        try scene.client.call(ReloadConfiguration())
        try scene.client.waitForActivity()
        try scene.desktop.activate("A")
        // The service has seen A active then, which is inactive only after that.
        try scene.expect(scene.b, "suspended activity", "it has not the focus")
        try scene.desktop.activate("B")
        try scene.expect(scene.a, "suspended activity", "it has not the focus")
        let reasons = try scene.client.call(Explain(scene.a.name, name: "hold"))
        #expect(reasons.contains { $0.contains("its application is not active") }, "\(reasons)")
        try scene.bus.configure("[Activity]\ninactive-when=hidden\n")
        try scene.client.call(ReloadConfiguration())
        try scene.expect(scene.a, "resumed activity", "it is seen")
        try scene.hide("A")
        try scene.expect(scene.a, "suspended activity", "it is hidden")
        let hidden = try scene.client.call(Explain(scene.a.name, name: "hold"))
        #expect(hidden.contains { $0.contains("no window of its application is visible") }, "\(hidden)")
    }

    @Test(
        "An invalid value of inactive-when, or a group without an application, is refused with its line",
        arguments: [
            ("[Activity]\ninactive-when=sometimes\n", "'sometimes' is not a value of inactive-when"),
            ("[Activity ]\ninactive-when=hidden\n", "names no application"),
            ("[Activity org.example.App]\nsource=none\n", "there is no key 'source' in [Activity org.example.App]"),
        ])
    func refused(configuration: String, message: String) throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try bus.configure(configuration)
        let error = #expect(throws: (any Error).self) { try client.call(ReloadConfiguration()) }
        #expect("\(String(describing: error))".contains(message), "\(String(describing: error))")
        #expect("\(String(describing: error))".contains(":2"), "the line: \(String(describing: error))")
        #expect(service.isRunning)
    }
}
