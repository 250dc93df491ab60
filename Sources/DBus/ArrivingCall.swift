// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A method call as it lies in the buffer of a connection, before a message is made of it: for whoever has too many to look
/// at each. Only its header has been looked at.
///
/// It is valid only while it is handed over. Threads: those of its connection.
public struct ArrivingCall {
    let bytes: UnsafeRawBufferPointer
    let header: MessageHeader

    /// Nil for what is no call, or has descriptors, or arguments in another byte order than this machine's.
    init?(_ bytes: UnsafeRawBufferPointer, _ header: MessageHeader) {
        guard header.type == UInt8(DBUS_MESSAGE_TYPE_METHOD_CALL), header.descriptorCount == nil, !header.isSwapped
        else { return nil }
        self.bytes = bytes
        self.header = header
    }

    /// Its size on the bus, in bytes.
    public var byteCount: Int { bytes.count }
    /// Whether the sender asked not to be answered.
    public var expectsNoReply: Bool { Int32(header.flags) & DBUS_HEADER_FLAG_NO_REPLY_EXPECTED != 0 }
    /// Its arguments, which nobody may have looked at yet: ``MarshalledReader``.
    public var body: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[header.body]) }

    public func isFrom(_ sender: UniqueName) -> Bool { bytes.has(header.sender, sender.rawValue) }
    public func hasMember(_ member: MemberName) -> Bool { bytes.has(header.member, member.rawValue) }
    public func hasPath(_ path: ObjectPath) -> Bool { bytes.has(header.path, path.rawValue) }
    /// Whether it names this interface, or none.
    public func mayBeOf(_ interface: InterfaceName) -> Bool {
        header.interface == nil || bytes.has(header.interface, interface.rawValue)
    }
    public func hasSignature(_ signature: Signature) -> Bool { bytes.has(header.signature, signature.rawValue) }
}

extension Message {
    /// The same, for what brings whole messages; nil where it is none.
    package func withArrivingCall<Result>(_ body: (ArrivingCall) -> Result) -> Result? {
        arrived.flatMap { arrived in
            arrived.bytes.withUnsafeBytes { bytes in ArrivingCall(bytes, arrived.header).map(body) }
        }
    }
}

extension UnsafeRawBufferPointer {
    /// Whether this text stands there.
    func has(_ place: Range<Int>?, _ text: String) -> Bool {
        guard let place, place.count == text.utf8.count else { return false }
        var text = text
        return text.withUTF8 { text in
            place.isEmpty || memcmp(baseAddress! + place.lowerBound, text.baseAddress!, place.count) == 0
        }
    }
}
