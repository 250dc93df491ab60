// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

/// Posts that come on a channel in parts, on real buses.
@Suite("E4, F2: partly received posts on a channel", .serialized, .limited)
struct ChannelPartTests {
    private func waiting(_ client: Client) throws -> UInt64 {
        try #require(try CenterProperties(in: client.send(CenterProperties.getAll())).statistics[.waitingCallBytes])
    }

    /// The bytes of a post with so much data, as a frame with this number.
    private func frame(_ number: UInt64, bytes count: Int) throws -> [UInt8] {
        let writer = ChannelFrameWriter()
        let data = [UInt8](repeating: 5, count: count)
        let post = try PostCall(name: "Ding", userInfo: ["n": .int64(Int64(number)), "data": .data(data)])
        writer.appendPost(number: number, body: post.message().marshalledBody)
        var bytes: [UInt8] = []
        writer.write {
            bytes += Array($0)
            return $0.count
        }
        return bytes
    }

    /// Writes bytes that may be more than the socket takes at once.
    private func write(_ bytes: some Collection<UInt8>, on client: ChannelClient) throws {
        var rest = Array(bytes)[...]
        try client.run("all is written") {
            rest = rest.dropFirst(client.write(Array(rest)))
            return rest.isEmpty
        }
    }

    @Test(
        "A partly received post counts in the waiting call bytes until the rest arrives or the channel ends",
        arguments: BusKind.available)
    func counted(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, other) = (try ChannelClient(on: bus), try Client(on: bus))
        try one.client.addObserver("Ding")
        let (large, small) = (try frame(1, bytes: 500_000), try frame(2, bytes: 2000))
        try write(large.prefix(300_000), on: one)
        try one.run("it is counted at what all of it takes") { try waiting(other) == large.count }
        try write(large.suffix(from: 300_000) + small.prefix(1000), on: one)
        try one.run("the next is counted at what has come") { try waiting(other) == 1000 }
        try write(small.suffix(from: 1000), on: one)
        try one.run("nothing") { try waiting(other) == 0 }
        try one.run("both") { one.numbers == [1, 2] && one.outcomes.count == 2 }
        try write(large.prefix(100), on: one)
        try one.run("the next") { try waiting(other) == 100 }
        one.close()
        try one.run("nothing is kept of it") { try waiting(other) == 0 }
        #expect(service.isRunning)
    }

    @Test(
        "A post on a channel is refused if the service has no space for it, and the next post is accepted",
        arguments: BusKind.available)
    func refused(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        try bus.configure("[Limits]\nwaiting-call-bytes=1000000\n")
        let service = try ServiceProcess(on: bus)
        let (one, two) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        let other = try Client(on: bus)
        try one.client.addObserver("Ding")
        let large = try frame(1, bytes: 600_000)
        try write(large.prefix(200_000), on: one)
        try one.run("it is counted") { try waiting(other) == large.count }
        try write(frame(7, bytes: 600_000) + frame(8, bytes: 10), on: two)
        try two.run("both outcomes") { two.outcomes.count == 2 }
        #expect(two.outcomes[7]?.errorName == CenterErrorName.limitExceeded.rawValue)
        #expect(two.outcomes[7]?.error?.message.contains("waiting-call-bytes") == true)
        #expect(two.outcomes[8] == ChannelOutcome(receivers: 1))
        try write(large.suffix(from: 200_000), on: one)
        try one.run("the first") { one.outcomes[1] == ChannelOutcome(receivers: 1) && one.numbers == [8, 1] }
        try write(frame(9, bytes: 600_000), on: two)
        try two.run("now there is room") { two.outcomes[9] == ChannelOutcome(receivers: 1) }
        #expect(try waiting(other) == 0)
        #expect(service.isRunning)
    }

    @Test(
        "B6: a post that wants no outcome and finds no space is reported as lost to its would-be receivers",
        arguments: BusKind.available)
    func lost(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        try bus.configure("[Limits]\nwaiting-call-bytes=1000000\n")
        let service = try ServiceProcess(on: bus)
        let (one, two) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        let (other, stranger) = (try Client(on: bus), try Client(on: bus))
        try one.client.addObserver("Ding")
        try stranger.addObserver("Dong")
        let large = try frame(1, bytes: 600_000)
        try write(large.prefix(200_000), on: one)
        try one.run("it is counted") { try waiting(other) == large.count }
        for _ in 0..<2 { try write(frame(0, bytes: 600_000), on: two) }
        try write(frame(8, bytes: 10), on: two)
        try two.run("the last one") { two.outcomes[8] == ChannelOutcome(receivers: 1) }
        try one.run("the word") { one.dropped.reduce(0) { $0 + $1.count } == 2 }
        #expect(one.dropped.allSatisfy { $0.reason == DropReason.overload.rawValue })
        #expect(one.numbers == [8])
        try write(large.suffix(from: 200_000), on: one)
        try one.run("the first") { one.outcomes[1] == ChannelOutcome(receivers: 1) && one.numbers == [8, 1] }
        #expect(stranger.lost == 0)
        #expect(service.isRunning)
    }
}
