// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonMainLoop

/// What sends messages to a bus: a ``Connection``, or what a test puts in its place.
public protocol MessageBus: AnyObject {
    var context: MainContext { get }
    /// Sends without waiting for an answer.
    func send(_ message: Message)
    /// The same for a message that is laid out already.
    ///
    /// - Parameter message: holds values of exactly the types in its signature. Debug builds look.
    func send(_ message: MarshalledMessage)
    /// Sends a message that is one of many: it is laid out where it leaves.
    ///
    /// - Parameters:
    ///   - head: its header.
    ///   - serial: not 0, and of no other message of the connection that is under way.
    ///   - shared: with which its arguments begin. The same memory goes to others.
    ///   - size: the most that the rest of the arguments takes, with its alignment, in bytes.
    ///   - rest: appends the rest. Debug builds look at all of it.
    func send(
        _ head: MessageHead, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void)
    /// What is sent while `body` runs may leave together, when it has ended or the loop turns.
    func gather(_ body: () -> Void)
    /// Sends a method call; `completion` gets the reply, or the error that came instead.
    func call(
        _ message: Message, timeout: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void)
}

extension MessageBus {
    public func send(_ message: MarshalledMessage) { send(Message(message)) }
    public func send(
        _ head: MessageHead, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        send(head.message(serial: serial, shared, size: size, rest: rest))
    }
    public func gather(_ body: () -> Void) { body() }
}

/// A connection of its own to a bus: a ``Connection``, or what a test puts in its place.
public protocol BusConnection: MessageBus {
    /// The name that the bus gave this connection; nil before ``hello(completion:)`` completed.
    var uniqueName: UniqueName? { get }
    /// Called with every method call and signal that arrives. Returns whether it took the message.
    var onMessage: ((Message) -> Bool)? { get set }
    /// Called once when the bus closed the connection.
    var onDisconnect: (() -> Void)? { get set }
    /// Whether file descriptors can come with what arrives; known when ``hello(completion:)`` has completed.
    var carriesDescriptors: Bool { get }
    /// By which other threads can send; nil where only the connection's own does.
    var directLine: DirectLine? { get }
    /// Registers with the bus, which every connection does once, first.
    func hello(completion: @escaping (Result<UniqueName, BusError>) -> Void)
}

extension BusConnection {
    public var directLine: DirectLine? { nil }
}

/// How long a caller waits for a reply.
public enum ReplyTimeout: Sendable {
    /// libdbus's own, 25 s.
    case standard
    case milliseconds(Int32)
    /// Until the reply comes or the peer leaves the bus.
    case never
}

/// Calls to the bus itself.
extension MessageBus {
    public func call(_ message: Message, completion: @escaping (Result<Message, BusError>) -> Void) {
        call(message, timeout: .standard, completion: completion)
    }

    /// Asks for a well-known name, without queueing for it.
    public func requestName(_ name: WellKnownName, completion: @escaping (Result<NameRequest, BusError>) -> Void) {
        let message = Message.busCall("RequestName")
        var writer = MessageWriter(message)
        writer.append(name.rawValue)
        writer.append(UInt32(DBUS_NAME_FLAG_DO_NOT_QUEUE))
        call(message) { result in
            completion(
                result.flatMap { reply in
                    var reader = MessageReader(reply)
                    return Result { () throws(BusError) in try reader.read(UInt32.self) }
                }.map { code in
                    let isOurs =
                        code == UInt32(DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER)
                        || code == UInt32(DBUS_REQUEST_NAME_REPLY_ALREADY_OWNER)
                    return isOurs ? .acquired : .taken
                })
        }
    }

    /// Gives a well-known name up.
    ///
    /// - Parameter completion: called behind all calls that the bus carried to us as the name's owner.
    public func releaseName(_ name: WellKnownName, completion: @escaping (Result<Void, BusError>) -> Void) {
        let message = Message.busCall("ReleaseName")
        var writer = MessageWriter(message)
        writer.append(name.rawValue)
        call(message) { completion($0.map { _ in }) }
    }

    /// Asks the bus for the messages that match `rule`. A refusal (the bus bounds the number of rules) is reported.
    public func addMatch(_ rule: String, completion: ((Result<Message, BusError>) -> Void)? = nil) {
        changeMatch("AddMatch", rule, completion)
    }

    /// Takes one ``addMatch(_:completion:)`` of the same rule back.
    public func removeMatch(_ rule: String) {
        changeMatch("RemoveMatch", rule, nil)
    }

    private func changeMatch(
        _ member: MemberName, _ rule: String, _ completion: ((Result<Message, BusError>) -> Void)?
    ) {
        let message = Message.busCall(member)
        var writer = MessageWriter(message)
        writer.append(rule)
        if let completion {
            // Behind all that the bus holds for this connection, which may be much: no answer in time is no refusal.
            call(message, timeout: .never, completion: completion)
        } else {
            message.expectsNoReply = true
            send(message)
        }
    }

    /// Asks the bus for its id, which no other bus has, nor this one after a restart.
    public func busID(completion: @escaping (Result<String, BusError>) -> Void) {
        call(.busCall("GetId")) { result in
            completion(
                result.flatMap { reply in
                    var reader = MessageReader(reply)
                    return Result { () throws(BusError) in try reader.readString() }
                })
        }
    }

    /// Asks the bus something of which the answer tells nothing but that it came: behind all that the bus carried before.
    public func passBus(completion: @escaping (Result<Void, BusError>) -> Void) {
        call(busQuestion.messageToBus()) { completion($0.map { _ in }) }
    }

