// SPDX-License-Identifier: Apache-2.0
import MainLoop
import NotificationCore
import TestLimits
import Testing

@testable import NotificationService

/// What is due against the table of priorities.
@Suite("M6: priorities of what is due", .limited)
struct DeliveryPriorityTests: StateTests {
    @Test("M6: every lane has the priority of its mode, and the more urgent lane the higher")
    func lanes() {
        let numbers = DeliveryLane.allCases.map { EventSource.Priority.of(lane: $0).rawValue }
        #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count)
        #expect(numbers == [-100, -80, -60, -40, 0])
    }

    @Test("M6, E8: what is due in the default mode waits for no more than some milliseconds of serving others")
    func serving() throws {
        let bus = QuietBus()
        let driver = CenterDriver(
            bus: bus, clients: ClientRegistry(bus: bus, table: NoProcesses()), barrier: BusBarrier(bus: bus),
            machine: .own(address: ""))
        let turns = DeliveryTurns(of: driver, on: bus.context)
        try driver.perform { effects in
            _ = try driver.center.addObserver(
                of: ":1.1", name: "", object: "", options: ObserverOptions(), effects: &effects)
            _ = try driver.center.post(
                name: "Ding", object: "", userInfo: try userInfo("Ding"), from: ":1.9",
                effects: &effects)
        }
        for _ in 0..<4 {
            #expect(!turns.noteServing(.milliseconds(1)) && bus.next("Notification") == nil)
        }
        #expect(turns.noteServing(.milliseconds(1)))
        #expect(bus.next("Notification") != nil && !driver.center.isReady(.standard))
        // It begins anew.
        #expect(!turns.noteServing(.milliseconds(5)) && bus.next("Notification") == nil)
    }
}
