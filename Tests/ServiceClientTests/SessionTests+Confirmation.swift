// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

/// Posts that nobody waits for.
extension SessionTests {
    @Test("E10: unconfirmed posts are reported as possibly lost when the service or the bus ends, once")
    func mayBeLost() throws {
        let stage = Stage()
        stage.start()
        func lost() -> [String] { stage.takeTold().filter { $0.contains("may be lost") } }
        for _ in 0..<5 { try stage.ask(try post()) }
        #expect(stage.outbox.unsentPosts == (0, 5))
        try stage.ask(.barrier { _ in })
        #expect(stage.outbox.unsentPosts == (0, 0))
        for _ in 0..<2 { try stage.ask(try post()) }
        #expect(lost().isEmpty)
        stage.changeOwner(isStartable: false)
        #expect(lost() == ["2 may be lost: another service has replaced the previous one"])
        try stage.ask(try post())
        stage.bus.failure = .noServer("gone")
        stage.bus.connection.onDisconnect?()
        #expect(lost() == ["1 may be lost: the bus closed the connection"])
    }

    @Test("E10: a tenth of a second after posts without an answer the session asks for their confirmation")
    func confirmsWhatIsQuiet() throws {
        let stage = Stage()
        stage.start()
        try stage.ask(try post())
        stage.bus.pass(milliseconds: 1000)
        for _ in 0..<3 { try stage.ask(try post()) }
        #expect(stage.outbox.unsentPosts == (0, 3))
        _ = stage.bus.connection.takeSent()
        stage.bus.pass(milliseconds: 99)
        #expect(stage.bus.connection.takeSent() == [])
        stage.bus.pass(milliseconds: 1)
        #expect(stage.bus.connection.takeSent() == ["Ping?"] && stage.outbox.unsentPosts == (0, 0))
        let pauses = stage.bus.pauses.count
        stage.bus.pass(milliseconds: 100_000)
        #expect(stage.bus.connection.takeSent() == [] && stage.bus.pauses.count == pauses, "it sleeps")
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        #expect(!stage.takeTold().contains { $0.contains("lost") })
    }

    @Test("E10: a service that stops accepting posts is reported once, and so is its recovery")
    func stopsAnswering() throws {
        let stage = Stage()
        stage.start()
        try stage.ask(try post())
        stage.bus.pass(milliseconds: 1000)
        _ = stage.takeTold()
        let served = stage.bus.answer
        var kept: [Message] = []
        stage.bus.answer = { call in
            guard call.member == "Ping" else { return served(call) }
            kept.append(call)
            return nil
        }
        try stage.ask(try post())
        stage.bus.pass(milliseconds: 4900)
        #expect(stage.takeTold() == [] && kept.count == 1)
        stage.bus.pass(milliseconds: 200)
        #expect(stage.takeTold().map { $0.hasPrefix("notAnswering") } == [true])
        stage.bus.pass(milliseconds: 60_000)
        #expect(stage.takeTold() == [] && stage.outbox.unsentPosts == (0, 1))
        stage.bus.connection.answerPending { .success($0.answered()) }
        #expect(stage.takeTold() == ["connected"] && stage.outbox.unsentPosts == (0, 0))
    }

    @Test(
        "E10: a service that ends in order answers earlier posts, and the bus keeps the rest for the next service"
    )
    func endsBehindAnswers() throws {
        for (answersPing, isStartable, refused, expected) in [
            (true, true, 0, 0), (false, true, 0, 3), (true, false, 0, 3), (true, true, 2, 0), (true, false, 2, 1),
        ] {
            let stage = Stage()
            stage.start()
            for _ in 0..<3 { try stage.ask(try post()) }
            _ = stage.takeTold()
            stage.changeOwner(isStartable: isStartable, answersPing: answersPing) {
                #expect(stage.outbox.unsentPosts.unconfirmed == (answersPing ? 3 : 0))
                guard refused > 0 else { return }
                let error = BusError(.limitExceeded, message: "the service ends")
                let signal = PostsRefusedSignal(count: UInt32(refused), error: error)
                _ = stage.arrive(signal.message(to: ":1.1").carried(from: ":1.100"))
            }
            let told = stage.takeTold()
            let lost = told.filter { $0.contains("may be lost") }
            let case_ = "\(answersPing) \(isStartable) \(refused): \(told)"
            #expect(lost.map { Int($0.prefix { $0.isNumber })! }.reduce(0, +) == expected, "\(case_)")
            #expect(told.count { $0.hasPrefix("lost") } == refused, "\(case_)")
            #expect(stage.outbox.unsentPosts == (0, 0), "\(case_)")
        }
    }

    @Test(
        "E10: failed answers confirm no posts, and each post is reported as lost once",
        arguments: [1, 5, 63, 64, 100, 200])
    func mayBeLostUnanswered(count: Int) throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.takeTold()
        // From now on nothing is answered.
        stage.bus.answer = { _ in nil }
        for _ in 0..<count { try stage.ask(try post()) }
        try stage.ask(.barrier { _ in })
        // The bus goes: what waits for an answer fails first.
        stage.bus.failure = .noServer("gone")
        stage.bus.connection.failPending()
        stage.bus.connection.onDisconnect?()
        var told = 0
        for words in stage.takeTold() {
            if words.hasPrefix("lost") { told += 1 }
            if words.contains("may be lost") { told += Int(words.prefix { $0.isNumber })! }
        }
        #expect(told == count)
    }

    @Test("E10: posts to a service that ends while it is asked again are reported as possibly lost")
    func mayBeLostWhileAsking() throws {
        let stage = Stage()
        stage.start()
        for _ in 0..<2 { try stage.ask(try post()) }
        let served = stage.bus.answer
        // The service has to be asked again, and ends meanwhile.
        stage.bus.answer = { call in
            call.member == AddObserver.member
                ? .failure(BusError(name: BusError.noReplyName, message: "no reply")) : nil
        }
        try stage.ask(.register(Self.ding))
        stage.bus.pass(milliseconds: 60_000)
        #expect(!stage.takeTold().contains { $0.contains("may be lost") })
        stage.bus.answer = served
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        #expect(stage.takeTold().filter { $0.contains("may be lost") }.count == 1)
    }
}
