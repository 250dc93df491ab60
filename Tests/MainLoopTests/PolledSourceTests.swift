// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Polled sources", .limited)
struct PolledSourceTests {
    /// A source over the reading end of a pipe.
    private final class Reader: PolledSourceDelegate {
        var pending = false
        var dispatches = 0
        var occurred: [PolledSource.Conditions] = []
        var onDispatch: (Reader) -> Void = { _ in }
        var source: PolledSource?
        var tag: PolledSource.Tag?

        init(
            _ context: MainContext, _ descriptor: Int32, waitingFor conditions: PolledSource.Conditions = .readable,
            priority: EventSource.Priority = .default
        ) {
            source = PolledSource(delegate: self, priority: priority, context: context)
            tag = source?.add(descriptor: descriptor, waitingFor: conditions)
        }

        func hasPendingWork() -> Bool { pending }

        func dispatch() {
            dispatches += 1
            if let source, let tag { occurred.append(source.occurred(on: tag)) }
            onDispatch(self)
        }
    }

    private final class Pipe {
        let reading: Int32
        private(set) var writing: Int32

        init() throws {
            var ends: [Int32] = [-1, -1]
            try #require(pipe(&ends) == 0)
            (reading, writing) = (ends[0], ends[1])
        }

        deinit {
            close(reading)
            closeWriting()
        }

        func closeWriting() {
            if writing >= 0 { close(writing) }
            writing = -1
        }

        func put() { _ = write(writing, "x", 1) }

        func take() {
            var byte: UInt8 = 0
            _ = read(reading, &byte, 1)
        }
    }

    @Test("A source is dispatched as long as its descriptor is readable")
    func readable() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        let reader = Reader(context, pipe.reading)
        context.settle()
        #expect(reader.dispatches == 0)
        pipe.put()
        try context.wait(for: "the descriptor")
        #expect(reader.dispatches == 1 && reader.occurred == [.readable])
        try context.wait(for: "the descriptor")
        #expect(reader.dispatches == 2)
        pipe.take()
        context.settle()
        #expect(reader.dispatches == 2)
    }

    @Test("A source that waits for writability is dispatched when its descriptor is writable")
    func writable() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        let reader = Reader(context, pipe.writing, waitingFor: .writable)
        try context.wait(for: "the descriptor")
        #expect(reader.occurred == [.writable])
    }

    @Test("Pending work of the delegate dispatches a source whose descriptor is not ready")
    func pendingWork() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        let reader = Reader(context, pipe.reading)
        reader.pending = true
        reader.onDispatch = { $0.pending = $0.dispatches < 3 }
        context.settle()
        #expect(reader.dispatches == 3)
        #expect(reader.occurred == [[], [], []])
    }

    @Test("The closing of the other end of a pipe is reported as a hang-up")
    func hangUp() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        let reader = Reader(context, pipe.reading, waitingFor: [.readable, .hangUp])
        pipe.put()
        pipe.closeWriting()
        try context.wait(for: "the descriptor")
        #expect(reader.occurred == [[.readable, .hangUp]])
        pipe.take()
        try context.wait(for: "the descriptor")
        #expect(reader.occurred.last?.contains(.hangUp) == true)
        // Not waited for any more, it does not keep the loop busy.
        reader.source!.remove(reader.tag!)
        reader.tag = nil
        let count = reader.dispatches
        context.settle()
        #expect(reader.dispatches == count)
    }

    @Test("The conditions of several descriptors of one source are reported separately")
    func several() throws {
        let (context, first, second) = (MainContext(), try Pipe(), try Pipe())
        let reader = Reader(context, first.reading)
        let other = reader.source!.add(descriptor: second.reading, waitingFor: .readable)
        second.put()
        var seen: [(PolledSource.Conditions, PolledSource.Conditions)] = []
        reader.onDispatch = { reader in
            seen.append((reader.source!.occurred(on: reader.tag!), reader.source!.occurred(on: other)))
        }
        try context.wait(for: "the descriptor")
        #expect(seen.count == 1 && seen[0].0 == [] && seen[0].1 == .readable)
    }

    @Test("A descriptor can be removed during dispatch, and added again")
    func removeTagInside() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        let reader = Reader(context, pipe.reading)
        reader.onDispatch = { reader in
            reader.source!.remove(reader.tag!)
            reader.tag = nil
        }
        pipe.put()
        context.settle()
        #expect(reader.dispatches == 1)
        reader.onDispatch = { _ in }
        reader.tag = reader.source!.add(descriptor: pipe.reading, waitingFor: .readable)
        try context.wait(for: "the descriptor")
        #expect(reader.dispatches == 2)
    }

    @Test("A nested loop neither dispatches its outer source nor spins, and dispatch continues afterwards")
    func loopInside() throws {
        let (context, pipe, another) = (MainContext(), try Pipe(), try Pipe())
        let reader = Reader(context, pipe.reading)
        var added: PolledSource.Tag?
        reader.onDispatch = { reader in
            guard reader.dispatches == 1 else { return }
            // GLib finds it readable once more, and then no more.
            context.iterate(mayBlock: false)
            #expect(!context.iterate(mayBlock: false))
            added = reader.source!.add(descriptor: another.reading, waitingFor: .readable)
            another.put()
            #expect(!context.iterate(mayBlock: false))
            #expect(reader.dispatches == 1)
        }
        pipe.put()
        try context.wait(for: "the descriptor")
        #expect(reader.dispatches == 1)
        try context.wait(for: "the descriptor")
        #expect(reader.dispatches == 2 && reader.occurred.last == [.readable])
        pipe.take()
        reader.source!.remove(reader.tag!)
        try context.wait(for: "the descriptor")
        #expect(reader.source!.occurred(on: added!) == .readable)
    }

    @Test("A source and its delegate can be released during dispatch")
    func releaseInside() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        var reader: Reader? = Reader(context, pipe.reading)
        weak let watched = reader
        var count = 0
        reader?.onDispatch = { _ in
            count += 1
            reader = nil
        }
        pipe.put()
        context.settle()
        #expect(count == 1)
        #expect(watched == nil)
    }

    @Test("A source does not keep its delegate alive, and does no work without it")
    func weakDelegate() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        var reader: Reader? = Reader(context, pipe.reading)
        weak let watched = reader
        // The source outlives its owner for a moment.
        var source = reader?.source
        reader = nil
        #expect(watched == nil)
        pipe.put()
        context.iterate(mayBlock: false)
        #expect(source != nil)
        source = nil
        #expect(!context.iterate(mayBlock: false))
    }

    @Test("A source is dispatched by its priority among other sources")
    func priority() throws {
        let (context, pipe) = (MainContext(), try Pipe())
        var order: [String] = []
        let reader = Reader(context, pipe.reading, priority: .default)
        reader.onDispatch = { _ in
            order.append("descriptor")
            pipe.take()
        }
        let idle = EventSource.idle(on: context) {
            order.append("idle")
            return .remove
        }
        let high = EventSource.idle(on: context, priority: .high) {
            order.append("high")
            return .remove
        }
        pipe.put()
        context.settle()
        #expect(order == ["high", "descriptor", "idle"])
        withExtendedLifetime((idle, high)) {}
    }
}
