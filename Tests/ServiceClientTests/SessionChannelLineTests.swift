// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonClient

/// Posts that leave over a channel from the threads that make them, while it is idle.
@Suite("Posts sent on a channel by the posting thread, without the session", .limited)
struct SessionChannelLineTests {
    private final class Line {
        let stage = SessionTests.Stage(wish: TransportPreference(.channel))
        let line: SimulatedLine

        /// An observer is registered, and a first post has its outcome.
        init() throws {
            try stage.ask(.register(RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())))
            stage.start()
            line = try #require(stage.bus.lines.last)
            try stage.ask(.post(OutgoingPost(name: "Ding")))
            line.settle(1)
            _ = (stage.takeTold(), stage.bus.connection.takeSent(), try line.takePosts())
        }

        /// Posts, and tells nobody.
        ///
        /// - Returns: whether the session would have to be told.
        func post(
            _ name: String = "Ding", byteCount: Int = 0,
            _ completion: Request.Completion<Result<Int, ServiceError>>? = nil
        ) throws -> Bool {
            try stage.outbox.append(
                .post(
                    OutgoingPost(
                        name: name,
                        userInfo: byteCount > 0 ? ["data": .data([UInt8](repeating: 7, count: byteCount))] : [:],
                        completion: completion)))
        }
    }

    @Test("A post leaves directly with an outcome, also an awaited one; the eighth leaves through the session")
    func passes() throws {
        let line = try Line()
        let results = Results()
        for number in 2...7 as ClosedRange<UInt64> {
            #expect(try !line.post { results.add($0) })
            #expect(try line.line.takePosts() == ["Ding \(number)"])
        }
        #expect(try !line.post("seventh"))
        #expect(try line.line.takePosts() == ["seventh 8"])
        #expect(try line.post("eighth"))
        #expect(try line.line.takePosts() == [])
        #expect(!line.stage.session.mayStop(), "outcomes are missing")
        #expect(try line.line.takePosts() == ["eighth 9"])
        for number in 2...9 as ClosedRange<UInt64> { line.line.settle(number, receivers: Int(number)) }
        #expect(results.values == [2, 3, 4, 5, 6, 7].map { .success($0) })
        #expect(try !line.post("last"))
        #expect(try line.line.takePosts() == ["last 10"])
    }

    @Test("D4: a request behind a direct post waits for the post's outcome, and later posts wait for the request")
    func order() throws {
        let line = try Line()
        #expect(try !line.post("a"))
        let key = RegistrationKey(name: ExactText("Dong"), object: nil, options: ObserverOptions())
        #expect(try line.stage.outbox.append(.register(key)))
        #expect(try line.post("b"))
        line.stage.session.pump()
        #expect(try line.line.takePosts() == ["a 2"])
        #expect(line.stage.bus.connection.takeSent() == [])
        line.line.settle(2)
        #expect(line.stage.bus.connection.takeSent() == ["AddObserver?", "Ping?"])
        #expect(try line.line.takePosts() == ["b 3"], "the service has taken what went by the bus")
        #expect(try !line.post("c"))
        #expect(try line.line.takePosts() == ["c 4"])
    }

    @Test("If the socket is full, the session writes the remaining posts, and later posts follow them")
    func partly() throws {
        let line = try Line()
        line.line.room = 20
        #expect(try line.post("a"), "the session has to wait for room")
        #expect(try line.post("b"))
        line.stage.session.pump()
        #expect(line.line.isWaitingForSpace)
        #expect(try line.line.takePosts() == [])
        line.line.room = .max
        line.line.turn()
        #expect(try line.line.takePosts() == ["a 2", "b 3"])
        #expect(!line.line.isWaitingForSpace)
    }

    @Test("An outcome settles its post and all earlier posts that have no outcome of their own")
    func settling() throws {
        let line = SimulatedLine()
        let sender = ChannelSender(line.writing)
        func post(_ isAwaited: Bool) throws -> OutgoingPost {
            isAwaited ? try OutgoingPost(name: "Ding") { _ in } : try OutgoingPost(name: "Ding")
        }
        let posts = try [post(false), post(true), post(false), post(false)]
        #expect(sender.send(posts) == .all)
        #expect(try line.takePosts() == ["Ding 0", "Ding 1", "Ding 0", "Ding 2"])
        #expect(sender.postsInFlight == 4)
        #expect(sender.settle(0) == nil && sender.settle(3) == nil)
        #expect(sender.settle(2)?.count == 3 && sender.postsInFlight == 1)
        #expect(sender.settle(2) == nil)
        #expect(sender.settle(1)?.count == 1 && sender.postsInFlight == 0)
    }

    @Test("A large post leaves through the session")
    func large() throws {
        let line = try Line()
        #expect(try line.post(byteCount: 20_000))
        #expect(try line.line.takePosts() == [])
        line.stage.session.pump()
        #expect(try line.line.takePosts() == ["Ding 2"])
    }

    @Test("E3: at the end of a channel, sent posts are reported as possibly lost, and the others leave on the bus")
    func ends() throws {
        let line = try Line()
        let results = Results()
        #expect(try !line.post { results.add($0) })
        #expect(try !line.post())
        line.line.room = 30
        #expect(try line.post("unsent"))
        line.stage.session.pump()
        #expect(line.line.isWaitingForSpace)
        line.line.end()
        #expect(!line.line.isWaitingForSpace && !line.line.isReading, "nobody looks at it any more")
        let lost = line.stage.takeTold().filter { $0.contains("may be lost") }
        #expect(lost.count == 1, "\(lost)")
        guard case .failure? = results.values.first else {
            Issue.record("\(results.values)")
            return
        }
        #expect(results.values.count == 1)
        #expect(line.stage.bus.connection.takeSent() == ["Post"])
        #expect(try line.post(), "the session has to ask for another channel")
    }

    @Test("A full channel that ends with the bus is no longer polled")
    func endsWithBus() throws {
        let line = try Line()
        line.line.room = 20
        #expect(try line.post())
        line.stage.session.pump()
        #expect(line.line.isWaitingForSpace)
        line.stage.bus.connection.onDisconnect?()
        #expect(!line.line.isWaitingForSpace && !line.line.isReading)
    }

    @Test("After a change of the service or the end of the bus, no post leaves directly")
    func changes() throws {
        let line = try Line()
        line.stage.changeToSilentService()
        #expect(try line.post())
        #expect(try line.line.takePosts() == [])
        let other = try Line()
        other.stage.bus.connection.onDisconnect?()
        #expect(try other.post())
        #expect(try other.line.takePosts() == [])
    }
}

/// What posts came to.
private final class Results: Sendable {
    private let results = Locked<[Result<Int, ServiceError>]>([])
    var values: [Result<Int, ServiceError>] { results.withLock { $0 } }
    func add(_ result: Result<Int, ServiceError>) { results.withLock { $0.append(result) } }
}
