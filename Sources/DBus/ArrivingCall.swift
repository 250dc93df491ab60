// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A method call in the receive buffer of a connection, before a ``Message`` exists. Only its header is parsed.
///
/// ``Connection/onArrivingCall`` offers each call in this form. An overloaded service then queues or discards the call
/// without the cost of a message object: its call queue copies the bytes into a ``EncodedCallQueue``.
///
/// The bytes are valid only during the callback. Threads: that of its connection.
public struct ArrivingCall {
    let bytes: UnsafeRawBufferPointer
    let header: MessageHeader

    /// Returns nil for messages that have to become a ``Message``: other messages than calls, calls with descriptors,
    /// which are assigned to messages in order, and arguments in the other byte order, which only libdbus converts.
    init?(_ bytes: UnsafeRawBufferPointer, _ header: MessageHeader) {
        guard header.type == UInt8(DBUS_MESSAGE_TYPE_METHOD_CALL), header.descriptorCount == nil, !header.isSwapped
        else { return nil }
        self.bytes = bytes
        self.header = header
    }

    /// The size of the encoded message, in bytes.
    public var byteCount: Int { bytes.count }
    /// Whether the sender requested no reply.
    public var expectsNoReply: Bool { Int32(header.flags) & DBUS_HEADER_FLAG_NO_REPLY_EXPECTED != 0 }
    /// The arguments, possibly unchecked; see ``MarshalledReader``.
    public var body: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[header.body]) }

    /// Whether a connection with this unique name sent the call. This test, as the following ones, creates no string.
    public func isFrom(_ sender: UniqueName) -> Bool { bytes.has(header.sender, sender.rawValue) }
    public func hasMember(_ member: MemberName) -> Bool { bytes.has(header.member, member.rawValue) }
    public func hasPath(_ path: ObjectPath) -> Bool { bytes.has(header.path, path.rawValue) }
    /// Whether the call names this interface or none.
    public func mayBeOf(_ interface: InterfaceName) -> Bool {
        header.interface == nil || bytes.has(header.interface, interface.rawValue)
    }
    /// Whether the arguments have this signature, which must not be empty: a call without arguments has no signature
    /// field.
    public func hasSignature(_ signature: Signature) -> Bool { bytes.has(header.signature, signature.rawValue) }
}

extension Message {
    /// Calls `body` with the message as an ``ArrivingCall`` in its own bytes; nil if it can't be one. It is for code
    /// that has only whole messages: ``EncodedCallQueue``, and the simulated bus.
    package func withArrivingCall<Result>(_ body: (ArrivingCall) -> Result) -> Result? {
        arrived.flatMap { arrived in
            arrived.bytes.withUnsafeBytes { bytes in ArrivingCall(bytes, arrived.header).map(body) }
        }
    }
}

extension UnsafeRawBufferPointer {
    /// Whether the bytes in a range equal a text; false for nil, an absent header field.
    func has(_ place: Range<Int>?, _ text: String) -> Bool {
        guard let place, place.count == text.utf8.count else { return false }
        var text = text
        return text.withUTF8 { text in
            place.isEmpty || memcmp(baseAddress! + place.lowerBound, text.baseAddress!, place.count) == 0
        }
    }
}
