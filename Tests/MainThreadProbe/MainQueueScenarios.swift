// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestSupport
import CarillonThreadDelivery
import Dispatch
import Foundation
import LocalNotifications
import Synchronization

extension MainThreadProbe {
    /// The main queue, the main actor and the main operation queue, from this and from another thread.
    static func mainQueue() throws {
        let events = Events()
        // Before the source is there.
        DispatchQueue.main.async { events.add("early") }
        MainQueueSource.install()
        MainQueueSource.install()
        try run("what was there before") { events.all == ["early"] }
        DispatchQueue.main.async { events.add(Thread.isMainThread ? "queue" : "queue, wrong thread") }
        Thread {
            DispatchQueue.main.async { events.add("queue from a thread") }
            DispatchQueue.main.sync { events.add("synchronously") }
            OperationQueue.main.addOperation { events.add("operation") }
            Task { @MainActor in
                events.add(Thread.isMainThread ? "actor" : "actor, wrong thread")
                try await letPassInTask(.milliseconds(1), because: "the loop is to sleep between two")
                events.add("actor again")
            }
        }.start()
        try run("all") { events.count == 7 }
        let expected: Set = [
            "early", "queue", "queue from a thread", "synchronously", "operation", "actor", "actor again",
        ]
        try require(Set(events.all) == expected, "\(events.all)")
    }

    /// The main queue belongs to the common modes.
    static func mainActorModes() throws {
        MainQueueSource.install()
        let events = Events()
        Task { @MainActor in events.add("in a modal panel") }
        let context = MainContext.default
        context.run(mode: .modalPanel) { events.count == 1 }
        Task { @MainActor in events.add("in a mode of our own") }
        var turns = 0
        let timer = EventSource.timer(milliseconds: 5, on: context) {
            turns += 1
            return .keep
        }
        context.run(mode: "own") { turns == 5 }
        try require(events.count == 1, "\(events.all): it ran in a mode that is not common")
        context.addCommonMode("own")
        context.run(mode: "own") { events.count == 2 }
        withExtendedLifetime(timer) {}
    }

    /// C4: an observer on the main operation queue, posted to from another thread, under GLib's loop and without an
    /// explicit installation.
    static func operationQueue() throws {
        let center = NotificationCenter()
        let events = Events()
        center.addObserver(forName: Notification.Name("A"), object: nil, queue: .main) { _ in
            events.add(Thread.isMainThread ? "A" : "wrong thread")
        }
        Thread {
            center.post(name: Notification.Name("A"), object: nil)
            events.add("returned")
        }.start()
        try run("the post") { events.count == 2 }
        try require(events.all == ["A", "returned"], "\(events.all)")
        // On the main thread the main queue is the current one.
        center.post(name: Notification.Name("A"), object: nil)
        try require(events.all == ["A", "returned", "A"], "\(events.all)")
    }

    @MainActor private final class Window {
        let events: Events
        nonisolated init(_ events: Events) { self.events = events }

        func show(_ notification: Notification) {
            MainActor.preconditionIsolated()
            events.add("method \(notification.object ?? "")")
        }
    }

    /// B13: methods and blocks of the main actor, posted to from it and from another thread.
    static func mainActorObservers() throws {
        let center = NotificationCenter()
        let events = Events()
        let window = Window(events)
        let name = Notification.Name("A")
        center.addObserver(window, method: Window.show, name: name)
        center.addObserver(window, method: Window.show, name: Notification.Name("B"), context: .default)
        center.addObserver(window, method: Window.show, name: Notification.Name("C"), queue: .main)
        let observation = center.observeOnMainActor(name) { note in
            MainActor.preconditionIsolated()
            events.add("block \(note.object ?? "")")
        }
        center.post(name: name, object: "here")
        try require(events.all == ["method here", "block here"], "\(events.all): the post has not waited")
        Thread {
            center.post(name: name, object: "elsewhere")
            center.post(name: Notification.Name("B"), object: "context")
            center.post(name: Notification.Name("C"), object: "queue")
            events.add("returned")
        }.start()
        try run("all") { events.count == 7 }
        let (returned, queue) = (events.all.firstIndex(of: "returned"), events.all.firstIndex(of: "method queue"))
        try require(queue! < returned!, "\(events.all): the main queue is waited for")
        try require(
            Set(events.all.dropFirst(2))
                == ["method elsewhere", "block elsewhere", "method context", "method queue", "returned"],
            "\(events.all)")
        withExtendedLifetime((observation, window)) {}
    }

