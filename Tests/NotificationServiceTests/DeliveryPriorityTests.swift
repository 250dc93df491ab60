// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonService

/// What is due against the table of priorities.
@Suite("M6: priorities of due notifications", .limited)
struct DeliveryPriorityTests: StateTests {
    @Test("M6: every lane has the priority of its mode, in the order of urgency")
    func lanes() {
        let numbers = DeliveryLane.allCases.map { EventSource.Priority.of(lane: $0).rawValue }
        #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count)
        #expect(numbers == [-100, -80, -60, -40, 0])
    }

    @Test("M6, E8: due notifications of the default mode wait for at most a few slices of a large call")
    func serving() throws {
        let bus = QuietBus()
        let driver = CenterDriver(
            bus: bus, clients: ClientRegistry(bus: bus, table: NoProcesses()), barrier: BusBarrier(bus: bus),
            machine: .own(address: ""))
        let turns = DeliverySources(of: driver, on: bus.context)
        try driver.perform { effects in
            _ = try driver.center.addObserver(
                of: ":1.1", name: "", object: "", options: ObserverOptions(), effects: &effects)
            _ = try driver.center.post(
                name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9",
                effects: &effects)
        }
        // A hundred posts are a hundred messages, however they came.
        #expect(!turns.notePart(posts: 100) && bus.next("Notification") == nil)
        #expect(turns.notePart(posts: 0))
        #expect(bus.next("Notification") != nil && !driver.center.isReady(.standard))
        try driver.perform { effects in
            _ = try driver.center.post(
                name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9", effects: &effects)
        }
        for _ in 0..<3 {
            turns.notePost(receivers: 100)
            turns.notePost(receivers: 4000)
        }
        #expect(bus.next("Notification") != nil && !driver.center.isReady(.standard))
        // It begins anew, when something is due.
        #expect(!turns.notePart(posts: 1000) && bus.next("Notification") == nil)
    }
}
