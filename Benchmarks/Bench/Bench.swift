import Foundation
import TestSupport

/// Measures the notification center beside raw D-Bus broadcasts, on the same bus and in the same run, and prints tables
/// in Markdown. It judges nothing. `tools/bench` builds and runs it; Benchmarks/README.md explains the columns.
@main
struct Bench {
    static func main() throws {
        let started = ContinuousClock.now
        var lines: [Measurements] = []
        for kind in BusKind.available {
            let lab = try Lab(kind)
            // All of a line's peers are measured in turn, so that what else the machine does hits them alike.
            var measurements = Transport.allCases.map { Measurements(kind, $0) }
            for round in 1...Lab.rounds {
                progress("\(kind), round \(round) of \(Lab.rounds)")
                for index in measurements.indices { try lab.measure(&measurements[index]) }
            }
            try lab.finish(&measurements)
            lines += measurements
        }
        progress("start-up and rest")
        let service = try ServiceFigures()
        print(Report(lines: lines, service: service).text)
        progress("took \((ContinuousClock.now - started).components.seconds) s")
    }

    static func progress(_ text: String) {
        FileHandle.standardError.write(Data("bench: \(text)\n".utf8))
    }
}

/// What carries the notifications.
enum Transport: String, CaseIterable {
    case center = "Carillon"
    case broadcast = "raw broadcast"

    var arguments: [String] { self == .broadcast ? ["--broadcast"] : [] }
}

/// All figures of one transport on one bus, a value for each round.
struct Measurements {
    static let observers = [1, 10, 50]
    static let registrations = [1, 1_000, 10_000]

    let kind: BusKind
    let transport: Transport
    /// Deliveries in a second, by number of observers.
    var throughput: [Int: [Double]] = [:]
    /// Processor seconds of bus and service for 10,000 deliveries, by number of observers.
    var serverTime: [Int: [Double]] = [:]
    /// The same with poster and observers.
    var totalTime: [Int: [Double]] = [:]
    /// Deliveries in a second of one name, by number of registrations that there are.
    var selective: [Int: [Double]] = [:]
    /// Microseconds.
    var latency50: [Double] = []
    var latency99: [Double] = []
    /// MiB of bus and service together.
    var idleMemory = 0.0
    var loadedMemory = 0.0
    var lost = 0

    init(_ kind: BusKind, _ transport: Transport) {
        self.kind = kind
        self.transport = transport
    }
}

func median(_ values: [Double]) -> Double {
    values.isEmpty ? .nan : values.sorted()[values.count / 2]
}
