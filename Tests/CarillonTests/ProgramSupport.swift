// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation
import Glibc

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
        if start == .later, service == nil {
            _ = try program.nextErrorLine { $0.contains("no notification center on the bus") }
            service = try ServiceProcess(on: bus)
        }
        _ = try program.nextLine { $0.hasPrefix(line) }
        try eventually("\(registered) registrations: \(program.transcript)") {
            // Asking must not be what starts the service.
            try bus.processID(ofOwner: ServiceProcess.busName) != nil
                && observerCounts(on: bus).reduce(0, +) == before + registered
        }
        return program
    }

    /// The bus, and the service unless the bus started it.
    var processes: [pid_t] { [bus.pid] + (service.map { [$0.pid] } ?? []) }

    /// Waits until the service has suspended, or resumed, the program: it says so to the service, and goes on.
    func waitUntilSuspended(_ isSuspended: Bool, _ program: RunningCommand) throws {
        try eventually("suspended is \(isSuspended): \(program.transcript)") {
            try gdbusCall("ListClients", on: bus).contains(
                try Regex("'pid': <uint32 \(program.pid)>[^}]*'suspended': <\(isSuspended)>"))
        }
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
