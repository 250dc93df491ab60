// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Observing and posting asynchronous messages, and their sequences: the post does not wait.
extension NotificationCenter {
    /// Adds an asynchronous closure that is called for each message of a subject, one after the other, in the order of
    /// the posts.
    ///
    /// The queue of messages that wait for the closure is bounded in number and in bytes, as all deliveries are (T2).
    /// When it is full, the oldest messages are discarded, counted in ``lostDeliveries`` and logged. A call that runs
    /// when the observer ends continues to its own end.
    ///
    /// - Returns: the token that keeps the observer: hold it as long as the closure shall be called.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message, Message.Subject: AnyObject {
        observe(Message.self, of: subject, observer)
    }

    /// Adds an asynchronous closure that is called for each message of any subject of a type.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: nil, observer)
    }

    /// Adds an asynchronous closure that is called for each message of a type; without a subject, for the messages of
    /// all subjects.
    public func addObserver<Message: AsyncMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Message.Subject: AnyObject {
        observe(Message.self, of: subject, observer)
    }

    /// Posts a message of a subject. Does not wait for the observers. Threads: any.
    public func post<Message: AsyncMessage>(_ message: Message, subject: Message.Subject)
    where Message.Subject: AnyObject {
        post(Message.makeNotification(message).carrying(message, named: Message.name, subject: subject))
    }

    /// Posts a message without a subject. Does not wait for the observers. Threads: any.
    public func post<Message: AsyncMessage>(_ message: Message) {
        post(Message.makeNotification(message).carrying(message, named: Message.name, subject: nil))
    }

    /// Returns the messages of a subject as an asynchronous sequence: each iterator receives the messages posted since
    /// its creation.
    ///
    /// - Parameter limit: the maximum number of messages that wait for an iterator, at least 1. When more arrive, the
    ///   oldest are discarded, counted in ``lostDeliveries`` and logged.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable
    where Identifier.MessageType == Message, Message.Subject: AnyObject {
        MessageSequence<Message>(center: self, subject: subject, limit: limit)
    }

    /// Returns the messages of all subjects of a type as an asynchronous sequence.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable where Identifier.MessageType == Message {
        MessageSequence<Message>(center: self, subject: nil, limit: limit)
    }

    /// Returns the messages of a type as an asynchronous sequence; without a subject, the messages of all subjects.
    public func messages<Message: AsyncMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable where Message.Subject: AnyObject {
        MessageSequence<Message>(center: self, subject: subject, limit: limit)
    }

    private func observe<Message: AsyncMessage>(
        _: Message.Type, of subject: Any?, _ observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken {
        let delivery = AsyncDelivery()
        let observation = observe(Message.name, object: subject) { notification in
            guard let message = NotificationCenter.message(Message.self, in: notification) else { return }
            let size = PayloadSize.ofEntry + PayloadSize.of(notification)
            NotificationCenter.noteLost(delivery.append(byteCount: size) { await observer(message) })
        }
        // The end of the token ends the observer and discards the messages that wait for it.
        let both = Observation {
            observation.cancel()
            delivery.end()
        }
        return ObservationToken(both, of: self)
    }

    /// Returns the message of a notification: the posted message itself, or the result of `makeMessage`.
    private static func message<Message: AsyncMessage>(_: Message.Type, in notification: Notification) -> Message? {
        notification.userInfo?[messageKey] as? Message ?? Message.makeMessage(notification)
    }

    /// The number of discarded messages, for the rate limit of the log.
    private static let timesLost = Locked<UInt64>(0)

    /// Counts and logs messages that were discarded, because their observers do not take them in time (T2).
    static func noteLost(_ count: Int) {
        guard count > 0 else { return }
        ContextDelivery.lost.add(UInt64(count), ordering: .relaxed)
        if let lostCount = timesLost.withLock({ Log.throttle(&$0, times: UInt64(count)) }) {
            Log.warning("messages are lost, because their observers do not process them in time (\(lostCount) so far)")
        }
    }

    /// The messages for one iterator, and the token of the observer that provides them.
    fileprivate struct MessageStream<Message: AsyncMessage> {
        let stream: AsyncStream<Message>
        let token: ObservationToken
    }

    /// Begins to observe messages for one iterator.
    ///
    /// - Parameter policy: the buffer of the stream, which discards the oldest messages when it is full.
    fileprivate func stream<Message: AsyncMessage>(
        of _: Message.Type, _ subject: Any?, _ policy: AsyncStream<Message>.Continuation.BufferingPolicy
    ) -> MessageStream<Message> {
        let (stream, continuation) = AsyncStream.makeStream(of: Message.self, bufferingPolicy: policy)
        let token = observeMessages(named: Message.name, of: subject) { notification in
            guard let message = NotificationCenter.message(Message.self, in: notification) else { return }
            if case .dropped = continuation.yield(message) { NotificationCenter.noteLost(1) }
        }
        return MessageStream(stream: stream, token: token)
    }

    /// An asynchronous sequence of messages. Each iterator observes from its own creation on.
    private struct MessageSequence<Message: AsyncMessage>: AsyncSequence, Sendable {
        typealias Element = Message
        typealias Failure = Never

        private let center: NotificationCenter
        private let subject: Subject
        private let limit: Int

        /// A weak reference: a sequence of an object's messages does not keep the object alive.
        private struct Subject: @unchecked Sendable {
            // Sendable: the weak reference changes only at the end of the object, which the runtime guards.
            weak var object: AnyObject?
            let isAny: Bool
        }

        init(center: NotificationCenter, subject: AnyObject?, limit: Int) {
            precondition(limit > 0, "the limit of a buffer must be positive")
            self.center = center
            self.subject = Subject(object: subject, isAny: subject == nil)
            self.limit = limit
        }

        func makeAsyncIterator() -> Iterator {
            // If the subject is gone, a new object replaces it as the sender. No message comes from that object, so the
            // iterator receives nothing.
            let object: AnyObject? = subject.isAny ? nil : subject.object ?? Gone()
            return Iterator(center.stream(of: Message.self, object, .bufferingNewest(limit)))
        }

        /// A sender without messages.
        private final class Gone: Sendable {}

        struct Iterator: AsyncIteratorProtocol {
            private var base: AsyncStream<Message>.Iterator
            private let token: ObservationToken
            private var budget = ReaderBudget()

            init(_ messages: MessageStream<Message>) {
                base = messages.stream.makeAsyncIterator()
                token = messages.token
            }

            mutating func next() async -> Message? {
                await next(isolation: nil)
            }

            mutating func next(isolation actor: isolated (any Actor)?) async -> Message? {
                await budget.begin(isolation: actor)
                return await base.next(isolation: actor)
            }
        }
    }
}
