// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

/// Operations that a message bus performs on messages, for the simulated bus of tests (E7).
extension Message {
    /// Assigns a serial to a message without one, and returns the serial of the message.
    ///
    /// - Parameter next: Returns the next serial of the sending connection.
    package func numbered(_ next: () -> UInt32) -> UInt32 {
        if serial == 0 { number(next()) }
        return serial
    }

    /// Returns a copy as its receiver gets it from the bus: with a sender and a serial.
    ///
    /// - Parameters:
    ///   - sender: The unique name of the sender, which the bus sets; nil for messages of libdbus itself.
    ///   - serial: The serial, not 0.
    package func carried(from sender: AnyBusName?, serial: UInt32) -> Message {
        if let sender, let copy = arrived?.carried(from: sender, serial: serial) {
            return Message(arrived: copy, descriptors: descriptors)!
        }
        let copy = Message(adopting: allocated(dbus_message_copy(pointer)))
        dbus_message_set_serial(copy.pointer, serial)
        check(dbus_message_set_sender(copy.pointer, sender?.rawValue))
        return copy.withMarshalledBytes { Message(arrived: Array($0))! }
    }

    /// Returns the message in its encoded form, so that no later step encodes it again. A descriptor that is its only
    /// argument is kept.
    ///
    /// - Precondition: The message has a serial.
    package func marshalled() -> Message {
        arrived == nil ? withMarshalledBytes { Message(arrived: Array($0), descriptors: ownDescriptors)! } : self
    }

    /// The descriptor that is the only argument, if this process created the message; empty otherwise.
    private var ownDescriptors: [FileDescriptor] {
        guard hasDescriptors, hasSignature("h") else { return [] }
        var reader = MessageReader(self)
        return (try? reader.readDescriptor()).map { [$0] } ?? []
    }

    /// Returns the message without its received descriptors, as for a receiver that accepts none.
    package func withoutDescriptors() -> Message {
        arrived.flatMap { Message(arrived: $0.bytes) } ?? self
    }

    /// Creates a message from an encoded one.
    ///
    /// - Parameter next: Returns the next serial of the connection, for a message without a serial.
    package convenience init(_ message: MarshalledMessage, numbered next: () -> UInt32) {
        var bytes = message.bytes
        if message.serial == 0 { bytes.store(next(), at: MarshalledMessage.serialOffset) }
        self.init(arrived: bytes)!
    }

    /// Returns a reply to the call with this serial of `caller`. Any connection can send it; ``PendingCalls`` has to
    /// ignore it (E6).
    package static func forgedReply(to caller: UniqueName, serial: UInt32) -> Message {
        methodReturn(to: caller, serial: serial)
    }

    /// Returns the error reply to the call with this serial of `caller`.
    package static func errorReply(_ error: BusError, to caller: UniqueName, serial: UInt32) -> Message {
        Self.error(error, to: caller, serial: serial)
    }

    /// Whether the bus may start the destination if its name has no owner.
    package var startsService: Bool {
        arrived.map { Int32($0.header.flags) & DBUS_HEADER_FLAG_NO_AUTO_START == 0 }
            ?? (dbus_message_get_auto_start(pointer) != 0)
    }
}

extension EncodedMessage {
    /// Returns the bytes of the message with a sender field added behind the other header fields, and with this serial.
    /// They are identical to the encoding of libdbus.
    ///
    /// - Returns: nil for a message with a sender field already, or in the other byte order. libdbus then has to make
    ///   the copy.
    fileprivate func carried(from sender: AnyBusName, serial: UInt32) -> [UInt8]? {
        guard !header.isSwapped, header.sender == nil else { return nil }
        // The length of the header fields is the number at offset 12 of a message.
        let fieldsLength = bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 12, as: UInt32.self) }
        let end = MessageHeader.fixedSize + Int(fieldsLength)
        let text = sender.rawValue.utf8
        var copy: [UInt8] = []
        // Beside its text the field has 9 bytes; padding before and behind it has up to 7 bytes each.
        copy.reserveCapacity(bytes.count + text.count + 24)
        copy += bytes[..<end]
        copy.pad(to: 8)
        // The field's code, and its type: a signature of one letter.
        copy += [UInt8(DBUS_HEADER_FIELD_SENDER), 1, UInt8(ascii: "s"), 0]
        withUnsafeBytes(of: UInt32(text.count)) { copy += $0 }
        copy += text
        copy.append(0)
        copy.store(UInt32(copy.count - MessageHeader.fixedSize), at: 12)
        copy.store(serial, at: MarshalledMessage.serialOffset)
        copy.pad(to: 8)
        copy += bytes[header.body]
        return copy
    }
}

/// A template for messages that differ only in one number and in the serial. Simulations create many such messages with
/// it, without encoding each.
package struct MessagePattern {
    private var bytes: [UInt8]
    /// The offset of the number in the bytes.
    private let place: Int

    /// - Parameters:
    ///   - message: One of the messages, in this machine's byte order.
    ///   - number: A 64-bit integer (`t`) among its arguments, whose bytes occur nowhere else in the message.
    /// - Returns: nil unless the number occurs exactly once.
    package init?(_ message: Message, varying number: UInt64) {
        _ = message.numbered { 1 }
        bytes = message.withMarshalledBytes { Array($0) }
        let places = stride(from: 0, through: bytes.count - 8, by: 8).filter { [bytes] place in
            bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: place, as: UInt64.self) == number }
        }
        guard places.count == 1 else { return nil }
        place = places[0]
    }

    /// Returns a message with this number and serial.
    package func message(_ number: UInt64, serial: UInt32) -> Message {
        var bytes = bytes
        bytes.store(serial, at: MarshalledMessage.serialOffset)
        bytes.store(number, at: place)
        return Message(arrived: bytes)!
    }
}

extension [UInt8] {
    fileprivate mutating func store(_ value: some FixedWidthInteger, at offset: Int) {
        withUnsafeMutableBytes { $0.storeBytes(of: value, toByteOffset: offset, as: type(of: value)) }
    }

    fileprivate mutating func pad(to alignment: Int) {
        while count % alignment != 0 { append(0) }
    }
}
