// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonMainLoop
import CarillonTestSupport

import CarillonBusNames
@testable import CarillonDBus

/// The loop of one test: connections on a context that runs on the test's thread while the test waits.
final class Loop {
    let context = MainContext()

    /// Runs the context until `condition` holds.
    ///
    /// - Throws: ``NotInTime``.
    func run(
        _ what: @autoclosure () -> String, within patience: Patience = .event, until condition: () -> Bool
    ) throws {
        try context.run(what(), within: patience, until: condition)
    }

    /// Runs the context until `start` called its completion.
    func wait<Value>(_ start: (@escaping (Value) -> Void) -> Void) throws -> Value {
        var value: Value?
        start { value = $0 }
        try run("the completion") { value != nil }
        return value!
    }

    /// A connection that said hello.
    func connect(to bus: PrivateBus) throws -> Connection {
        let connection = try Connection(address: bus.address, context: context)
        _ = try wait { connection.hello(completion: $0) }.get()
        return connection
    }

    /// Calls and waits for the reply.
    ///
    /// - Throws: the error reply.
    @discardableResult
    func call(
        _ message: Message, on connection: Connection, timeout: ReplyTimeout = .standard
    ) throws -> Message {
        try wait { connection.call(message, timeout: timeout, completion: $0) }.get()
    }

    /// Waits until the bus has handled all that `connection` sent.
    func barrier(_ connection: Connection) throws {
        try call(.busCall("GetId"), on: connection)
    }
}

/// What tests send and receive: the path, interface and members are of no consequence.
enum Sample {
    static let path: ObjectPath = "/org/example/Bell"
    static let interface: InterfaceName = "org.example.Bell"

    static func signal(
        _ member: MemberName = "Rang", to destination: UniqueName? = nil,
        _ body: (inout MessageWriter) -> Void = { _ in }
    ) -> Message {
        let message = Message.signal(to: destination, path: path, interface: interface, member: member)
        var writer = MessageWriter(message)
        body(&writer)
        return message
    }

    static func call(
        _ member: MemberName, to destination: some BusName, _ body: (inout MessageWriter) -> Void = { _ in }
    ) -> Message {
        call(member, to: AnyBusName(destination), body)
    }

    static func call(
        _ member: MemberName, to destination: AnyBusName, _ body: (inout MessageWriter) -> Void = { _ in }
    ) -> Message {
        let message = Message.methodCall(to: destination, path: path, interface: interface, member: member)
        var writer = MessageWriter(message)
        body(&writer)
        return message
    }

    /// A call whose header has no interface, which the specification allows.
    static func callWithoutInterface(_ member: String, to destination: UniqueName) -> Message {
        Message(adopting: dbus_message_new_method_call(destination.rawValue, path.rawValue, nil, member)!)
    }
}

/// The error of a call that must fail.
func refusal(_ body: () throws -> Message) throws -> BusError {
    do {
        let reply = try body()
        throw NotInTime("a reply with '\(reply.signature)' came instead of an error")
    } catch let error as BusError {
        return error
    }
}

/// What the mutating getters of a reader tell, where an expectation can ask.
extension MessageReader {
    var hasEnded: Bool {
        var copy = self
        return copy.isAtEnd
    }

    var upcomingSignature: Signature {
        var copy = self
        return copy.nextSignature
    }

    var upcomingType: TypeCode {
        var copy = self
        return copy.nextType
    }

    var upcomingElementType: TypeCode {
        var copy = self
        return copy.nextElementType
    }
}
