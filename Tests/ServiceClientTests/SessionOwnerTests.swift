// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonClient

/// Whom a session takes for the service, as its name goes from one to another, and to strangers.
@Suite("Trust in the owner of the service's name", .limited)
struct SessionOwnerTests {
    private typealias Stage = SessionTests.Stage
    private typealias Box = SessionTests.Box
    private static let ding = RegistrationKey(name: ExactText("Ding"), object: nil, options: ObserverOptions())
    private static let serviceUnknown = BusError.serviceUnknownName
    private let name = "org.carillon.NotificationCenter1"

    private func post(_ completion: Request.Completion<Result<Int, ServiceError>>? = nil) throws -> Request {
        .post(try OutgoingPost(name: "Ding", completion: completion))
    }

    @Test("E6: a program that is no notification center is no longer trusted after it has lost the name")
    func formerStranger() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.fail("org.freedesktop.DBus.Error.UnknownMethod")
        _ = stage.arrive(.ownerChange(name, to: ":1.66"))
        stage.bus.answer = { _ in nil }
        _ = stage.arrive(.ownerChange(name, to: ""))
        _ = stage.takeTold()
        stage.notify(1, from: ":1.66")
        #expect(stage.takeTold().isEmpty)
        stage.notify(1)
        #expect(stage.takeTold() == [#"Ding 1 for ["Ding"]"#], "that of the one before may come still")
    }

    @Test("E3: after a late answer of a former owner, the session asks the present owner")
    func lateAnswer() throws {
        let stage = Stage()
        stage.bus.answer = { _ in nil }
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.arrive(.ownerChange(name, to: ""))
        _ = stage.arrive(.ownerChange(name, to: ":1.101"))
        func answer(from sender: String) throws {
            let questions = stage.bus.connection.pending.map(\.message)
            let question = try #require(questions.lastIndex { $0.member == ListObservers.member })
            let answer = questions[question].answered { ListObservers.append([], to: &$0) }.carried(from: sender)
            for _ in 0...question { stage.bus.connection.answerFirst(.success(answer)) }
        }
        _ = stage.bus.connection.takeSent()
        try answer(from: ":1.100")
        #expect(stage.bus.connection.takeSent() == ["GetNameOwner?"])
        let owner = try #require(stage.bus.connection.pending.first).message.answered { $0.append(":1.101") }
        stage.bus.connection.answerFirst(.success(owner))
        #expect(stage.bus.connection.takeSent() == ["ListObservers?"])
        try answer(from: ":1.101")
        #expect(stage.bus.connection.takeSent() == ["AddObserver?"])
        _ = stage.takeTold()
        stage.notify(1, from: ":1.101")
        #expect(stage.takeTold() == ["Ding 1 for []"])
    }

    @Test("E6: signals of other connections, and owner changes that a client forged, are ignored")
    func strangers() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.takeTold()
        stage.notify(1, from: ":1.66")
        #expect(stage.takeTold().isEmpty)
        // Nor an owner change that a client made up.
        let forged = Message.ownerChange(name, to: ":1.66").carried(from: ":1.66")
        _ = stage.arrive(forged)
        stage.notify(1, from: ":1.66")
        #expect(stage.takeTold().isEmpty)
        stage.notify(1)
        #expect(stage.takeTold().count == 1)
    }

    @Test("E6: on another bus the owner's former unique name is not trusted")
    func otherBus() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.answer = { _ in nil }
        stage.bus.connection.onDisconnect?()
        stage.bus.pass(milliseconds: 1000)
        #expect(stage.bus.connections.count == 2)
        #expect(stage.bus.connection.takeSent() == ["AddMatch", "ListObservers?"])
        _ = stage.takeTold()
        stage.notify(1)
        #expect(stage.takeTold().isEmpty)
        #expect(stage.bus.connection.takeSent() == ["GetNameOwner?"])
    }

    @Test("E6: if an owner change was not reported, a signal of the new owner makes the session ask the bus")
    func untoldOwner() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        let serve = stage.bus.answer
        var owner = ":1.100"
        stage.bus.answer = { call in
            guard call.member == "GetNameOwner" else { return serve(call)?.map { $0.carried(from: owner) } }
            return .success(call.answered { $0.append(owner) })
        }
        for _ in 0..<100 { stage.notify(1, from: ":1.66") }
        #expect(stage.bus.connection.takeSent() == ["GetNameOwner?"], "a stranger has it asked once")
        #expect(stage.takeTold().isEmpty)
        owner = ":1.101"
        stage.notify(1, from: ":1.101")
        #expect(stage.bus.connection.takeSent().isEmpty)
        stage.bus.pass(milliseconds: 1000)
        #expect(stage.bus.connection.takeSent().prefix(2) == ["GetNameOwner?", "ListObservers?"])
        stage.bus.pass(milliseconds: 10_000)
        #expect(stage.bus.connection.takeSent().allSatisfy { $0 != "GetNameOwner?" }, "nothing more is in doubt")
    }

    @Test("E6: an answer from another connection than the reported owner makes the session ask the bus")
    func untoldAnswerer() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        let serve = stage.bus.answer
        stage.bus.answer = { call in
            guard call.member == "GetNameOwner" else { return serve(call) }
            return .success(call.answered { $0.append(":1.100") })
        }
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        // The one behind it was not told.
        _ = stage.arrive(.ownerChange(name, to: ":1.99"))
        #expect(stage.bus.connection.takeSent().prefix(3) == ["ListObservers?", "GetNameOwner?", "ListObservers?"])
        #expect(stage.takeTold().prefix(2) == ["connecting", "connected"])
        stage.notify(1)
        #expect(stage.takeTold().last?.contains("Ding") == true)
    }

    @Test(
        "E6: a foreign owner of the name is reported at once, and the next owner is asked",
        arguments: ["UnknownMethod", "UnknownObject", "UnknownInterface"])
    func stranger(error: String) throws {
        let stage = Stage()
        stage.fail(InterfaceName(rawValue: "org.freedesktop.DBus.Error." + error)!)
        var outcomes: [String] = []
        let box = Box { outcomes.append($0) }
        try stage.ask(.register(Self.ding), try post { box.add("\($0)") })
        stage.start()
        let told = stage.takeTold()
        #expect(told.count == 1 && told[0].hasPrefix("nameTaken("), "\(told)")
        #expect(told[0].contains("\(name) is owned by another program, which does not answer as a notification center"))
        #expect(outcomes.count == 1 && outcomes[0].contains("is owned by"), "\(outcomes)")
        stage.bus.pass(milliseconds: 600_000)
        #expect(stage.takeTold().isEmpty && stage.bus.pauses.isEmpty, "the same one is not asked again and again")
        stage.serve()
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        #expect(stage.takeTold() == ["connected"])
        #expect(stage.observers.map(\.name) == ["Ding"])
    }

    @Test("E6: a foreign owner of the name is not asked again when a former owner ends without an answer")
    func strangerBehindSilence() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.answer = { _ in nil }
        for owner in [":1.101", ":1.66"] { _ = stage.arrive(.ownerChange(name, to: owner)) }
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        let questions = stage.bus.connection.pending
        #expect(questions.map(\.message.member) == [ListObservers.member, ListObservers.member])
        func fail(_ name: InterfaceName) -> Result<Message, BusError> { .failure(BusError(name: name, message: "why")) }
        questions[1].completion(fail("org.freedesktop.DBus.Error.UnknownMethod"))
        #expect(stage.bus.connection.takeSent() == ["GetNameOwner?"])
        questions[0].completion(fail(BusError.noReplyName))
        let owner = try #require(stage.bus.connection.pending.last)
        owner.completion(fail("org.freedesktop.DBus.Error.NameHasNoOwner"))
        let told = stage.takeTold()
        #expect(told.count == 1 && told[0].hasPrefix("nameTaken("), "\(told)")
        stage.bus.pass(milliseconds: 600_000)
        #expect(stage.bus.connection.takeSent().isEmpty && stage.takeTold().isEmpty)
    }

    @Test("E3: a service is not asked again when the previous one ends without an answer")
    func endedUnanswered() throws {
        let stage = Stage()
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.answer = { _ in nil }
        for owner in [":1.101", ":1.102"] { _ = stage.arrive(.ownerChange(name, to: owner)) }
        _ = (stage.takeTold(), stage.bus.connection.takeSent())
        let questions = stage.bus.connection.pending.map(\.message)
        #expect(questions.map(\.member) == [ListObservers.member, ListObservers.member])
        stage.bus.connection.answerFirst(.failure(BusError(name: BusError.noReplyName, message: "why")))
        let answer = questions[1].answered { ListObservers.append(stage.observers, to: &$0) }.carried(from: ":1.102")
        stage.bus.connection.answerFirst(.success(answer))
        #expect(stage.takeTold() == ["connected", "serviceChanged"])
        stage.bus.pass(milliseconds: 60_000)
        #expect(!stage.bus.connection.takeSent().contains("ListObservers?"))
    }

    @Test("E6: a program whose replies violate the interface counts as a foreign owner of the name")
    func wrongAnswers() throws {
        let stage = Stage()
        stage.bus.answer = { call in .success(call.answered { $0.append("hello") }) }
        try stage.ask(.register(Self.ding))
        stage.start()
        let told = stage.takeTold()
        #expect(told.count == 1 && told[0].hasPrefix("nameTaken("), "\(told)")
        // And one that knows only the first question.
        stage.bus.answer = { [unowned stage] call in
            call.member == ListObservers.member
                ? .success(call.answered { ListObservers.append(stage.observers, to: &$0) })
                : .failure(BusError(name: "org.freedesktop.DBus.Error.UnknownMethod", message: "what?"))
        }
        _ = stage.arrive(.ownerChange(name, to: ":1.100"))
        #expect(stage.takeTold().last?.hasPrefix("nameTaken(") == true)
    }

    @Test("E3: a service that does not answer for some seconds is reported, and its answer is awaited")
    func silent() throws {
        let stage = Stage()
        stage.bus.answer = { _ in nil }
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.pass(milliseconds: 4_000)
        #expect(stage.takeTold().isEmpty)
        stage.bus.answer = { call in
            call.member == "GetNameOwner" ? .failure(BusError(name: BusError.nameHasNoOwnerName, message: "")) : nil
        }
        stage.bus.pass(milliseconds: 2_000)
        #expect(
            stage.takeTold() == [#"notAnswering("\#(name) has no owner yet, as the service is still being started")"#])
        stage.serve()
        stage.bus.connection.answerFirst(
            stage.bus.answer(ListObservers(of: ":1.1").message())!)
        #expect(stage.takeTold() == ["connected"])
        #expect(stage.observers.map(\.name) == ["Ding"])
    }

    @Test(
        "E9: without an owner of the name, systemd is asked to start the unit, and a masked unit is reported",
        arguments: [
            ("org.freedesktop.systemd1.UnitMasked", ["has no owner: systemd does not start carillond.service: why"]),
            ("org.freedesktop.systemd1.NoSuchUnit", []), ("org.freedesktop.DBus.Error.ServiceUnknown", []),
            ("org.freedesktop.DBus.Error.AccessDenied", []),
            (nil, []),
        ] as [(InterfaceName?, [String])])
    func startCalledOff(refusal: InterfaceName?, words: [String]) throws {
        let stage = Stage()
        var units: [String] = []
        stage.bus.answer = { call in
            switch call.member {
            case "GetNameOwner": return .failure(BusError(name: BusError.nameHasNoOwnerName, message: ""))
            case "StartUnit":
                var reader = MessageReader(call)
                try? units.append("\(reader.readString()) \(reader.readString())")
                return refusal.map { .failure(BusError(name: $0, message: "why")) } ?? .success(call.answered { _ in })
            default: return nil
            }
        }
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.pass(milliseconds: 4_000)
        #expect(units.isEmpty)
        stage.bus.pass(milliseconds: 2_000)
        #expect(units == ["carillond.service replace"])
        let told = ["has no owner yet, as the service is still being started"] + words
        #expect(stage.takeTold() == told.map { #"notAnswering("\#(name) \#($0)")"# })
    }

    @Test("E9: a session does not ask systemd to start the service while the name has a silent owner")
    func startNotWanted() throws {
        let stage = Stage()
        var members: [MemberName] = []
        stage.bus.answer = { call in
            if let member = call.member { members.append(member) }
            return switch call.member {
            case "GetNameOwner": .success(call.answered { $0.append(":1.100") })
            case "GetConnectionCredentials": .failure(BusError(name: BusError.nameHasNoOwnerName, message: ""))
            default: nil
            }
        }
        try stage.ask(.register(Self.ding))
        stage.start()
        stage.bus.pass(milliseconds: 6_000)
        #expect(members.contains("GetNameOwner") && !members.contains("StartUnit"))
    }
}
