// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonSimulation

/// What becomes of posts that come faster than they can be served, on a bus that makes nobody wait (E4, S4).
@Suite("Overload", .limited)
struct OverloadTests {
    private static let posts = 2500

    private final class Flooded: Stage {
        private(set) lazy var observer = join()
        private(set) lazy var poster = join()

        init() {
            var manner = Bus.Manner()
            manner.kind = .broker
            manner.maxOutgoingBytes = 1 << 30
            var limits = Limits()
            limits[.waitingCallBytes] = 1 << 20
            super.init(manner: manner, limits: limits, isSupervised: false, servingTime: 1000)
            observer.observe(slot: 0, name: nil, object: nil, .hold, .default)
            _ = poster  // joins
            pass(seconds: 2)
        }
    }

    @Test("S4: losses are announced while the rest of the flood still waits, and each post once")
    func toldEarly() throws {
        let stage = Flooded()
        let observer = try #require(stage.observer.witness)
        for _ in 0..<Self.posts { stage.poster.post(PostPlan(name: 0, wantsAnswer: false, byteCount: 12_000)) }
        for _ in 0..<6000 where observer.announced == 0 { stage.pass(seconds: 0.01) }
        try #require(observer.announced > 0, "some are too many")
        let waiting = try #require(stage.host.center).statistics.waitingCallBytes
        #expect(waiting > 1 << 19, "what is kept is served behind that")
        stage.pass(seconds: 60)
        #expect(observer.delivered + observer.announced == UInt64(Self.posts))
        #expect(observer.delivered > 0)
        #expect(stage.world.violation == nil)
    }

    @Test("E3, S4: losses of a flood are announced even if the service ends cleanly at that moment")
    func toldAtTheEnd() throws {
        let stage = Flooded()
        let observer = try #require(stage.observer.witness)
        for _ in 0..<Self.posts { stage.poster.post(PostPlan(name: 0, wantsAnswer: false, byteCount: 12_000)) }
        for _ in 0..<6000 where observer.announced == 0 { stage.pass(seconds: 0.01) }
        try #require(observer.announced > 0)
        let before = observer.announced
        stage.host.terminate()
        stage.pass(seconds: 60)
        #expect(observer.announced > before)
        #expect(stage.world.violation == nil)
    }

    @Test("E4, F1: a single one of several calls above the waiting limit is served, and small calls meanwhile")
    func larger() throws {
        var manner = Bus.Manner()
        manner.maxOutgoingBytes = 1 << 30
        var limits = Limits()
        limits[.waitingCallBytes] = 1 << 20
        let stage = Stage(manner: manner, limits: limits, isSupervised: false, servingTime: 1000)
        let posters = (0..<8).map { _ in stage.join() }
        let (caller, batcher) = (stage.join(), stage.join())
        caller.observe(slot: 0, name: nil, object: nil, .drop, .default)
        stage.pass(seconds: 2)
        let center = try #require(stage.host.center)
        let large = [PostPlan](repeating: PostPlan(name: 0, byteCount: 4000), count: 400)
        for poster in posters { poster.postMany(large) }
        stage.pass(seconds: 0.05)
        let count = stage.ledger.posts.count
        #expect(count == 8 * 400)
        var most: UInt64 = 0
        for _ in 0..<20 {
            caller.post(PostPlan(name: 0))
            batcher.postMany([PostPlan(name: 0), PostPlan(name: 0)])
            stage.pass(seconds: 0.01)
            most = max(most, center.statistics.waitingCallBytes)
        }
        #expect(most > 1 << 19 && most <= 1 << 20, "one of them is being served, and counts as what fits")
        stage.pass(seconds: 30)
        let posts = stage.ledger.posts
        func accepted(_ posts: ArraySlice<Ledger.PostRecord>) -> Int {
            posts.count { if case .accepted = $0.outcome { true } else { false } }
        }
        #expect(posts.allSatisfy { $0.outcome != .unknown })
        #expect(accepted(posts[..<count]) == 400, "the others had to wait for nothing")
        #expect(accepted(posts[count...]) == posts.count - count && posts.count == count + 60)
        #expect(stage.world.violation == nil)
    }
}
