// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Glibc
import Testing

@testable import CarillonDBus

/// Calls whose arguments are not laid out as D-Bus lays them out. A bus ends the connection of whoever sends such a thing,
/// or carries it.
@Suite("E4: malformed arguments that no bus has checked", .serialized, .limited)
struct UncheckedArgumentsTests {
    @Test(
        "E4: the sender of malformed arguments gets at most an error, and other clients are served",
        arguments: BusKind.available)
    func post(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let observer = try Client(on: bus)
        try observer.addObserver("Ding")
        let call = Wire.methodCall(PostCall.member)
        var writer = MessageWriter(call)
        try PostCall(name: "Ding", userInfo: ["key": .string("value")]).append(to: &writer)
        let bytes = try bytes(of: call)
        // The last byte of the name, what is behind it, and the length of userInfo.
        let body = try #require(bytes.withUnsafeBytes { MessageHeader($0) }).body.lowerBound
        for (offset, value) in [(4, 0xFF), (8, 1), (19, 0x7F)] as [(Int, UInt8)] {
            var bad = bytes
            bad[body + offset] = value
            let sender = try RawClient(on: bus)
            sender.write(bad)
            // None where the bus ends it.
            let error = sender.error()
            #expect(error != BusError.noReplyName)
            let receivers = try observer.post("Ding")
            #expect(receivers == 1)
        }
        try observer.run("its own, and no other") { observer.signals.count == 3 }
        #expect(observer.holes.isEmpty && observer.lost == 0)
        #expect(service.isRunning)
    }

    private func bytes(of call: Message) throws -> [UInt8] {
        _ = call.numbered { 2 }
        return call.withMarshalledBytes { Array($0) }
    }
}

/// A connection of which nobody looks at what it sends.
private final class RawClient {
    private let descriptor: Int32

    init(on bus: PrivateBus) throws {
        let path = try #require(bus.address.split(separator: "=").dropFirst().first?.split(separator: ",").first)
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafePointer(to: address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, size) }
        }
        try #require(result == 0)
        let user = String(getuid()).utf8.map { String($0, radix: 16) }.joined()
        write(Array("\0AUTH EXTERNAL \(user)\r\n".utf8))
        _ = read()
        write(Array("BEGIN\r\n".utf8))
        let hello = Message.busCall("Hello")
        _ = hello.numbered { 1 }
        write(hello.withMarshalledBytes { Array($0) })
        _ = next()
    }

    deinit {
        close(descriptor)
    }

    func write(_ bytes: [UInt8]) {
        _ = bytes.withUnsafeBytes { send(descriptor, $0.baseAddress!, $0.count, Int32(MSG_NOSIGNAL)) }
    }

    /// The error that answers what was sent second; nil when the connection ends without one.
    func error() -> InterfaceName? {
        while let message = next() {
            if message.replySerial == 2 { return message.errorName ?? BusError.noReplyName }
        }
        return nil
    }

    private var buffer: [UInt8] = []

    private func read() -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = recv(descriptor, &bytes, bytes.count, 0)
        return Array(bytes.prefix(max(0, count)))
    }

    private func next() -> Message? {
        while true {
            if let length = try? buffer.withUnsafeBytes(MessageHeader.byteCount), length <= buffer.count {
                defer { buffer.removeFirst(length) }
                return Message(arrived: Array(buffer.prefix(length)))
            }
            let more = read()
            guard !more.isEmpty else { return nil }
            buffer += more
        }
    }
}
