// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Many messages: none is lost, none overtakes, and the loop still turns.
@Suite("The flow of messages", .serialized, .limited)
struct FlowTests {
    @Test("D4: the signals of one sender arrive in order", arguments: BusKind.available)
    func order(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (sender, receiver) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let numbers = Numbers(of: receiver)
        for number in UInt32(0)..<1000 { sender.send(signal(number, to: receiver)) }
        try loop.run("all signals") { numbers.received.count >= 1000 }
        #expect(numbers.received == Array(0..<1000))
    }

    @Test("A handler can send messages and make calls, also to its own connection", arguments: BusKind.available)
    func sendInHandler(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (left, right) = (try loop.connect(to: bus), try loop.connect(to: bus))
        var bounces = 0
        var replies = 0
        func bounce(_ from: Connection, _ to: Connection) {
            from.onMessage = { [unowned from, unowned to] message in
                guard message.member == "Bounce" else { return false }
                bounces += 1
                if bounces < 1000 { from.send(Sample.signal("Bounce", to: to.uniqueName)) }
                from.processID(of: from.uniqueName!) { _ in replies += 1 }
                return true
            }
        }
        bounce(left, right)
        bounce(right, left)
        left.send(Sample.signal("Bounce", to: right.uniqueName))
        try loop.run("the bounces") { bounces == 1000 && replies == 1000 }

        var own = 0
        left.onMessage = { [unowned left] message in
            guard message.member == "Own" else { return false }
            own += 1
            if own < 100 { left.send(Sample.signal("Own", to: left.uniqueName)) }
            return true
        }
        left.send(Sample.signal("Own", to: left.uniqueName))
        try loop.run("the echoes") { own == 100 }
    }

    @Test(
        "A paused connection delivers no message, and all of them in order when it resumes",
        arguments: BusKind.available)
    func pause(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (left, right) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let numbers = Numbers(of: right)
        var isAnswered = false
        right.isPaused = true
        for number in 0..<UInt32(100) { left.send(signal(number, to: right)) }
        right.busID { _ in isAnswered = true }
        var answers = 0
        for _ in 0..<3 { left.busID { _ in answers += 1 } }
        try loop.run("the bus to have carried them") { answers == 3 }
        #expect(numbers.received.isEmpty && !isAnswered)
        right.isPaused = false
        try loop.run("all of it") { numbers.received.count == 100 && isAnswered }
        #expect(numbers.received == Array(0..<100))
    }

    @Test(
        "Reading continues when the limit of received bytes is raised, while all received messages are still held",
        arguments: BusKind.available)
    func receivedBytes(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (left, right) = (try loop.connect(to: bus), try loop.connect(to: bus))
        var kept: [Message] = []
        right.onMessage = { message in
            guard message.member == "Kept" else { return false }
            kept.append(message)
            return true
        }
        right.maxReceivedBytes = 100_000
        for _ in 0..<400 {
            let message = Sample.signal("Kept", to: right.uniqueName)
            var writer = MessageWriter(message)
            writer.append(String(repeating: "x", count: 1000))
            left.send(message)
        }
        var isAnswered = false
        left.busID { _ in isAnswered = true }
        try loop.run("what may be received") { isAnswered && kept.count >= 80 }
        #expect(kept.count < 200)
        right.maxReceivedBytes = 1_000_000
        try loop.run("the rest") { kept.count == 400 }
    }

    @Test("Small and large messages arrive whole and in order", arguments: BusKind.available)
    func sizes(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (left, right) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let sizes = (0..<200).map { [0, 1, 2000, 2048, 4096, 5000, 100_000, 1 << 20][$0 * 7 % 8] }
        var received: [Int] = []
        right.onMessage = { message in
            guard message.member == "Sized" else { return false }
            var reader = MessageReader(message)
            received.append((try? reader.readString())?.utf8.count ?? -1)
            return true
        }
        for size in sizes {
            let message = Sample.signal("Sized", to: right.uniqueName)
            var writer = MessageWriter(message)
            writer.append(String(repeating: "x", count: size))
            left.send(message)
        }
        try loop.run("all of them") { received.count == sizes.count }
        #expect(received == sizes)
    }

    @Test("20,000 messages in each direction at once arrive complete and in order", arguments: BusKind.available)
    func flood(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (left, right) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let (atLeft, atRight) = (Numbers(of: left), Numbers(of: right))
        let count: UInt32 = 20_000
        // In portions that the bus's quota for one connection holds (dbus-broker counts what nobody read yet).
        for start in stride(from: 0, to: count, by: 4000) {
            for number in start..<start + 4000 {
                left.send(signal(number, to: right))
                right.send(signal(number, to: left))
            }
            try loop.run("a portion") {
                atLeft.received.count >= start + 4000 && atRight.received.count >= start + 4000
            }
        }
        #expect(atLeft.received == Array(0..<count))
        #expect(atRight.received == Array(0..<count))
        #expect(left.outgoingBytes == 0 && right.outgoingBytes == 0)
    }

    @Test(
        "Bytes that the socket does not accept are queued, counted, and sent by the loop", arguments: BusKind.available)
    func backlog(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let (senders, receivers) = (Loop(), Loop())
        let (sender, receiver) = (try senders.connect(to: bus), try receivers.connect(to: bus))
        let numbers = Numbers(of: receiver)
        let block = [UInt8](repeating: 1, count: 1 << 20)
        // Without a turn of the loop the socket takes no more than its buffer.
        for number in UInt32(0)..<8 {
            let message = signal(number, to: receiver)
            var writer = MessageWriter(message)
            writer.append(fixedArray: block)
            sender.send(message)
        }
        #expect(sender.outgoingBytes > 1 << 20)
        try senders.run("the backlog to go out") { sender.outgoingBytes == 0 }
        try receivers.run("all of it") { numbers.received.count == 8 }
        #expect(numbers.received == Array(0..<8))
    }

