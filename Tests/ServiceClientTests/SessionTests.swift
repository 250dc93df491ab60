// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

/// What the engine of a client does when the bus and the service come, go, refuse and replace each other, on a bus and
/// a clock that the test plays.
@Suite("Service session", .limited)
struct SessionTests {
    static let ding = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
    private static let serviceUnknown = BusError.serviceUnknownName
    private let name = "org.carillon.NotificationCenter1"

    func post(_ completion: Request.Completion<Result<Int, ServiceError>>? = nil) throws -> Request {
        .post(try OutgoingPost(name: "Ding", completion: completion))
    }

    @Test("A session reads the service's observers before it registers its own, and reports the connection")
    func begins() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "AddObserver?"])
        #expect(stage.takeTold() == ["connected"])
        stage.notify(1)
        #expect(stage.takeTold() == [#"Ding 1 for ["Ding"]"#])
    }

    @Test("A session may stop when the bus has read all messages that it sent")
    func stopping() throws {
        let stage = Stage()
        stage.start()
        #expect(stage.session.mayStop(), "nothing was sent")
        let served = stage.bus.answer
        stage.bus.answer = { $0.member == "GetId" ? nil : served($0) }
        for _ in 0..<3 { try stage.ask(post()) }
        _ = stage.bus.connection.takeSent()
        #expect(!stage.session.mayStop())
        #expect(!stage.session.mayStop())
        #expect(stage.bus.connection.takeSent() == ["GetId?"], "the bus is asked once")
        let question = stage.bus.connection.pending[0].message
        stage.bus.connection.answerFirst(.success(question.answered { $0.append("0123456789abcdef") }))
        #expect(stage.session.mayStop())
        try stage.ask(post())
        #expect(!stage.session.mayStop())
        stage.bus.connection.onDisconnect?()
        stage.bus.pass(milliseconds: 0)
        #expect(stage.session.mayStop(), "there is nobody left to send it to")
    }

    @Test("A session may stop when its barrier is answered, and not before")
    func stoppingBehindBarrier() throws {
        let stage = Stage()
        stage.start()
        let served = stage.bus.answer
        stage.bus.answer = { $0.member == "Ping" ? nil : served($0) }
        try stage.ask(.barrier { _ in })
        for _ in 0..<3 { #expect(!stage.session.mayStop()) }
        let barrier = try #require(stage.bus.connection.pending.first?.message)
        stage.bus.connection.answerFirst(.success(barrier.answered()))
        #expect(!stage.session.mayStop(), "the bus is asked")
        #expect(stage.session.mayStop())
    }

    @Test("A session may stop when its call is answered, and not before", arguments: [true, false])
    func stoppingBehindCall(isServed: Bool) throws {
        let stage = Stage()
        stage.start()
        let served = stage.bus.answer
        stage.bus.answer = { $0.member == SetSuspended.member ? nil : served($0) }
        try stage.ask(.call(SetSuspended(true)) { _ in })
        for _ in 0..<3 { #expect(!stage.session.mayStop()) }
        let call = try #require(stage.bus.connection.pending.first?.message)
        let refusal = BusError(.notAllowed, message: "no")
        stage.bus.connection.answerFirst(isServed ? .success(call.answered()) : .failure(refusal))
        #expect(!stage.session.mayStop(), "the bus is asked")
        #expect(stage.session.mayStop())
    }

    @Test("A session without requests does not call the service")
    func quiet() {
        let stage = Stage()
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch"])
        #expect(stage.takeTold().isEmpty)
    }

    @Test("The first request connects the session and is not refused")
    func firstRequest() throws {
        let stage = Stage()
        try stage.ask(post())
        stage.session.pump()
        try #require(stage.bus.connections.count == 1)
        #expect(stage.takeTold() == ["connected"])
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "Post"])
    }

    @Test("A connection that the bus closed lives until its callbacks have returned, and no longer")
    func closedConnection() throws {
        let stage = Stage()
        stage.start()
        weak let connection = stage.bus.connections.last
        stage.bus.forgetConnections()
        connection?.onDisconnect?()
        #expect(connection != nil)
        stage.bus.pass(milliseconds: 0)
        #expect(connection == nil)
    }

    @Test("E3: without a bus an observing session tries to connect at growing intervals")
    func noBus() throws {
        let stage = Stage()
        stage.bus.failure = .noServer("nothing listens")
        try stage.ask(.register(Self.ding))
        stage.start()
        #expect(stage.takeTold() == [#"disconnected("nothing listens")"#])
        stage.bus.pass(milliseconds: 200_000)
        #expect(stage.bus.pauses.prefix(11) == [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000])
        #expect(stage.bus.pauses.dropFirst(10).allSatisfy { $0 == 30_000 })
        stage.bus.failure = nil
        stage.bus.pass(milliseconds: 30_000)
        #expect(stage.takeTold().last == "connected")
        #expect(stage.observers.count == 1)
        let attempts = stage.bus.pauses.count
        stage.bus.pass(milliseconds: 1_000_000)
        #expect(stage.bus.pauses.count == attempts, "what is connected sleeps")
    }

    @Test("S1: a service without the client's state does not suspend the client until it announces a suspension")
    func suspensionForgotten() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        func told() -> [String] { stage.takeTold().filter { $0.hasPrefix("suspended") } }
        let signal = SuspensionChangedSignal(isSuspended: true, cause: "override")
        _ = stage.arrive(signal.message(to: ":1.1").carried(from: ":1.100"))
        #expect(told() == ["suspended true override"])
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        #expect(told().isEmpty, "one that has the state has this, too")
        stage.observers = []
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        #expect(told() == ["suspended false none"])
        stage.observers = []
        for owner in ["", ":1.100"] { _ = stage.arrive(.ownerChange(Wire.busName.rawValue, to: owner)) }
        #expect(told().isEmpty)
    }

    @Test("When the bus closes, posts without an outcome count as lost, calls fail, and observers are restored")
    func busCloses() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.answer = { _ in nil }
        stage.bus.failure = .noServer("gone")
        stage.bus.connection.onDisconnect?()
        var outcome: [String] = []
        let box = Box { outcome.append($0) }
        try stage.ask(
            try post(), .call(ListClients()) { box.add("\($0)") }, .barrier { box.add("barrier \($0)") })
        #expect(
            stage.takeTold().filter { $0.hasPrefix("lost") } == [
                "lost: no connection to the bus: the bus closed the connection"
            ])
        #expect(outcome.count == 2 && outcome[1] == "barrier false", "\(outcome)")
        stage.bus.failure = nil
        stage.observers = []
        stage.serve()
        stage.bus.pass(milliseconds: 60_000)
        #expect(stage.takeTold().suffix(2) == ["connected", "serviceChanged"])
        #expect(stage.observers.map(\.name) == ["Ding"])
    }

    @Test("Without a service posts fail at once, and do not each cause another call to the service")
    func noService() throws {
        let stage = Stage()
        stage.fail(Self.serviceUnknown)
        try stage.ask(.register(Self.ding))
        stage.start()
        #expect(stage.takeTold() == [#"serviceUnavailable("why")"#])
        _ = stage.bus.connection.takeSent()
        for _ in 0..<10 { try stage.ask(try post()) }
        #expect(stage.bus.connection.takeSent().isEmpty)
        #expect(stage.takeTold().count == 10)
        // After a moment the next request asks again.
        stage.bus.pass(milliseconds: 1_500)
        try stage.ask(try post())
        #expect(stage.bus.connection.takeSent() == ["ListObservers?"])
        // Its coming is announced.
        stage.serve()
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        #expect(stage.takeTold().last == "connected")
        #expect(stage.observers.map(\.name) == ["Ding"])
    }

    @Test("A refusal by the bus's policy is reported once, and the session does not try again")
    func denied() throws {
        let stage = Stage()
        stage.fail("org.freedesktop.DBus.Error.AccessDenied", "no")
        var outcomes: [String] = []
        let box = Box { outcomes.append($0) }
        try stage.ask(.register(Self.ding), .call(ListClients()) { box.add("\($0)") })
        stage.start()
        stage.bus.pass(milliseconds: 600_000)
        #expect(stage.takeTold() == [#"serviceUnavailable("no")"#])
        #expect(outcomes.count == 1 && outcomes[0].contains("AccessDenied"), "\(outcomes)")
        #expect(stage.bus.pauses.isEmpty)
    }

    @Test("E3: a service that answers slowly is asked again, and finally has all observers")
    func slowStart() throws {
        let stage = Stage()
        stage.fail(BusError.noReplyName)
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.pass(milliseconds: 40)
        stage.serve()
        stage.bus.pass(milliseconds: 20)
        #expect(stage.takeTold() == ["connected"])
        #expect(stage.observers.map(\.name) == ["Ding"])
    }

    @Test("E3: a registration without an answer is repeated once, after a pause")
    func unansweredRequest() throws {
        let stage = Stage()
        let served = stage.bus.answer
        stage.bus.answer = { call in
            guard call.member == AddObserver.member else { return served(call) }
            return .failure(BusError(name: BusError.noReplyName, message: "why"))
        }
        try stage.ask(.register(Self.ding))
        stage.start()
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?", "AddObserver?"])
        stage.bus.answer = served
        stage.bus.pass(milliseconds: 60_000)
        #expect(stage.bus.connection.takeSent() == ["ListObservers?", "AddObserver?"])
        #expect(stage.observers.map(\.name) == ["Ding"])
    }

    @Test("E3: a new service with the client's state gets no call twice, and a possible gap is reported")
    func replaced() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding), .suspend(true))
        stage.start()
        stage.notify(1)
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        _ = stage.arrive(.ownerChange(name, to: ""))
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        #expect(stage.bus.connection.takeSent().filter { $0 == "AddObserver?" }.isEmpty)
        #expect(stage.takeTold().contains("serviceChanged"))
        // It took the sequence over.
        stage.notify(2)
        #expect(stage.takeTold() == [#"Ding 2 for ["Ding"]"#])
    }

    @Test("E3: a new service without state gets the suspension, then all observers, and counts from one")
    func forgetful() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding), .suspend(true))
        stage.start()
        stage.notify(1)
        stage.notify(2)
        stage.observers = []
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        _ = stage.arrive(.ownerChange(name, to: ""))
        #expect(stage.bus.connection.takeSent() == ["ListObservers?", "SetSuspended?", "AddObserver?"])
        #expect(stage.takeTold() == ["connecting", "connected", "serviceChanged"])
        stage.notify(1, observer: 2)
        #expect(stage.takeTold() == [#"Ding 1 for ["Ding"]"#])
    }

    @Test(
        "E3: a registration before the query does not show that a new service continues the sequence numbers",
        arguments: [true, false])
    func registersBeforeItIsAsked(remembers: Bool) throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.notify(1)
        // This goes to the next one, which takes it before we know of that.
        stage.bus.answer = { _ in nil }
        let dong = RegistrationKey(name: ExactText("Dong"), object: nil, options: ObserverOptions())
        try stage.ask(.register(dong))
        for owner in ["", ":1.101"] { _ = stage.arrive(.ownerChange(name, to: owner)) }
        let id = ObserverID(rawValue: remembers ? 2 : 1)
        let added = ListedObserver(id: id, name: "Dong", object: "", suspensionBehavior: "coalesce")
        let listed = (remembers ? stage.observers : []) + [added]
        for member in [AddObserver.member, ListObservers.member] {
            let call = try #require(stage.bus.connection.pending.first?.message)
            #expect(call.member == member)
            let answer = call.answered { body in
                if member == AddObserver.member {
                    AddObserver.append(id, to: &body)
                } else {
                    ListObservers.append(listed, to: &body)
                }
            }
            stage.bus.connection.answerFirst(.success(answer.carried(from: ":1.101")))
        }
        _ = stage.takeTold()
        // The very same numbers are another notification where it counts from one.
        for number: UInt64 in [1, 2] { stage.notify(number, observer: id.rawValue, from: ":1.101") }
        #expect(stage.takeTold() == (remembers ? [2] : [1, 2]).map { #"Ding \#($0) for ["Dong"]"# })
    }

    @Test("E3: notifications of a service that released its name are accepted until the next service answers")
    func endsInOrder() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.answer = { _ in nil }
        _ = stage.arrive(.ownerChange(name, to: ""))
        stage.notify(1)
        _ = stage.arrive(.ownerChange(name, to: ":1.101"))
        _ = stage.takeTold()
        stage.notify(2)
        stage.notify(3, from: ":1.66")
        stage.notify(3, from: ":1.101")
        #expect(stage.takeTold() == [#"Ding 2 for ["Ding"]"#, #"Ding 3 for ["Ding"]"#])
        // That one ends in order, too, before it was asked.
        _ = stage.arrive(.ownerChange(name, to: ""))
        stage.notify(4, from: ":1.101")
        #expect(stage.takeTold() == [#"Ding 4 for ["Ding"]"#])
        _ = stage.arrive(.ownerChange(name, to: ":1.102"))
        let question = try #require(stage.bus.connection.pending.last?.message)
        let answer = question.answered { ListObservers.append(stage.observers, to: &$0) }.carried(from: ":1.102")
        for _ in stage.bus.connection.pending { stage.bus.connection.answerFirst(.success(answer)) }
        #expect(stage.takeTold() == ["connected", "serviceChanged"])
        stage.notify(5, from: ":1.101")
        #expect(stage.takeTold().isEmpty)
        stage.notify(5, from: ":1.102")
        #expect(stage.takeTold() == [#"Ding 5 for ["Ding"]"#])
    }

    @Test("E3: late notifications of several former owners are accepted until the present owner answers")
    func endsBehindOthers() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.notify(1)
        stage.bus.answer = { _ in nil }
        for owner in ["", ":1.101", "", ":1.102", "", ":1.103"] { _ = stage.arrive(.ownerChange(name, to: owner)) }
        _ = stage.takeTold()
        stage.notify(2)
        let loss = DroppedSignal(count: 3, observers: [ObserverID(rawValue: 1)], reason: "queue-full")
        _ = stage.arrive(loss.message(to: ":1.1").carried(from: ":1.100"))
        stage.notify(6, from: ":1.66")
        stage.notify(6, from: ":1.101")
        stage.notify(7, from: ":1.103")
        #expect(
            stage.takeTold() == [
                #"Ding 2 for ["Ding"]"#, #"dropped(count: 3, reason: "queue-full")"#, #"Ding 6 for ["Ding"]"#,
                #"Ding 7 for ["Ding"]"#,
            ])
        let question = try #require(stage.bus.connection.pending.last?.message)
        let answer = question.answered { ListObservers.append(stage.observers, to: &$0) }.carried(from: ":1.103")
        for _ in stage.bus.connection.pending { stage.bus.connection.answerFirst(.success(answer)) }
        _ = stage.takeTold()
        for sender in [":1.100", ":1.101", ":1.102"] { stage.notify(8, from: sender) }
        #expect(stage.takeTold().isEmpty, "they have ended")
        stage.notify(8, from: ":1.103")
        #expect(stage.takeTold() == [#"Ding 8 for ["Ding"]"#])
    }

    @Test("E3: the withdrawal of a suspension is repeated to the next service")
    func wordTakenBack() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding), .suspend(true))
        stage.start()
        // The service ends, and leaves the word to the next one, before it has read this.
        try stage.ask(.suspend(nil))
        _ = stage.bus.connection.takeSent()
        _ = stage.arrive(.ownerChange(name, to: ""))
        #expect(stage.bus.connection.takeSent() == ["ListObservers?", "FollowActivity?"])
        try stage.ask(.suspend(false))
        _ = stage.bus.connection.takeSent()
        _ = stage.arrive(.ownerChange(name, to: ""))
        #expect(stage.bus.connection.takeSent() == ["ListObservers?", "SetSuspended?"])
    }

    @Test(
        "E3: the newest call about suspension that found no service is sent to the next service",
        arguments: [false, true])
    func wordWithoutService(isTakenBack: Bool) throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding), .suspend(true))
        stage.start()
        stage.fail("org.freedesktop.DBus.Error.ServiceUnknown")
        _ = stage.arrive(.ownerChange(name, to: ""))
        try stage.ask(.suspend(isTakenBack ? nil : false))
        _ = stage.bus.connection.takeSent()
        stage.serve()
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        #expect(
            stage.bus.connection.takeSent() == ["ListObservers?", isTakenBack ? "FollowActivity?" : "SetSuspended?"])
    }

    @Test("E3: a question that is repeated for a new owner is not repeated again after the pause")
    func askedOnce() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.bus.connection.takeSent()
        stage.fail("org.freedesktop.DBus.Error.NoReply")
        _ = stage.arrive(.ownerChange(name, to: ":1.101"))
        #expect(stage.bus.connection.takeSent().filter { $0 == "ListObservers?" }.count == 1)
        stage.serve()
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        #expect(stage.bus.connection.takeSent().contains("ListObservers?"))
        stage.bus.pass(milliseconds: 60_000)
        #expect(!stage.bus.connection.takeSent().contains("ListObservers?"))
    }

    @Test(
        "D6: a client without observers during a change of the service reports no missing notifications",
        arguments: [1, 3])
    func observesNothingMeanwhile(next: UInt64) throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.notify(1)
        stage.notify(2)
        try stage.ask(.unregister(Self.ding))
        stage.observers = []
        _ = stage.arrive(.ownerChange(name, to: ""))
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        try stage.ask(.suspend(true), .register(Self.ding))
        _ = stage.takeTold()
        // It goes on with the count, or knows nothing of it.
        stage.notify(next, observer: 2)
        #expect(stage.takeTold() == [#"Ding \#(next) for ["Ding"]"#])
    }

    @Test("D6, S4: each hole and each announced loss is reported once, and a repeated notification is ignored")
    func gaps() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.takeTold()
        for sequence: UInt64 in [1, 2, 2, 5] { stage.notify(sequence) }
        _ = stage.arrive(
            DroppedSignal(count: 3, observers: [ObserverID(rawValue: 1)], reason: "queue-full").message(to: ":1.1")
                .carried(from: ":1.100"))
        stage.notify(9)
        #expect(
            stage.takeTold() == [
                #"Ding 1 for ["Ding"]"#, #"Ding 2 for ["Ding"]"#, "missing(count: 2)", #"Ding 5 for ["Ding"]"#,
                #"dropped(count: 3, reason: "queue-full")"#, #"Ding 9 for ["Ding"]"#,
            ])
    }

    @Test("P3: an observer that policy revokes is reported as refused, and is requested again from a new service")
    func revoked() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.notify(1)
        _ = stage.takeTold()
        let revocation = DroppedSignal(
            count: 0, observers: [ObserverID(rawValue: 1), ObserverID(rawValue: 77)], reason: DroppedSignal.notAllowed)
        _ = stage.arrive(revocation.message(to: ":1.1").carried(from: ":1.100"))
        #expect(stage.takeTold() == ["refused Ding: the policy of the service no longer allows this observer"])
        stage.notify(1)
        #expect(stage.takeTold().isEmpty, "the same again, as before")
        stage.observers = []
        _ = stage.bus.connection.takeSent()
        _ = stage.arrive(.ownerChange(name, to: ""))
        #expect(stage.bus.connection.takeSent().contains("AddObserver?"))
    }

    @Test("G4, G5: InterestChanged and ValuesRemoved are reported if the service sent them, and no other sender")
    func interest() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.takeTold()
        func arrive(from sender: String) -> Bool {
            stage.arrive(InterestChangedSignal().message(to: ":1.1").carried(from: sender))
        }
        #expect(arrive(from: ":1.66"))
        #expect(stage.takeTold().isEmpty)
        #expect(arrive(from: ":1.100"))
        #expect(stage.takeTold() == ["interest changed"])
        for sender in [":1.66", ":1.100"] {
            #expect(stage.arrive(ValuesRemovedSignal().message(to: ":1.1").carried(from: sender)))
        }
        #expect(stage.takeTold() == ["values removed"])
    }

    @Test("S4: an upper bound of losses excuses a hole of at most that size")
    func boundedLosses() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.takeTold()
        func drop(_ count: UInt64) {
            _ = stage.arrive(
                DroppedSignal(count: count, observers: [], reason: "bus-limits").message(to: ":1.1")
                    .carried(from: ":1.100"))
        }
        stage.notify(1)
        drop(64)
        stage.notify(2)
        drop(10)
        stage.notify(10)
        drop(10)
        stage.notify(31)
        #expect(
            stage.takeTold() == [
                #"Ding 1 for ["Ding"]"#, #"dropped(count: 64, reason: "bus-limits")"#, #"Ding 2 for ["Ding"]"#,
                #"dropped(count: 10, reason: "bus-limits")"#, #"Ding 10 for ["Ding"]"#,
                #"dropped(count: 10, reason: "bus-limits")"#, "missing(count: 10)", #"Ding 31 for ["Ding"]"#,
            ])
    }

    @Test("A registration that the service refuses is reported with the error")
    func refused() throws {
        let stage = Stage()
        let answer = stage.bus.answer
        stage.bus.answer = { call in
            call.member == AddObserver.member
                ? .failure(BusError(CenterError.limitExceeded(.observersPerClient, value: 1))) : answer(call)
        }
        try stage.ask(.register(Self.ding))
        stage.start()
        #expect(stage.takeTold().last == "refused Ding: over the limit observers-per-client = 1")
    }

    @Test("A barrier ends behind all earlier requests, and a call returns its value")
    func barrier() throws {
        let stage = Stage()
        var outcomes: [String] = []
        let box = Box { outcomes.append($0) }
        try stage.ask(
            try post { box.add("post \($0)") }, .call(ListObservers(of: ":1.1")) { box.add("list \($0)") },
            .barrier { box.add("barrier \($0)") })
        stage.start()
        #expect(outcomes == ["post success(1)", "list success([])", "barrier true"])
    }
}
