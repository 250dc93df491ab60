// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

/// What a program's engine sends and receives together (F1), at services that know of it and at those that do not.
@Suite("F1: batches of a service session", .limited)
struct SessionBatchTests {
    private static let ding = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
    private static let unknownMethod: InterfaceName = "org.freedesktop.DBus.Error.UnknownMethod"

    private func post(
        _ name: String = "Ding", _ completion: Request.Completion<Result<Int, ServiceError>>? = nil
    ) throws -> Request {
        .post(try OutgoingPost(name: name, completion: completion))
    }

    private func names(_ call: Message) throws -> [String] {
        var reader = MessageReader(call)
        return try PostMany(from: &reader).posts.map(\.name)
    }

    @Test("A single post leaves as Post, and gathered posts leave as one PostMany")
    func accumulates() throws {
        let stage = SessionTests.Stage()
        for _ in 0..<3 { try stage.ask(post()) }
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "PostMany?"])
        try stage.ask(post())
        #expect(stage.bus.connection.takeSent() == ["Post"])
    }

    @Test("A stopping session waits until the bus has read its last batch")
    func stopping() throws {
        let stage = SessionTests.Stage()
        for _ in 0..<2 { try stage.ask(post()) }
        stage.start()
        #expect(stage.bus.connection.takeSent().last == "PostMany?")
        #expect(!stage.session.mayStop())
        #expect(stage.bus.connection.takeSent() == ["GetId?"])
        #expect(stage.session.mayStop())
    }

    @Test("Gathered posts leave with the answer, after 20 ms, or before any other request")
    func batch() throws {
        let stage = SessionTests.Stage()
        let served = stage.bus.answer
        for _ in 0..<2 { try stage.ask(post()) }
        stage.start()
        stage.bus.answer = { [PostMany.member, PostCall.member].contains($0.member) ? nil : served($0) }
        for _ in 0..<8 { try stage.ask(post()) }
        _ = stage.bus.connection.takeSent()
        for name in ["a", "b"] { try stage.ask(post(name)) }
        #expect(stage.bus.connection.takeSent() == [])
        #expect(!stage.session.mayStop())
        #expect(stage.bus.connection.takeSent() == ["PostMany?", "GetId?"], "whoever stops sends it")

        try stage.ask(post("c"))
        stage.bus.pass(milliseconds: 9)
        #expect(stage.bus.connection.takeSent() == [])
        stage.bus.pass(milliseconds: 11)
        #expect(stage.bus.connection.takeSent() == ["Post?"])

        try stage.ask(post("d"), .unregister(Self.ding), post("e"))
        #expect(stage.bus.connection.takeSent() == ["Post?"])
        for name in ["f", "g"] { try stage.ask(post(name)) }
        #expect(stage.bus.connection.takeSent() == [])
        let first = stage.bus.connection.pending[0].message
        stage.bus.connection.answerFirst(.success(first.answered { PostCall.append(1, to: &$0) }))
        #expect(stage.bus.connection.takeSent() == ["PostMany"])
    }

    @Test("The reply to a batch releases the posts behind it, also if it refuses the batch")
    func goesOn() throws {
        let stage = SessionTests.Stage()
        let served = stage.bus.answer
        stage.bus.answer = { $0.member == PostMany.member ? nil : served($0) }
        for _ in 0..<8 { try stage.ask(post()) }
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "PostMany?"])
        for _ in 0..<8 { try stage.ask(post()) }
        #expect(stage.bus.connection.takeSent() == [])
        let first = try #require(stage.bus.connection.pending.first).message
        let outcomes = [PostOutcome](repeating: PostOutcome(receivers: 1), count: 8)
        stage.bus.connection.answerFirst(.success(first.answered { PostMany.append(outcomes, to: &$0) }))
        #expect(stage.bus.connection.takeSent() == ["PostMany?"])
        for _ in 0..<2 { try stage.ask(post()) }
        #expect(stage.bus.connection.takeSent() == [])
        try #require(stage.bus.connection.pending.count == 1)
        stage.bus.connection.answerFirst(.failure(BusError(.notAllowed, message: "may not post")))
        #expect(stage.bus.connection.takeSent() == ["PostMany"])
    }

    @Test("An observing session requests batches once, before its first observer, and again from a new service")
    func asks() throws {
        let stage = SessionTests.Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.connection.showsOptions = true
        #expect(
            stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "SetClientOptions?", "AddObserver?"])
        for owner in ["", ":1.100"] {
            _ = stage.arrive(.ownerChange("org.carillon.NotificationCenter1", to: owner))
        }
        #expect(stage.bus.connection.takeSent().contains("SetClientOptions?"))
    }

    @Test("P1: the requested details are sent to each service, and a refusal is reported to the program")
    func details() throws {
        let stage = SessionTests.Stage()
        let answer = stage.bus.answer
        var (asked, isRefused): ([Details?], Bool) = ([], false)
        stage.bus.answer = { message in
            guard message.member == SetClientOptions.member else { return answer(message) }
            var reader = MessageReader(message)
            asked.append(try? SetClientOptions(from: &reader).change.details)
            return isRefused ? .failure(BusError(.notAllowed, message: "may not be told who posted")) : answer(message)
        }
        try stage.ask(.details([.userID, .process]))
        stage.start()
        #expect(asked == [[.userID, .process]])
        for owner in ["", ":1.100"] {
            _ = stage.arrive(.ownerChange("org.carillon.NotificationCenter1", to: owner))
        }
        #expect(asked == [[.userID, .process], [.userID, .process]])
        _ = stage.takeTold()
        isRefused = true
        try stage.ask(.details([]))
        #expect(asked.last == [])
        #expect(stage.takeTold().map { $0.hasPrefix("details refused: ") } == [true])
    }

    @Test("Each post of a batch gets its own outcome, also a refused post")
    func outcomes() throws {
        let stage = SessionTests.Stage()
        stage.badPosts = [1, 2]
        final class Answers: @unchecked Sendable { var all: [String] = [] }  // Sendable: a test has one thread
        let answers = Answers()
        for number in 0..<2 {
            try stage.ask(
                post { result in
                    switch result {
                    case .success(let receivers): answers.all.append("\(number): \(receivers)")
                    case .failure(.refused(let error)): answers.all.append("\(number): \(error.name)")
                    case .failure(let error): answers.all.append("\(number): \(error)")
                    }
                })
        }
        try stage.ask(post())
        stage.start()
        #expect(answers.all == ["0: 0", "1: org.carillon.Error.InvalidName"])
        #expect(stage.takeTold().contains { $0.hasPrefix("lost: ") }, "nobody waited for the third")
    }

    @Test("Later posts wait for the first batch; at an older service all posts leave one by one, in order")
    func olderService() throws {
        let stage = SessionTests.Stage()
        stage.hasBatches = false
        let answer = stage.bus.answer
        stage.bus.answer = { $0.member == PostMany.member ? nil : answer($0) }
        for name in ["a", "b"] { try stage.ask(post(name)) }
        stage.start()
        for name in ["c", "d"] { try stage.ask(post(name)) }
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "PostMany?"])
        #expect(try names(stage.bus.connection.pending[0].message) == ["a", "b"])
        #expect(!stage.session.mayStop(), "what has to be sent again would be lost")
        stage.bus.connection.answerFirst(.failure(BusError(name: Self.unknownMethod, message: "why")))
        #expect(stage.bus.connection.takeSent() == ["Post", "Post?", "Post", "Post"])
        for _ in 0..<2 { try stage.ask(post()) }
        #expect(stage.bus.connection.takeSent() == ["Post", "Post"])
    }

    @Test("The last post of a batch that leaves one by one confirms all of it, so that a whole window may follow")
    func confirmedOneByOne() throws {
        let stage = SessionTests.Stage()
        stage.hasBatches = false
        let served = stage.bus.answer
        for _ in 0..<64 { try stage.ask(post()) }
        stage.start()
        let batch = stage.bus.connection.takeSent().filter { $0.hasPrefix("Post") }
        #expect(batch == ["PostMany?"] + Array(repeating: "Post", count: 63) + ["Post?"])
        stage.bus.answer = { $0.member == PostCall.member ? nil : served($0) }
        for _ in 0..<300 { try stage.ask(post()) }
        #expect(stage.bus.connection.takeSent().count == Outbox<Request>.window)
    }

    @Test("Notifications of a batch are delivered one by one, with their own sequence numbers")
    func receives() throws {
        let stage = SessionTests.Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.takeTold()
        let notifications = [1, 2, 4].map { number in
            NotificationSignal(
                name: "Ding", object: "", userInfo: [:], observers: [ObserverID(rawValue: 1)], poster: ":1.9",
                serial: number, sequence: number)
        }
        _ = stage.arrive(NotificationsSignal(notifications).message(to: ":1.1").carried(from: ":1.100"))
        #expect(
            stage.takeTold() == [
                #"Ding 1 for ["Ding"]"#, #"Ding 2 for ["Ding"]"#, "missing(count: 1)", #"Ding 4 for ["Ding"]"#,
            ])
    }
}
