// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

/// What a bus does to messages: for what plays one in a simulation (E7).
extension Message {
    /// Gives a message that is to be sent the next serial of its connection, or of whoever sends it, unless it has one.
    package func numbered(_ next: () -> UInt32) -> UInt32 {
        if serial == 0 { number(next()) }
        return serial
    }

    /// A copy as its receiver gets it.
    ///
    /// - Parameters:
    ///   - sender: as the bus knows it; nil for what libdbus itself says.
    ///   - serial: not 0.
    package func carried(from sender: AnyBusName?, serial: UInt32) -> Message {
        if let sender, let copy = arrived?.carried(from: sender, serial: serial) {
            return Message(arrived: copy, descriptors: descriptors)!
        }
        let copy = Message(adopting: allocated(dbus_message_copy(pointer)))
        dbus_message_set_serial(copy.pointer, serial)
        check(dbus_message_set_sender(copy.pointer, sender?.rawValue))
        return copy.withMarshalledBytes { Message(arrived: Array($0))! }
    }

    /// What is sent, in the bytes that a socket takes, so that nobody lays it out again on its way. A descriptor that is
    /// its one argument goes with it.
    ///
    /// - Precondition: it has a serial.
    package func laidOut() -> Message {
        arrived == nil ? withMarshalledBytes { Message(arrived: Array($0), descriptors: ownDescriptors)! } : self
    }

    private var ownDescriptors: [FileDescriptor] {
        guard hasDescriptors, hasSignature("h") else { return [] }
        var reader = MessageReader(self)
        return (try? reader.readDescriptor()).map { [$0] } ?? []
    }

    /// The same without the descriptors that came with it.
    package func withoutDescriptors() -> Message {
        arrived.flatMap { Message(arrived: $0.bytes) } ?? self
    }

    /// What is sent of a message that is laid out already.
    ///
    /// - Parameter next: gives the next serial of its connection, where it has none.
    package convenience init(_ message: MarshalledMessage, numbered next: () -> UInt32) {
        var bytes = message.bytes
        if message.serial == 0 { bytes.store(next(), at: MarshalledMessage.serialOffset) }
        self.init(arrived: bytes)!
    }

    /// An answer to the call that `caller` gave this serial number, whoever was asked (E6).
    package static func forgedReply(to caller: UniqueName, serial: UInt32) -> Message {
        methodReturn(to: caller, serial: serial)
    }

    package static func errorReply(_ error: BusError, to caller: UniqueName, serial: UInt32) -> Message {
        Self.error(error, to: caller, serial: serial)
    }

    /// Whether the bus may start the destination of a call when nobody owns it.
    package var startsService: Bool {
        arrived.map { Int32($0.header.flags) & DBUS_HEADER_FLAG_NO_AUTO_START == 0 }
            ?? (dbus_message_get_auto_start(pointer) != 0)
    }
}

extension ArrivedMessage {
    /// The bytes of the same message from `sender`: what libdbus makes of it, as the field goes behind the others.
    ///
    /// - Returns: nil where more than a field has to change.
    fileprivate func carried(from sender: AnyBusName, serial: UInt32) -> [UInt8]? {
        guard !header.isSwapped, header.sender == nil else { return nil }
        let fieldsLength = bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 12, as: UInt32.self) }
        let end = MessageHeader.fixedSize + Int(fieldsLength)
        let text = sender.rawValue.utf8
        var copy: [UInt8] = []
        copy.reserveCapacity(bytes.count + text.count + 24)
        copy += bytes[..<end]
        copy.pad(to: 8)
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

/// A message that is sent many times, each with another number in the same place.
package struct MessagePattern {
    private var bytes: [UInt8]
    private let place: Int

    /// - Parameters:
    ///   - message: one of them, in this machine's byte order.
    ///   - number: a `t` of its arguments, which stands nowhere else in it.
    /// - Returns: nil when it does not stand there once.
    package init?(_ message: Message, varying number: UInt64) {
        _ = message.numbered { 1 }
        bytes = message.withMarshalledBytes { Array($0) }
        let places = stride(from: 0, through: bytes.count - 8, by: 8).filter { [bytes] place in
            bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: place, as: UInt64.self) == number }
        }
        guard places.count == 1 else { return nil }
        place = places[0]
    }

    /// One of them, which has its serial.
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
