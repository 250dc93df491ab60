// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonDBus

/// A reply counts only from whom it must come (E6), whatever number it carries.
@Suite("Forged replies of other connections", .serialized, .limited)
struct ForgedReplyTests {
    /// A victim, someone whom it calls and who answers when the test says so, and a stranger who answers first.
    final class Stage {
        let bus: PrivateBus
        let loop = Loop()
        let victim: Connection
        let callee: Connection
        let stranger: Connection
        /// Calls that the callee got.
        private(set) var calls: [Message] = []
        private(set) var results: [Result<Message, BusError>] = []

        init(_ kind: BusKind, limits: [String: Int] = [:]) throws {
            bus = try PrivateBus(kind, limits: limits)
            victim = try loop.connect(to: bus)
            callee = try loop.connect(to: bus)
            stranger = try loop.connect(to: bus)
            callee.onMessage = { [unowned self] message in
                guard message.kind == .methodCall else { return false }
                calls.append(message)
                return true
            }
        }

        func own(_ name: WellKnownName, _ connection: Connection) throws {
            let outcome = try loop.wait { connection.requestName(name, completion: $0) }.get()
            try #require(outcome == .acquired)
        }

        func call(_ destination: AnyBusName, timeout: ReplyTimeout = .standard) {
            victim.call(Sample.call("Ring", to: destination), timeout: timeout) { [unowned self] in
                results.append($0)
            }
        }

        /// The stranger sends the victim a reply, or an error, with each number that it can have used.
        func forge(error: InterfaceName? = nil) throws {
            for serial in UInt32(1)...200 {
                let type = error == nil ? DBUS_MESSAGE_TYPE_METHOD_RETURN : DBUS_MESSAGE_TYPE_ERROR
                let forged = Message(adopting: dbus_message_new(type)!)
                dbus_message_set_reply_serial(forged.pointer, serial)
                dbus_message_set_destination(forged.pointer, victim.uniqueName!.rawValue)
                if let error { dbus_message_set_error_name(forged.pointer, error.rawValue) }
                var writer = MessageWriter(forged)
                writer.append("forged")
                stranger.send(forged)
            }
            // What the bus carries has reached the victim when this has.
            try loop.barrier(stranger)
            let mark = Sample.signal("Mark", to: victim.uniqueName)
            var isThrough = false
            victim.onMessage = { message in
                isThrough = isThrough || message.member == "Mark"
                return false
            }
            stranger.send(mark)
            try loop.run("the end of the forged replies") { isThrough }
        }

        func answer() {
            let reply = calls.removeFirst().methodReturn()
            var writer = MessageWriter(reply)
            writer.append("true")
            callee.send(reply)
        }

        func outcome(_ index: Int = 0) throws -> String {
            var reader = MessageReader(try results[index].get())
            return try reader.readString()
        }
    }

    @Test(
        "E6: only the called connection, or the owner of the called name, can answer a call",
        arguments: BusKind.available, [false, true])
    func answeredByWhoWasAsked(kind: BusKind, byName: Bool) throws {
        let stage = try Stage(kind)
        try stage.own("org.example.Bell", stage.callee)
        let destination = byName ? "org.example.Bell" : AnyBusName(stage.callee.uniqueName!)
        stage.call(destination)
        try stage.loop.run("the call to arrive") { stage.calls.count == 1 }
        try stage.forge()
        try stage.forge(error: BusError.nameHasNoOwnerName)
        #expect(stage.results.isEmpty)
        // dbus-broker carries no reply that nobody asked for. Who owns a name is asked then, which is forged as well.
        let forged = stage.victim.forgedReplies
        #expect(kind == .dbusDaemon ? (byName ? 2...6 : 2...2).contains(forged) : forged == 0, "\(forged)")
        stage.answer()
        try stage.loop.run("the reply") { !stage.results.isEmpty }
        #expect(try stage.outcome() == "true")
        #expect(stage.results.count == 1)
    }

    @Test("E6: forged replies to calls to the bus are ignored", arguments: BusKind.available)
    func answeredByTheBus(kind: BusKind) throws {
        let stage = try Stage(kind)
        // The forged replies are there before the questions: each with the number of one.
        try stage.forge()
        try stage.forge(error: BusError.nameHasNoOwnerName)
        for _ in 0..<100 {
            let owner = stage.callee.uniqueName!
            var answer: Result<UInt32, BusError>?
            stage.victim.processID(of: owner) { answer = $0 }
            try stage.forge(error: BusError.nameHasNoOwnerName)
            #expect(throws: Never.self) { try answer?.get() }
            if answer != nil { break }
        }
        let id = try stage.loop.wait { stage.victim.busID(completion: $0) }.get()
        #expect(!id.isEmpty)
    }

