// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// The model of the bus does what the real ones do, as far as the service can see it.
@Suite("Model of the bus", .limited)
struct BusModelTests {
    /// A connection that keeps what arrives.
    private final class Ear {
        let peer: Peer
        private let bus: Bus
        private(set) var heard: [Message] = []
        var reads = true

        init(_ bus: Bus) {
            self.bus = bus
            peer = bus.connect(processID: 7)
            peer.onReadable = { [unowned self] in read() }
            _ = peer.send(call("Hello"))
        }

        func read() {
            while reads, let message = peer.receive() { heard.append(message) }
        }

        func call(_ member: MemberName, _ text: String? = nil, flags: UInt32? = nil) -> Message {
            let message = Message.methodCall(
                to: AnyBusName("org.freedesktop.DBus"), path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus", member: member)
            var writer = MessageWriter(message)
            if let text { writer.append(text) }
            if let flags { writer.append(flags) }
            return message
        }

        func send(_ descriptor: FileDescriptor, to name: UniqueName) {
            let signal = Message.signal(to: name, path: "/", interface: "com.example.A", member: "Ding")
            var writer = MessageWriter(signal)
            writer.append(descriptor)
            _ = peer.send(signal)
        }

        var members: [String] { heard.compactMap { $0.member?.rawValue } }
        var errors: [String] { heard.compactMap { $0.errorName?.rawValue } }
    }

    private func stage(_ manner: Bus.Manner = Bus.Manner()) -> (World, Bus, Ear, Ear) {
        let world = World(seed: 1)
        let bus = Bus(world, id: "0f", manner: manner)
        let (one, two) = (Ear(bus), Ear(bus))
        world.run(until: 1_000_000)
        return (world, bus, one, two)
    }

    private func signal(to ear: Ear, bytes: Int = 0) -> Message {
        let signal = Message.signal(to: ear.peer.name, path: "/", interface: "com.example.A", member: "Ding")
        var writer = MessageWriter(signal)
        writer.append(fixedArray: [UInt8](repeating: 1, count: bytes))
        return signal
    }

    private func pass(_ world: World, milliseconds: Int64 = 100) {
        world.run(until: world.now + milliseconds * 1000)
    }

    @Test("Messages of one connection arrive once, in order, with their sender")
    func order() throws {
        let (world, _, one, two) = stage()
        let serials = (0..<100).map { _ in one.peer.send(signal(to: two)) }
        pass(world)
        let dings = two.heard.filter { $0.member == "Ding" }
        #expect(dings.map(\.serial) == serials)
        #expect(dings.allSatisfy { $0.sender == one.peer.name })
        #expect(one.members == [])
    }

    @Test("A message encoded before it is sent arrives like a message that libdbus encodes")
    func layout() throws {
        let (world, _, one, two) = stage()
        for bytes in 0..<20 {
            let made = signal(to: two, bytes: bytes)
            _ = made.numbered { UInt32(1000 + bytes) }
            let slow = made.carried(from: AnyBusName(one.peer.name!), serial: made.serial)
            _ = one.peer.send(made)
            pass(world)
            let heard = try #require(two.heard.last)
            #expect(heard.serial == made.serial && heard.sender == one.peer.name && heard.path == made.path)
            #expect(heard.byteCount == slow.byteCount && heard.marshalledBody == slow.marshalledBody)
            #expect(try heard.arguments() == [UInt8](repeating: 1, count: bytes))
        }
        // From a pattern, and from bytes that the service lays out.
        let call = Message.methodCall(to: two.peer.name!, path: "/", interface: "com.example.A", member: "Number")
        var writer = MessageWriter(call)
        writer.append(UInt64(0x0102_0304_0506_0708))
        let pattern = try #require(MessagePattern(call, varying: 0x0102_0304_0506_0708))
        let serial = one.peer.send(pattern, 77)
        let form = MessageTemplate.signal(path: "/", interface: "com.example.A", member: "Ding", signature: "t")
        one.peer.send(form.message(to: two.peer.name!, size: 8) { $0.append(UInt64(78)) })
        pass(world)
        let numbers = try two.heard.suffix(2).map { message in
            var reader = MessageReader(message)
            return try reader.read(UInt64.self)
        }
        #expect(numbers == [77, 78])
        #expect(two.heard.suffix(2).map(\.serial) == [serial, serial + 1])
        #expect(MessagePattern(call, varying: 1) == nil)
    }

    @Test("The next requester gets a name when its owner leaves, and matching listeners are informed")
    func queueing() throws {
        let (world, bus, one, two) = stage()
        let listener = Ear(bus)
        let rule = "type='signal',member='NameOwnerChanged',arg0='com.example.Name'"
        _ = listener.peer.send(listener.call("AddMatch", rule))
        pass(world)
        _ = one.peer.send(one.call("RequestName", "com.example.Name", flags: 0))
        pass(world)
        _ = two.peer.send(two.call("RequestName", "com.example.Name", flags: 0))
        pass(world)
        #expect(bus.owner(of: "com.example.Name") === one.peer)
        one.peer.close(losing: false)
        pass(world)
        #expect(bus.owner(of: "com.example.Name") === two.peer)
        #expect(two.members == ["NameAcquired"])
        #expect(listener.heard.compactMap { OwnerChange($0)?.newOwner } == [one.peer.name, two.peer.name])
    }

