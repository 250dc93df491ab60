// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

/// Clients of channels that do not read what their posts are answered with, on real buses.
@Suite("A4, E4: unread outcomes of posts on a channel", .serialized, .limited)
struct ChannelFlowTests {
    private static func answerBytes(_ client: Client) throws -> UInt64 {
        try #require(try CenterProperties(in: client.send(CenterProperties.getAll())).statistics[.answerBytes])
    }

    @Test(
        "A4: a client that reads no outcomes is no longer answered, then no longer read, and later resumes in order",
        arguments: BusKind.available)
    func unread(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, other) = (try ChannelClient(on: bus), try Client(on: bus))
        let count = 20_000
        try one.postUnread(count, "Ding")
        #expect(one.writer.byteCount > 0, "it is no longer read from")
        // On a busy machine it has not come so far yet.
        try eventually("it is no longer answered") {
            let status = try #require(try other.call(ListClients()).first { $0.name.rawValue == one.client.name })
            return status.flow != "open" && status.unconfirmed >= 128 && status.posted < count
        }
        try eventually("outcomes are kept") { try Self.answerBytes(other) > 10_000 }
        let kept = try Self.answerBytes(other)
        #expect(kept > 10_000 && kept < 1 << 20, "\(kept)")
        #expect(try other.post("Ding") == 0, "others are answered")
        try one.run("all outcomes") { one.outcomes.count == count }
        #expect(one.outcomeNumbers == Array(1...UInt64(count)))
        try eventually("nothing is kept") { try Self.answerBytes(other) == 0 }
        // On the bus it is answered behind that.
        #expect(try one.client.post("Ding") == 0)
        #expect(service.isRunning)
    }

    @Test("E4: unread outcomes of many clients remain below answer-bytes, and reading clients are answered")
    func many() throws {
        let limit: UInt64 = 400_000
        let bus = try PrivateBus(.dbusDaemon)
        try bus.configure("[Limits]\nanswer-bytes=\(limit)\n")
        let service = try ServiceProcess(on: bus)
        let (reader, other) = (try ChannelClient(on: bus), try Client(on: bus))
        let clients = try (0..<8).map { _ in try ChannelClient(on: bus) }
        let count = 8000
        for client in clients {
            try client.postUnread(count, "Ding")
            let number = try reader.post("Dong")
            try reader.run("its outcome") { reader.outcomes[number] != nil }
        }
        let kept = try Self.answerBytes(other)
        #expect(kept > limit / 4 && kept < limit, "\(kept)")
        for client in clients {
            try client.run("all outcomes") { client.outcomes.count == count }
            #expect(client.outcomeNumbers == Array(1...UInt64(count)))
        }
        try eventually("nothing is kept") { try Self.answerBytes(other) == 0 }
        #expect(service.isRunning)
    }

    @Test("F2: a channel that ends with queued outcomes sends the first of them, and its client continues on the bus")
    func keptAtTheEnd() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let service = try ServiceProcess(on: bus)
        let (one, other) = (try ChannelClient(on: bus), try Client(on: bus))
        try one.postUnread(20_000, "Ding")
        let before = try Self.answerBytes(other)
        #expect(before > 0)
        try bus.configure("[Channels]\nchannels=false\n")
        try other.call(ReloadConfiguration())
        try one.run("its end") { one.isAtEnd }
        let answered = one.outcomeNumbers
        #expect(answered.count > 1000 && answered == Array(1...UInt64(answered.count)))
        // It is as any client on the bus.
        #expect(try one.client.post("Ding") == 0)
        try eventually("nothing is kept") { try Self.answerBytes(other) == 0 }
        #expect(try other.call(ListClients()).allSatisfy { $0.flow == "open" })
        #expect(service.isRunning)
    }
}
