// SPDX-License-Identifier: Apache-2.0
import MainLoop
import NotificationCore
import TestLimits
import Testing

@testable import NotificationService

/// What is due against the table of priorities.
@Suite("M6: priorities of what is due", .limited)
struct DeliveryPriorityTests {
    @Test("M6: every lane has the priority of its mode, and the more urgent lane the higher")
    func lanes() {
        let numbers = DeliveryLane.allCases.map { EventSource.Priority.of(lane: $0).rawValue }
        #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count)
        #expect(numbers == [-100, -80, -60, -40, 0])
    }
}
