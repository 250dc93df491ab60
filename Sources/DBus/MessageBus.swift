// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames
import CarillonMainLoop

/// A sender of messages and calls to a bus: a ``Connection``, or its replacement in tests. Services, clients and the
/// methods of the bus itself, below, use it.
public protocol MessageBus: AnyObject {
    /// The context on whose thread all members are used.
    var context: MainContext { get }
    /// Sends a message without waiting for a reply.
    func send(_ message: Message)
    /// Sends an encoded message without waiting for a reply.
    ///
    /// - Parameter message: A message with values of exactly the types in its signature. Debug builds check them.
    func send(_ message: MarshalledMessage)
    /// Sends one of many similar messages, such as one notification to several clients. It is encoded directly in the
    /// output buffer.
    ///
    /// - Parameters:
    ///   - head: The header, with the receiver.
    ///   - serial: The serial, not 0, and different from that of each other message in transit on the connection. The
    ///     caller takes it from the upper half of the range, since a ``Connection`` assigns serials of the lower half.
    ///   - shared: The encoded beginning of the arguments. Its memory is shared with messages to other receivers.
    ///   - size: The maximum size of the remaining arguments with their alignment, in bytes.
    ///   - rest: Appends the remaining arguments. Debug builds check the whole message.
    func send(
        _ head: EncodedHeader, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void)
    /// Batches the messages that `body` sends, to save system calls. They are queued, and written together at the end
    /// of the outermost call. A connection whose iterations are batched writes them at the end of the loop iteration. A
    /// full buffer is written before.
    func batchSends(_ body: () -> Void)
    /// Sends a method call; `completion` receives the reply or the error.
    func call(
        _ message: Message, timeout: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void)
}

/// Defaults for tests: messages are sent one by one, as objects of libdbus, and `batchSends` batches nothing.
extension MessageBus {
    public func send(_ message: MarshalledMessage) { send(Message(message)) }
    public func send(
        _ head: EncodedHeader, serial: UInt32, _ shared: [UInt8], size: Int, rest: (inout MarshalledBytes) -> Void
    ) {
        send(head.message(serial: serial, shared, size: size, rest: rest))
    }
    public func batchSends(_ body: () -> Void) { body() }
}

/// A connection to a bus that also receives: a ``Connection``, or its replacement in tests.
public protocol BusConnection: MessageBus {
    /// The unique name of this connection; nil before ``hello(completion:)`` completes.
    var uniqueName: UniqueName? { get }
    /// Called with each received method call and signal. Returns whether it handled the message.
    var onMessage: ((Message) -> Bool)? { get set }
    /// Called once when the bus has closed the connection.
    var onDisconnect: (() -> Void)? { get set }
    /// Whether received messages can carry file descriptors; known when ``hello(completion:)`` has completed.
    var carriesDescriptors: Bool { get }
    /// The socket for sends from other threads; nil if only the connection's own thread can send. The outbox of the
    /// client library uses it for small posts.
    var directSender: DirectSender? { get }
    /// Registers with the bus. Each connection does so once, before all other calls.
    func hello(completion: @escaping (Result<UniqueName, BusError>) -> Void)
}

extension BusConnection {
    public var directSender: DirectSender? { nil }
}

/// The time that a caller waits for a reply.
public enum ReplyTimeout: Sendable {
    /// The default of libdbus, 25 s.
    case standard
    case milliseconds(Int32)
    /// No timeout: the caller waits until the reply comes or the peer leaves the bus.
    case never
}

/// Calls to the bus itself.
extension MessageBus {
    /// Sends a method call that waits 25 s for its reply.
    public func call(_ message: Message, completion: @escaping (Result<Message, BusError>) -> Void) {
        call(message, timeout: .standard, completion: completion)
    }

    /// Requests a well-known name, without joining the bus's queue for a name that is taken.
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

    /// Releases a well-known name.
    ///
    /// - Parameter completion: Called after all calls to the name that the bus has forwarded to this connection. No
    ///   further ones follow.
    public func releaseName(_ name: WellKnownName, completion: @escaping (Result<Void, BusError>) -> Void) {
        let message = Message.busCall("ReleaseName")
        var writer = MessageWriter(message)
        writer.append(name.rawValue)
        call(message) { completion($0.map { _ in }) }
    }

    /// Adds a match rule: the bus forwards matching broadcasts to this connection. `completion` also receives a
    /// refusal, since the bus limits the number of rules.
    public func addMatch(_ rule: String, completion: ((Result<Message, BusError>) -> Void)? = nil) {
        changeMatch("AddMatch", rule, completion)
    }

