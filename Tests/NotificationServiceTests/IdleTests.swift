import Foundation
import TestSupport
import Testing

/// A desktop's service has to be asleep when nothing happens. The subject of these tests is time, so they wait.
@Suite("The idle service", .serialized, .timeLimit(.minutes(20)))
struct IdleTests {
    @Test("No wake-ups while nothing happens", arguments: BusKind.available)
    func asleep(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        #expect(try client.post("Ding") == 1)
        let before = try settledSwitches(of: service, client)
        Thread.sleep(forTimeInterval: 1)
        #expect(try switches(of: service) == before)
    }

    @Test("No wake-ups by programs that are no clients, as they come, talk and go", arguments: BusKind.available)
    func strangers(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        let before = try settledSwitches(of: service, client)
        for _ in 0..<10 {
            let stranger = try Client(on: bus)
            _ = try stranger.processID(of: "org.carillon.NotificationCenter1")
        }
        // The bus has handled all this when it answers; a service that was told would wake up within the wait.
        _ = try client.processID(of: "org.carillon.NotificationCenter1")
        Thread.sleep(forTimeInterval: 0.2)
        #expect(try switches(of: service) == before)
        // The measure is one: an event wakes it, and it goes to sleep again.
        try client.post("Ding")
        try eventually("the event shows in the measure") { try switches(of: service) > before }
    }

    /// How often a thread of the service went to sleep, once it no longer does so every moment.
    ///
    /// - Parameter client: asks the bus meanwhile, and so answers what the service asked it.
    private func settledSwitches(of service: ServiceProcess, _ client: Client) throws -> Int {
        var last = -1
        try eventually("the service comes to rest: \(service.transcript)", every: .milliseconds(100)) {
            _ = try client.processID(of: "org.carillon.NotificationCenter1")
            defer { last = (try? switches(of: service)) ?? -2 }
            return try switches(of: service) == last
        }
        return last
    }

    private func switches(of service: ServiceProcess) throws -> Int {
        let tasks = "/proc/\(service.pid)/task"
        return try FileManager.default.contentsOfDirectory(atPath: tasks).reduce(0) { sum, task in
            let status = try String(contentsOfFile: "\(tasks)/\(task)/status", encoding: .utf8)
            let count = try #require(status.firstMatch(of: /\nvoluntary_ctxt_switches:\s*(\d+)/))
            return try sum + #require(Int(count.1))
        }
    }
}
