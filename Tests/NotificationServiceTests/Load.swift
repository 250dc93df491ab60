// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation

/// A service on a bus, with observers and posters that are processes of their own (`carillon-bus-load`).
final class Load {
    /// How many notifications the tests post: the environment variable `CARILLON_LOAD`, or what a debug build does in a
    /// few seconds and is still more than a queue holds.
    static let count = ProcessInfo.processInfo.environment["CARILLON_LOAD"].flatMap(Int.init) ?? 16_000
    /// The burst of rule D3; of that size where optimised programs post as many.
    static let burst = min(count, 100_000)
    /// Such a burst of a poster that waits for no answer. Each of them takes 1.2 KB while it waits in the service, which keeps
    /// 112 MiB of one process: all of them, if it does not get to serve any before the last has come.
    static let unpacedBurst = min(count, 80_000)
    /// What ``FloodTests`` posts.
    static let flood = min(count, 100_000)
    static let size = 300

    let bus: PrivateBus
    let service: ServiceProcess
    private let program: String

    /// - Parameter limits: what stands in the configuration file under `[Limits]`, if anything.
    init(_ kind: BusKind, limits: [String: Int] = [:]) throws {
        program = try Executables.path(of: "carillon-bus-load")
        bus = try PrivateBus(kind)
        if !limits.isEmpty {
            let lines = ["[Limits]"] + limits.map { "\($0.key)=\($0.value)" }
            try bus.configure(lines.joined(separator: "\n") + "\n")
        }
        service = try ServiceProcess(on: bus)
    }

    /// Starts an observer and returns when it is registered.
    func observer(_ name: String = "load") throws -> Observer {
        let command = try start(["observe", name])
        let line = try command.nextLine(within: .start) { $0.hasPrefix("ready") }
        return Observer(command, uniqueName: String(line.dropFirst("ready ".count)))
    }

    /// Starts an observer, stops it, and returns when it is registered and stopped.
    func stoppedObserver() throws -> Observer {
        let observer = try observer()
        try observer.stop()
        return observer
    }

    /// Starts an observer that stops itself before it reads anything that follows its registration.
    func observerThatNeverAnswered() throws -> Observer {
        let command = try start(["observe", "load", "--stop"])
        try eventually("it has stopped") { try ProcessState.isStopped(command.pid) }
        return Observer(command, uniqueName: nil)
    }

    /// Posts and returns when the last post was answered.
    ///
    /// - Parameter meanwhile: called again and again.
    /// - Returns: the most memory that bus and service had meanwhile, above what they had before.
    func post(
        _ count: Int = Load.count, arguments: [String] = [], size: Int = Load.size, meanwhile: () throws -> Void = {}
    ) throws -> Growth {
        let before = try Growth(bus: bus.residentBytes(), service: service.residentBytes())
        let poster = try start(["post", "load", "--count", "\(count)", "--size", "\(size)"] + arguments)
        var most = before
        try eventually("all are posted: \(service.transcript)", within: .load, every: .milliseconds(20)) {
            most = try Growth(
                bus: max(most.bus, bus.residentBytes()), service: max(most.service, service.residentBytes()))
            try meanwhile()
            return !poster.isRunning
        }
        guard poster.status == .exited(0) else { throw NotInTime(poster.transcript) }
        return Growth(bus: most.bus - before.bus, service: most.service - before.service)
    }

    /// A measurement for people, where tests print.
    func note(_ test: String, _ growth: Growth) {
        let figures = "the bus grew by \(growth.bus >> 10) KiB, the service by \(growth.service >> 10) KiB"
        Self.note("\(test), \(bus.kind): \(figures)")
    }

    static func note(_ text: String) {
        FileHandle.standardError.write(Data("load: \(text)\n".utf8))
    }

    private func start(_ arguments: [String]) throws -> RunningCommand {
        try RunningCommand(program, arguments, environment: bus.environment)
    }

    /// Resident memory in bytes.
    struct Growth {
        var bus: Int
        var service: Int
    }
}

extension Patience {
    /// A load with as many posts as continuous integration makes.
    static let load = work(.seconds(600), because: "\(Load.count) posts")
}

/// A process that observes, and reports at the end.
final class Observer {
    let uniqueName: String?
    private let command: RunningCommand

    init(_ command: RunningCommand, uniqueName: String?) {
        self.command = command
        self.uniqueName = uniqueName
    }

    func stop() throws { try ProcessState.stop(command.pid) }
    func resume() { command.signal(SIGCONT) }

    /// What it reports at the end of the load.
    func report() throws -> Report {
        Report(try command.nextLine(within: .load) { $0.hasPrefix("received=") })
    }
}

/// The line that an observer prints at the end.
struct Report: CustomStringConvertible {
    let description: String
    private let fields: [Substring: Int]

    init(_ line: String) {
        description = line
        var fields: [Substring: Int] = [:]
        for word in line.split(separator: " ") {
            let parts = word.split(separator: "=")
            if parts.count == 2 { fields[parts[0]] = Int(parts[1]) }
        }
        self.fields = fields
    }

    private func field(_ name: Substring) -> Int { fields[name] ?? -1 }

    var received: Int { field("received") }
    /// What the service said was lost.
    var dropped: Int { field("dropped") }
    /// The sequence number of the notification that ends a load.
    var sequence: Int { field("sequence") }
    /// The poster's own number of the last notification, from 0.
    var last: Int { field("last") }
    /// Holes that were not announced, and order that was not kept.
    var faults: Int { field("faults") }
}
