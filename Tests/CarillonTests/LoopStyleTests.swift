// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// A way of running a program.
enum LoopStyle: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case glib
    case runLoop = "run-loop"
    case dispatchMain = "dispatch-main"
    case none

    var testDescription: String { rawValue }
    var hasMainLoop: Bool { self != .none }
    /// With `dispatchMain()` the main thread ends, and other threads run the main queue.
    var mainThread: String { self == .glib || self == .runLoop ? "main" : "other" }

    /// The program of `Examples/swift`.
    var example: String {
        switch self {
        case .glib: "carillon-example-glib-loop"
        case .runLoop: "carillon-example-run-loop"
        case .dispatchMain: "carillon-example-dispatch-main"
        case .none: "carillon-example-no-loop"
        }
    }

    /// What it prints for report.txt with bytes=4711.
    static let saved = "com.example.Saved report.txt bytes=4711"
}

@Suite("The four loop styles, each in a process of its own (D1, M4, M5)", .limited)
struct LoopStyleTests {
    @Test(
        "The example programs receive posted notifications",
        arguments: LoopStyle.allCases, Stage.Start.allCases)
    func example(style: LoopStyle, start: Stage.Start) throws {
        try expectExample(style, on: Stage(start))
    }

    @Test(
        "On dbus-broker without activation, the example programs register with a service that starts later",
        .enabled(if: BusKind.available.contains(.dbusBroker), "there is no dbus-broker"), arguments: LoopStyle.allCases)
    func broker(style: LoopStyle) throws {
        try expectExample(style, on: Stage(.later, .dbusBroker))
    }

    private func expectExample(_ style: LoopStyle, on stage: Stage) throws {
        let program = try stage.program(style.example, registered: 1)
        // Another name, and then a notification for it.
        try stage.post("com.example.Other", "bytes=1")
        try stage.post("com.example.Saved", "--object", "report.txt", "bytes=4711")
        #expect(try program.nextLine() == LoopStyle.saved, "\(program.transcript)")
        program.terminate()
        #expect(
            program.standardError.isEmpty || stage.bus.kind == .dbusBroker
                || program.standardError.contains("no notification center"), "\(program.transcript)")
    }

    @Test("Every kind of observer runs on its thread in each loop style", arguments: LoopStyle.allCases)
    func where_(style: LoopStyle) throws {
        let stage = try Stage()
        let program = try stage.program("carillon-loop-probe", style.rawValue, registered: 2)
        // More than one: the loop is woken again.
        for round in 1...3 {
            try stage.post("com.example.Ring", "--object", "\(round)")
            let main = style.mainThread
            var expected: Set<String> = [
                "block thread=\(main) object=\(round)", "method thread=\(main) ",
                "operation thread=other current=true", "sequence thread=other object=\(round)",
            ]
            if style.hasMainLoop {
                expected.formUnion([
                    "isolated thread=\(main) in=block", "isolated thread=\(main) in=main", "dispatch thread=\(main) ",
                    "actor thread=\(main) ", "main-method thread=\(main) ",
                    // Foundation knows its main queue by the main thread.
                    "main thread=\(main) current=\(main == "main")",
                ])
            }
            var seen: Set<String> = []
            while seen != expected {
                let line = try program.nextLine()
                if line.hasPrefix("state ") { continue }
                try #require(expected.contains(line), "\(line)\n\(program.transcript)")
                seen.insert(line)
            }
        }
        try stage.post("com.example.Quit")
        #expect(try program.waitForExit().code == 0, "\(program.transcript)")
        // A program whose loop returns goes on behind it.
        #expect(program.standardOutput.hasSuffix("ended\n") == (style == .glib || style == .none))
    }

    @Test("The program receives the connection state when the service is unavailable and when it starts")
    func state() throws {
        let stage = try Stage(.later)
        // The service comes when the program has said that there is none.
        let program = try stage.program(
            "carillon-loop-probe", "glib", untilLine: "state thread=main is=serviceUnavailable", registered: 2)
        let line = try program.nextLine()
        #expect(line.hasPrefix("state thread=main is=connected"), "\(program.transcript)")
        program.terminate()
    }
}

/// The subject of these tests is time, so they wait. The programs are the examples, which start no tasks and operations:
/// those make libdispatch look at its threads every second.
@Suite("Sleep of idle programs", .serialized, .limited)
struct IdleProgramTests {
    @Test("An idle program has no wake-ups and uses no processor time", arguments: LoopStyle.allCases)
    func asleep(style: LoopStyle) throws {
        let stage = try Stage()
        let program = try stage.program(style.example, registered: 1)
        // It has run observers, so everything that is made on demand is there.
        let post = {
            try stage.post("com.example.Saved", "--object", "report.txt", "bytes=4711")
        }
        try post()
        #expect(try program.nextLine() == LoopStyle.saved, "\(program.transcript)")
        try expectSleep(of: program, beside: stage.processes, thenWakenBy: post)
    }

    @Test(
        "A program that waits for an absent service has no wake-ups and uses no processor time",
        arguments: LoopStyle.allCases)
    func withoutService(style: LoopStyle) throws {
        let bus = try PrivateBus()
        let program = try RunningCommand(
            try Executables.path(of: style.example), environment: bus.environment)
        _ = try program.nextErrorLine { $0.contains("no notification center on the bus") }
        let service = Once()
        try expectSleep(of: program, beside: [bus.pid]) { try service.run { try ServiceProcess(on: bus) } }
    }

    private func expectSleep(
        of program: RunningCommand, beside others: [pid_t], thenWakenBy waken: () throws -> Void
    ) throws {
        let (before, after) = try Wakefulness.overASecond(of: program.pid, beside: others)
        #expect(after == before, "\(program.transcript)")
        // The measure is one.
        try waken()
        try eventually("an event shows in the measure: \(program.transcript)") {
            try Wakefulness(of: program.pid).switches > before.switches
        }
    }
}

/// Keeps what was made once.
private final class Once {
    private var service: ServiceProcess?

    func run(_ make: () throws -> ServiceProcess) rethrows {
        service = try make()
    }
}
