// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Main contexts and loops", .serialized, .limited)
struct MainContextTests {
    @Test("A thread owns a context while it runs the context, and only then")
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

    @Test("A call of wakeUp from another thread ends a blocking iteration")
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

    @Test("A non-blocking iteration returns false at once if no source is ready")
    func empty() {
        #expect(!MainContext().iterate(mayBlock: false))
    }

    @Test("A loop runs until quit is called, inside it or on another thread")
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

    @Test("A context whose only source is a distant timer sleeps without iterating")
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
    @Test("The closure of a Unix signal source runs on the loop's thread, not in the signal handler")
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
