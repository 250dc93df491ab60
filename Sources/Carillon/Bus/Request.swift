import DBus

/// What the program asks of the service, in the order in which it asked.
enum Request {
    case post(OutgoingPost)
    case register(RegistrationKey)
    case unregister(RegistrationKey)
    /// The program's word about its suspension; nil takes it back.
    case suspend(Bool?)
    /// Tells when the service has taken all that was asked before.
    case barrier(Completion<Bool>)

    typealias Completion<Value> = @Sendable (Value) -> Void
    typealias PostCompletion = Completion<Result<Int, DistributedNotificationError>>
}

/// A post, ready to be sent.
struct OutgoingPost: @unchecked Sendable {
    // Sendable: the poster's thread makes the message and never touches it again; the bus thread sends it.
    let message: Message
    /// What it counts against the bound of what waits, in bytes.
    let byteCount: Int
    /// Gets the number of clients that it matched; nil for fire and forget.
    let completion: Request.PostCompletion?

    func completed(_ completion: @escaping Request.PostCompletion) -> OutgoingPost {
        OutgoingPost(message: message, byteCount: byteCount, completion: completion)
    }
}
