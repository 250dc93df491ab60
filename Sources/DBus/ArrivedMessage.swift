// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import Synchronization

/// A message in the bytes that it came in, of which only the header has been read.
///
/// A class, as looking at a part of a header would copy all of that.
final class ArrivedMessage {
    private(set) var bytes: [UInt8]
    private(set) var header: MessageHeader

    /// Nil for a header that libdbus has to look at.
    convenience init?(_ bytes: [UInt8]) {
        guard let header = bytes.withUnsafeBytes({ MessageHeader($0) }) else { return nil }
        self.init(bytes, header)
    }

    init(_ bytes: [UInt8], _ header: MessageHeader) {
        self.bytes = bytes
        self.header = header
    }

    /// Gives one that was laid out here its serial.
    func number(_ serial: UInt32) {
        header.serial = serial
        changeBytes { bytes in
            bytes.storeBytes(of: serial, toByteOffset: MarshalledMessage.serialOffset, as: UInt32.self)
        }
    }

    /// Whether one that was laid out here is not to be answered.
    func wantNoReply(_ isUnwanted: Bool) {
        let flag = UInt8(DBUS_HEADER_FLAG_NO_REPLY_EXPECTED)
        let flags = isUnwanted ? header.flags | flag : header.flags & ~flag
        header.flags = flags
        changeBytes { $0[MarshalledMessage.flagsOffset] = flags }
    }

    /// Taken out meanwhile, so that nobody's look at them has to be checked for coming in between.
    private func changeBytes(_ change: (UnsafeMutableRawBufferPointer) -> Void) {
        var changing = bytes
        bytes = []
        changing.withUnsafeMutableBytes { change($0) }
        bytes = changing
    }

    func text(_ field: Range<Int>?) -> String? {
        field.map { String(decoding: bytes[$0], as: UTF8.self) }
    }

    func has(_ field: Range<Int>?, _ text: String) -> Bool { bytes.withUnsafeBytes { $0.has(field, text) } }

    /// The same for libdbus, which checks all of it. What it finds fault with has no arguments then, whatever its
    /// signature says.
    ///
    /// A bus may hand on arguments that it has not looked at.
    func demarshalled() -> OpaquePointer {
        var bytes = bytes
        // The descriptors have been closed, so that libdbus would miss them.
        if let place = header.descriptorCount { bytes.replaceSubrange(place..<place + 4, with: [0, 0, 0, 0]) }
        // libdbus takes none without a serial.
        if header.serial == 0 { bytes[MarshalledMessage.serialOffset] = 1 }
        if let message = Self.demarshalled(bytes) {
            if header.serial == 0 { dbus_message_set_serial(message, 0) }
            return message
        }
        let empty = allocated(dbus_message_new(Int32(header.type)))
        dbus_message_set_serial(empty, header.serial)
        return empty
    }

    /// Nil when libdbus finds fault with them.
    static func demarshalled(_ bytes: [UInt8]) -> OpaquePointer? {
        var error = DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        return bytes.withUnsafeBytes { bytes in
            dbus_message_demarshal(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), Int32(bytes.count), &error)
        }
    }
}

/// What the messages take that arrived on a connection and have not been given up, in bytes.
final class ReceivedBytes: Sendable {
    private let count = Atomic(0)

    var value: Int { count.load(ordering: .relaxed) }

    func add(_ bytes: Int) { count.add(bytes, ordering: .relaxed) }
}
