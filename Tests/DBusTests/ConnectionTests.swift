// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Connections to a bus", .serialized, .limited)
struct ConnectionTests {
    @Test("hello gives the connection its unique name", arguments: BusKind.available)
    func hello(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let connection = try Connection(address: bus.address, context: loop.context)
        #expect(connection.uniqueName == nil)
        let name = try loop.wait { connection.hello(completion: $0) }.get()
        #expect(name.rawValue.hasPrefix(":"))
        #expect(connection.uniqueName == name)
        let other = try loop.connect(to: bus)
        #expect(other.uniqueName != name)
    }

    @Test(
        "A well-known name is acquired by one connection, refused to others, and free after the owner's end",
        arguments: BusKind.available)
    func requestName(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        var first: Connection? = try loop.connect(to: bus)
        let second = try loop.connect(to: bus)
        func request(_ connection: Connection?) throws -> NameRequest {
            try loop.wait { connection!.requestName("org.example.Bell", completion: $0) }.get()
        }
        #expect(try request(first) == .acquired)
        #expect(try request(first) == .acquired)
        #expect(try request(second) == .taken)
        first = nil
        // It did not queue: the name did not fall to it by itself.
        try eventually("the name is free") { try bus.processID(ofOwner: "org.example.Bell") == nil }
        #expect(try request(second) == .acquired)
    }

    @Test("A request for a name that the bus refuses fails with an error", arguments: BusKind.available)
    func refusedName(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let connection = try loop.connect(to: bus)
        let result = try loop.wait { connection.requestName(WellKnownName(unchecked: ":1.42"), completion: $0) }
        #expect(throws: BusError.self) { try result.get() }
    }

    @Test("A call receives the reply or the error of its callee", arguments: BusKind.available)
    func call(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (caller, callee) = (try loop.connect(to: bus), try loop.connect(to: bus))
        let calleeName = try #require(callee.uniqueName)
        callee.onMessage = { message in
            guard message.kind == .methodCall, message.member != "Nobody" else { return false }
            if message.member == "Fail" {
                callee.send(message.errorReply(BusError(name: "org.example.Error.Cracked", message: "a crack: ä")))
            } else {
                let reply = message.methodReturn()
                var (reader, writer) = (MessageReader(message), MessageWriter(reply))
                writer.append((try? reader.readString()) ?? "")
                callee.send(reply)
            }
            return true
        }
        let reply = try loop.call(Sample.call("Echo", to: calleeName) { $0.append("Größe") }, on: caller)
        #expect(reply.kind == .methodReturn)
        #expect(reply.sender == calleeName)
        var reader = MessageReader(reply)
        #expect(try reader.readString() == "Größe")

        let failure = try refusal { try loop.call(Sample.call("Fail", to: calleeName), on: caller) }
        #expect(failure == BusError(name: "org.example.Error.Cracked", message: "a crack: ä"))
        #expect("\(failure)" == "org.example.Error.Cracked: a crack: ä")

        // What nobody takes is answered all the same.
        let unknown = try refusal { try loop.call(Sample.call("Nobody", to: calleeName), on: caller) }
        #expect(unknown.name == "org.freedesktop.DBus.Error.UnknownMethod")
        callee.onMessage = nil
    }

    @Test("A call to a name without an owner fails", arguments: BusKind.available)
    func nobody(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let connection = try loop.connect(to: bus)
        let wellKnown = try refusal { try loop.call(Sample.call("A", to: "org.example.Nobody"), on: connection) }
        #expect(wellKnown.name == BusError.serviceUnknownName)
        let unique = try refusal { try loop.call(Sample.call("A", to: ":1.9999"), on: connection) }
        #expect([BusError.serviceUnknownName, BusError.nameHasNoOwnerName].contains(unique.name))
    }

    @Test("An unanswered call fails with NoReply at its timeout, and completes only once", arguments: BusKind.available)
    func timeout(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (caller, callee) = (try loop.connect(to: bus), try loop.connect(to: bus))
        var kept: [Message] = []
        callee.onMessage = { message in
            guard message.kind == .methodCall else { return false }
            kept.append(message)
            return true
        }
        var results: [Result<Message, BusError>] = []
        caller.call(Sample.call("Slow", to: callee.uniqueName!), timeout: .milliseconds(50)) { results.append($0) }
        try loop.run("the timeout") { !results.isEmpty && !kept.isEmpty }
        #expect(throws: BusError.self) { try results[0].get() }
        #expect(errorName(of: results[0]) == "org.freedesktop.DBus.Error.NoReply")
        // An answer that comes too late is no second completion.
        callee.send(kept[0].methodReturn())
        try loop.barrier(callee)
        try loop.barrier(caller)
        #expect(results.count == 1)
    }

