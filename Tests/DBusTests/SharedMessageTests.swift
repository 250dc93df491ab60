// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonDBus

/// Messages that many get, with a header made once and a part that they share, and calls that are laid out here.
@Suite("Messages with a shared body for many receivers", .serialized, .limited)
struct SharedMessageTests {
    private static let form = MessageTemplate.signal(
        path: "/org/example/Bell", interface: "org.example.Bell", member: "Rang", signature: "ayt")

    /// The argument `ay`, with so many bytes.
    private func shared(_ count: Int) -> [UInt8] {
        MarshalledBytes.make(atMost: 4 + count) { bytes in
            bytes.append(UInt32(count))
            for byte in 0..<count { bytes.append(UInt8(truncatingIfNeeded: byte)) }
        }
    }

    @Test("A prepared header with a shared part gives the bytes of a message made for one receiver")
    func sameBytes() {
        for name in [":1.7", ":1.12345", ":1.1234567"] as [UniqueName] {
            let head = Self.form.head(to: name)
            for count in 0..<20 {
                let shared = shared(count)
                let one = Self.form.message(to: name, serial: 77, size: shared.count + 32) { body in
                    body.append(bytes: shared)
                    body.append(UInt64(count))
                }
                let other = head.message(serial: 77, shared, size: 16) { $0.append(UInt64(count)) }
                #expect(one.bytes == other.bytes && other.destination == name && other.serial == 77)
                #expect(other.isValid)
            }
        }
    }

    @Test(
        "Small and large shared messages arrive whole and in order, also when the socket is full",
        arguments: BusKind.available)
    func order(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (sender, receiver) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let sizes = [0, 3, 1000, SocketWriter.maxCopied - 4, SocketWriter.maxCopied - 3, 150_001]
        var (received, faults): (UInt64, [UInt64]) = (0, [])
        receiver.onMessage = { message in
            guard message.hasMember("Rang") else { return false }
            let number = received
            let expected = shared(sizes[Int(number) % sizes.count])
            message.withMarshalledBody { body in
                let rest = (expected.count + 7) & ~7
                let isWhole =
                    body.count == rest + 8 && body[..<expected.count].elementsEqual(expected)
                    && body.loadUnaligned(fromByteOffset: rest, as: UInt64.self) == number
                if !isWhole { faults.append(number) }
            }
            received += 1
            return true
        }
        let head = Self.form.head(to: try #require(receiver.uniqueName))
        let parts = sizes.map(shared)
        let count: UInt64 = 120
        sender.batchSends {
            for number in 0..<count {
                let part = parts[Int(number) % parts.count]
                sender.send(head, serial: 1 << 31 + UInt32(number), part, size: 16) { $0.append(number) }
            }
        }
        try loop.run("all of them") { received >= count }
        #expect(received == count && faults.isEmpty && sender.outgoingBytes == 0)
    }

    @Test("A call marshalled without libdbus has its serial, flags and body, also as libdbus reads them")
    func marshalled() throws {
        let form = MessageTemplate.methodCall(
            path: "/bell", interface: "org.example.Bell", member: "Ring", signature: "t")
        let call = Message(marshalled: form.message(to: ":1.7", size: 8) { $0.append(UInt64(5)) })
        #expect(call.kind == .methodCall && call.serial == 0 && !call.expectsNoReply && !call.startsService)
        #expect(call.destination == ":1.7" && call.hasMember("Ring") && call.hasSignature("t") && call.sender == nil)
        var reader = MessageReader(call)
        #expect(try reader.read(UInt64.self) == 5)
        #expect(dbus_message_get_serial(call.pointer) == 0)
        #expect(call.numbered { 9 } == 9 && call.serial == 9 && dbus_message_get_serial(call.pointer) == 9)
        #expect(call.numbered { 10 } == 9)
        call.expectsNoReply = true
        #expect(call.expectsNoReply && dbus_message_get_no_reply(call.pointer) != 0)
        let copy = try #require(Message(arrived: call.withMarshalledBytes { Array($0) }))
        #expect(copy.serial == 9 && copy.expectsNoReply && copy.marshalledBody == call.marshalledBody)
    }

    @Test("The bus and a connection answer calls that were marshalled without libdbus", arguments: BusKind.available)
    func questions(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (one, other) = (try loop.connect(to: bus), try loop.connect(to: bus))
        try loop.wait { one.makeBusRoundTrip(completion: $0) }.get()
        let form = MessageTemplate.methodCall(
            path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping", signature: "")
        let ping = Message(marshalled: form.message(to: try #require(other.uniqueName), size: 0) { _ in })
        let answer = try loop.call(ping, on: one)
        #expect(answer.sender == other.uniqueName && answer.signature == "")
        let empty = MessageTemplate.methodReturn(signature: "")
        let direct = Message(empty.message(to: ":1.7", answering: 3, size: 0) { _ in })
        #expect(direct.replySerial == 3 && direct.signature == "" && direct.marshalledBody.isEmpty)
    }
}
