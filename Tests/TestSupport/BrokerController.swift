// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// The controlling side of a `dbus-broker` process.
///
/// `dbus-broker-launch`, which normally is that side, can't be used here: it ends at once where no journald listens on
/// `/run/systemd/journal/socket`, and it needs a systemd to talk to. The broker itself needs neither. It speaks D-Bus
/// peer to peer on a socket that it inherits, and is told there, in one message, where to listen and what its policy
/// is (dbus-broker(1), section API). The broker ends when this connection ends, so none survives this process.
final class BrokerController: Sendable {
    private let connection: FileDescriptor

    /// Takes over this side of the socket pair whose other side the broker inherited as its controller.
    ///
    /// - Throws: ``BrokerFailure`` when the broker does not answer, or not as expected.
    init(connection: FileDescriptor) throws {
        self.connection = connection
        var limit = timeval(tv_sec: Int(Patience.start.time.components.seconds), tv_usec: 0)
        setsockopt(
            connection.rawValue, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout.size(ofValue: limit)))

        let user = String(geteuid()).utf8.map { String($0, radix: 16) }.joined()
        try send(Array("\0AUTH EXTERNAL \(user)\r\n".utf8))
        try expectLine(startingWith: "OK ")
        try send(Array("NEGOTIATE_UNIX_FD\r\n".utf8))
        try expectLine(startingWith: "AGREE_UNIX_FD")
        try send(Array("BEGIN\r\n".utf8))
    }

    /// Makes the broker serve a listening socket, with the policy of a session bus: everyone may do everything. The
    /// broker serves connections from the moment this returns.
    ///
    /// - Parameter isSystemBus: with the policy of a system bus instead: nobody may own a name, or call anybody but the
    ///   bus; signals are free.
    /// - Throws: ``BrokerFailure`` with the error name that the broker gave.
    func addListener(_ socket: FileDescriptor, isSystemBus: Bool = false) throws {
        var body = WireWriter()
        body.string("/org/bus1/DBus/Listener/0")
        body.uint32(0)  // the index of the descriptor
        body.signature(Self.policySignature)
        Self.writePolicy(isSystemBus: isSystemBus, to: &body)

        var message = WireWriter()
        message.bytes([UInt8(ascii: "l"), 1, 0, 1])  // little endian, method call, no flags, protocol 1
        message.uint32(UInt32(body.contents.count))
        message.uint32(1)  // serial
        message.array { fields in
            fields.headerField(1, "o") { $0.string("/org/bus1/DBus/Broker") }
            fields.headerField(2, "s") { $0.string("org.bus1.DBus.Broker") }
            fields.headerField(3, "s") { $0.string("AddListener") }
            fields.headerField(8, "g") { $0.signature("ohv") }
            fields.headerField(9, "u") { $0.uint32(1) }
        }
        message.align(to: 8)
        message.bytes(body.contents)

        try send(message.contents, with: socket)
        try expectMethodReturn()
    }

    // MARK: The policy

    private static let batchSignature = "bta(btbs)a(btssssuutt)a(btssssuutt)"
    private static let policySignature = "(a(u(\(batchSignature)))a(buu(\(batchSignature)))a(ss)bs)"

    private static func writePolicy(isSystemBus: Bool, to writer: inout WireWriter) {
        let priority: UInt64 = 1
        /// Whether it is allowed, its priority, the destination, and the type of message, of which 0 is any.
        typealias Rule = (isAllowed: Bool, priority: UInt64, name: String, type: UInt32)
        let everything: [Rule] = [(true, priority, "", 0)]
        let sending = isSystemBus ? everything + [(false, 2, "", 1), (true, 3, "org.freedesktop.DBus", 1)] : everything
        writer.align(to: 8)
        writer.array { users in
            users.align(to: 8)
            users.uint32(.max)  // any user
            users.align(to: 8)
            users.boolean(true)  // may connect
            users.uint64(priority)
            users.array { owning in
                owning.align(to: 8)
                owning.boolean(!isSystemBus)
                owning.uint64(priority)
                owning.boolean(true)  // every name that begins with …
                owning.string("")
            }
            for rules in [sending, everything] {  // to send, to receive
                users.array { transmission in
                    for rule in rules {
                        transmission.align(to: 8)
                        transmission.boolean(rule.isAllowed)
                        transmission.uint64(rule.priority)
                        transmission.string(rule.name)
                        for _ in ["path", "interface", "member"] { transmission.string("") }
                        transmission.uint32(rule.type)
                        transmission.uint32(0)  // broadcast or not
                        transmission.uint64(0)  // from no file descriptors …
                        transmission.uint64(.max)  // … to any number
                    }
                }
            }
        }
        writer.array { _ in }  // groups and ranges of users
        writer.array { _ in }  // SELinux contexts
        writer.boolean(false)  // AppArmor
        writer.string(isSystemBus ? "system" : "session")
    }

    // MARK: Bytes

    private func send(_ bytes: [UInt8], with descriptor: FileDescriptor? = nil) throws {
        var bytes = bytes
        let sent = bytes.withUnsafeMutableBytes { payload in
            // One control message that carries one descriptor: SCM_RIGHTS, after a header that is aligned to a word.
            let header = (MemoryLayout<cmsghdr>.size + MemoryLayout<Int>.size - 1) & ~(MemoryLayout<Int>.size - 1)
            let control = UnsafeMutableRawBufferPointer.allocate(
                byteCount: header + MemoryLayout<Int>.size, alignment: 8)
            defer { control.deallocate() }
            control.initializeMemory(as: UInt8.self, repeating: 0)

            var vector = iovec(iov_base: payload.baseAddress, iov_len: payload.count)
            return withUnsafeMutablePointer(to: &vector) { vector in
                var message = msghdr()
                message.msg_iov = vector
                message.msg_iovlen = 1
                if let descriptor {
                    var rights = cmsghdr()
                    rights.cmsg_len = header + MemoryLayout<Int32>.size
                    rights.cmsg_level = SOL_SOCKET
                    rights.cmsg_type = Int32(SCM_RIGHTS)
                    control.storeBytes(of: rights, as: cmsghdr.self)
                    control.storeBytes(of: descriptor.rawValue, toByteOffset: header, as: Int32.self)
                    message.msg_control = control.baseAddress
                    message.msg_controllen = control.count
                }
                return retryingOnInterrupt {
                    sendmsg(connection.rawValue, &message, Int32(MSG_NOSIGNAL))
                }
            }
        }
        // Some hundred bytes into an empty socket buffer: they go at once or not at all.
        guard sent == bytes.count else {
            throw BrokerFailure("the broker closed its controlling connection")
        }
    }

    private func receive(_ count: Int) throws -> [UInt8] {
        var received: [UInt8] = []
        while received.count < count {
            let bytes = connection.readSome(atMost: count - received.count)
            guard !bytes.isEmpty else {
                throw BrokerFailure("the broker did not answer")
            }
            received += bytes
        }
        return received
    }

    private func expectLine(startingWith prefix: String) throws {
        var line: [UInt8] = []
        while line.last != UInt8(ascii: "\n") {
            line += try receive(1)
        }
        let text = String(decoding: line, as: UTF8.self)
        guard text.hasPrefix(prefix) else {
            throw BrokerFailure("expected “\(prefix)”, but the broker answered “\(text)”")
        }
    }

    private func expectMethodReturn() throws {
        let start = try receive(16)
        func uint32(at offset: Int) -> Int {
            start[offset..<offset + 4].reversed().reduce(0) { $0 << 8 | Int($1) }
        }
        guard start[0] == UInt8(ascii: "l") else {
            throw BrokerFailure("the broker answers in another byte order")
        }
        let fieldsAndPadding = (uint32(at: 12) + 7) & ~7
        let rest = try receive(fieldsAndPadding + uint32(at: 4))
        guard start[1] == 2 else {
            let readable = rest.map { (0x20..<0x7f).contains($0) ? Character(UnicodeScalar($0)) : " " }
            throw BrokerFailure("the broker refused the listener: \(String(readable))")
        }
    }
}