    @Test("E6: the bus's errors are accepted for callees that leave or do not exist", arguments: BusKind.available)
    func busAnswersForOthers(kind: BusKind) throws {
        let stage = try Stage(kind)
        var leaves: Connection? = try stage.loop.connect(to: stage.bus)
        var hasArrived = false
        leaves?.onMessage = { message in
            guard message.kind == .methodCall else { return false }
            hasArrived = true
            return true
        }
        stage.call(AnyBusName(leaves!.uniqueName!), timeout: .never)
        try stage.loop.run("the call to arrive") { hasArrived }
        leaves = nil
        stage.call("org.example.Nobody", timeout: .never)
        try stage.loop.run("the errors") { stage.results.count == 2 }
        #expect(stage.results.allSatisfy { if case .failure = $0 { true } else { false } })
    }

    @Test(
        "E6: a new owner of the name is trusted, and a former owner only for calls that it received",
        arguments: BusKind.available)
    func ownerChanges(kind: BusKind) throws {
        let stage = try Stage(kind)
        try stage.own("org.example.Bell", stage.callee)
        stage.call("org.example.Bell")
        try stage.loop.run("the call to arrive") { stage.calls.count == 1 }
        // The name goes to another while the call is being answered.
        let release = Message.busCall("ReleaseName")
        var writer = MessageWriter(release)
        writer.append("org.example.Bell")
        try stage.loop.call(release, on: stage.callee)
        try stage.own("org.example.Bell", stage.stranger)
        stage.answer()
        try stage.loop.run("the reply of the former owner") { stage.results.count == 1 }
        #expect(try stage.outcome() == "true")

        stage.stranger.onMessage = { [stranger = stage.stranger] message in
            guard message.kind == .methodCall else { return false }
            let reply = message.methodReturn()
            var writer = MessageWriter(reply)
            writer.append("new")
            stranger.send(reply)
            return true
        }
        stage.call("org.example.Bell")
        try stage.loop.run("the reply of the new owner") { stage.results.count == 2 }
        #expect(try stage.outcome(1) == "new")
        stage.stranger.onMessage = nil
    }

    @Test("E6: the reply of a new name owner is accepted also where the bus refuses the match rule for owner changes")
    func refusedRule() throws {
        let stage = try Stage(.dbusDaemon, limits: ["max_match_rules_per_connection": 0])
        try stage.own("org.example.Bell", stage.callee)
        stage.call("org.example.Bell")
        try stage.loop.run("the call to arrive") { stage.calls.count == 1 }
        // Owners from before the call are known; this one is not.
        let release = Message.busCall("ReleaseName")
        var writer = MessageWriter(release)
        writer.append("org.example.Bell")
        try stage.loop.call(release, on: stage.callee)
        try stage.own("org.example.Bell", stage.stranger)
        stage.stranger.onMessage = { [stranger = stage.stranger] message in
            guard message.kind == .methodCall else { return false }
            let reply = message.methodReturn()
            var writer = MessageWriter(reply)
            writer.append("new")
            stranger.send(reply)
            return true
        }
        stage.call("org.example.Bell")
        try stage.loop.run("the reply of the new owner") { stage.results.count == 1 }
        #expect(try stage.outcome() == "new")
        stage.stranger.onMessage = nil
    }

    @Test("Each of many pending calls fails at its own timeout", arguments: BusKind.available)
    func timeouts(kind: BusKind) throws {
        let stage = try Stage(kind)
        var failed: [Int32] = []
        for milliseconds: Int32 in [200, 100, 150] {
            stage.victim.call(
                Sample.call("Ring", to: stage.callee.uniqueName!), timeout: .milliseconds(milliseconds)
            ) { result in
                if case .failure(let error) = result, error.name == BusError.noReplyName { failed.append(milliseconds) }
            }
        }
        for _ in 0..<2000 { stage.call(AnyBusName(stage.callee.uniqueName!), timeout: .milliseconds(120)) }
        try stage.loop.run("the ends") { failed.count == 3 && stage.results.count == 2000 }
        #expect(failed == [100, 150, 200])
    }

    @Test(
        "A forged signal of the bus library's local interface does not disconnect its receiver",
        arguments: BusKind.available)
    func forgedDisconnect(kind: BusKind) throws {
        let stage = try Stage(kind)
        var isDisconnected = false
        stage.victim.onDisconnect = { isDisconnected = true }
        let forged = Message.signal(
            to: stage.victim.uniqueName, path: "/org/freedesktop/DBus/Local",
            interface: "org.freedesktop.DBus.Local", member: "Disconnected")
        stage.stranger.send(forged)
        var isCut = false
        stage.stranger.onDisconnect = { isCut = true }
        var isAnswered = false
        stage.stranger.busID { _ in isAnswered = true }
        try stage.loop.run("the bus's word") { isCut || isAnswered }
        try stage.loop.barrier(stage.victim)
        #expect(!isDisconnected)
    }
}
