// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Synchronization
import Testing

@testable import CarillonMainLoop

@Suite("M1 to M3: run-loop modes", .limited)
struct ModeTests {
    private let context = MainContext()

    /// A source that counts how often it ran.
    private final class Probe: Sendable {
        let runs = Atomic(0)
        var count: Int { runs.load(ordering: .relaxed) }
    }

    private func source(_ modes: Set<RunLoopMode>?, _ probe: Probe) -> SignalledSource {
        SignalledSource(on: context, priority: .default, modes: modes) { probe.runs.add(1, ordering: .relaxed) }
    }

    @Test(
        "M1: default, modal panel and event tracking are common modes, and other modes become common by addCommonMode")
    func common() {
        #expect(context.currentMode == .default)
        #expect(context.commonModes == [.default, .modalPanel, .eventTracking])
        let probe = Probe()
        let source = source([.common], probe)
        for mode in [RunLoopMode.default, .modalPanel, .eventTracking] {
            source.signal()
            context.pushMode(mode)
            context.settle()
            context.popMode(mode)
        }
        #expect(probe.count == 3)
        context.pushMode("own")
        source.signal()
        context.settle()
        #expect(probe.count == 3)
        context.addCommonMode("own")
        context.settle()
        #expect(probe.count == 4)
        #expect(MainContext().commonModes.count == 3)
    }

    @Test("M2: a source for a kind of work has the priority of the current mode")
    func followsMode() {
        let order = Locked<[String]>([])
        let kind = SignalledSource(on: context, for: .ordinary) { order.withLock { $0.append("ordinary") } }
        let between = SignalledSource(on: context, priority: EventSource.Priority(rawValue: -5)) {
            order.withLock { $0.append("between") }
        }
        kind.signal()
        between.signal()
        context.settle()
        #expect(order.withLock { $0 } == ["between", "ordinary"])
        context.pushMode(.modalPanel)
        kind.signal()
        between.signal()
        context.settle()
        #expect(order.withLock { $0 } == ["between", "ordinary", "ordinary", "between"])
    }

    @Test("M3: modes form a stack from which a lower mode may be popped first")
    func stack() {
        context.pushMode(.modalPanel)
        context.pushMode("own")
        #expect(context.currentMode == "own")
        #expect(context.popMode(.modalPanel))
        #expect(context.currentMode == "own")
        #expect(context.popMode("own"))
        #expect(context.currentMode == .default)
        #expect(!context.popMode("own"))
        context.pushMode(.modalPanel)
        context.pushMode(.modalPanel)
        context.popMode(.modalPanel)
        #expect(context.currentMode == .modalPanel)
    }

    @Test("M3: the mode stack belongs to the GMainContext, and all objects for that context share it")
    func sharedState() {
        context.asThreadDefault {
            MainContext.current.pushMode("own")
            #expect(MainContext.current == context)
        }
        #expect(context.currentMode == "own")
    }