    @Test("A call whose callee leaves the bus fails, even without a timeout", arguments: BusKind.available)
    func calleeLeaves(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let caller = try loop.connect(to: bus)
        var callee: Connection? = try loop.connect(to: bus)
        var arrived = 0
        callee?.onMessage = { message in
            guard message.kind == .methodCall else { return false }
            arrived += 1
            return true
        }
        var result: Result<Message, BusError>?
        caller.call(Sample.call("Slow", to: callee!.uniqueName!), timeout: .never) { result = $0 }
        try loop.run("the call to arrive") { arrived == 1 }
        #expect(result == nil)
        callee = nil
        try loop.run("the failure") { result != nil }
        #expect(errorName(of: result) == "org.freedesktop.DBus.Error.NoReply")
    }

    @Test("Replies in any order reach their own calls", arguments: BusKind.available)
    func order(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (caller, callee) = (try loop.connect(to: bus), try loop.connect(to: bus))
        var kept: [Message] = []
        callee.onMessage = { message in
            guard message.kind == .methodCall else { return false }
            kept.append(message)
            return true
        }
        var answers: [UInt32: UInt32] = [:]
        for index in UInt32(0)..<100 {
            caller.call(Sample.call("Square", to: callee.uniqueName!) { $0.append(index) }) { result in
                if case .success(let reply) = result {
                    var reader = MessageReader(reply)
                    answers[index] = try? reader.read()
                }
            }
        }
        try loop.run("all calls") { kept.count == 100 }
        for call in kept.reversed() {
            let reply = call.methodReturn()
            var (reader, writer) = (MessageReader(call), MessageWriter(reply))
            let value: UInt32 = try reader.read()
            writer.append(value * value)
            callee.send(reply)
        }
        try loop.run("all answers") { answers.count == 100 }
        for index in UInt32(0)..<100 { #expect(answers[index] == index * index) }
    }

    @Test(
        "processID returns the process of a connection, or an error for an unknown name", arguments: BusKind.available)
    func processID(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let connection = try loop.connect(to: bus)
        let name = try #require(connection.uniqueName)
        #expect(try loop.wait { connection.processID(of: name, completion: $0) }.get() == UInt32(getpid()))
        let nobody = try loop.wait { connection.processID(of: UniqueName(":1.9999"), completion: $0) }
        #expect(throws: BusError.self) { try nobody.get() }
        if case .failure(let error) = nobody { #expect(error.name == BusError.nameHasNoOwnerName) }
    }

    @Test("A match rule for one name reports the owner changes of this name only", arguments: BusKind.available)
    func ownerChanges(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let watcher = try loop.connect(to: bus)
        var changes: [OwnerChange] = []
        watcher.onMessage = { message in
            OwnerChange(message).map { changes.append($0) } != nil
        }
        let rule = OwnerChange.matchRule(for: WellKnownName("org.example.Bell"))
        _ = try loop.wait { watcher.addMatch(rule, completion: $0) }.get()
        func change(_ body: (Connection) throws -> Void) throws {
            let connection = try loop.connect(to: bus)
            try body(connection)
        }
        var owner: UniqueName?
        try change { connection in
            owner = connection.uniqueName
            _ = try loop.wait { connection.requestName("org.example.Other", completion: $0) }.get()
            _ = try loop.wait { connection.requestName("org.example.Bell", completion: $0) }.get()
            try loop.run("the new owner") { changes.count == 2 || changes.last?.newOwner != nil }
        }
        try loop.run("the departure") { changes.last.map { $0.newOwner == nil } ?? false }
        // The watcher itself got NameAcquired, which is no owner change.
        #expect(changes.filter { $0.name == "org.example.Bell" }.map(\.newOwner) == [owner, nil])
        #expect(changes.allSatisfy { $0.name == "org.example.Bell" })

        watcher.removeMatch(rule)
        try change { connection in
            _ = try loop.wait { connection.requestName("org.example.Bell", completion: $0) }.get()
        }
        try loop.barrier(watcher)
        #expect(changes.count == 2)
    }

    @Test("A forged NameOwnerChanged signal of another client is not an owner change", arguments: BusKind.available)
    func forgedOwnerChange(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (victim, forger) = (try loop.connect(to: bus), try loop.connect(to: bus))
        var messages: [Message] = []
        victim.onMessage = { message in
            messages.append(message)
            return true
        }
        let forged = Message.signal(
            to: victim.uniqueName, path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
            member: "NameOwnerChanged")
        var writer = MessageWriter(forged)
        for text in ["org.example.Bell", ":1.1", ""] { writer.append(text) }
        forger.send(forged)
        try loop.run("the forged signal") { messages.contains { $0.sender == forger.uniqueName } }
        #expect(messages.filter { $0.sender == forger.uniqueName }.allSatisfy { OwnerChange($0) == nil })
    }

    @Test("A match rule that the bus refuses is reported", arguments: BusKind.available)
    func badMatch(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let connection = try loop.connect(to: bus)
        let result = try loop.wait { connection.addMatch("nonsense", completion: $0) }
        #expect(throws: BusError.self) { try result.get() }
        #expect(try !loop.wait { connection.busID(completion: $0) }.get().isEmpty, "the connection is still there")
    }

    private func errorName(of result: Result<Message, BusError>?) -> InterfaceName? {
        if case .failure(let error) = result { error.name } else { nil }
    }
}