/// A `dbus-broker` that could not be set up.
struct BrokerFailure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

/// Marshals what the controller of a broker has to say, in little-endian order. Alignment is relative to the start of
/// the message; a body is written apart and put at a multiple of 8, so that it comes to the same.
private struct WireWriter {
    private(set) var contents: [UInt8] = []

    mutating func align(to boundary: Int) {
        while contents.count % boundary != 0 {
            contents.append(0)
        }
    }

    mutating func bytes(_ bytes: [UInt8]) {
        contents += bytes
    }

    mutating func boolean(_ value: Bool) {
        uint32(value ? 1 : 0)
    }

    mutating func uint32(_ value: UInt32) {
        align(to: 4)
        withUnsafeBytes(of: value.littleEndian) { contents += $0 }
    }

    mutating func uint64(_ value: UInt64) {
        align(to: 8)
        withUnsafeBytes(of: value.littleEndian) { contents += $0 }
    }

    mutating func string(_ value: String) {
        uint32(UInt32(value.utf8.count))
        contents += value.utf8
        contents.append(0)
    }

    mutating func signature(_ value: String) {
        contents.append(UInt8(value.utf8.count))
        contents += value.utf8
        contents.append(0)
    }

    /// An array of structs. The padding before its first element is there even if there is none, and does not count.
    mutating func array(of elements: (inout WireWriter) -> Void) {
        uint32(0)
        let length = contents.count - 4
        align(to: 8)
        let start = contents.count
        elements(&self)
        let count = UInt32(contents.count - start)
        withUnsafeBytes(of: count.littleEndian) { contents.replaceSubrange(length..<length + 4, with: $0) }
    }

    mutating func headerField(_ code: UInt8, _ type: String, _ value: (inout WireWriter) -> Void) {
        align(to: 8)
        contents.append(code)
        signature(type)
        value(&self)
    }
}
