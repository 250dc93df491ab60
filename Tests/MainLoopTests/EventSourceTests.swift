// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Event sources", .limited)
struct EventSourceTests {
    @Test("A timer fires no earlier than its interval, and repeats until its closure returns remove")
    func timer() throws {
        let context = MainContext()
        let start = ContinuousClock.now
        var firings: [Duration] = []
        let timer = EventSource.timer(milliseconds: 20, on: context) {
            firings.append(ContinuousClock.now - start)
            return firings.count < 3 ? .keep : .remove
        }
        try context.run("three firings") { firings.count == 3 }
        // GLib counts in whole milliseconds.
        #expect(firings[0] >= .milliseconds(19))
        #expect(firings[2] >= .milliseconds(57))
        #expect(!context.iterate(mayBlock: false))
        withExtendedLifetime(timer) {}
    }

    @Test("A timer of zero milliseconds fires in the next iteration")
    func immediateTimer() {
        let context = MainContext()
        var count = 0
        let timer = EventSource.timer(milliseconds: 0, on: context) {
            count += 1
            return .remove
        }
        context.iterate(mayBlock: false)
        #expect(count == 1)
        withExtendedLifetime(timer) {}
    }

    @Test("A one-shot timer is no longer pending inside its closure")
    func once() {
        let context = MainContext()
        var timer: EventSource?
        var wasPending: [Bool?] = []
        timer = .once(milliseconds: 0, on: context) { wasPending.append(timer?.isPending) }
        #expect(timer?.isPending == true)
        context.settle()
        #expect(wasPending == [false])
        #expect(timer?.isPending == false)
    }

    @Test("A one-shot timer can be released or replaced inside its closure")
    func replacedInside() throws {
        final class Owner {
            let context = MainContext()
            var timer: EventSource?
            var count = 0

            func start() {
                timer = .once(milliseconds: 0, on: context) { [unowned self] in
                    // What the closure holds is used after its source is gone.
                    timer = nil
                    count += 1
                    if count < 3 { start() }
                }
            }
        }
        let owner = Owner()
        owner.start()
        try owner.context.run("three firings") { owner.count == 3 }
        owner.context.settle()
        #expect(owner.count == 3)
        #expect(owner.timer == nil)
    }

    @Test("A one-shot timer frees its closure after it fired, even while the program keeps the timer")
    func onceFrees() {
        final class Mark {}
        let context = MainContext()
        var mark: Mark? = Mark()
        weak let watched = mark
        let timer = EventSource.once(milliseconds: 0, on: context) { [mark] in _ = mark }
        mark = nil
        context.settle()
        #expect(watched == nil)
        withExtendedLifetime(timer) {}
    }

    @Test("Ready sources are dispatched by priority, and idle sources only when no other source is ready")
    func priorities() throws {
        let context = MainContext()
        var order: [String] = []
        func source(_ name: String, _ priority: EventSource.Priority, times: Int) -> EventSource {
            var count = 0
            return .idle(on: context, priority: priority) {
                order.append(name)
                count += 1
                return count < times ? .keep : .remove
            }
        }
        let sources = [
            source("idle", .idle, times: 1), source("low", .init(rawValue: 300), times: 1),
            source("default", .default, times: 3), source("high", .high, times: 2),
        ]
        context.settle()
        #expect(order == ["high", "high", "default", "default", "default", "idle", "low"])
        withExtendedLifetime(sources) {}
    }

    @Test("Sources of equal priority are dispatched in the order of their creation")
    func samePriority() {
        let context = MainContext()
        var order: [Int] = []
        let sources = (0..<10).map { number in
            EventSource.idle(on: context) {
                order.append(number)
                return .remove
            }
        }
        context.settle()
        #expect(order == Array(0..<10))
        withExtendedLifetime(sources) {}
    }

    @Test("The priorities high, default and idle have the numbers of GLib")
    func priorityValues() {
        #expect(EventSource.Priority.high.rawValue == -100)
        #expect(EventSource.Priority.default.rawValue == 0)
        #expect(EventSource.Priority.idle.rawValue == 200)
    }

    @Test("A closure that returns keep is called again, and a closure that returns remove is not")
    func continuation() {
        let context = MainContext()
        var kept = 0
        var removed = 0
        let sources = [
            EventSource.idle(on: context) {
                kept += 1
                return .keep
            },
            EventSource.idle(on: context) {
                removed += 1
                return .remove
            },
        ]
        for _ in 0..<5 { context.iterate(mayBlock: false) }
        #expect(kept == 5)
        #expect(removed == 1)
        withExtendedLifetime(sources) {}
    }

    @Test("Releasing a source removes it from its context, and frees its closure")
    func release() {
        final class Mark {}
        let context = MainContext()
        var mark: Mark? = Mark()
        weak let watched = mark
        var count = 0
        var source: EventSource? = .idle(on: context) { [mark] in
            count += mark == nil ? 0 : 1
            return .keep
        }
        mark = nil
        context.iterate(mayBlock: false)
        #expect(count == 1 && watched != nil)
        #expect(source != nil)
        source = nil
        #expect(watched == nil)
        #expect(!context.iterate(mayBlock: false))
        #expect(count == 1)
    }

    @Test("A closure that returns remove is freed, even while the program keeps the source")
    func removeFrees() {
        final class Mark {}
        let context = MainContext()
        var mark: Mark? = Mark()
        weak let watched = mark
        let source = EventSource.idle(on: context) { [mark] in
            _ = mark
            return .remove
        }
        mark = nil
        context.settle()
        #expect(watched == nil)
        withExtendedLifetime(source) {}
    }

    @Test("A source can be released inside its own closure", arguments: [true, false])
    func releaseInside(isKept: Bool) {
        let context = MainContext()
        var source: EventSource?
        var count = 0
        source = .idle(on: context) {
            count += 1
            source = nil
            return isKept ? .keep : .remove
        }
        #expect(source != nil)
        context.settle()
        #expect(count == 1)
    }

    @Test("A source created inside a closure is dispatched in a later iteration")
    func addInside() {
        let context = MainContext()
        var inner: EventSource?
        var order: [String] = []
        let outer = EventSource.idle(on: context) {
            order.append("outer")
            inner = .idle(on: context) {
                order.append("inner")
                return .remove
            }
            order.append("outer ends")
            return .remove
        }
        context.settle()
        #expect(order == ["outer", "outer ends", "inner"])
        withExtendedLifetime((outer, inner)) {}
    }

    @Test("A source is dispatched only by its own context")
    func contexts() {
        let (first, second) = (MainContext(), MainContext())
        var count = 0
        let source = EventSource.idle(on: first) {
            count += 1
            return .remove
        }
        second.settle()
        #expect(count == 0)
        first.settle()
        #expect(count == 1)
        withExtendedLifetime(source) {}
    }
}
