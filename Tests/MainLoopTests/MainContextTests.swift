// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Main contexts and loops", .serialized, .limited)
struct MainContextTests {
    @Test("The thread that runs a context owns it, meanwhile")
    func owner() {
        let context = MainContext()
        #expect(!context.isOwner)
        var isOwner = false
        let source = EventSource.idle(on: context) {
            isOwner = context.isOwner
            return .remove
        }
        context.settle()
        #expect(isOwner)
        #expect(!context.isOwner)
        withExtendedLifetime(source) {}
    }

    @Test("wakeUp from another thread ends a wait")
    func wakeUp() async throws {
        let context = MainContext()
        let waits = Flag()
        Thread {
            // The context is woken until it says that it was: the first time may be before the wait.
            while !waits.isSet {
                context.wakeUp()
                letPass(.milliseconds(1), because: "it need not be woken more often")
            }
        }.start()
        defer { waits.set() }
        // Without any source this waits for ever.
        try await onOwnThread(within: .event) { _ = context.iterate(mayBlock: true) }
    }

    @Test("iterate without leave to wait returns at once, and tells that nothing was dispatched")
    func empty() {
        #expect(!MainContext().iterate(mayBlock: false))
    }

    @Test("A loop runs until it is told to quit, from inside or from another thread")
    func loop() throws {
        let context = MainContext()
        let loop = EventLoop(context: context)
        var turns = 0
        let inside = EventSource.idle(on: context) {
            turns += 1
            if turns == 3 { loop.quit() }
            return .keep
        }
        try loop.run(on: context, waitingFor: "quit, from inside")
        #expect(turns == 3)
        withExtendedLifetime(inside) {}

        let other = MainContext()
        let second = EventLoop(context: other)
        let hasStarted = Flag()
        let mark = EventSource.idle(on: other) {
            hasStarted.set()
            return .remove
        }
        Thread {
            try? eventually("the loop has started") { hasStarted.isSet }
            second.quit()
        }.start()
        try second.run(on: other, waitingFor: "quit, from another thread")
        #expect(hasStarted.isSet)
        withExtendedLifetime(mark) {}
    }

    @Test("A context with only a timer that is far away sleeps: it does not turn")
    func noSpinning() {
        let context = MainContext()
        var isOver = false
        let far = EventSource.timer(milliseconds: 3_600_000, on: context) { .keep }
        let near = EventSource.timer(milliseconds: 100, on: context) {
            isOver = true
            return .remove
        }
        var turns = 0
        while !isOver {
            context.iterate(mayBlock: true)
            turns += 1
        }
        #expect(turns <= 2)
        withExtendedLifetime((far, near)) {}
    }

    /// SIGUSR1 belongs to this test alone: GLib's handler is the process's.
    @Test("A Unix signal runs the closure on the loop's thread, not in the signal handler")
    func unixSignal() throws {
        let context = MainContext()
        var count = 0
        var wasOwner = false
        var source: EventSource? = .unixSignal(SIGUSR1, on: context) {
            count += 1
            wasOwner = context.isOwner
            return .keep
        }
        for expected in 1...3 {
            kill(getpid(), SIGUSR1)
            #expect(count == expected - 1)
            try context.run("the signal") { count == expected }
        }
        #expect(wasOwner)
        #expect(source != nil)
        source = nil
    }
}

/// Whether something happened, told from one thread to another.
private final class Flag: @unchecked Sendable {
    // Sendable: touched only while the lock is held.
    private let lock = NSLock()
    private var value = false

    var isSet: Bool { lock.withLock { value } }

    func set() { lock.withLock { value = true } }
}
