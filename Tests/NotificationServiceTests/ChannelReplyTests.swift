// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

/// Calls on the bus of clients that have channels.
@Suite("F2, A4: calls on the bus beside a channel", .limited)
struct ChannelReplyTests {
    @Test("A client that does not read its channel is answered on the bus", arguments: BusKind.available)
    func unreadChannel(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, poster) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        try one.client.addObserver("Ding")
        let big = [UInt8](repeating: 7, count: 3000)
        for n in 0..<600 as Range<Int64> { try poster.post("Ding", n, data: big) }
        try poster.run("outcomes") { poster.outcomes.count == 600 }
        let status = try #require(
            try poster.client.call(ListClients()).first { $0.name.rawValue == one.client.name })
        #expect(status.flow != "open" && status.queued > 0, "its windows are used up")
        for _ in 0..<500 { #expect(try one.client.listClients()[one.client.name] != nil) }
        try one.run("all, in order") { one.numbers == Array(0..<600) }
        #expect(one.dropped.isEmpty && one.client.lost == 0)
        #expect(service.isRunning)
    }

    @Test(
        "A single-threaded program that answers no Ping while it waits is answered, with and without a channel",
        arguments: [true, false])
    func synchronous(hasChannel: Bool) throws {
        let stage = try ServiceStage()
        let (one, poster) = (stage.join(), stage.join())
        try one.observe("Ding")
        // It has answered.
        for _ in 0..<100 { try poster.post("Ding") }
        if hasChannel { try one.openChannel() }
        one.reads = false
        for _ in 0..<400 { try poster.post("Ding") }
        let before = stage.clock.microseconds
        for _ in 0..<500 { try one.call(ListClients()) }
        #expect(!one.unanswered.isEmpty)
        // Nothing tells here what it has read: an answer passes in a sixteenth of a second.
        #expect(stage.clock.microseconds - before < 100_000_000)
        one.goOn()
        try stage.run("all that was for it") { one.notifications.count == (hasChannel ? 100 : 500) }
    }
}
