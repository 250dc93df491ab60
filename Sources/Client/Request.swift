// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// A request of the program to the service, as it waits in a ``SharedOutbox``. Requests keep the order in which the
/// program makes them.
public enum Request: Sendable {
    case post(OutgoingPost)
    /// Adds an observer's registration; the session restores it at each later service.
    case register(RegistrationKey)
    /// Removes a registration.
    case unregister(RegistrationKey)
    /// Sets whether the program is suspended; nil withdraws the program's request, so that the service decides.
    case suspend(Bool?)
    /// Sets the details that the program requests with notifications from now on, besides their content (P1).
    case details(Details)
    /// Any other call, which is answered.
    case call(OutgoingCall)
    /// Completes when all earlier requests are settled. The value is true if the service has taken them all.
    case barrier(Completion<Bool>)

    /// A closure that receives a result, on the session's thread.
    public typealias Completion<Value> = @Sendable (Value) -> Void

    /// The post; nil for other requests.
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

    /// Decodes the reply of a successful call.
    private static func read<Value>(
        _ result: Result<Message, ServiceError>, as reader: (Message) throws(BusError) -> Value
    ) -> Result<Value, ServiceError> {
        result.flatMap { reply in
            Result { () throws(BusError) in try reader(reply) }.mapError(ServiceError.init)
        }
    }

    /// A call to the service with an encoded message.
    public static func call(
        _ message: Message, completion: @escaping Completion<Result<Message, ServiceError>>
    ) -> Request {
        .call(OutgoingCall(message: message, completion: completion))
    }
}

/// An encoded post, ready to be sent alone, in a batch or over a channel.
public struct OutgoingPost: @unchecked Sendable {
    // Sendable: one thread at a time uses the message. The poster's thread creates it and may send it directly;
    // otherwise only the session's thread uses it afterwards.
    let message: Message
    /// The size that counts against the limit of waiting posts, in bytes.
    let byteCount: Int
    /// Receives the number of clients that the post matched. Nil for a fire-and-forget post, whose failure goes to the
    /// ``ServiceReceiver``.
    let completion: Request.Completion<Result<Int, ServiceError>>?

    /// - Parameter completion: receives the number of clients that the post matched, on the session's thread; nil for
    ///   fire and forget.
    /// - Throws: the errors of ``PostCall/marshalled(name:object:userInfo:options:)``.
    public init(
        name: String, object: String = "", userInfo: [String: PropertyList] = [:],
        options: PostOptions = PostOptions(), completion: Request.Completion<Result<Int, ServiceError>>? = nil
    ) throws(CenterError) {
        message = try PostCall.marshalled(name: name, object: object, userInfo: userInfo, options: options)
        byteCount = Self.overhead + message.byteCount
        self.completion = completion
    }

    /// Creates a fire-and-forget post from the entries of userInfo, without a dictionary.
    ///
    /// - Parameter entries: entries with distinct keys.
    /// - Throws: the errors of ``PostCall/marshalled(name:object:entries:options:)``.
    public init(
        name: String, object: String, entries: [(key: String, value: PropertyList)], options: PostOptions
    ) throws(CenterError) {
        let message = try PostCall.marshalled(name: name, object: object, entries: entries, options: options)
        self.init(message: message, byteCount: Self.overhead + message.byteCount, completion: nil)
    }

    /// Creates a post from an existing call.
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

    /// The approximate size of the objects that hold a waiting post, in bytes.
    private static let overhead = 256

    /// Passes the outcome to the completion, or a failure of a post without a completion to `receiver`.
    func settle(_ outcome: Result<Int, BusError>, _ receiver: any ServiceReceiver) {
        let outcome = outcome.mapError(ServiceError.init)
        if let completion {
            completion(outcome)
        } else if case .failure(let error) = outcome {
            // The post was sent, so without an answer its outcome is unknown.
            if case .disconnected(let reason) = error {
                receiver.mayHaveLostPosts(1, because: reason)
            } else {
                receiver.lostPosts(1, because: error)
            }
        }
    }

    /// Returns the same post with a completion.
    public func completed(_ completion: @escaping Request.Completion<Result<Int, ServiceError>>) -> OutgoingPost {
        OutgoingPost(message: message, byteCount: byteCount, completion: completion)
    }
}

/// An encoded call whose answer the program awaits.
public struct OutgoingCall: @unchecked Sendable {
    // Sendable: as for a post.
    let message: Message
    let completion: Request.Completion<Result<Message, ServiceError>>
}
