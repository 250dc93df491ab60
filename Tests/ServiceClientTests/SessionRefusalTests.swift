// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

/// A program learns the same of a post that the service refuses, whichever way its engine sends it: the error by its name,
/// for the post that it is about, and of no other.
@Suite("F1, F2, P2: refusals of posts, by Post, by PostMany and by channel", .limited)
struct SessionRefusalTests {
    /// How posts leave. A new way is one more case.
    enum Way: CaseIterable, Sendable {
        case post, postMany, channel
    }

    private final class Told: @unchecked Sendable {
        // Sendable: a test has one thread.
        var results: [Result<Int, ServiceError>?] = [nil, nil, nil]
    }

    /// Posts three by that way, of which the second is refused.
    private func refuse(_ error: BusError, by way: Way) throws -> (
        results: [Result<Int, ServiceError>?], told: [String]
    ) {
        let stage = SessionTests.Stage(wish: TransportPreference(way == .channel ? .channel : .bus))
        let served = stage.bus.answer
        var posts = 0
        stage.bus.answer = { call in
            switch call.member {
            case PostCall.member?:
                posts += 1
                return posts == 2 ? .failure(error) : served(call)
            case PostMany.member?:
                let outcomes = [PostOutcome(receivers: 1), PostOutcome(error), PostOutcome(receivers: 1)]
                return .success(call.answered { PostMany.append(outcomes, to: &$0) })
            default: return served(call)
            }
        }
        let told = Told()
        let requests = try (0..<3).map { number -> Request in
            .post(try OutgoingPost(name: "Ding") { told.results[number] = $0 })
        }
        switch way {
        case .post:
            stage.start()
            // One alone goes alone.
            for request in requests { try stage.ask(request) }
        case .postMany:
            for request in requests { try stage.ask(request) }
            stage.start()
        case .channel:
            try stage.ask(
                .register(RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())))
            stage.start()
            let line = try #require(stage.bus.lines.last)
            _ = stage.takeTold()
            for request in requests { try stage.ask(request) }
            for (number, post) in try line.takePosts().enumerated() {
                let place = UInt64(post.split(separator: " ")[1]) ?? 0
                if number == 1 { line.settle(place, error: error) } else { line.settle(place, receivers: 1) }
            }
        }
        return (told.results, stage.takeTold())
    }

    static let errors = CenterErrorName.allCases.map { BusError($0, message: "why") } + [.invalidArgs("why")]

    @Test("P2, E1: each awaited post gets its own error by name, on every transport", arguments: Way.allCases, errors)
    func answered(way: Way, error: BusError) throws {
        let (results, told) = try refuse(error, by: way)
        for number in [0, 2] {
            guard case .success(1)? = results[number] else {
                Issue.record("\(number): \(String(describing: results[number])), \(told)")
                continue
            }
        }
        guard case .failure(.refused(let found))? = results[1] else {
            Issue.record("\(String(describing: results[1])), \(told)")
            return
        }
        #expect(found.name == error.name && found.isRefusal)
        #expect(way == .postMany || found.message == "why")
        #expect(!told.contains { $0.hasPrefix("lost") })
    }

    private static let overload = BusError(.limitExceeded, message: "too many wait")

    @Test(
        "E3, E4: a call that an overloaded service refused is repeated until accepted, unnoticed by the program",
        arguments: [true, nil] as [Bool?])
    func repeated(word: Bool?) throws {
        let ding = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
        let dong = RegistrationKey(name: ExactText("Dong"), object: nil, options: ObserverOptions())
        let member = word == nil ? "FollowActivity" : "SetSuspended"
        let stage = SessionTests.Stage()
        try stage.ask(.register(ding), .register(dong))
        stage.start()
        let served = stage.bus.answer
        stage.bus.answer = { _ in .failure(Self.overload) }
        _ = stage.bus.connection.takeSent()
        _ = stage.takeTold()
        try stage.ask(.unregister(ding), .suspend(word))
        #expect(stage.bus.connection.takeSent() == ["RemoveObserver?", member + "?"])
        // One at a time, in turns.
        for (milliseconds, expected) in [(50, "RemoveObserver?"), (100, member + "?"), (200, "RemoveObserver?")] {
            stage.bus.pass(milliseconds: Int64(milliseconds))
            #expect(stage.bus.connection.takeSent() == [expected])
        }
        stage.bus.answer = served
        stage.bus.pass(milliseconds: 399)
        #expect(stage.bus.connection.takeSent().isEmpty, "the pauses grow")
        stage.bus.pass(milliseconds: 1)
        #expect(stage.bus.connection.takeSent() == [member + "?", "RemoveObserver?"], "the next without a pause")
        stage.bus.pass(milliseconds: 100_000)
        #expect(stage.bus.connection.takeSent().isEmpty, "both were accepted")
        #expect(stage.takeTold().isEmpty)
    }

    @Test("E4: a session with many refused calls repeats one at growing pauses, and the others after a success")
    func many() throws {
        let keys = (0..<100).map { number in
            RegistrationKey(name: ExactText("Ding \(number)"), object: nil, options: ObserverOptions())
        }
        let stage = SessionTests.Stage()
        for key in keys { try stage.ask(.register(key)) }
        stage.start()
        let served = stage.bus.answer
        _ = stage.bus.connection.takeSent()
        // The last is served at once.
        var count = 0
        stage.bus.answer = { call in
            count += 1
            return count < 100 ? .failure(Self.overload) : served(call)
        }
        for key in keys { try stage.ask(.unregister(key)) }
        #expect(stage.bus.connection.takeSent().count == 100)
        stage.bus.answer = { _ in .failure(Self.overload) }
        stage.bus.pass(milliseconds: 50 + 100 + 200 + 400 + 800)
        #expect(stage.bus.connection.takeSent().count == 5)
        stage.bus.answer = served
        stage.bus.pass(milliseconds: 1600)
        #expect(stage.bus.connection.takeSent().count == 99)
        stage.bus.pass(milliseconds: 100_000)
        #expect(stage.bus.connection.takeSent().isEmpty)
    }

    @Test("E4: refused requests for batches and details are repeated as well")
    func options() throws {
        let ding = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
        let stage = SessionTests.Stage()
        let served = stage.bus.answer
        stage.bus.answer = { $0.member == SetClientOptions.member ? .failure(Self.overload) : served($0) }
        try stage.ask(.details([.host]), .register(ding))
        stage.start()
        stage.bus.connection.showsOptions = true
        stage.bus.pass(milliseconds: 1000)
        stage.bus.answer = served
        _ = stage.bus.connection.takeSent()
        stage.bus.pass(milliseconds: 60_000)
        #expect(stage.bus.connection.takeSent() == ["SetClientOptions?", "SetClientOptions?"])
        #expect(!stage.takeTold().contains { $0.hasPrefix("details") })
    }

    @Test("E3, E4: calls that a former service refused are not repeated at the next service")
    func anotherService() throws {
        let ding = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
        let stage = SessionTests.Stage()
        try stage.ask(.register(ding))
        stage.start()
        let served = stage.bus.answer
        stage.bus.answer = { _ in .failure(Self.overload) }
        try stage.ask(.suspend(true))
        stage.bus.answer = served
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        _ = stage.bus.connection.takeSent()
        stage.bus.pass(milliseconds: 100_000)
        #expect(stage.bus.connection.takeSent().isEmpty, "it was said once")
    }

    @Test("E3, E1: the observers at a service are read page by page if one reply can't contain them")
    func pieces() throws {
        let stage = SessionTests.Stage()
        for number in 0..<5 {
            let key = RegistrationKey(name: ExactText("\(number)"), object: nil, options: ObserverOptions())
            try stage.ask(.register(key))
        }
        stage.start()
        let served = stage.bus.answer
        stage.bus.answer = { $0.member == ListObservers.member ? .failure(Self.overload) : served($0) }
        // It has forgotten one.
        stage.observers.remove(at: 3)
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        _ = stage.bus.connection.takeSent()
        _ = stage.takeTold()
        stage.bus.pass(milliseconds: 50)
        #expect(stage.takeTold().first == "connected")
        #expect(stage.bus.connection.takeSent() == Array(repeating: "ListObserversFrom?", count: 3) + ["AddObserver?"])
        #expect(stage.observers.map(\.name) == ["0", "1", "2", "4", "3"])
    }

    @Test("E3, E4: the newest of several refused calls about suspension is repeated, and no older one")
    func newest() throws {
        let stage = SessionTests.Stage()
        stage.start()
        let served = stage.bus.answer
        stage.bus.answer = { $0.member == SetSuspended.member ? .failure(Self.overload) : served($0) }
        try stage.ask(.suspend(true))
        try stage.ask(.suspend(nil))
        stage.bus.answer = served
        _ = stage.bus.connection.takeSent()
        stage.bus.pass(milliseconds: 50)
        #expect(stage.bus.connection.takeSent() == ["FollowActivity?"])
    }

    @Test("E3, E4: posts to an overloaded service fail after a time, and the session asks until it is served")
    func refusedQuestion() throws {
        let ding = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
        let stage = SessionTests.Stage()
        let served = stage.bus.answer
        stage.bus.answer = { _ in .failure(Self.overload) }
        let told = Told()
        try stage.ask(.register(ding), .post(try OutgoingPost(name: "Ding") { told.results[0] = $0 }))
        stage.start()
        stage.bus.pass(milliseconds: 5000)
        stage.bus.pass(milliseconds: 5000)
        #expect(told.results[0] == nil && stage.takeTold().isEmpty, "it answers")
        stage.bus.pass(milliseconds: 20_000)
        #expect(stage.takeTold().contains { $0.hasPrefix("notAnswering") && $0.contains("too many wait") })
        guard case .failure(.refused(let error))? = told.results[0] else {
            Issue.record("\(String(describing: told.results[0]))")
            return
        }
        #expect(error.name == Self.overload.name)
        stage.bus.answer = served
        stage.bus.pass(milliseconds: 60_000)
        #expect(stage.takeTold().last == "connected")
        stage.notify(1)
        #expect(stage.takeTold() == [#"Ding 1 for ["Ding"]"#])
    }

    @Test("E3: a refusal for another reason than overload is final")
    func refusedForGood() throws {
        let stage = SessionTests.Stage()
        stage.start()
        let served = stage.bus.answer
        stage.bus.answer = { call in
            call.member == SetSuspended.member ? .failure(BusError(.notAllowed, message: "why")) : served(call)
        }
        try stage.ask(.suspend(true))
        _ = stage.bus.connection.takeSent()
        stage.bus.pass(milliseconds: 100_000)
        #expect(stage.bus.connection.takeSent().isEmpty)
    }
}
