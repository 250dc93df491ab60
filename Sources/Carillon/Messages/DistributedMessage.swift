// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// A `Codable` type whose values are posted and observed as notifications, with their properties as userInfo.
///
/// ```swift
/// struct Saved: DistributedMessage {
///     static let name = Notification.Name("com.example.Saved")
///     var path: String
///     var bytes: Int
/// }
///
/// try center.post(Saved(path: "report.txt", bytes: 4711))
/// for await saved in center.messages(of: Saved.self) { print(saved.path) }
/// ```
///
/// Programs in other languages receive a userInfo with the keys of the type, and can post the same. A type that is not
/// encoded as a keyed container, such as an enumeration with raw values, is sent under the key `value`.
///
/// A nil within a value, for example in an array of optionals, is encoded as the text `$null`, because property lists
/// have no nil. A message that contains this text itself is refused.
///
/// There are two other kinds of messages, which correspond to the messages of Foundation's center:
/// ``DistributedNotificationCenter/MainActorMessage`` and ``DistributedNotificationCenter/AsyncMessage``. Unlike these,
/// a post of a `DistributedMessage` throws if the message is invalid, and can wait for its outcome. Observers of each
/// kind also receive the messages of the other kinds with the same name.
public protocol DistributedMessage: Codable, Sendable {
    /// The name of the notification; not empty.
    static var name: Foundation.Notification.Name { get }
}

extension DistributedMessage {
    /// Decodes the message of a notification, for observers that also need its object, poster or serial number.
    ///
    /// - Throws: ``DistributedNotificationError/decodingFailed(type:reason:)`` if the userInfo is not a message of this
    ///   type. The name of the notification is not compared.
    public init(_ notification: Foundation.Notification) throws(DistributedNotificationError) {
        do {
            self = try MessageCoder.message(Self.self, from: notification)
        } catch {
            throw .decodingFailed(type: String(describing: Self.self), reason: MessageCoder.describe(error))
        }
    }
}

extension DistributedNotificationCenter {
    /// Posts a message, or throws if the post cannot leave the process. It never waits for the service.
    ///
    /// - Parameter retention: the retention of the post as the value of its name and object (R1); nil for no retention.
    /// - Throws: the errors of ``post(named:object:userInfo:options:style:coalescing:retention:)``, and
    ///   ``DistributedNotificationError/encodingFailed(type:reason:)``.
    public func post<Message: DistributedMessage>(
        _ message: Message, object: String? = nil, options: Options = [],
        style: NotificationQueue.PostingStyle = .now, coalescing: NotificationQueue.NotificationCoalescing = [],
        retention: Retention? = nil
    ) throws(DistributedNotificationError) {
        try submit(
            try outgoing(
                message, object,
                try wireOptions(options, style: style, coalescing: coalescing, retention: retention)))
    }

    /// Posts a message, and waits until the service has accepted it.
    ///
    /// - Returns: the number of clients of the service that the post matched.
    /// - Throws: the errors of ``postAndWait(named:object:userInfo:options:style:coalescing:retention:isolation:)``,
    ///   and ``DistributedNotificationError/encodingFailed(type:reason:)``.
    @discardableResult
    public func postAndWait<Message: DistributedMessage>(
        _ message: Message, object: String? = nil, options: Options = [],
        style: NotificationQueue.PostingStyle = .now, coalescing: NotificationQueue.NotificationCoalescing = [],
        retention: Retention? = nil, isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Int {
        try await outcome(
            of: try outgoing(
                message, object,
                try wireOptions(options, style: style, coalescing: coalescing, retention: retention)), isolation)
    }

    /// Encodes a message for the wire directly, without an intermediate userInfo of Foundation's types.
    private func outgoing<Message: DistributedMessage>(
        _ message: Message, _ object: String?, _ options: PostOptions
    ) throws(DistributedNotificationError) -> OutgoingPost {
        try check(name: Message.name)
        return try encodedPost(
            Message.name, object: try text(ofObject: object), entries: Array(try MessageCoder.entries(of: message)),
            options: options)
    }

    /// Calls `handler` with every message of a type.
    ///
    /// A notification of that name that cannot be decoded is logged, counted in ``Statistics/undecodable`` and left
    /// out.
    ///
    /// - Parameters:
    ///   - object: the object to observe; nil for any.
    ///   - suspensionBehavior: the treatment of messages while the program is suspended.
    ///   - runLoopMode: the urgency of the messages while the service is busy (M6).
    ///   - queue: the queue of the handler; nil for the center's ``defaultDelivery``.
    /// - Returns: the registration of the handler, which ends when this object is released.
    public func observe<Message: DistributedMessage>(
        _ type: Message.Type, object: String? = nil, suspensionBehavior: SuspensionBehavior = .coalesce,
        runLoopMode: CarillonMainLoop.RunLoopMode = .default, queue: OperationQueue? = nil,
        using handler: @escaping @Sendable (Message) -> Void
    ) -> Observation {
        observation(
            name: type.name, object: object, suspensionBehavior: suspensionBehavior, runLoopMode: runLoopMode,
            on: target(for: queue)
        ) { [weak self] received in
            if let message = self?.decode(type, from: received) { handler(message) }
        }
    }

    /// Returns an asynchronous sequence of the messages of a type, in their order.
    ///
    /// The sequence observes from this call on, and has the parameters of
    /// ``notifications(named:object:suspensionBehavior:retained:minimumInterval:bufferLimit:)``. A notification of that
    /// name that cannot be decoded is logged, counted and left out when the reader reaches it.
    public func messages<Message: DistributedMessage>(
        of type: Message.Type, object: String? = nil, suspensionBehavior: SuspensionBehavior = .coalesce,
        retained: Bool = false, minimumInterval: Duration = .zero,
        bufferLimit: Int = DeliveryQueue.Limits.standard.count
    ) -> Messages<Message> {
        Messages(
            readers: readers(
                type.name, object, suspensionBehavior, retained: retained, minimumInterval: minimumInterval,
                bufferLimit: bufferLimit)
        ) { [weak self] received in self?.decode(type, from: received) }
    }

    /// A sequence of the messages of one type, in the order in which the service delivered them. Each iterator is a
    /// separate reader.
    public struct Messages<Message: DistributedMessage>: AsyncSequence, Sendable {
        public typealias Element = Message
        public typealias Failure = Never

        fileprivate let readers: Readers<ReceivedNotification>
        fileprivate let decode: @Sendable (ReceivedNotification) -> Message?

        public struct AsyncIterator: AsyncIteratorProtocol {
            fileprivate var messages: DecodedMessages<Message>

            public mutating func next() async -> Message? {
                await next(isolation: nil)
            }

            /// Returns the next message; nil after the reader's task was cancelled.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Message? {
                await messages.next(isolation: actor)
            }
        }

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(messages: DecodedMessages(readers.next(), decode: decode))
        }
    }

    /// Decodes the message of a notification; nil if that fails, which is logged and counted.
    private func decode<Message: DistributedMessage>(_ type: Message.Type, from received: ReceivedNotification)
        -> Message?
    {
        do {
            return try MessageCoder.message(type, from: received.userInfo)
        } catch {
            noteUndecodable(received, as: type, MessageCoder.describe(error))
            return nil
        }
    }
}