    @Test("A caller gets an error if the called connection leaves without a reply or does not exist")
    func noAnswer() throws {
        let (world, _, one, two) = stage()
        let name = try #require(two.peer.name)
        func call() -> Message { .methodCall(to: name, path: "/", interface: "com.example.A", member: "Do") }
        _ = one.peer.send(call())
        pass(world)
        two.peer.close(losing: false)
        pass(world)
        _ = one.peer.send(call())
        _ = one.peer.send(signal(to: two))
        pass(world)
        #expect(
            one.errors == ["org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.ServiceUnknown"],
            "a signal to nobody vanishes")
    }

    @Test(
        "Signals beyond a full connection's quota are refused on dbus-daemon and lost on dbus-broker; calls fail",
        arguments: Bus.Manner.Kind.allCases)
    func quota(kind: Bus.Manner.Kind) throws {
        let (world, _, one, two) = stage(Bus.Manner(kind: kind, maxOutgoingBytes: 10_000, socketBytes: 10_000))
        two.reads = false
        let serials = (0..<10).map { _ in one.peer.send(signal(to: two, bytes: 3000)) }
        pass(world)
        let told = one.heard.filter { $0.errorName == BusError.limitsExceededName }.map(\.replySerial)
        // dbus-daemon says which signals it did not take; dbus-broker says nothing.
        #expect(told == (kind == .daemon ? Array(serials[6...]) : []))
        let name = try #require(two.peer.name)
        let call = Message.methodCall(to: name, path: "/", interface: "com.example.A", member: "Do")
        var writer = MessageWriter(call)
        writer.append(fixedArray: [UInt8](repeating: 1, count: 3000))
        _ = one.peer.send(call)
        pass(world)
        #expect(one.errors.count == told.count + 1, "a call that does not fit has its error on both")
        two.reads = true
        two.read()
        pass(world)
        #expect(two.members.filter { $0 == "Ding" }.count == 6)
    }

    @Test("A sender beyond its quota waits, other senders do not, and all of its messages arrive in order")
    func incoming() throws {
        let (world, bus, one, two) = stage(Bus.Manner(socketBytes: 10_000, maxIncomingBytes: 10_000))
        let other = Ear(bus)
        pass(world)
        two.reads = false
        let serials = (0..<10).map { _ in one.peer.send(signal(to: two, bytes: 3000)) }
        let before = (one.heard.count, other.heard.count)
        _ = one.peer.send(one.call("GetId"))
        _ = other.peer.send(other.call("GetId"))
        pass(world)
        #expect(one.heard.count == before.0, "the bus does not read it")
        #expect(other.heard.count == before.1 + 1)
        two.reads = true
        two.read()
        pass(world)
        #expect(two.heard.filter { $0.member == "Ding" }.map(\.serial) == serials)
        #expect(one.heard.count == before.0 + 1)
    }

    @Test(
        "An unrequested reply is delivered by dbus-daemon and discarded by dbus-broker",
        arguments: Bus.Manner.Kind.allCases)
    func unrequested(kind: Bus.Manner.Kind) throws {
        let (world, _, one, two) = stage(Bus.Manner(kind: kind))
        let name = try #require(two.peer.name)
        let before = two.heard.count
        _ = one.peer.send(.forgedReply(to: name, serial: 1))
        pass(world)
        #expect(two.heard.count - before == (kind == .daemon ? 1 : 0))
    }

    @Test("A connection that the bus closes can still read its messages, and then ends")
    func cut() throws {
        let (world, bus, one, two) = stage()
        two.reads = false
        _ = one.peer.send(signal(to: two))
        pass(world)
        bus.disconnect(two.peer)
        #expect(!two.peer.hasEnded)
        two.reads = true
        pass(world)
        #expect(two.members == ["Ding"])
        #expect(two.peer.hasEnded)
    }

    @Test(
        "A descriptor that the bus does not deliver is closed at once, for any fate of its message",
        arguments: [Streams.Trouble.stripped, Streams.Trouble.refused, nil])
    func lostDescriptor(trouble: Streams.Trouble?) throws {
        let (world, bus, one, two) = stage(Bus.Manner(maxOutgoingBytes: 0, socketBytes: 10_000))
        let streams = Streams(world)
        let name = try #require(two.peer.name)
        var lost: [UniqueName] = []
        bus.onLostDescriptor = { receiver in
            lost.append(receiver)
            streams.lookAfterAll()
        }
        bus.descriptorTrouble = trouble
        two.reads = false
        // Without trouble there is no room.
        if trouble == nil { _ = one.peer.send(signal(to: two, bytes: 20_000)) }
        var kept = try #require(streams.make(for: LoopProcess(world, id: 1, name: "test")))
        one.send(kept.other, to: name)
        kept.other = FileDescriptor(adopting: -1)
        #expect(kept.own.ready == [.writable], "it is on its way")
        // Before it is looked after without being told.
        world.run(until: world.now + 200)
        #expect(lost == [name])
        #expect(kept.own.ready.contains(.hangUp))
    }

    @Test("The number of match rules of a connection is bounded")
    func rules() throws {
        let (world, _, one, _) = stage(Bus.Manner(maxRules: 2))
        for number in 0..<3 { _ = one.peer.send(one.call("AddMatch", "arg0='\(number)'")) }
        pass(world)
        #expect(one.errors == ["org.freedesktop.DBus.Error.LimitsExceeded"])
    }
}

extension Message {
    fileprivate func arguments() throws -> [UInt8] {
        var reader = MessageReader(self)
        return try reader.readFixedArray()
    }
}
