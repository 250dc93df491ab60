// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The client library's `followActivity(of:)` in a program with a window (`Tests/ToolkitWindow`), on a desktop of which
/// the service knows nothing: what counts is the application's own word.
@Suite("A1: activity reported by an application's toolkit", .serialized, .limited)
struct ToolkitTests {
    /// The exit code of the program where the toolkit is not installed.
    private static let notInstalled: Int32 = 77

    @Test(
        "A window that loses the focus suspends its program, which receives by its behaviors with the focus",
        arguments: ["gtk3", "gtk4", "gtk3-beside-4", "gtk4-beside-3", "sdl2"])
    func follow(toolkit: String) throws {
        let bus = try PrivateBus()
        let desktop = try X11Desktop(on: bus)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        func start(_ toolkit: String, _ title: String) throws -> RunningCommand {
            try self.start(toolkit, title, on: desktop)
        }
        let a = try start(toolkit, "A")
        defer { a.kill() }
        // A window that is shown late would take the focus from one that is shown first.
        try desktop.activate("A")
        let b = try start("gtk3", "B")
        defer { b.kill() }
        try desktop.activate("B")
        try eventually("A has lost the focus: \(a.transcript)") {
            let name = try client.listClients().first { $0.value == UInt32(a.pid) }?.key
            return try name.map { try client.suspension(of: $0) } == "suspended explicit"
        }

        for name in ["drop", "coalesce", "hold"] {
            for number in [1, 2, 3] as [Int64] { #expect(try client.post(name, number: number) == 2) }
        }
        try desktop.activate("A")
        var got: [String] = []
        var isResumed = false
        while !isResumed || got.count < 4 {
            let line = try a.nextLine()
            // What it said of itself before is of no account.
            if line == "resumed explicit" { isResumed = true } else if line.hasPrefix("got ") { got.append(line) }
        }
        #expect(got == ["got coalesce 3", "got hold 1", "got hold 2", "got hold 3"], "\(a.transcript)")

        // The fourth behavior: at once, behind what is held.
        try desktop.activate("B")
        _ = try a.nextLine { $0 == "suspended explicit" }
        for name in ["drop", "hold", "deliver-immediately"] { _ = try client.post(name, number: 4) }
        #expect(try a.nextLine() == "got hold 4", "\(a.transcript)")
        #expect(try a.nextLine() == "got deliver-immediately 4", "\(a.transcript)")
        withExtendedLifetime(service) {}
    }

    @Test(
        "A2: a program that has only windows that can't be active is never suspended",
        arguments: ["gtk3-popup", "gtk3-offscreen", "gtk3-dock", "gtk3-notification", "gtk3-unfocusable"])
    func neverActive(window: String) throws {
        let bus = try PrivateBus()
        let desktop = try X11Desktop(on: bus)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        let program = try start(window, "C", on: desktop)
        defer { program.kill() }
        let name = try #require(try client.listClients().first { $0.value == UInt32(program.pid) }?.key)
        // Where a window of that kind can get the focus it does.
        if window == "gtk3-dock" || window == "gtk3-notification" { try desktop.activate("C") }
        let (a, b) = (try start("gtk3", "A", on: desktop), try start("gtk3", "B", on: desktop))
        defer {
            a.kill()
            b.kill()
        }
        try desktop.activate("A")
        try desktop.activate("B")
        _ = try a.nextLine { $0 == "suspended explicit" }
        try desktop.activate("A")
        _ = try b.nextLine { $0 == "suspended explicit" }
        // It had as long as B, and longer.
        #expect(try client.suspension(of: name) == "resumed none", "\(program.transcript)")
        withExtendedLifetime(service) {}
    }

    private func start(_ toolkit: String, _ title: String, on desktop: X11Desktop) throws -> RunningCommand {
        let environment = desktop.environment.merging(["GSK_RENDERER": "cairo", "SDL_VIDEODRIVER": "x11"]) { $1 }
        let program = try RunningCommand(
            try Executables.path(of: "carillon-toolkit-window"), [toolkit, title], environment: environment)
        // One that delivers on a thread of its own may be told something before.
        let line = try program.nextLine(within: .desktop) { $0 == "ready" || $0.hasPrefix("unavailable") }
        guard line == "ready" else { try skip(program, because: line) }
        return program
    }

    private func skip(_ program: RunningCommand, because line: String) throws -> Never {
        guard try program.waitForExit() == .exited(Self.notInstalled) else {
            throw NotInTime("the program did not start: \(program.transcript)")
        }
        let comment: Comment = "skipped: \(line)"
        if ProcessInfo.processInfo.environment["CI"] == "true" { Issue.record(comment) }
        FileHandle.standardError.write(Data("\(comment)\n".utf8))
        try Test.cancel(comment)
    }
}
