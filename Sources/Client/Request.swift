// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// What a program asks of the service, in the order in which it asked.
public enum Request: Sendable {
    case post(OutgoingPost)
    case register(RegistrationKey)
    case unregister(RegistrationKey)
    /// The program's word about its suspension; nil takes it back.
    case suspend(Bool?)
    /// What the program wants to be told about notifications besides their content, from now on (P1).
    case details(Details)
    /// Any other call, which is answered.
    case call(OutgoingCall)
    /// Tells when the service has taken all that was asked before.
    case barrier(Completion<Bool>)

    public typealias Completion<Value> = @Sendable (Value) -> Void

    var post: OutgoingPost? { if case .post(let post) = self { post } else { nil } }

    /// A call of one of the service's methods.
    public static func call<Method: CenterMethod>(
        _ method: Method, completion: @escaping Completion<Result<Method.Reply, ServiceError>>
    ) -> Request {
        .call(method.message()) { completion(read($0, as: Method.reply(in:))) }
    }

    /// Asks for all properties of the service.
    public static func properties(completion: @escaping Completion<Result<CenterProperties, ServiceError>>) -> Request {
        .call(CenterProperties.getAll()) { completion(read($0, as: CenterProperties.init(in:))) }
    }

    private static func read<Value>(
        _ result: Result<Message, ServiceError>, as reader: (Message) throws(BusError) -> Value
    ) -> Result<Value, ServiceError> {
        result.flatMap { reply in
            Result { () throws(BusError) in try reader(reply) }.mapError(ServiceError.init)
        }
    }

    /// A call of any kind to the service.
    public static func call(
        _ message: Message, completion: @escaping Completion<Result<Message, ServiceError>>
    ) -> Request {
        .call(OutgoingCall(message: message, completion: completion))
    }
}

/// A post, ready to be sent.
public struct OutgoingPost: @unchecked Sendable {
    // Sendable: the poster's thread makes the message, and sends it or never touches it again; the session's thread sends
    // it then.
    let message: Message
    /// What it counts against the bound of what waits, in bytes.
    let byteCount: Int
    /// Gets the number of clients that it matched; nil for fire and forget.
    let completion: Request.Completion<Result<Int, ServiceError>>?

    /// - Parameter completion: gets the number of clients that it matched, on the session's thread; nil for fire and
    ///   forget.
    /// - Throws: as ``PostCall/laidOut(name:object:userInfo:options:)``.
    public init(
        name: String, object: String = "", userInfo: [String: PropertyList] = [:],
        options: PostOptions = PostOptions(), completion: Request.Completion<Result<Int, ServiceError>>? = nil
    ) throws(CenterError) {
        message = try PostCall.laidOut(name: name, object: object, userInfo: userInfo, options: options)
        byteCount = Self.overhead + message.byteCount
        self.completion = completion
    }

    /// The same for whoever has the entries of userInfo in no dictionary, and posts to forget.
    ///
    /// - Parameter entries: none has the key of another.
    /// - Throws: as ``PostCall/laidOut(name:object:entries:options:)``.
    public init(
        name: String, object: String, entries: [(key: String, value: PropertyList)], options: PostOptions
    ) throws(CenterError) {
        let message = try PostCall.laidOut(name: name, object: object, entries: entries, options: options)
        self.init(message: message, byteCount: Self.overhead + message.byteCount, completion: nil)
    }

    /// The same for a post that was made before.
    public init(
        _ post: PostCall, completion: Request.Completion<Result<Int, ServiceError>>? = nil
    ) throws(CenterError) {
        try self.init(
            name: post.name, object: post.object, userInfo: post.userInfo, options: post.options,
            completion: completion)
    }

    private init(message: Message, byteCount: Int, completion: Request.Completion<Result<Int, ServiceError>>?) {
        self.message = message
        self.byteCount = byteCount
        self.completion = completion
    }

    /// About what the objects take in which the bytes wait.
    private static let overhead = 256

    /// Hands the outcome to whoever waits for it.
    ///
    /// - Parameter receiver: is told of a failure that nobody waits for.
    func settle(_ outcome: Result<Int, BusError>, _ receiver: any ServiceReceiver) {
        let outcome = outcome.mapError(ServiceError.init)
        if let completion {
            completion(outcome)
        } else if case .failure(let error) = outcome {
            // It has left.
            if case .disconnected(let reason) = error {
                receiver.mayHaveLostPosts(1, because: reason)
            } else {
                receiver.lostPosts(1, because: error)
            }
        }
    }

    /// The same with a completion.
    public func completed(_ completion: @escaping Request.Completion<Result<Int, ServiceError>>) -> OutgoingPost {
        OutgoingPost(message: message, byteCount: byteCount, completion: completion)
    }
}

/// A call, ready to be sent.
public struct OutgoingCall: @unchecked Sendable {
    // Sendable: as for a post.
    let message: Message
    let completion: Request.Completion<Result<Message, ServiceError>>
}