    /// Removes one match rule that ``addMatch(_:completion:)`` added.
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
            // There is no timeout: the reply comes after all messages that the bus has queued for this connection, so a
            // late reply is no refusal.
            call(message, timeout: .never, completion: completion)
        } else {
            message.expectsNoReply = true
            send(message)
        }
    }

    /// Requests the id of the bus, which is unique and changes when the bus restarts.
    public func busID(completion: @escaping (Result<String, BusError>) -> Void) {
        call(.busCall("GetId")) { result in
            completion(
                result.flatMap { reply in
                    var reader = MessageReader(reply)
                    return Result { () throws(BusError) in try reader.readString() }
                })
        }
    }

    /// Makes a round trip to the bus. The bus replies after all messages that it forwarded to this connection before,
    /// so `completion` is called after their handlers.
    public func makeBusRoundTrip(completion: @escaping (Result<Void, BusError>) -> Void) {
        call(roundTripTemplate.messageToBus()) { completion($0.map { _ in }) }
    }

    /// Requests the connection that owns a name.
    ///
    /// - Parameter completion: Receives its unique name, or NameHasNoOwner.
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

    /// Requests the names for which the bus can start a program.
    public func startableNames(completion: @escaping (Result<Set<WellKnownName>, BusError>) -> Void) {
        names(by: "ListActivatableNames", completion)
    }

    /// Requests the unique names of all connections to the bus.
    public func connections(completion: @escaping (Result<Set<UniqueName>, BusError>) -> Void) {
        names(by: "ListNames", completion)
    }

    /// Requests a list of names from the bus, and ignores other names than those of the type `Name`.
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

    /// Requests the credentials of a connection from the bus.
    ///
    /// - Parameter completion: Receives the credentials as the kernel reported them, or NameHasNoOwner if the
    ///   connection is gone.
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

    /// Requests only the process of a connection.
    ///
    /// - Parameter completion: Receives the process id, which is 0 if the bus does not know it, or NameHasNoOwner if
    ///   the connection is gone.
    public func processID(of name: some BusName, completion: @escaping (Result<UInt32, BusError>) -> Void) {
        credentials(of: name) { completion($0.map(\.processID)) }
    }
}

/// The result of a request for a name.
public enum NameRequest: Sendable {
    /// This connection owns the name now.
    case acquired
    /// Another connection owns the name and keeps it.
    case taken
}

/// A change of a bus name's owner, as announced by the bus.
public struct OwnerChange: Sendable {
    /// Returns the match rule for changes of one name.
    public static func matchRule(for name: some BusName) -> String {
        "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
            + "interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='\(name)'"
    }

    /// The name, unique or well-known.
    public let name: AnyBusName
    /// The new owner; nil if the name has no owner any more.
    public let newOwner: UniqueName?

    /// The connection that left the bus; nil for other changes.
    public var departed: UniqueName? { newOwner == nil ? name.unique : nil }

    public func concerns(_ name: some BusName) -> Bool {
        self.name.rawValue == name.rawValue
    }

    /// Returns the signal that the bus sends for a departed connection. A service that detected the departure by a
    /// query handles this copy as if it had come from the bus.
    package static func departure(of name: UniqueName) -> Message {
        let signal = Message.signal(
            path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged")
        var writer = MessageWriter(signal)
        for text in [name.rawValue, name.rawValue, ""] { writer.append(text) }
        return signal.carried(from: "org.freedesktop.DBus", serial: 1)
    }

    /// Nil if `message` is another signal, or does not come from the bus.
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

/// The template of a call to the bus without effects, for ``MessageBus/makeBusRoundTrip(completion:)``.
private let roundTripTemplate = MessageTemplate.methodCall(
    path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "GetId", signature: "")

extension Message {
    /// Returns a call of one of the bus's own methods.
    static func busCall(_ member: MemberName) -> Message {
        methodCall(
            to: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
            member: member)
    }
}

/// The identity of a connection as the kernel reported it to the bus.
public struct ConnectionCredentials: Equatable, Sendable {
    /// The process id; 0 if the bus does not know it.
    public var processID: UInt32 = 0
    /// The user id; nil if the bus does not know it.
    public var userID: UInt32?

    public init(processID: UInt32 = 0, userID: UInt32? = nil) {
        self.processID = processID
        self.userID = userID
    }

    /// Reads the reply of `GetConnectionCredentials`, a dictionary of which only these entries are used.
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
