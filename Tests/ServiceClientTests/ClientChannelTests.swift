// SPDX-License-Identifier: Apache-2.0
import NotificationWire
import TestLimits
import Testing

@testable import ServiceClient

@Suite("A channel on the client's side, without a session", .limited)
struct ClientChannelTests {
    @Test("E8: reading to the end is reading some MiB, so that a service that always writes does not keep the program")
    func endlessWriter() {
        let line = SimulatedLine()
        let channel = ClientChannel(line, from: ":1.100")
        var count = 0
        channel.onFrame = { _, _ in
            count += 1
            return .taken
        }
        let body = [UInt8](repeating: 0, count: 1 << 20)
        let frame = SimulatedLine.bytes { writer in
            writer.append(.notification, number: 1, atMost: body.count) { $0.append(bytes: body) }
        }
        let frames = (16 << 20) / frame.count
        line.lie(Array(repeating: frame, count: frames))
        channel.drain()
        #expect(1..<frames ~= count, "\(count) of \(frames)")
    }
}
