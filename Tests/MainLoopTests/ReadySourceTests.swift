// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Glibc
import Testing

@Suite("Sources with a readiness condition", .limited)
struct ReadySourceTests {
    @Test("A source runs once per iteration while its condition holds, after more urgent sources")
    func turns() {
        let context = MainContext()
        var (left, order) = (2, [String]())
        let late = ReadySource(on: context, priority: .idle, isReady: { left > 0 }) {
            left -= 1
            order.append("late")
        }
        let early = EventSource.once(milliseconds: 0, on: context, priority: .default) { order.append("early") }
        context.settle()
        #expect(order == ["early", "late", "late"])
        withExtendedLifetime((late, early)) {}
    }

    /// Does something when its descriptor is readable.
    private final class Urgent: PolledSourceDelegate {
        private let action: () -> Void
        private var source: PolledSource!

        init(_ descriptor: Int32, on context: MainContext, _ action: @escaping () -> Void) {
            self.action = action
            source = PolledSource(delegate: self, priority: .default, context: context)
            _ = source.add(descriptor: descriptor, waitingFor: .readable)
        }

        func hasPendingWork() -> Bool { false }
        func dispatch() { action() }
    }

    @Test("A source does not run if a more urgent source has just ended its condition")
    func changed() {
        let context = MainContext()
        var ends: [Int32] = [0, 0]
        #expect(pipe(&ends) == 0 && write(ends[1], "x", 1) == 1)
        defer { for end in ends { close(end) } }
        let reading = ends[0]
        var (isReady, runs, asked) = (true, 0, 0)
        let late = ReadySource(
            on: context, priority: .idle,
            isReady: {
                asked += 1
                return isReady
            }, run: { runs += 1 })
        // Whether a descriptor is readable is found out after the others were asked.
        let urgent = Urgent(reading, on: context) {
            #expect(asked == 1)
            isReady = false
            var byte: UInt8 = 0
            _ = read(reading, &byte, 1)
        }
        context.settle()
        #expect(asked > 1 && runs == 0)
        isReady = true
        context.iterate(mayBlock: false)
        #expect(runs == 1)
        withExtendedLifetime((late, urgent)) {}
    }
}
