import Foundation
import TestSupport

/// A bus with a service, on which loads are run.
final class Lab {
    static let rounds = 3
    private static let size = 100
    private static let deliveries = [1: 30_000, 10: 60_000, 50: 60_000]
    private static let rate = 500
    private static let latencyPosts = 1_000

    private let kind: BusKind
    private let bus: PrivateBus
    private let service: ServiceProcess
    private let program: String

    init(_ kind: BusKind) throws {
        self.kind = kind
        program = try Executables.path(of: "bus-load")
        bus = try PrivateBus(kind)
        service = try ServiceProcess(on: bus)
    }

    func measure(_ measurements: inout Measurements) throws {
        let transport = measurements.transport
        for observers in Measurements.observers {
            let result = try run(transport, observers: observers, count: Self.deliveries[observers]! / observers)
            measurements.throughput[observers, default: []].append(result.deliveriesPerSecond)
            measurements.serverTime[observers, default: []].append(result.serverTime * 10_000 / result.received)
            measurements.totalTime[observers, default: []].append(
                (result.serverTime + result.clientTime) * 10_000 / result.received)
            measurements.lost += result.lost
        }
        for registrations in Measurements.registrations {
            let result = try run(transport, others: registrations - 1, count: registrations > 5_000 ? 3_000 : 10_000)
            measurements.selective[registrations, default: []].append(result.deliveriesPerSecond)
            measurements.lost += result.lost
        }
        let result = try run(transport, count: Self.latencyPosts, rate: Self.rate)
        measurements.latency50.append(result.latency50 / 1000)
        measurements.latency99.append(result.latency99 / 1000)
    }

    /// Memory, on a bus and with a service for each transport that have done nothing before.
    func finish(_ measurements: inout [Measurements]) throws {
        for index in measurements.indices {
            let lab = try Lab(kind)
            let isCenter = measurements[index].transport == .center
            measurements[index].idleMemory = try lab.memory(withService: isCenter)
            _ = try lab.run(measurements[index].transport, observers: 10, count: 10_000)
            measurements[index].loadedMemory = try lab.memory(withService: isCenter)
        }
    }

    private func memory(withService: Bool) throws -> Double {
        let bytes = try bus.residentBytes() + (withService ? service.residentBytes() : 0)
        return Double(bytes) / Double(1 << 20)
    }

    // MARK: One load

    private struct Result {
        var received = 0.0
        var lost = 0
        var deliveriesPerSecond = 0.0
        /// Processor seconds.
        var serverTime = 0.0
        var clientTime = 0.0
        /// Nanoseconds.
        var latency50 = 0.0
        var latency99 = 0.0
    }

    private func run(
        _ transport: Transport, observers: Int = 1, others: Int = 0, count: Int, rate: Int = 0
    ) throws -> Result {
        let name = "org.carillon.Bench"
        let common = transport.arguments + ["--rate", "\(rate)"]
        let commands = try (0..<observers).map { _ in
            try RunningCommand(
                program, ["observe", name, "--others", "\(others)"] + common, environment: bus.environment)
        }
        for command in commands { _ = try command.nextLine(within: .seconds(60)) { $0.hasPrefix("ready") } }

        let serverBefore = try processorTime()
        let poster = try RunningCommand(
            program, ["post", name, "--count", "\(count)", "--size", "\(Self.size)"] + common,
            environment: bus.environment)
        let reports = try commands.map { command in
            Fields(try command.nextLine(within: .seconds(60)) { $0.hasPrefix("received=") })
        }
        let posted = Fields(try poster.nextLine { $0.hasPrefix("posted=") })
        // An end that was lost shows in the deliveries, not in an endless wait.
        _ = try poster.waitForExit()

        var result = Result()
        result.serverTime = try processorTime() - serverBefore
        result.received = reports.reduce(0) { $0 + $1["received"] }
        result.lost = observers * count - Int(result.received)
        result.clientTime = (reports.reduce(posted["cpu-us"]) { $0 + $1["cpu-us"] }) / 1e6
        let first = posted["first-at"]
        let last = reports.map { $0["last-at"] }.max() ?? first
        result.deliveriesPerSecond = result.received / ((last - first) / 1e9)
        result.latency50 = median(reports.map { $0["p50"] })
        result.latency99 = median(reports.map { $0["p99"] })
        return result
    }

    /// Processor seconds that bus and service used so far.
    private func processorTime() throws -> Double {
        try [bus.pid, service.pid].reduce(0) { try $0 + ProcessFigures.processorTime(of: $1) }
    }
}

/// A line of `key=value`.
struct Fields {
    private var values: [Substring: Double] = [:]

    init(_ line: String) {
        for word in line.split(separator: " ") {
            let parts = word.split(separator: "=")
            if parts.count == 2 { values[parts[0]] = Double(parts[1]) }
        }
    }

    subscript(name: Substring) -> Double { values[name] ?? .nan }
}
