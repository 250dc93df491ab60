// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import Glibc
import Testing

@testable import CarillonDBus

/// Messages in the bytes that they came in.
@Suite("Received messages", .limited)
struct EncodedMessageTests {
    @Test("Headers are read as by libdbus, for messages of every kind, and in both byte orders")
    func header() throws {
        for message in Self.samples {
            let arrived = try #require(Message(arrived: message.bytes))
            #expect(arrived.arrived != nil)
            expectSame(arrived, message)
        }
        let swapped = try #require(Message(arrived: Self.bigEndian))
        #expect(swapped.kind == .methodCall && swapped.member == "Ring" && swapped.serial == 258)
        #expect(swapped.arrived?.header.isSwapped == (1.littleEndian == 1))
        var reader = MessageReader(swapped)
        #expect(try reader.read(UInt32.self) == 772)
        #expect(swapped.marshalledBody == Array(withUnsafeBytes(of: UInt32(772)) { $0 }))
    }

    @Test("A damaged message is read as by libdbus, or left to libdbus, and no read exceeds its bytes")
    func damage() throws {
        var random = SplitMix.ofTest("ArrivedMessageTests.damage", standard: 3)
        var read = 0
        for sample in Self.samples {
            for _ in 0..<800 {
                var bytes = sample.bytes
                for _ in 0..<Int.random(in: 1...3, using: &random) {
                    bytes[Int.random(in: 0..<bytes.count, using: &random)] = .random(in: 0...255, using: &random)
                }
                // What is handed on is as long as it says.
                guard let count = try? bytes.withUnsafeBytes(MessageHeader.byteCount), count == bytes.count,
                    let message = Message(arrived: bytes)
                else { continue }
                read += 1
                var reader = MessageReader(message)
                while !reader.isAtEnd { reader.skip() }
                guard let pointer = EncodedMessage.demarshalled(bytes) else { continue }
                expectSame(message, Message(adopting: pointer))
            }
        }
        #expect(read > 1000)
    }

    @Test("Malformed arguments can't be read, and the call can still be answered")
    func badArguments() throws {
        let call = Sample.call("Ring", to: ":1.1") { $0.append("text") }
        dbus_message_set_serial(call.pointer, 7)
        check(dbus_message_set_sender(call.pointer, ":1.5"))
        var bytes = call.bytes
        bytes[bytes.count - 1] = 1  // where the NUL behind the text was
        let message = try #require(Message(arrived: bytes))
        #expect(message.hasSignature("s") && message.hasMember("Ring"))
        var reader = MessageReader(message)
        #expect(throws: BusError.self) { _ = try reader.readString() }
        let reply = message.errorReply(.failed("no"))
        #expect(reply.destination == ":1.5" && reply.replySerial == 7 && reply.error == .failed("no"))
    }

    @Test("A message with file descriptors is recognized, and its other arguments can be read")
    func descriptors() throws {
        let call = Sample.call("Ring", to: ":1.1") { writer in
            writer.append("text")
            writer.append(FileDescriptor(adopting: dup(0)))
        }
        dbus_message_set_serial(call.pointer, 7)
        let message = try #require(Message(arrived: call.bytes))
        #expect(message.hasDescriptors)
        var reader = MessageReader(message)
        #expect(try reader.readString() == "text")
        #expect(try reader.read(FileDescriptor.self).rawValue == -1)
    }

    @Test("A message with an unknown header field is left to libdbus")
    func unknownField() throws {
        let sample = Self.samples[0]
        var bytes = sample.bytes
        // A variant of an array behind the fields that there are.
        var fields = 16 + Int(bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 12, as: UInt32.self) })
        let body = Array(bytes[MessageHeader.padded(fields)...])
        bytes = Array(bytes[..<MessageHeader.padded(fields)])
        bytes += [200, 2] + Array("ay".utf8) + [0, 0, 0, 0] + [2, 0, 0, 0, 1, 2]
        fields = bytes.count
        withUnsafeBytes(of: UInt32(fields - 16)) { bytes.replaceSubrange(12..<16, with: $0) }
        while bytes.count % 8 != 0 { bytes.append(0) }
        bytes += body
        let message = try #require(Message(arrived: bytes))
        #expect(message.arrived == nil)
        expectSame(message, sample)
    }

    private func expectSame(_ one: Message, _ other: Message, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(one.kind == other.kind, sourceLocation: sourceLocation)
        #expect(one.serial == other.serial && one.replySerial == other.replySerial, sourceLocation: sourceLocation)
        #expect(one.sender == other.sender && one.isFromBus == other.isFromBus, sourceLocation: sourceLocation)
        #expect(one.hasSender == other.hasSender, sourceLocation: sourceLocation)
        #expect(one.destination == other.destination && one.path == other.path, sourceLocation: sourceLocation)
        #expect(one.interface == other.interface && one.member == other.member, sourceLocation: sourceLocation)
        #expect(one.errorName == other.errorName && one.signature == other.signature, sourceLocation: sourceLocation)
        #expect(one.expectsNoReply == other.expectsNoReply, sourceLocation: sourceLocation)
        #expect(one.hasSignature(other.signature), sourceLocation: sourceLocation)
        if let member = other.member { #expect(one.hasMember(member), sourceLocation: sourceLocation) }
        if let path = other.path { #expect(one.hasPath(path), sourceLocation: sourceLocation) }
        if let interface = other.interface { #expect(one.hasInterface(interface), sourceLocation: sourceLocation) }
        #expect(!one.hasMember("NoSuch") && !one.hasSignature("aaaas"), sourceLocation: sourceLocation)
    }

    /// As libdbus made them, with senders as a bus puts them in.
    static var samples: [Message] {
        let call = Sample.call("Ring", to: ":1.1") { $0.append("text") }
        let quiet = Sample.call("Ring", to: ":1.1") { _ in }
        quiet.expectsNoReply = true
        let samples = [
            call, quiet, Sample.signal { $0.append(UInt64(1)) }, Message.methodReturn(to: ":1.9", serial: 5),
            Message.error(.failed("why"), to: ":1.9", serial: 6),
        ]
        for (index, message) in samples.enumerated() {
            dbus_message_set_serial(message.pointer, UInt32(index) + 1)
            check(dbus_message_set_sender(message.pointer, index == 2 ? "org.freedesktop.DBus" : ":1.\(index)"))
        }
        return samples
    }

    /// A call of `Ring` with the number 772, written by hand.
    private static let bigEndian: [UInt8] = {
        var bytes: [UInt8] = [UInt8(ascii: "B"), 1, 0, 1, 0, 0, 0, 4, 0, 0, 1, 2, 0, 0, 0, 0]
        func field(_ code: UInt8, _ type: String, _ text: String) {
            while bytes.count % 8 != 0 { bytes.append(0) }
            bytes += [code, 1] + Array(type.utf8) + [0]
            bytes += type == "g" ? [UInt8(text.utf8.count)] : [0, 0, 0, UInt8(text.utf8.count)]
            bytes += Array(text.utf8) + [0]
        }
        field(1, "o", "/bell")
        field(3, "s", "Ring")
        field(8, "g", "u")
        bytes[15] = UInt8(bytes.count - 16)
        while bytes.count % 8 != 0 { bytes.append(0) }
        return bytes + [0, 0, 3, 4]
    }()
}

extension Message {
    var bytes: [UInt8] { withMarshalledBytes { Array($0) } }
}
