// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// A type whose values are posted as notifications, with their properties as userInfo.
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
/// Programs in other languages see a userInfo with the keys of the type, and can post the same. A type that is not
/// coded as a keyed container, such as an enumeration with raw values, travels under the key `value`. Where a type codes nil, as
/// an array of optionals does, the text `$null` stands for it, as property lists have no such value; a message that has that text
/// itself is refused.
///
/// Its posts throw what is wrong with them, and can wait for their outcome. Messages as Foundation's center has them are
/// ``DistributedNotificationCenter/MainActorMessage`` and ``DistributedNotificationCenter/AsyncMessage``; under one name
/// each kind hears what is posted as another.
public protocol DistributedMessage: Codable, Sendable {
    /// The name of the notification; not empty.
    static var name: Foundation.Notification.Name { get }
}

extension DistributedMessage {
    /// The message that a notification carries, for observers that need its object, its poster or its number besides.
    ///
    /// - Throws: ``DistributedNotificationError/decodingFailed(type:reason:)`` where its userInfo is no such message. Its name is
    ///   not compared.
    public init(_ notification: Foundation.Notification) throws(DistributedNotificationError) {
        do {
            self = try MessageCoder.message(Self.self, from: notification)
        } catch {
            throw .decodingFailed(type: String(describing: Self.self), reason: MessageCoder.describe(error))
        }
    }
}

extension DistributedNotificationCenter {
    /// Posts a message, or says at once why it can't leave the process. It never waits for the service.
    ///
    /// - Parameter retention: whether the service keeps it as the value of its name and object (R1); nil for not.
    /// - Throws: as a throwing post of a notification, and
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
    /// - Returns: how many clients of the service it matched.
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

    /// What a message is on the wire is made of it directly: there is no userInfo of Foundation's types in between.
    private func outgoing<Message: DistributedMessage>(
        _ message: Message, _ object: String?, _ options: PostOptions
    ) throws(DistributedNotificationError) -> OutgoingPost {
        try check(name: Message.name)
        return try laidOut(
            Message.name, object: try text(ofObject: object), entries: Array(try MessageCoder.entries(of: message)),
            options: options)
    }

    /// Has `handler` called with every message of a type.
    ///
    /// A notification of that name which is no such message is logged, counted in ``Statistics/undecodable`` and left
    /// out.
    ///
    /// - Parameters:
    ///   - object: nil for any.
    ///   - suspensionBehavior: what happens to messages while the program is suspended.
    ///   - runLoopMode: how urgent they are when the service is busy (M6).
    ///   - queue: where the handler runs; nil for the center's ``defaultDelivery``.
    /// - Returns: what ends the observation when it goes away.
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

    /// An asynchronous sequence of the messages of a type, in their order.
    ///
    /// It observes from this call on, and has the parameters of
    /// ``notifications(named:object:suspensionBehavior:retained:minimumInterval:bufferLimit:)``. A notification of that name
    /// which is no such message is logged, counted and left out when its turn comes.
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

    /// Messages of one type, in the order in which the service delivered them. Each iterator is a reader of its own.
    public struct Messages<Message: DistributedMessage>: AsyncSequence, Sendable {
        public typealias Element = Message
        public typealias Failure = Never

        fileprivate let readers: Readers<Received>
        fileprivate let decode: @Sendable (Received) -> Message?

        public struct AsyncIterator: AsyncIteratorProtocol {
            fileprivate var messages: DecodedMessages<Message>

            public mutating func next() async -> Message? {
                await next(isolation: nil)
            }

            /// The next message; nil when the reader's task was cancelled.
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Message? {
                await messages.next(isolation: actor)
            }
        }

        public func makeAsyncIterator() -> AsyncIterator {
            AsyncIterator(messages: DecodedMessages(readers.next(), decode: decode))
        }
    }

    private func decode<Message: DistributedMessage>(_ type: Message.Type, from received: Received) -> Message? {
        do {
            return try MessageCoder.message(type, from: received.userInfo)
        } catch {
            noteUndecodable(received, as: type, MessageCoder.describe(error))
            return nil
        }
    }
}
