// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// An object with a table of methods and properties, called over a bus.
@Suite("Exported objects", .serialized, .limited)
struct ExporterTests {
    @Test("A method runs with its arguments, and its reply carries the result", arguments: BusKind.available)
    func method(kind: BusKind) throws {
        let bell = try Bell(kind)
        var reader = MessageReader(try bell.call("Add", [2, 3]))
        #expect(try reader.read(Int32.self) == 5)
        #expect(bell.sender == bell.caller.uniqueName)
    }

    @Test(
        "A call without an interface field finds a method of the object or a standard method",
        arguments: BusKind.available)
    func withoutInterface(kind: BusKind) throws {
        let bell = try Bell(kind)
        let message = Sample.callWithoutInterface("Add", to: bell.name)
        var writer = MessageWriter(message)
        writer.append(Int32(20))
        writer.append(Int32(22))
        var reader = MessageReader(try bell.loop.call(message, on: bell.caller))
        #expect(try reader.read(Int32.self) == 42)
        let document = try bell.loop.call(Sample.callWithoutInterface("Introspect", to: bell.name), on: bell.caller)
        #expect(document.signature == "s")
        let error = try refusal {
            try bell.loop.call(Sample.callWithoutInterface("Nonsense", to: bell.name), on: bell.caller)
        }
        #expect(error.name == "org.freedesktop.DBus.Error.UnknownMethod")
    }

    @Test(
        "E2: arguments of the wrong number or type give InvalidArgs, and the handler does not run",
        arguments: BusKind.available)
    func wrongSignature(kind: BusKind) throws {
        let bell = try Bell(kind)
        for arguments in [[], [1], [1, 2, 3]] as [[Int32]] {
            let error = try refusal { try bell.call("Add", arguments) }
            #expect(error.name == BusError.invalidArgsName)
            #expect(error.message.contains("'ii'"), "\(error)")
        }
        let strings = try refusal {
            try bell.loop.call(
                Sample.call("Add", to: bell.name) { writer in
                    writer.append("2")
                    writer.append("3")
                }, on: bell.caller)
        }
        #expect(strings.name == BusError.invalidArgsName)
        #expect(bell.sender == nil)
        #expect(bell.refusals.count == 4)
    }

    @Test(
        "An error that a handler throws becomes the error reply, and is passed to onRefusal",
        arguments: BusKind.available)
    func refused(kind: BusKind) throws {
        let bell = try Bell(kind)
        let cracked = BusError(name: "org.example.Error.Cracked", message: "it is cracked")
        #expect(try refusal { try bell.call("Fail") } == cracked)
        #expect(bell.refusals == [cracked])
    }

    @Test(
        "E2: unknown methods, interfaces and objects have distinct errors", arguments: BusKind.available,
        [
            ("/org/example/Bell", "org.example.Bell", "Nonsense", "UnknownMethod"),
            ("/org/example/Bell", "org.example.Other", "Add", "UnknownInterface"),
            ("/org/example/Bell", "org.freedesktop.DBus.Properties", "Nonsense", "UnknownMethod"),
            ("/org/example/Bell", "org.freedesktop.DBus.Properties", "Introspect", "UnknownMethod"),
            ("/org/example/Bell", "org.freedesktop.DBus.Introspectable", "Get", "UnknownMethod"),
            ("/org/example/Bells", "org.example.Bell", "Add", "UnknownObject"),
            ("/org/example/Bell/clapper", "org.example.Bell", "Add", "UnknownObject"),
            ("/other", "org.freedesktop.DBus.Introspectable", "Introspect", "UnknownObject"),
            ("/org/example", "org.example.Bell", "Add", "UnknownInterface"),
        ])
    func unknown(kind: BusKind, call: (path: String, interface: String, member: String, error: String)) throws {
        let bell = try Bell(kind)
        let message = Message.methodCall(
            to: bell.name, path: try #require(ObjectPath(rawValue: call.path)),
            interface: try #require(InterfaceName(rawValue: call.interface)),
            member: try #require(MemberName(rawValue: call.member)))
        let error = try refusal { try bell.loop.call(message, on: bell.caller) }
        #expect(error.name.rawValue == "org.freedesktop.DBus.Error.\(call.error)", "\(error)")
    }

    @Test("A call that expects no reply runs, and gets no reply, not even an error", arguments: BusKind.available)
    func noReply(kind: BusKind) throws {
        let bell = try Bell(kind)
        var strays = 0
        bell.caller.onMessage = { message in
            if message.kind == .methodReturn || message.kind == .error { strays += 1 }
            return false
        }
        let good = Sample.call("Add", to: bell.name) { writer in
            writer.append(Int32(1))
            writer.append(Int32(2))
        }
        let bad = Sample.call("Fail", to: bell.name)
        let unknown = Sample.call("Nonsense", to: bell.name)
        for message in [good, bad, unknown] {
            message.expectsNoReply = true
            bell.caller.send(message)
        }
        // Behind all of them on the same way.
        try bell.call("Add", [0, 0])
        #expect(strays == 0)
        #expect(bell.refusals.count == 2)
    }

    @Test("A reply can be sent after those of later calls", arguments: BusKind.available)
    func deferred(kind: BusKind) throws {
        let bell = try Bell(kind)
        var answer: Result<Message, BusError>?
        bell.caller.call(Sample.call("Later", to: bell.name)) { answer = $0 }
        try bell.call("Add", [0, 0])
        #expect(answer == nil && bell.deferred.count == 1)
        bell.deferred.removeFirst().reply { $0.append("at last") }
        try bell.loop.run("the deferred reply") { answer != nil }
        var reader = MessageReader(try #require(answer).get())
        #expect(try reader.readString() == "at last")
    }

    @Test("A deferred reply to a caller that has left has no effect on other calls", arguments: BusKind.available)
    func deferredToNobody(kind: BusKind) throws {
        let bell = try Bell(kind)
        var leaver: Connection? = try bell.loop.connect(to: bell.bus)
        leaver?.call(Sample.call("Later", to: bell.name)) { _ in }
        try bell.loop.run("the call") { bell.deferred.count == 1 }
        leaver = nil
        try bell.call("Add", [0, 0])
        bell.deferred.removeFirst().reply(with: .failed("too late"))
        try bell.call("Add", [0, 0])
    }

    @Test("libdbus answers Peer calls on every object path", arguments: BusKind.available)
    func peer(kind: BusKind) throws {
        let bell = try Bell(kind)
        for path in ["/org/example/Bell", "/", "/nowhere"] as [ObjectPath] {
            let reply = try bell.loop.call(
                Message.methodCall(to: bell.name, path: path, interface: "org.freedesktop.DBus.Peer", member: "Ping"),
                on: bell.caller)
            #expect(reply.signature == "")
        }
        #expect(bell.refusals.isEmpty)
    }
}
