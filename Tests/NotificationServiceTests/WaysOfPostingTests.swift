// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// What is refused, by whom and why, is the same whichever way a post comes: ``WayOfPosting``. A rule about posts is a row
/// of a table here.
@Suite("E1, N1, N3, P2, G1, G3: accepted and refused posts, by call, by PostMany and by channel", .limited)
struct WaysOfPostingTests {
    /// A service with the policy that the tables speak of, and an observer of everything.
    private final class Scene {
        let stage: ServiceStage
        let observer: StageClient

        init(_ limit: (key: Limits.Key, value: UInt64)? = nil) throws {
            stage = try ServiceStage { configuration in
                configuration.policy.openNames = [.below("org.example.Open.")]
                configuration.policy.unidentified = .refuse
                configuration.policy.applications = [
                    "org.example.Trusted": [.post: [.all]], "org.example.Listed": [.post: [.exactly("Listed")]],
                    "org.example.Free": [.post: [.all], .observe: []],
                ]
                configuration.sessions.export = [.exactly("org.example.Open.Out")]
                // It is a client itself.
                if let (key, value) = limit, key != .clients { configuration.limits[key] = value }
            }
            observer = stage.join()
            try observer.call(SetClientOptions(ClientOptionsChange(batches: true, details: [.host, .user])))
            try observer.observe("")
            if let (key, value) = limit { stage.configure { $0.limits[key] = value } }
        }

        /// What a post that was refused leaves as it was.
        struct State: Equatable {
            let posted, queuedPosts, retained, retainedBytes, queuedPostBytes, unmatched: UInt64
            let clients: Int
            let delivered: Int
            let sentOut: PropertyList?
        }

        func state() throws -> (State, refused: UInt64) {
            stage.settle()
            let properties = try CenterProperties(in: observer.ask(CenterProperties.getAll()))
            func number(_ key: StatisticsKey) -> UInt64 { properties.statistics[key] ?? 0 }
            let state = State(
                posted: number(.posted), queuedPosts: number(.queuedPosts), retained: number(.retained),
                retainedBytes: number(.retainedBytes), queuedPostBytes: number(.queuedPostBytes),
                unmatched: number(.unmatched), clients: stage.service.center!.clientStatuses.count,
                delivered: observer.notifications.count, sentOut: properties.sessions["lost"])
            return (state, number(.refused))
        }

        /// What is listed of a poster.
        func refused(_ poster: StageClient) -> UInt64? {
            stage.service.center?.posterStatuses(most: .max) { $0 == poster.name }.first?.refused
        }
    }

    @Test(
        "E1, N1, N3, P2, G1, G3: every method of posting refuses a post with an equal error and without effect",
        arguments: PostTrials.refused)
    func refused(trial: PostTrials.Trial) throws {
        let (way, refusal) = (trial.way, trial.refusal)
        let scene = try Scene(refusal.limit)
        let poster = scene.stage.join(refusal.by.process)
        if way == .channel { try poster.openChannel() }
        let (before, refused) = try scene.state()
        let verdict = try way.post(refusal.post, from: poster)
        #expect(verdict.error == refusal.error.rawValue)
        if let words = refusal.words, let message = verdict.message {
            #expect(message.contains(words))
        }
        #expect(verdict.receivers == 0)
        let (after, refusedThen) = try scene.state()
        #expect(after == before)
        #expect(refusedThen == refused + 1 + way.refusedBefore)
        #expect(scene.refused(poster) == 1 + way.refusedBefore)
    }

    @Test(
        "D3: a refused post without an answer is counted and has no effect, for every method of posting",
        arguments: PostTrials.refused)
    func refusedUnanswered(trial: PostTrials.Trial) throws {
        let (way, refusal) = (trial.way, trial.refusal)
        let scene = try Scene(refusal.limit)
        let poster = scene.stage.join(refusal.by.process)
        if way == .channel { try poster.openChannel() }
        let (before, refused) = try scene.state()
        let answers = poster.messages.count
        try way.postUnanswered(refusal.post, from: poster)
        var state = try scene.state()
        try scene.stage.run("the refusal of \(refusal.what)") {
            state = try scene.state()
            return state.refused > refused
        }
        #expect(state.0 == before)
        #expect(state.refused == refused + 1 + way.refusedBefore)
        #expect(poster.messages.count == answers)
        try poster.channel?.read()
        #expect(poster.channel?.kinds.isEmpty ?? true)
    }

    @Test(
        "Q2, Q7, F2: queued posts are made by the loop, for every method of posting, with and without an answer",
        arguments: WayOfPosting.allCases, ["now", "asap", "when-idle"])
    func styles(way: WayOfPosting, style: String) throws {
        for isAwaited in [true, false] {
            let scene = try Scene()
            let poster = scene.stage.join(PostTrials.Poster.session.process)
            if way == .channel { try poster.openChannel() }
            let post = RawPost(options: { $0.entry("posting-style", style) })
            if isAwaited {
                #expect(try way.post(post, from: poster).isAccepted)
            } else {
                try way.postUnanswered(post, from: poster)
            }
            // Nobody else posts, or does anything: the service is idle.
            scene.stage.pass(milliseconds: 100)
            #expect(scene.observer.notifications.map(\.name) == ["Ding"], "awaited: \(isAwaited)")
            #expect(try scene.state().0.queuedPosts == 0)
        }
    }

    @Test(
        "P2, P3, G1, G3: every method of posting accepts allowed posts, which arrive with their origin",
        arguments: WayOfPosting.allCases, PostTrials.accepted)
    func accepted(way: WayOfPosting, acceptance: PostTrials.Acceptance) throws {
        let scene = try Scene()
        let poster = scene.stage.join(acceptance.by.process)
        let (before, refused) = try scene.state()
        let verdict = try way.post(acceptance.post, from: poster)
        #expect(verdict == .accepted(by: 1))
        let (after, refusedThen) = try scene.state()
        #expect(refusedThen == refused + way.refusedBefore)
        #expect(after.posted == before.posted + 1 && after.delivered == before.delivered + 1)
        #expect((after.sentOut != before.sentOut) == acceptance.goesOut)
        let notification = try #require(scene.observer.notifications.last)
        #expect(notification.name == acceptance.post.name && notification.poster == poster.name)
        #expect(notification.details[Detail.host.rawValue] == acceptance.origin?.host.map(PropertyList.string))
        #expect(notification.details[Detail.user.rawValue] == acceptance.origin?.user.map(PropertyList.string))
    }
}
