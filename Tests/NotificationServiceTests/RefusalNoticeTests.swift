// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

@Suite("E10: PostsRefused for posts without answers", .limited)
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

    @Test("One PostsRefused reports several refused posts a moment later, and other clients get none")
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

    @Test("PostsRefused arrives before the next reply to the poster, and does not count posts with an answer")
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

    @Test("Refused posts of a PostMany call and of a channel are reported, too")
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

    @Test("A PostMany call that is refused as a whole counts as many refused posts")
    func whole() throws {
        let stage = try ServiceStage { $0.limits[.postsPerCall] = 2 }
        let poster = stage.join()
        let posts = try (0..<5).map { try PostCall(name: "N\($0)", object: "").message() }
        poster.send(try #require(PostMany.message(of: posts, wantsAnswer: false)))
        stage.pass(milliseconds: 100)
        #expect(try notices(poster).map(\.count) == [5])
    }

    @Test("The notices to one process are limited, and notices to another process are not displaced")
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

    @Test("A poster that waits for no reply gets PostsRefused less and less often, and all posts are counted")
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

    @Test("Posts that a service drops at its end under load are reported to their posters and observers")
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

    @Test("A post that arrives while the service ends is reported as refused")
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

    @Test("Refused posts are reported before the service ends")
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
