// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A D-Bus method of the service: a value holds the arguments of a call, and the type encodes and decodes the arguments
/// and the reply.
///
/// Each method has a file of its own in `Methods/`, the only place with its name and the order of its arguments.
/// Clients build their calls with these types, and the service builds its method table from them.
public protocol CenterMethod: Sendable {
    associatedtype Reply

    /// The name of the method on the bus.
    static var member: MemberName { get }
    /// The names and types of the arguments.
    static var inputs: [Interface.Argument] { get }
    /// The names and types of the values in the reply.
    static var outputs: [Interface.Argument] { get }

    /// Decodes the arguments of a call; the caller has checked that their types are ``inputs``.
    ///
    /// - Throws: The error that the service replies with.
    init(from arguments: inout MessageReader) throws(BusError)
    /// Appends the arguments.
    func append(to writer: inout MessageWriter)

    /// Decodes a reply.
    ///
    /// - Throws: InvalidArgs if the values are not of the types in ``outputs``.
    static func readReply(from reader: inout MessageReader) throws(BusError) -> Reply
    /// Appends a reply.
    static func append(_ reply: Reply, to writer: inout MessageWriter)
}

extension CenterMethod {
    public static var inputs: [Interface.Argument] { [] }
    public static var outputs: [Interface.Argument] { [] }

    /// Returns the call to the service.
    ///
    /// - Parameters:
    ///   - startsService: Whether the bus starts a service if there is none.
    ///   - wantsAnswer: Whether the service sends a reply.
    public func message(startsService: Bool = true, wantsAnswer: Bool = true) -> Message {
        let message = Wire.methodCall(Self.member, startsService: startsService)
        message.expectsNoReply = !wantsAnswer
        var writer = MessageWriter(message)
        append(to: &writer)
        return message
    }

    /// Decodes the reply to a call.
    ///
    /// - Throws: InvalidArgs if the reply violates the contract.
    public static func reply(in message: Message) throws(BusError) -> Reply {
        var reader = MessageReader(message)
        return try readReply(from: &reader)
    }
}

extension CenterMethod where Reply == Void {
    public static func readReply(from reader: inout MessageReader) throws(BusError) {}
    public static func append(_ reply: Void, to writer: inout MessageWriter) {}
}

// MARK: Clients

extension MessageBus {
    /// Calls a method of the service; `completion` receives the reply or the error.
    public func call<Method: CenterMethod>(
        _ method: Method, startsService: Bool = true,
        completion: @escaping (Result<Method.Reply, BusError>) -> Void
    ) {
        call(method.message(startsService: startsService)) { result in
            completion(result.flatMap { reply in Result { () throws(BusError) in try Method.reply(in: reply) } })
        }
    }

    /// Calls a method of the service without requesting a reply.
    public func send(_ method: some CenterMethod) {
        send(method.message(wantsAnswer: false))
    }
}

// MARK: Service

extension Interface.Method {
    /// Creates a row of the service's method table, for a handler that replies at once.
    ///
    /// - Parameter handler: Receives the decoded call and the unique name of the caller; its result is the reply.
    public init<Method: CenterMethod>(
        _: Method.Type, handler: @escaping (Method, UniqueName) throws(BusError) -> Method.Reply
    ) {
        self.init(Method.self) { call throws(BusError) in
            var arguments = call.arguments
            let method = try Method(from: &arguments)
            try call.expectNoDescriptors()
            call.reply(to: Method.self, try handler(method, call.sender))
        }
    }

    /// Creates a row of the service's method table, for a handler that itself decodes the call, refuses file
    /// descriptors, and replies, possibly later.
    public init<Method: CenterMethod>(_: Method.Type, answers handler: @escaping (MethodCall) throws(BusError) -> Void)
    {
        self.init(Method.member, in: Method.inputs, out: Method.outputs, handler: handler)
    }
}

extension MethodCall {
    /// Replies to a call of `Method`.
    public func reply<Method: CenterMethod>(to method: Method.Type, _ reply: Method.Reply) {
        answer.reply(to: method, reply)
    }
}

extension MethodCall.Answer {
    /// Replies to a call of `Method`, also after its handler has returned.
    public func reply<Method: CenterMethod>(to _: Method.Type, _ reply: Method.Reply) {
        self.reply { Method.append(reply, to: &$0) }
    }
}
