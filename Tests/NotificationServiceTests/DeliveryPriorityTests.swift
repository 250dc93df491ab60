import MainLoop
import NotificationCore
import Testing

@testable import NotificationService

/// The table of priorities against the rule, and against GLib's numbers.
@Suite("M6: priorities of what the service does")
struct DeliveryPriorityTests {
    private func number(_ work: DeliveryPriority.Work) -> Int32 { DeliveryPriority.of(work).rawValue }

    @Test("M6: control before immediate before event tracking before modal panel before default before when idle")
    func order() {
        let works: [DeliveryPriority.Work] = [
            .control, .immediate, .eventTracking, .modalPanel, .standard, .whenIdle,
        ]
        let numbers = works.map(number)
        #expect(zip(numbers, numbers.dropFirst()).allSatisfy { $0 < $1 })
    }

    @Test("M6, Q7: reading stands behind what is urgent and before what is not; asap is not starved by it")
    func reading() {
        #expect(number(.modalPanel) < number(.reading))
        #expect(number(.reading) < number(.standard))
        #expect(number(.asap) == number(.reading))
        #expect(number(.asap) < number(.whenIdle))
    }

    @Test("M6: every lane has the priority of its mode")
    func lanes() {
        let numbers = DeliveryLane.allCases.map { DeliveryPriority.of(lane: $0).rawValue }
        #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count)
        #expect(DeliveryPriority.of(lane: .flushed) == .high)
        #expect(DeliveryPriority.of(lane: .standard) == .default)
        #expect(DeliveryPriority.of(.whenIdle) == .idle)
    }

    @Test("M6: one row for each, with a reason")
    func rows() {
        let works = DeliveryPriority.table.map { "\($0.work)" }
        #expect(Set(works).count == works.count)
        #expect(works.count == 8)
        #expect(DeliveryPriority.table.allSatisfy { !$0.reason.isEmpty })
    }
}