    /// A block on the main queue that runs a nested loop: the next block runs after it.
    static func nested() throws {
        MainQueueSource.install()
        let events = Events()
        DispatchQueue.main.async {
            DispatchQueue.main.async { events.add("second") }
            var turns = 0
            let timer = EventSource.timer(milliseconds: 2, on: .default) {
                turns += 1
                return .keep
            }
            MainContext.default.run(mode: .modalPanel) { turns == 5 }
            withExtendedLifetime(timer) {}
            events.add("first")
        }
        try run("both") { events.count == 2 }
        try require(events.all == ["first", "second"], "\(events.all)")
    }

    /// A main queue that is never empty leaves GLib's idle sources their turn.
    static func neverStarves() throws {
        MainQueueSource.install()
        @Sendable func again() { DispatchQueue.main.async { again() } }
        again()
        var idles = 0
        let idle = EventSource.idle(on: .default) {
            idles += 1
            return .keep
        }
        try run("idle callbacks") { idles == 20 }
        withExtendedLifetime(idle) {}
    }

    /// Foundation's run loop serves the main queue instead.
    static func runLoop() throws {
        MainQueueSource.install()
        let events = Events()
        Task { @MainActor in
            events.add("actor")
            CFRunLoopStopMain()
        }
        while events.count == 0 { _ = RunLoop.main.run(mode: .default, before: Date(timeIntervalSinceNow: 5)) }
        // And GLib's again.
        DispatchQueue.main.async { events.add("queue") }
        try run("the queue") { events.count == 2 }
    }

    private static func CFRunLoopStopMain() {
        // Any input ends a turn of the run loop; a timer is one.
        RunLoop.main.perform {}
    }

    /// dispatchMain() ends the main thread, and its handle with it. Another thread may run the default context then,
    /// which must neither touch the main queue nor spin.
    static func afterDispatchMain() throws {
        MainQueueSource.install()
        MainContext.default.iterate(mayBlock: false)
        Thread {
            var turns = 0
            var isOver = false
            let timer = EventSource.timer(milliseconds: 200, on: .default) {
                isOver = true
                return .remove
            }
            while !isOver {
                MainContext.default.iterate(mayBlock: true)
                turns += 1
            }
            withExtendedLifetime(timer) {}
            guard turns < 20 else {
                printLine("failed: \(turns) turns of a loop that has nothing to do")
                exit(1)
            }
            DispatchQueue.main.async { succeed() }
        }.start()
        dispatchMain()
    }

    /// Nobody runs the default context: the source costs nothing and breaks nothing.
    static func notRun() throws {
        MainQueueSource.install()
        Thread { DispatchQueue.main.async { succeed() } }.start()
        dispatchMain()
    }

    /// Q1: the main thread's default queue uses the default context.
    static func defaultQueue() throws {
        let events = Events()
        NotificationCenter.default.addObserver(forName: Notification.Name("A"), object: nil, queue: nil) { _ in
            events.add("A")
        }
        let loop = EventLoop()
        NotificationQueue.default.enqueue(Notification(name: Notification.Name("A")), postingStyle: .whenIdle)
        let source = EventSource.idle(on: .default, priority: EventSource.Priority(rawValue: 300)) {
            events.add("low")
            return .remove
        }
        let end = EventSource.timer(milliseconds: 5, on: .default) {
            guard events.count == 2 else { return .keep }
            loop.quit()
            return .remove
        }
        loop.run()
        withExtendedLifetime((source, end)) {}
        try require(events.all == ["low", "A"], "\(events.all)")
    }
}
