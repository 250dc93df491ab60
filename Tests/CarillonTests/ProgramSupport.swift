import Foundation
import Glibc
import TestSupport

/// A private bus on which a test runs programs, and posts to them.
final class Stage {
    /// Where the service comes from.
    enum Start: String, CaseIterable, Sendable {
        /// The bus starts it when the program asks for it.
        case activation
        /// It runs before the program.
        case before
        /// It comes when the program waits for it already; the bus has no activation.
        case later
    }

    let bus: PrivateBus
    private var service: ServiceProcess?
    private let start: Start

    init(_ start: Start = .before, _ kind: BusKind = .dbusDaemon) throws {
        self.start = start
        bus = try PrivateBus(kind, activations: start == .activation ? [.service()] : [])
        if start == .before { service = try ServiceProcess(on: bus) }
    }

    deinit {
        // What the bus started is not a child of this process.
        if start == .activation, let pid = try? bus.processID(ofOwner: ServiceProcess.busName) { kill(pid, SIGTERM) }
    }

    /// Runs a program of this package until it has printed `line`, and, unless told otherwise, has registered its
    /// observers with the service, which starts meanwhile where the test wants it so.
    func program(
        _ name: String, _ arguments: String..., untilLine line: String = "observing", registered: Int
    ) throws -> RunningCommand {
        let before = start == .before ? try observerCounts(on: bus).reduce(0, +) : 0
        let program = try RunningCommand(try Executables.path(of: name), arguments, environment: bus.environment)
        _ = try program.nextLine { $0.hasPrefix(line) }
        if start == .later, service == nil { service = try ServiceProcess(on: bus) }
        try eventually("\(registered) registrations: \(program.transcript)") {
            // Asking must not be what starts the service.
            try bus.processID(ofOwner: ServiceProcess.busName) != nil
                && observerCounts(on: bus).reduce(0, +) == before + registered
        }
        return program
    }

    /// Runs `carillon post`.
    func post(_ arguments: String...) throws {
        let result = try Command.run(
            try Executables.path(of: "carillon"), ["post"] + arguments, environment: bus.environment)
        guard result.exitCode == 0 else { throw NotInTime("\(result)") }
    }

    /// Runs a program of this package to its end.
    func run(_ name: String, _ arguments: String...) throws -> CommandResult {
        try Command.run(try Executables.path(of: name), arguments, environment: bus.environment)
    }
}

/// How often the threads of a process went to sleep, and the processor time that they used, in clock ticks.
struct Wakefulness: Equatable {
    let switches: Int
    let ticks: Int

    init(of pid: pid_t) throws {
        let tasks = "/proc/\(pid)/task"
        switches = try FileManager.default.contentsOfDirectory(atPath: tasks).reduce(0) { sum, task in
            // A thread that ends while it is looked at.
            guard let status = try? String(contentsOfFile: "\(tasks)/\(task)/status", encoding: .utf8),
                let count = status.firstMatch(of: /\nvoluntary_ctxt_switches:\s*(\d+)/)
            else { return sum }
            return sum + (Int(count.1) ?? 0)
        }
        let stat = try String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)
        // Behind the name in parentheses, which may hold anything: fields 14 and 15 are the times.
        let fields = stat[(stat.lastIndex(of: ")") ?? stat.startIndex)...].split(separator: " ")
        ticks = (Int(fields[12]) ?? 0) + (Int(fields[13]) ?? 0)
    }

    /// What it is once the process has come to rest.
    static func settled(of pid: pid_t) throws -> Wakefulness {
        var last: Wakefulness?
        try eventually("process \(pid) comes to rest", every: .milliseconds(200)) {
            defer { last = try? Wakefulness(of: pid) }
            return try Wakefulness(of: pid) == last
        }
        return last!
    }
}
