// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

@Suite("The end of sources and contexts", .limited)
struct SourceEndTests {
    /// Two threads begin something at about the same moment, again and again.
    private final class Start: Sendable {
        private let arrived = Atomic(0)

        /// Waits for the other one, awake: to be woken takes longer than what is begun.
        func wait(round: Int) {
            arrived.add(1, ordering: .sequentiallyConsistent)
            while arrived.load(ordering: .sequentiallyConsistent) < 2 * (round + 1) { sched_yield() }
        }

        /// Takes some nanoseconds.
        func pause() { _ = arrived.load(ordering: .sequentiallyConsistent) }
    }

    /// GLib has no lock for this (GNOME/glib#803): a source that is released just then locks what has been freed, and
    /// waits for ever, or writes into memory of others.
    @Test("A source and its context may end at the same time on two threads", arguments: [nil, LoopWork.ordinary])
    func endsWithContext(work: LoopWork?) async throws {
        let start = Start()
        let shared = Locked<MainContext?>(nil)
        async let contexts: Void = onOwnThread {
            for round in 0... {
                start.wait(round: 2 * round)
                var context = shared.withLock { shared in
                    defer { shared = nil }
                    return shared
                }
                start.wait(round: 2 * round + 1)
                guard context != nil else { break }
                // Sooner or later, so that every moment of the other's end is met.
                for _ in 0..<(round % 512) { start.pause() }
                context = nil
            }
        }
        try await onOwnThread {
            // On a machine that is busy, a round takes long.
            var wait = Wait(.work(.seconds(5), because: "as many rounds as that allows"))
            for round in 0... {
                let isLast = round == 20_000 || wait.end() != nil
                let context = MainContext()
                var source: SignalledSource? =
                    if let work {
                        SignalledSource(on: context, for: work) {}
                    } else {
                        SignalledSource(on: context, priority: .default) {}
                    }
                shared.withLock { $0 = isLast ? nil : context }
                start.wait(round: 2 * round)
                _ = consume context
                start.wait(round: 2 * round + 1)
                if source != nil { source = nil }
                if isLast { break }
            }
        }
        try await contexts
    }

    @Test("GLib logs no critical message while a source and its context end at the same time")
    func withoutComplaint() async {
        await #expect(processExitsWith: .success) {
            g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL)
            try await SourceEndTests().endsWithContext(work: nil)
            try await SourceEndTests().endsWithContext(work: .ordinary)
        }
    }

    @Test(
        "The action of a source that ended on another thread is not called, even if only GLib holds its context",
        arguments: [nil, LoopWork.ordinary], [false, true])
    func endsWhileOthersHold(work: LoopWork?, isAnotherAlwaysReady: Bool) async throws {
        final class Mark: Sendable {}
        let calls = Atomic(0)
        let isOwned = Weak<Mark>()
        let (began, hasTimeLeft) = (Doorbell(), Doorbell())
        let weakContext = Weak<MainContext>()
        var context: MainContext? = MainContext()
        var source: SignalledSource?
        weakContext.object = context
        let loop = PlainLoop(context!)
        do {
            let mark = Mark()
            isOwned.object = mark
            let action: @Sendable () -> Void = {
                withExtendedLifetime(mark) {}
                calls.add(1, ordering: .relaxed)
            }
            source =
                if let work {
                    SignalledSource(on: context!, for: work, action: action)
                } else {
                    SignalledSource(on: context!, priority: .default, action: action)
                }
        }
        // The loop is within this one while the source ends, so that both are ready when it goes on.
        let busy = SignalledSource(on: context!, priority: .high) {
            began.ring()
            try? hasTimeLeft.wait("the end of the source")
        }
        busy.signal()
        let again = Weak<SignalledSource>()
        let another = SignalledSource(on: context!, priority: .high) { again.object?.signal() }
        again.object = another
        if isAnotherAlwaysReady { another.signal() }
        context = nil
        #expect(weakContext.object == nil)
        async let run: Void = onOwnThread { loop.run() }
        try await onOwnThread { try began.wait("the loop") }
        source?.signal()
        source = nil
        hasTimeLeft.ring()
        try await eventuallyInTask("the end of what the source owned") { isOwned.object == nil }
        #expect(calls.load(ordering: .relaxed) == 0)
        loop.quit()
        try await run
        withExtendedLifetime((busy, another)) {}
    }

    /// A program's own loop, which holds a context without an object of this module's.
    private final class PlainLoop: @unchecked Sendable {
        // Sendable: GMainLoop's functions are thread-safe; the pointer never changes after `init`.
        private let pointer: OpaquePointer

        init(_ context: MainContext) {
            pointer = context.asThreadDefault { g_main_loop_new(g_main_context_get_thread_default(), 0) }
        }

        deinit {
            g_main_loop_unref(pointer)
        }

        func run() { g_main_loop_run(pointer) }
        func quit() { g_main_loop_quit(pointer) }
    }

    /// Uses the context when it ends itself.
    private final class Last: Sendable {
        let context: MainContext
        let ends: Doorbell

        init(_ context: MainContext, _ ends: Doorbell) {
            self.context = context
            self.ends = ends
        }

        deinit {
            context.addCommonMode("ofTheLast")
            ends.ring()
        }
    }

    @Test("The objects held by a source's action are freed without a lock held", arguments: [nil, LoopWork.ordinary])
    func endOfOwned(work: LoopWork?) throws {
        let context = MainContext()
        let ends = Doorbell()
        do {
            let last = Last(context, ends)
            let action: @Sendable () -> Void = { withExtendedLifetime(last) {} }
            if let work {
                _ = SignalledSource(on: context, for: work, action: action)
            } else {
                _ = SignalledSource(on: context, priority: .default, action: action)
            }
        }
        try ends.wait("the end of what the source owned")
        #expect(context.commonModes.contains("ofTheLast"))
    }
}
