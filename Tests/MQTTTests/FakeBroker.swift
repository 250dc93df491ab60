// SPDX-License-Identifier: Apache-2.0
import CarillonTestSupport
import Foundation
import Glibc
import Synchronization

/// Listens on the loopback address, and answers each client as a test wants it: its first packet, and then its pings.
final class FakeBroker: Sendable {
    enum Answer: Sendable {
        /// Says nothing, and keeps the connection.
        case silence
        /// Says nothing, and ends the connection.
        case end
        case bytes([UInt8])
        /// Takes the connection with this Server Keep Alive, answers so many pings, and from then on says nothing.
        case keepAlive(UInt16, answeringPings: Int)
    }

    let port: UInt16
    private let listener: Int32
    private let pings = Counter()

    private final class Counter: Sendable {
        let value = Atomic(0)
    }

    init(_ answer: Answer) throws {
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = in_addr_t(INADDR_LOOPBACK).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = listener
        let status = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                guard bind(descriptor, pointer, size) == 0, listen(descriptor, 8) == 0 else { return Int32(-1) }
                return getsockname(descriptor, pointer, &size)
            }
        }
        guard status == 0 else { throw SystemError("bind") }
        port = UInt16(bigEndian: address.sin_port)
        let pings = pings
        Thread { Self.serve(descriptor, answer, counting: pings) }.start()
    }

    deinit {
        shutdown(listener, Int32(SHUT_RDWR))
    }

    /// The pings of all clients so far.
    var pingCount: Int { pings.value.load(ordering: .acquiring) }

    private static func serve(_ listener: Int32, _ answer: Answer, counting pings: Counter) {
        var kept: [Int32] = []
        while true {
            let connection = accept(listener, nil, nil)
            guard connection >= 0 else { break }
            var buffer = [UInt8](repeating: 0, count: 4096)
            _ = read(connection, &buffer, buffer.count)
            switch answer {
            case .silence: kept.append(connection)
            case .end: close(connection)
            case .bytes(let bytes):
                _ = write(connection, bytes, bytes.count)
                kept.append(connection)
            case .keepAlive(let seconds, let answered):
                // CONNACK with one property, the Server Keep Alive.
                let connectionTaken = [0x20, 6, 0, 0, 3, 0x13, UInt8(seconds >> 8), UInt8(seconds & 0xFF)]
                _ = write(connection, connectionTaken, connectionTaken.count)
                answerPings(on: connection, answered, counting: pings)
                close(connection)
            }
        }
        for connection in kept { close(connection) }
        close(listener)
    }

    /// Reads until the client ends the connection. The client sends nothing but PINGREQ, which has two bytes.
    private static func answerPings(on connection: Int32, _ answered: Int, counting pings: Counter) {
        var packet: [UInt8] = [0, 0]
        while recv(connection, &packet, 2, Int32(MSG_WAITALL)) == 2, packet == [0xC0, 0] {
            let count = pings.value.add(1, ordering: .acquiringAndReleasing).newValue
            if count <= answered { _ = write(connection, [0xD0, 0] as [UInt8], 2) }
        }
    }
}
