// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Synchronization
import Testing

@Suite("Signalled sources", .limited)
struct SignalledSourceTests {
    @Test("Several signals before an iteration run the action once, on the thread that runs the context")
    func batch() async throws {
        let context = MainContext()
        let runs = Locked<[Bool]>([])
        let source = SignalledSource(on: context, priority: .default) {
            runs.withLock { $0.append(context.isOwner) }
        }
        source.signal()
        source.signal()
        #expect(context.iterate(mayBlock: false))
        #expect(!context.iterate(mayBlock: false))
        #expect(runs.withLock { $0 } == [true])
    }

    @Test("A signal from another thread ends a blocking poll")
    func wakes() async throws {
        let context = MainContext()
        let hasRun = Atomic(false)
        let source = SignalledSource(on: context, priority: .default) {
            hasRun.store(true, ordering: .sequentiallyConsistent)
        }
        async let signaller: Void = onOwnThread { source.signal() }
        try await onOwnThread {
            let alarm = Alarm(context)
            defer { alarm.stop() }
            while !hasRun.load(ordering: .sequentiallyConsistent) {
                try alarm.check("the action")
                context.iterate(mayBlock: true)
            }
        }
        try await signaller
    }

    @Test("A signal during the action causes another run, also in a nested loop")
    func nested() {
        let context = MainContext()
        let depth = Locked(0)
        let holder = Locked<SignalledSource?>(nil)
        let source = SignalledSource(on: context, priority: .default) {
            let level = depth.withLock { depth in
                depth += 1
                return depth
            }
            guard level < 3 else { return }
            holder.withLock { $0 }?.signal()
            context.iterate(mayBlock: false)
        }
        holder.withLock { $0 = source }
        source.signal()
        context.iterate(mayBlock: false)
        #expect(depth.withLock { $0 } == 3)
        holder.withLock { $0 = nil }
    }

    @Test("A signal to a source that is released before the iteration runs no action")
    func gone() {
        let context = MainContext()
        let runs = Atomic(0)
        var source: SignalledSource? = SignalledSource(on: context, priority: .default) {
            runs.add(1, ordering: .relaxed)
        }
        source?.signal()
        source = nil
        #expect(!context.iterate(mayBlock: false))
        #expect(runs.load(ordering: .relaxed) == 0)
    }

    @Test(
        "M3: a source that rests runs in the next iteration, even if the loop's time ends while it checks sources",
        arguments: 1...6)
    func timePassesWhileAsking(reading: Int) throws {
        // The clock goes on when it has been read so often since the rest began.
        let readings = Atomic(Int.min)
        let context = MainContext(cycleClock: {
            readings.add(1, ordering: .relaxed).newValue >= reading ? 20_000_000 : 0
        })
        let runs = Atomic(0)
        let box = Weak<SignalledSource>()
        let source = SignalledSource(on: context, priority: .default) {
            guard runs.add(1, ordering: .relaxed).newValue == 1 else { return }
            readings.store(0, ordering: .relaxed)
            box.object?.signalAfterOthers()
        }
        box.object = source
        source.signal()
        try context.run("its next turn") { runs.load(ordering: .relaxed) == 2 }
    }
}
