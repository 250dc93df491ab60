// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A method of the contract: a call with its arguments, and what it is answered with, each coded both ways.
///
/// Each method has a file of its own in `Methods/`, and nobody else knows its name or the order of its arguments: the
/// service makes its table of them, and clients their calls.
public protocol CenterMethod: Sendable {
    associatedtype Reply

    static var member: MemberName { get }
    static var inputs: [Interface.Argument] { get }
    static var outputs: [Interface.Argument] { get }

    /// Decodes the arguments of a call whose types are ``inputs``.
    ///
    /// - Throws: what the service answers instead.
    init(from arguments: inout MessageReader) throws(BusError)
    /// Appends the arguments.
    func append(to writer: inout MessageWriter)

    /// Decodes an answer.
    ///
    /// - Throws: InvalidArgs when its values are not of the types in ``outputs``.
    static func readReply(from reader: inout MessageReader) throws(BusError) -> Reply
    static func append(_ reply: Reply, to writer: inout MessageWriter)
}

extension CenterMethod {
    public static var inputs: [Interface.Argument] { [] }
    public static var outputs: [Interface.Argument] { [] }

    /// The call to the service.
    ///
    /// - Parameters:
    ///   - startsService: let the bus start a service when there is none.
    ///   - wantsAnswer: whether the service shall answer.
    public func message(startsService: Bool = true, wantsAnswer: Bool = true) -> Message {
        let message = Wire.methodCall(Self.member, startsService: startsService)
        message.expectsNoReply = !wantsAnswer
        var writer = MessageWriter(message)
        append(to: &writer)
        return message
    }

    /// Decodes the answer to a call.
    ///
    /// - Throws: InvalidArgs when it is none that the contract has.
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
    /// Calls a method of the service; `completion` gets its answer, or the error that came instead.
    public func call<Method: CenterMethod>(
        _ method: Method, startsService: Bool = true,
        completion: @escaping (Result<Method.Reply, BusError>) -> Void
    ) {
        call(method.message(startsService: startsService)) { result in
            completion(result.flatMap { reply in Result { () throws(BusError) in try Method.reply(in: reply) } })
        }
    }

    /// Calls a method of the service without waiting for an answer.
    public func send(_ method: some CenterMethod) {
        send(method.message(wantsAnswer: false))
    }
}

// MARK: The service

extension Interface.Method {
    /// A row of the service's table.
    ///
    /// - Parameter handler: gets the call, decoded, and the client that made it; what it returns is the answer.
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

    /// A row of the service's table whose handler decodes the call, refuses descriptors, and answers by itself, perhaps
    /// later.
    public init<Method: CenterMethod>(_: Method.Type, answers handler: @escaping (MethodCall) throws(BusError) -> Void)
    {
        self.init(Method.member, in: Method.inputs, out: Method.outputs, handler: handler)
    }
}

extension MethodCall {
    /// Answers a call of `Method`.
    public func reply<Method: CenterMethod>(to method: Method.Type, _ reply: Method.Reply) {
        answer.reply(to: method, reply)
    }
}

extension MethodCall.Answer {
    /// Answers a call of `Method`.
    public func reply<Method: CenterMethod>(to _: Method.Type, _ reply: Method.Reply) {
        self.reply { Method.append(reply, to: &$0) }
    }
}