    @Test("Messages with file descriptors keep their order, also when the socket is full", arguments: BusKind.available)
    func descriptorsInTheirPlace(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let (senders, receivers) = (Loop(), Loop())
        let (sender, receiver) = (try senders.connect(to: bus), try receivers.connect(to: bus))
        let numbers = Numbers(of: receiver)
        let descriptor = FileDescriptor(adopting: dup(0))
        let block = [UInt8](repeating: 1, count: 1 << 20)
        for number in UInt32(0)..<9 {
            let message = signal(number, to: receiver)
            var writer = MessageWriter(message)
            switch number % 3 {
            case 0: writer.append(fixedArray: block)
            case 1: writer.append(descriptor)
            default: break
            }
            sender.send(message)
        }
        try senders.run("the backlog to go out") { sender.outgoingBytes == 0 }
        try receivers.run("all of it") { numbers.received.count == 9 }
        #expect(numbers.received == Array(0..<9))
    }

    @Test("Messages sent in a handler leave before a nested loop of the handler waits")
    func loopInHandler() throws {
        let bus = try PrivateBus()
        let loop = Loop()
        let (left, right) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let numbers = Numbers(of: right)
        var handled = 0
        left.onMessage = { [unowned left] message in
            guard message.member == "Begin" else { return false }
            let before = numbers.received.count
            left.send(signal(1, to: right))
            left.batchSends { left.send(signal(2, to: right)) }
            #expect(throws: Never.self) {
                try loop.run("what was sent") { numbers.received.count == before + 2 }
            }
            handled += 1
            return true
        }
        // Twice: the source of the connection is asked again behind such a loop.
        for number in 1...2 {
            right.send(Sample.signal("Begin", to: left.uniqueName))
            try loop.run("the handler") { handled == number }
        }
        #expect(numbers.received == [1, 2, 1, 2])
    }

    @Test("An iteration of the loop delivers a bounded number of messages, so a flood does not starve other sources")
    func turns() throws {
        let bus = try PrivateBus()
        let (senders, receivers) = (Loop(), Loop())
        let (sender, receiver) = (try senders.connect(to: bus), try receivers.connect(to: bus))
        let numbers = Numbers(of: receiver)
        for number in UInt32(0)..<500 { sender.send(signal(number, to: receiver)) }
        try senders.barrier(sender)
        var largest = 0
        var others = 0
        let idle = EventSource.idle(on: receivers.context, priority: .default) {
            others += 1
            return .keep
        }
        var wait = Wait(.event)
        while numbers.received.count < 500 {
            // The idle source never lets the loop wait, so that no timer is needed to look at this.
            try wait.look(for: "all messages: \(numbers.received.count) came")
            let before = numbers.received.count
            receivers.context.iterate(mayBlock: true)
            largest = max(largest, numbers.received.count - before)
        }
        #expect(largest <= 32)
        #expect(others >= 500 / 32)
        withExtendedLifetime(idle) {}
    }

    @Test(
        "A message of many types crosses the bus unchanged, except its file descriptor, which is closed",
        arguments: BusKind.available)
    func echo(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (caller, callee) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let descriptor = FileDescriptor(adopting: dup(0))
        func append(to writer: inout MessageWriter) {
            writer.append(Int64.min)
            writer.append(Double.nan)
            writer.append("Größe 🔔")
            writer.append(descriptor)
            writer.array(of: "{s(tv)}") { _ in }
            writer.array(of: "{sv}") { $0.entry("key", UInt16.max) }
            writer.append(fixedArray: [UInt8](repeating: 5, count: 100_000))
        }
        var called: [UInt8] = []
        callee.onMessage = { [unowned callee] message in
            guard message.kind == .methodCall else { return false }
            called = message.marshalledBody
            let reply = message.methodReturn()
            var writer = MessageWriter(reply)
            append(to: &writer)
            callee.send(reply)
            return true
        }
        let call = Sample.call("Echo", to: callee.uniqueName!, append)
        let reply = try loop.call(call, on: caller)
        #expect(!called.isEmpty && called == call.marshalledBody)
        #expect(reply.signature == "xdsha{s(tv)}a{sv}ay")
        var reader = MessageReader(reply)
        #expect(try reader.read(Int64.self) == .min)
        #expect(try reader.read(Double.self).isNaN)
        #expect(try reader.readString() == "Größe 🔔")
        #expect(try reader.read(FileDescriptor.self).rawValue == -1, "descriptors are closed at once")
        let empty = try reader.readContainer(.array)
        #expect(empty.hasEnded)
        var entries = try reader.readContainer(.array)
        var entry = try entries.readContainer(.dictEntry)
        #expect(try entry.readString() == "key")
        var value = try entry.readContainer(.variant)
        #expect(try value.read(UInt16.self) == .max)
        #expect(try reader.readFixedArray(of: UInt8.self) == [UInt8](repeating: 5, count: 100_000))
    }

    // MARK: -

    private func signal(_ number: UInt32, to receiver: Connection) -> Message {
        Sample.signal(to: receiver.uniqueName) { $0.append(number) }
    }

    /// The numbers of the signals that a connection received.
    private final class Numbers {
        private(set) var received: [UInt32] = []

        init(of connection: Connection) {
            connection.onMessage = { [unowned self] message in
                guard message.isSignal(Sample.interface, "Rang") else { return false }
                var reader = MessageReader(message)
                if let number = try? reader.read(UInt32.self) { received.append(number) }
                return true
            }
        }
    }
}