    /// Asks the bus for the connection that owns a name.
    ///
    /// - Parameter completion: gets its unique name, or NameHasNoOwner.
    public func nameOwner(of name: some BusName, completion: @escaping (Result<UniqueName, BusError>) -> Void) {
        let message = Message.busCall("GetNameOwner")
        var writer = MessageWriter(message)
        writer.append(name.rawValue)
        call(message) { result in
            completion(
                result.flatMap { reply in
                    var reader = MessageReader(reply)
                    return Result { () throws(BusError) in try reader.readUniqueName() }
                })
        }
    }

    /// Asks the bus for the names that it can start a program for.
    public func startableNames(completion: @escaping (Result<Set<WellKnownName>, BusError>) -> Void) {
        names(by: "ListActivatableNames", completion)
    }

    /// Asks the bus for the unique names of all connections to it.
    public func connections(completion: @escaping (Result<Set<UniqueName>, BusError>) -> Void) {
        names(by: "ListNames", completion)
    }

    /// The names of one kind in an answer of the bus.
    private func names<Name: BusName & Hashable>(
        by member: MemberName, _ completion: @escaping (Result<Set<Name>, BusError>) -> Void
    ) {
        call(.busCall(member)) { result in
            completion(
                result.flatMap { reply in
                    Result { () throws(BusError) in
                        var reader = MessageReader(reply)
                        var elements = try reader.readContainer(.array)
                        var names: Set<Name> = []
                        while !elements.isAtEnd {
                            if let name = Name(rawValue: try elements.readString()) { names.insert(name) }
                        }
                        return names
                    }
                })
        }
    }

    /// Asks the bus who is behind a connection.
    ///
    /// - Parameter completion: gets what the kernel told the bus, or NameHasNoOwner when the connection is gone.
    public func credentials(
        of name: some BusName, completion: @escaping (Result<ConnectionCredentials, BusError>) -> Void
    ) {
        let message = Message.busCall("GetConnectionCredentials")
        var writer = MessageWriter(message)
        writer.append(name.rawValue)
        call(message) { result in
            completion(
                result.flatMap { reply in
                    Result { () throws(BusError) in try ConnectionCredentials(in: reply) }
                })
        }
    }

    /// The same for its process alone.
    ///
    /// - Parameter completion: gets the process id, 0 when the bus does not know it, or NameHasNoOwner when the
    ///   connection is gone.
    public func processID(of name: some BusName, completion: @escaping (Result<UInt32, BusError>) -> Void) {
        credentials(of: name) { completion($0.map(\.processID)) }
    }
}

/// What became of a request for a name.
public enum NameRequest: Sendable {
    /// The name is ours now.
    case acquired
    /// Another connection has it and keeps it.
    case taken
}

/// A change of a bus name's owner, as the bus announces it.
public struct OwnerChange: Sendable {
    /// The match rule for those of one name.
    public static func matchRule(for name: some BusName) -> String {
        "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
            + "interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='\(name)'"
    }

    public let name: AnyBusName
    /// Nil when nobody owns the name any more.
    public let newOwner: UniqueName?

    /// The connection that left the bus; nil when the change is another one.
    public var departed: UniqueName? { newOwner == nil ? name.unique : nil }

    public func concerns(_ name: some BusName) -> Bool {
        self.name.rawValue == name.rawValue
    }

    /// The signal of a bus that a connection has left, for a service that learned it by a question.
    package static func departure(of name: UniqueName) -> Message {
        let signal = Message.signal(
            path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged")
        var writer = MessageWriter(signal)
        for text in [name.rawValue, name.rawValue, ""] { writer.append(text) }
        return signal.carried(from: "org.freedesktop.DBus", serial: 1)
    }

    /// Nil when `message` is no such signal, or does not come from the bus.
    public init?(_ message: Message) {
        guard message.isSignal("org.freedesktop.DBus", "NameOwnerChanged"),
            message.isFromBus
        else { return nil }
        var reader = MessageReader(message)
        guard let name = try? reader.readString(), (try? reader.readString()) != nil,
            let owner = try? reader.readString()
        else { return nil }
        self.name = AnyBusName(unchecked: name)
        newOwner = owner.isEmpty ? nil : UniqueName(unchecked: owner)
    }
}

private let busQuestion = MessageForm.methodCall(
    path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "GetId", signature: "")

extension Message {
    static func busCall(_ member: MemberName) -> Message {
        methodCall(
            to: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
            member: member)
    }
}

/// Who is behind a connection, as the kernel told the bus.
public struct ConnectionCredentials: Equatable, Sendable {
    /// 0 when the bus does not know it.
    public var processID: UInt32 = 0
    /// Nil when the bus does not know it.
    public var userID: UInt32?

    public init(processID: UInt32 = 0, userID: UInt32? = nil) {
        self.processID = processID
        self.userID = userID
    }

    init(in reply: Message) throws(BusError) {
        var reader = MessageReader(reply)
        var entries = try reader.readContainer(.array)
        while !entries.isAtEnd {
            var entry = try entries.readContainer(.dictEntry)
            switch try entry.readString() {
            case "ProcessID":
                var value = try entry.readContainer(.variant)
                processID = try value.read(UInt32.self)
            case "UnixUserID":
                var value = try entry.readContainer(.variant)
                userID = try value.read(UInt32.self)
            default: break
            }
        }
    }
}
