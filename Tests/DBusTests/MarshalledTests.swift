// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonDBus
import CarillonTestLimits
import Testing

@testable import CarillonDBus

/// Messages made from bytes, by which one notification goes to many clients.
@Suite("Marshalled messages", .limited)
struct MarshalledTests {
    @Test("A signal made from the marshalled body of another message has the values of that message")
    func signal() throws {
        let original = Sample.signal { writer in
            writer.append("Größe")
            writer.array(of: "{sv}") { $0.entry("a", UInt16(7)) }
        }
        let message = try #require(
            Message.signal(
                to: ":1.7", path: "/bell", interface: "org.example.Bell", member: "Rang", serial: 99,
                signature: "sa{sv}", body: original.marshalledBody))
        #expect(message.kind == .signal)
        #expect(message.destination == ":1.7")
        #expect(message.path == "/bell")
        #expect(message.interface == "org.example.Bell")
        #expect(message.member == "Rang")
        #expect(message.serial == 99)
        #expect(message.signature == "sa{sv}")
        #expect(message.marshalledBody == original.marshalledBody)
        var reader = MessageReader(message)
        #expect(try reader.readString() == "Größe")
    }

    @Test("MarshalledBytes writes the bytes that libdbus writes")
    func bytes() {
        let original = Sample.signal { writer in
            writer.append(UInt8(1))
            writer.append(UInt32(2))
            writer.append("text")
            writer.append(fixedArray: [UInt64]([3, 4]))
            writer.append(UInt64(5))
            writer.append(fixedArray: [UInt64]())
            writer.append("")
        }
        let bytes = MarshalledBytes.make(atMost: 256) { bytes in
            bytes.append(UInt8(1))
            bytes.append(UInt32(2))
            bytes.append("text")
            bytes.append([3, 4])
            bytes.append(UInt64(5))
            bytes.append([])
            bytes.append("")
        }
        #expect(bytes == original.marshalledBody)
    }

    @Test("A body of other types, a truncated body or a longer body gives no message")
    func damaged() {
        let body = Sample.signal { $0.append("text") }.marshalledBody
        func make(_ signature: Signature, _ body: [UInt8]) -> Message? {
            Message.signal(
                to: ":1.7", path: "/", interface: "org.example.Bell", member: "Rang", serial: 1, signature: signature,
                body: body)
        }
        #expect(make("s", body) != nil)
        #expect(make("o", body) == nil)
        #expect(make("ss", body) == nil)
        #expect(make("", body) == nil)
        #expect(make("s", []) == nil)
        #expect(make("s", Array(body.dropLast())) == nil)
        #expect(make("s", body + [0]) == nil)
        #expect(make("s", [255, 255, 255, 255, 0]) == nil)
        #expect(make("s", [1, 0, 0, 0, 0xFF, 0]) == nil)
        #expect(make("b", [2, 0, 0, 0]) == nil)
    }

    @Test(
        "A message in the other byte order has its body in native order, read before or not",
        arguments: [false, true])
    func byteOrder(isRead: Bool) throws {
        // A signal "su" as a big-endian machine sends it.
        var bytes: [UInt8] = [UInt8(ascii: "B"), 4, 1, 1]
        bytes += [0, 0, 0, 12] + [0, 0, 0, 1] + [0, 0, 0, 47]
        bytes += [1, 1, UInt8(ascii: "o"), 0, 0, 0, 0, 1] + Array("/\0".utf8) + [0, 0, 0, 0, 0, 0]
        bytes += [2, 1, UInt8(ascii: "s"), 0, 0, 0, 0, 3] + Array("a.b\0".utf8) + [0, 0, 0, 0]
        bytes += [3, 1, UInt8(ascii: "s"), 0, 0, 0, 0, 1] + Array("C\0".utf8)
        bytes[15] = UInt8(bytes.count - 16 + 6 + 7)
        bytes += [0, 0, 0, 0, 0, 0] + [8, 1, UInt8(ascii: "g"), 0, 2] + Array("su\0".utf8)
        bytes[15] = UInt8(bytes.count - 16)
        while bytes.count % 8 != 0 { bytes.append(0) }
        bytes += [0, 0, 0, 1] + Array("x\0".utf8) + [0, 0] + [0, 0, 0, 7]

        let message = try #require(demarshal(bytes))
        var reader = MessageReader(message)
        if isRead {
            #expect(try reader.readString() == "x")
            #expect(try reader.read(UInt32.self) == 7)
        }
        let expected = Sample.signal { writer in
            writer.append("x")
            writer.append(UInt32(7))
        }
        #expect(message.marshalledBody == expected.marshalledBody)
    }

    private func demarshal(_ bytes: [UInt8]) -> Message? {
        var error = DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        let pointer = bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
        return pointer.map { Message(adopting: $0) }
    }
}
