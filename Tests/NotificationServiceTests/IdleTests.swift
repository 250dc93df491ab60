// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// A desktop's service has to be asleep when nothing happens. The subject of these tests is time, so they wait.
@Suite("The idle service", .serialized, .limited)
struct IdleTests {
    @Test("An idle service has no wake-ups", arguments: BusKind.available)
    func asleep(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        #expect(try client.post("Ding") == 1)
        let (before, after) = try Wakefulness.overASecond(of: service.pid, beside: [bus.pid]) { try answer(client) }
        #expect(after == before, "\(service.transcript)")
    }

    @Test("Programs that are no clients cause no wake-ups of the service", arguments: BusKind.available)
    func strangers(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        func settled() throws -> Wakefulness {
            try Wakefulness.settled(of: service.pid, beside: [bus.pid]) { try answer(client) }
        }
        let before = try settled()
        for _ in 0..<10 {
            let stranger = try Client(on: bus)
            _ = try stranger.processID(of: "org.carillon.NotificationCenter1")
        }
        // The bus has handled all this when it sleeps again, and so has a service that was told of it.
        #expect(try settled() == before)
        // The measure is one: an event wakes it, and it goes to sleep again.
        try client.post("Ding")
        try eventually("the event shows in the measure") {
            try Wakefulness(of: service.pid).switches > before.switches
        }
    }

    /// Asks the bus, and meanwhile answers what the service asked.
    private func answer(_ client: Client) throws {
        _ = try client.processID(of: "org.carillon.NotificationCenter1")
    }
}
