// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import Synchronization

/// A message as its encoded bytes, with a parsed header and an unparsed body: the storage of a ``Message`` that was
/// received, or that this process encoded itself without libdbus (``MessageTemplate``).
///
/// It lets a receiver test the header without a message object of libdbus, whose creation validates all of the message.
/// It is a class, since reading one field of a struct would copy the whole header.
final class EncodedMessage {
    /// The whole message: header and body.
    private(set) var bytes: [UInt8]
    private(set) var header: MessageHeader

    /// Creates a message from all of its bytes.
    ///
    /// - Returns: nil for a header that only libdbus can parse; see ``MessageHeader/init(_:)``.
    convenience init?(_ bytes: [UInt8]) {
        guard let header = bytes.withUnsafeBytes({ MessageHeader($0) }) else { return nil }
        self.init(bytes, header)
    }

    init(_ bytes: [UInt8], _ header: MessageHeader) {
        self.bytes = bytes
        self.header = header
    }

    /// Sets the serial of a message that was encoded in this process.
    func number(_ serial: UInt32) {
        header.serial = serial
        changeBytes { bytes in
            bytes.storeBytes(of: serial, toByteOffset: MarshalledMessage.serialOffset, as: UInt32.self)
        }
    }

    /// Sets whether a message that was encoded in this process requests no reply.
    func setNoReplyExpected(_ isUnwanted: Bool) {
        let flag = UInt8(DBUS_HEADER_FLAG_NO_REPLY_EXPECTED)
        let flags = isUnwanted ? header.flags | flag : header.flags & ~flag
        header.flags = flags
        changeBytes { $0[MarshalledMessage.flagsOffset] = flags }
    }

    /// Changes the bytes in a local variable, so that reads of the property need no exclusivity check. Meanwhile the
    /// property is empty, so that the change copies nothing.
    private func changeBytes(_ change: (UnsafeMutableRawBufferPointer) -> Void) {
        var changing = bytes
        bytes = []
        changing.withUnsafeMutableBytes { change($0) }
        bytes = changing
    }

    /// Returns the text of a header field; nil without the field.
    func text(_ field: Range<Int>?) -> String? {
        field.map { String(decoding: bytes[$0], as: UTF8.self) }
    }

    /// Whether a header field has this text, compared in place.
    func has(_ field: Range<Int>?, _ text: String) -> Bool { bytes.withUnsafeBytes { $0.has(field, text) } }

    /// Returns the message as an object of libdbus, which validates all of it, since a bus may forward arguments
    /// without checking them.
    ///
    /// If the validation fails, the object has no arguments. A reader of the arguments then reports a wrong type.
    func demarshalled() -> OpaquePointer {
        var bytes = bytes
        // libdbus never gets the descriptors, and would reject a count without them.
        if let place = header.descriptorCount { bytes.replaceSubrange(place..<place + 4, with: [0, 0, 0, 0]) }
        // libdbus rejects a message without a serial, so it gets one until it has parsed the message.
        if header.serial == 0 { bytes[MarshalledMessage.serialOffset] = 1 }
        if let message = Self.demarshalled(bytes) {
            if header.serial == 0 { dbus_message_set_serial(message, 0) }
            return message
        }
        let empty = allocated(dbus_message_new(Int32(header.type)))
        dbus_message_set_serial(empty, header.serial)
        return empty
    }

    /// Returns the object of libdbus; nil if libdbus rejects the bytes.
    static func demarshalled(_ bytes: [UInt8]) -> OpaquePointer? {
        var error = DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        return bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
    }
}

/// The total size of the received messages of a connection that are still alive, in bytes. Each ``Message`` adds its
/// size at its creation and subtracts it at its release.
///
/// ``SocketReader`` stops reading at a limit, so that unprocessed messages wait in the socket. Threads: any, since the
/// last reference to a message may be released on another thread.
final class ReceivedBytes: Sendable {
    private let count = Atomic(0)

    var value: Int { count.load(ordering: .relaxed) }

    func add(_ bytes: Int) { count.add(bytes, ordering: .relaxed) }
}
