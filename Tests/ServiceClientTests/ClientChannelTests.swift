// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

@Suite("The client's end of a channel, without a session", .limited)
struct ClientChannelTests {
    @Test("E8: draining a channel stops after some MiB, even if the service writes without end")
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

    @Test("A channel that lasted a minute does not count as a failed attempt, and a shorter one does")
    func attempts() {
        for seconds in [59, 60, 61] {
            var (channels, now) = (Channels(), ContinuousClock.now)
            for _ in 0..<40 {
                _ = channels.asked()
                channels.opened(ClientChannel(SimulatedLine(), from: ":1.100"), at: now)
                now += .seconds(seconds)
                channels.failed(at: now)
                now += .seconds(1000)
            }
            #expect(channels.mayAsk { now } == (seconds >= 60), "after \(seconds) s each")
        }
    }
}
