import Foundation
import TestSupport

/// What the service costs when nothing happens, and until it first answers.
struct ServiceFigures {
    /// Milliseconds until the answer to a call that makes the bus start the service, and to the next call.
    private(set) var firstCall: [Double] = []
    private(set) var nextCall: [Double] = []
    /// How often a thread of the service woke up within ``seconds`` at rest.
    private(set) var wakeUps = 0
    static let seconds = 5.0
    /// MiB, with one observer.
    private(set) var resident = 0.0
    private(set) var ownMemory = 0.0

    init() throws {
        let program = try Executables.path(of: "bus-load")
        for _ in 0..<Lab.rounds {
            let bus = try PrivateBus(activations: [.service()])
            let result = try Command.run(program, ["call"], environment: bus.environment)
            let fields = Fields(result.standardOutput.trimmingCharacters(in: .newlines))
            firstCall.append(fields["first"] / 1e6)
            nextCall.append(fields["second"] / 1e6)
        }
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let observer = try RunningCommand(program, ["observe", "org.carillon.Bench"], environment: bus.environment)
        _ = try observer.nextLine { $0.hasPrefix("ready") }
        Thread.sleep(forTimeInterval: 1)
        let before = try ProcessFigures.wakeUps(of: service.pid)
        Thread.sleep(forTimeInterval: Self.seconds)
        wakeUps = try ProcessFigures.wakeUps(of: service.pid) - before
        resident = Double(try service.residentBytes()) / Double(1 << 20)
        ownMemory = Double(try ProcessMemory.anonymousBytes(of: service.pid)) / Double(1 << 20)
    }
}

/// What the kernel counts for a process.
enum ProcessFigures {
    /// Seconds of processor time, in user and in system mode.
    static func processorTime(of pid: pid_t) throws -> Double {
        let status = try String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)
        // The fields behind the name, which is in parentheses and may hold anything.
        let fields = status[status.lastIndex(of: ")")!...].split(separator: " ")
        let ticks = (Double(fields[12]) ?? .nan) + (Double(fields[13]) ?? .nan)
        return ticks / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    /// How often a thread of it stopped waiting for something.
    static func wakeUps(of pid: pid_t) throws -> Int {
        let tasks = "/proc/\(pid)/task"
        return try FileManager.default.contentsOfDirectory(atPath: tasks).reduce(0) { sum, task in
            let status = try String(contentsOfFile: "\(tasks)/\(task)/status", encoding: .utf8)
            let line = status.split(separator: "\n").first { $0.hasPrefix("voluntary_ctxt_switches:") }
            return sum + (line?.split(separator: "\t").last.flatMap { Int($0) } ?? 0)
        }
    }
}
