// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

@Suite("E10: posters that want no answer learn of refused posts", .limited)
struct RefusalNoticeTests {
    private static let long = String(repeating: "n", count: 2_000)

    private func silent(_ name: String) throws -> Message {
        let message = try PostCall(name: name, object: "").message()
        message.expectsNoReply = true
        return message
    }

    private func notices(_ client: StageClient) throws -> [PostsRefusedSignal] {
        try client.messages.compactMap { try PostsRefusedSignal($0) }
    }

    @Test("Several in one word, with the reason of the last, a moment later; others learn nothing")
    func together() throws {
        let stage = try ServiceStage()
        let (poster, other) = (stage.join(), stage.join())
        for name in [Self.long, Self.long, "Good", Self.long] { poster.send(try silent(name)) }
        other.send(try silent("Good"))
        let removal = RemoveObserver(ObserverID(rawValue: 77)).message()
        removal.expectsNoReply = true
        other.send(removal)
        stage.settle()
        #expect(try notices(poster).isEmpty)
        stage.pass(milliseconds: 50)
        let told = try notices(poster)
        #expect(told.count == 1 && told.first?.count == 3)
        #expect(told.first?.error.centerError == .limitExceeded)
        stage.pass(milliseconds: 10_000)
        #expect(try notices(poster).count == 1 && notices(other).isEmpty)
    }

    @Test("They come ahead of an answer that the poster waits for, and those of posts with an answer are none")
    func ahead() throws {
        let stage = try ServiceStage()
        let poster = stage.join()
        poster.send(try silent(Self.long))
        #expect(throws: BusError.self) { try poster.post(Self.long) }
        let kinds = poster.messages.map(\.kind)
        #expect(kinds == [.signal, .error])
        #expect(try notices(poster).map(\.count) == [1])
        stage.pass(milliseconds: 10_000)
        #expect(try notices(poster).count == 1)
    }

    @Test("Of many posts in a call and of a channel, too")
    func otherWays() throws {
        let stage = try ServiceStage()
        let poster = stage.join()
        let posts = try ["Good", Self.long, Self.long].map { try PostCall(name: $0, object: "").message() }
        let many = try #require(PostMany.message(of: posts, wantsAnswer: false))
        poster.send(many)
        stage.pass(milliseconds: 100)
        #expect(try notices(poster).map(\.count) == [2])
        let channel = try poster.openChannel()
        channel.post(try PostCall(name: Self.long, object: "").message().marshalledBody, wantsOutcome: false)
        stage.pass(milliseconds: 100)
        #expect(try notices(poster).map(\.count) == [2, 1])
    }

    @Test("Many posts of a call that is refused as a whole are so many")
    func whole() throws {
        let stage = try ServiceStage { $0.limits[.postsPerCall] = 2 }
        let poster = stage.join()
        let posts = try (0..<5).map { try PostCall(name: "N\($0)", object: "").message() }
        poster.send(try #require(PostMany.message(of: posts, wantsAnswer: false)))
        stage.pass(milliseconds: 100)
        #expect(try notices(poster).map(\.count) == [5])
    }

    @Test("One process takes no place from others")
    func places() throws {
        let stage = try ServiceStage()
        let first = stage.join()
        let same = (0..<200).map { _ in stage.join(sharingProcessOf: first) }
        for poster in same { poster.send(try silent(Self.long)) }
        let other = stage.join()
        other.send(try silent(Self.long))
        stage.pass(milliseconds: 200)
        #expect(try notices(other).map(\.count) == [1])
        #expect(try same.count { try !notices($0).isEmpty } == 64)
    }

    @Test("One that asks nothing meanwhile is told more and more seldom, and of all")
    func seldom() throws {
        let stage = try ServiceStage()
        let poster = stage.join()
        for _ in 0..<2_000 {
            poster.send(try silent(Self.long))
            stage.pass(milliseconds: 100)
        }
        let told = try notices(poster)
        #expect((8...16).contains(told.count), "\(told.count) in 200 s")
        stage.pass(milliseconds: 120_000)
        #expect(try notices(poster).reduce(0) { $0 + $1.count } == 2_000)
        // A poster that reads is told soon again.
        #expect(try poster.post("Good") == 0)
        poster.send(try silent(Self.long))
        stage.pass(milliseconds: 60)
        #expect(try notices(poster).last?.count == 1)
    }

    @Test("Posts for which a service that ends has no time are announced to their posters and observers")
    func endInOverload() throws {
        let stage = try ServiceStage()
        let (poster, observer) = (stage.join(), stage.join())
        try observer.observe("Good")
        _ = try poster.post("Known")
        stage.slowCalls = 2_000
        for _ in 0..<1_000 { poster.send(try silent("Good")) }
        let asked = poster.send(try PostCall(name: "Good", object: "").message())
        var hasEnded = false
        stage.service.stop { hasEnded = true }
        try stage.run("it ends") { hasEnded }
        let refused = try notices(poster)
        let count = refused.reduce(0) { $0 + Int($1.count) }
        #expect((1..<1_000).contains(count), "\(count)")
        #expect(refused.allSatisfy { $0.error.centerError == .limitExceeded })
        #expect(observer.dropped.reduce(0) { $0 + Int($1.count) } == count)
        #expect(poster.answer(to: asked)?.error?.centerError == .limitExceeded)
        #expect(stage.service.center?.statistics.posted == 1_001, "each once, also those that are lost")
    }

    @Test("A call to the service's own name while it ends is lost with a word, too")
    func whileItEnds() throws {
        let stage = try ServiceStage()
        let poster = stage.join()
        _ = try poster.post("Known")
        var hasEnded = false
        stage.holdsBarriers = true
        stage.service.stop { hasEnded = true }
        stage.settle()
        #expect(!hasEnded, "the bus has not carried everything")
        poster.send(try silent("Good"))
        stage.pass(milliseconds: 5_000)
        #expect(hasEnded)
        #expect(try notices(poster).map(\.count) == [1])
    }

    @Test("Refusals are told before the service ends")
    func end() throws {
        let stage = try ServiceStage()
        let poster = stage.join()
        poster.send(try silent(Self.long))
        stage.settle()
        #expect(try notices(poster).isEmpty)
        var hasEnded = false
        stage.service.stop { hasEnded = true }
        try stage.run("it ends") { hasEnded }
        #expect(try notices(poster).map(\.count) == [1])
    }
}
