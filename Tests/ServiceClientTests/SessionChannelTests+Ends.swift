// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

/// What a program's engine does with a channel (F2): whichever way they go, its requests and its notifications keep
/// their order, none is lost without a word, and none comes twice.

/// What the service says of a channel that has ended.
extension SessionChannelTests {
    @Test("A loss with the reason channel-ended is reported only if the notifications were not read")
    func unread() throws {
        for (isHeard, hasTurned) in [(true, true), (true, false), (false, true), (false, false)] {
            let (stage, line) = try observing()
            let loss = DroppedSignal(
                count: 2, observers: [ObserverID(rawValue: 1)], reason: DropReason.channelEnded.rawValue)
            line.lie([SimulatedLine.notification(1), SimulatedLine.notification(2)])
            if !isHeard { line.lie([SimulatedLine.bytes { $0.appendPost(number: 1, body: [1]) }]) }
            stage.bus.answer = { _ in nil }
            if hasTurned { line.end() } else { (line.hasEnded, line.isBroken) = (true, true) }
            _ = stage.arrive(loss.message(to: ":1.1").carried(from: ":1.100"))
            let told = stage.takeTold()
            #expect(told.contains { $0.hasPrefix("Ding 2") })
            #expect(told.contains { $0.hasPrefix("dropped") } == !isHeard, "\(told)")
        }
    }

    /// A word on the end of a channel that was heard to its end, while another one is asked for.
    private func doubted() throws -> SessionTests.Stage {
        let (stage, line) = try observing()
        line.lie([SimulatedLine.notification(1), SimulatedLine.notification(2)])
        holdBack(stage, OpenChannel.member, "Ping")
        line.end()
        stage.bus.pass(milliseconds: 1000)
        try stage.ask(post())
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        let loss = DroppedSignal(
            count: 2, observers: [ObserverID(rawValue: 1)], reason: DropReason.channelEnded.rawValue)
        _ = stage.arrive(loss.message(to: ":1.1").carried(from: ":1.100"))
        #expect(stage.bus.connection.pending.map { $0.message.member?.rawValue } == ["OpenChannel", "Ping"])
        return stage
    }

    @Test("During an OpenChannel call, a channel-ended loss concerns the previous channel if the call succeeds")
    func wordBeforeAnswer() throws {
        let stage = try doubted()
        let call = try #require(stage.bus.connection.pending.first).message
        stage.bus.connection.answerFirst(.success(call.answered()))
        stage.bus.connection.answerFirst(.success(call.answered()))
        stage.notify(3)
        #expect(stage.takeTold() == ["channel", #"Ding 3 for ["Ding"]"#])
    }

    @Test("If the OpenChannel call fails, a channel-ended loss concerns the requested channel and is reported once")
    func wordOfLostAnswer() throws {
        let told = #"dropped(count: 2, reason: "channel-ended")"#
        let refused = try doubted()
        refused.bus.connection.answerFirst(.failure(BusError(.limitExceeded, message: "full")))
        #expect(refused.takeTold().contains(told))
        let overtaken = try doubted()
        let (open, ping) = (overtaken.bus.connection.pending[0], overtaken.bus.connection.pending[1])
        ping.completion(.success(ping.message.answered()))
        #expect(overtaken.takeTold() == [told])
        overtaken.notify(5)
        #expect(overtaken.takeTold() == [#"Ding 5 for ["Ding"]"#], "the hole was told")
        open.completion(.success(open.message.answered()))
        #expect(overtaken.takeTold() == ["channel"])
        let holed = try doubted()
        for number in [5, 6] { holed.notify(UInt64(number)) }
        #expect(holed.takeTold() == [told, #"Ding 5 for ["Ding"]"#, #"Ding 6 for ["Ding"]"#])
        for _ in 0..<2 {
            holed.bus.connection.answerFirst(.failure(.disconnected("it ended")))
        }
        #expect(!holed.takeTold().contains(told))
    }
}
