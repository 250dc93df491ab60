// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc
import TestSupport

/// Listens on the loopback address, and answers whoever connects as a test wants it, to what a client sends first.
final class FakeBroker: Sendable {
    enum Answer: Sendable {
        /// Says nothing, and keeps the connection.
        case silence
        /// Says nothing, and ends the connection.
        case end
        case bytes([UInt8])
    }

    let port: UInt16
    private let listener: Int32

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
        Thread { Self.serve(descriptor, answer) }.start()
    }

    deinit {
        shutdown(listener, Int32(SHUT_RDWR))
    }

    private static func serve(_ listener: Int32, _ answer: Answer) {
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
            }
        }
        for connection in kept { close(connection) }
        close(listener)
    }
}