    @Test("M3: a signalled source of another mode waits without an iteration, and runs once when its mode is entered")
    func waits() throws {
        let (own, others) = (Probe(), Probe())
        let gated = source(["own"], own)
        let other = source(nil, others)
        gated.signal()
        gated.signal()
        for _ in 0..<10 { #expect(!context.iterate(mayBlock: false)) }
        other.signal()
        context.settle()
        #expect((own.count, others.count) == (0, 1))
        context.run(mode: "own") { own.count == 1 }
        context.settle()
        #expect(own.count == 1)
        #expect(context.currentMode == .default)
    }

    @Test("M3: the loop sleeps while the only signalled source waits for its mode")
    func sleeps() {
        let probe = Probe()
        let gated = source(["own"], probe)
        gated.signal()
        var turns = 0
        var isOver = false
        let timer = EventSource.timer(milliseconds: 50, on: context) {
            isOver = true
            return .remove
        }
        while !isOver {
            context.iterate(mayBlock: true)
            turns += 1
        }
        // The first may find the wake-up of the signal.
        #expect(turns <= 3)
        withExtendedLifetime(timer) {}
    }

    @Test("M3: a mode that another thread pushes wakes the loop")
    func fromAnotherThread() async throws {
        let probe = Probe()
        let gated = source(["own"], probe)
        gated.signal()
        async let entering: Void = onOwnThread { [context] in context.pushMode("own") }
        try await onOwnThread { [context] in
            let alarm = Alarm(context)
            defer { alarm.stop() }
            while probe.count == 0 {
                try alarm.check("the source")
                context.iterate(mayBlock: true)
            }
        }
        try await entering
    }

    @Test("M3: a source that pushes a mode delays sources of other modes that are ready in the same iteration")
    func enteredInIteration() {
        let probe = Probe()
        let first = SignalledSource(on: context, priority: .default) { [context] in context.pushMode("own") }
        let second = source([.default], probe)
        first.signal()
        second.signal()
        context.settle()
        #expect(probe.count == 0)
        context.popMode("own")
        context.settle()
        #expect(probe.count == 1)
    }

    @Test("M3: a source that calls signalAfterOthers lets other sources of any priority run first")
    func afterOthers() {
        // A clock that stands: no rest ends before the others had their turn because the machine was busy.
        let context = MainContext(cycleClock: { 0 })
        let holder = Locked<SignalledSource?>(nil)
        let (busy, idle) = (Probe(), Probe())
        let source = SignalledSource(on: context, priority: .high) {
            busy.runs.add(1, ordering: .relaxed)
            holder.withLock { $0 }?.signalAfterOthers()
        }
        holder.withLock { $0 = source }
        let last = EventSource.idle(on: context, priority: EventSource.Priority(rawValue: 300)) {
            idle.runs.add(1, ordering: .relaxed)
            return .keep
        }
        source.signal()
        for _ in 0..<100 { context.iterate(mayBlock: false) }
        #expect(busy.count >= 49)
        #expect(idle.count >= 49)
        holder.withLock { $0 = nil }
        withExtendedLifetime(last) {}
    }

    @Test("M3: run(mode:until:) returns at its deadline, and nested runs have their own modes")
    func runs() {
        let before = ContinuousClock.now
        context.run(mode: "own", until: before + .milliseconds(20))
        #expect(ContinuousClock.now >= before + .milliseconds(20))
        let modes = Locked<[RunLoopMode]>([])
        let source = SignalledSource(on: context, priority: .default) { [context] in
            context.run(mode: .eventTracking) {
                modes.withLock { $0.append(context.currentMode) }
                return true
            }
            modes.withLock { $0.append(context.currentMode) }
        }
        source.signal()
        context.run(mode: .modalPanel) { modes.withLock { $0.count == 2 } }
        #expect(modes.withLock { $0 } == [.eventTracking, .modalPanel])
    }

    @Test("M2: a mode change during the announcement of another change leaves the priorities of the newest mode")
    func changeInChange() {
        /// It enters a mode of its own as soon as another one is entered, before or after the sources are told of that.
        final class Follower: ContextState.ModeFollower {
            let context: MainContext
            init(_ context: MainContext) { self.context = context }
            func modeDidChange() {
                if context.currentMode == .modalPanel { context.pushMode(.eventTracking) }
            }
        }
        let follower = Follower(context)
        context.state.add(follower)
        let (probe, behind) = (Probe(), Probe())
        let sources = (0..<64).map { _ in
            SignalledSource(on: context, for: .ordinary) { probe.runs.add(1, ordering: .relaxed) }
        }
        let other = SignalledSource(on: context, priority: .init(rawValue: -15)) {
            behind.runs.add(1, ordering: .relaxed)
        }
        context.pushMode(.modalPanel)
        #expect(context.currentMode == .eventTracking)
        for source in sources + [other] { source.signal() }
        // One iteration dispatches what is most urgent.
        context.iterate(mayBlock: false)
        #expect(probe.count == sources.count && behind.count == 0)
        context.state.remove(follower)
    }

    @Test("A source may outlive its context, and its signals then have no effect")
    func contextEnds() {
        let probe = Probe()
        var context: MainContext? = MainContext()
        let source = SignalledSource(on: context!, for: .ordinary) { probe.runs.add(1, ordering: .relaxed) }
        source.signal()
        context = nil
        source.signal()
        #expect(probe.count == 0)
    }

    @Test("The current context is the pushed context, the dispatching context, or the thread's own")
    func current() async throws {
        try await onOwnThread {
            let own = MainContext.current
            #expect(own == MainContext.current && own != .default)
            let other = MainContext()
            other.asThreadDefault { #expect(MainContext.current == other) }
            #expect(MainContext.current == own)
            let source = SignalledSource(on: other, priority: .default) { #expect(MainContext.current == other) }
            source.signal()
            #expect(other.iterate(mayBlock: false))
        }
    }
}
