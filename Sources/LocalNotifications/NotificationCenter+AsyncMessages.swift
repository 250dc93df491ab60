// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Messages that are heard later.
extension NotificationCenter {
    /// Has an asynchronous closure called for each message of a subject, one after the other, in the order of the posts.
    ///
    /// What it has not taken yet is bounded as deliveries are, in number and in bytes: the oldest go first, counted in
    /// ``lostDeliveries`` and logged (T2). What runs when the observer ends goes on to its own end.
    ///
    /// - Returns: what keeps the observer: hold it as long as messages are to be heard.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message, Message.Subject: AnyObject {
        observe(Message.self, of: subject, observer)
    }

    /// The same for the messages of all subjects of a type.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: nil, observer)
    }

    /// The same by the type of the message; without a subject for all.
    public func addObserver<Message: AsyncMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Message.Subject: AnyObject {
        observe(Message.self, of: subject, observer)
    }

    /// Posts a message of a subject. Threads: any.
    public func post<Message: AsyncMessage>(_ message: Message, subject: Message.Subject)
    where Message.Subject: AnyObject {
        post(Message.makeNotification(message).carrying(message, named: Message.name, subject: subject))
    }

    /// Posts a message of no subject in particular. Threads: any.
    public func post<Message: AsyncMessage>(_ message: Message) {
        post(Message.makeNotification(message).carrying(message, named: Message.name, subject: nil))
    }

    /// The messages of a subject as an asynchronous sequence: each iterator hears what is posted from its making on.
    ///
    /// - Parameter limit: how many may wait for an iterator; when there are more, the oldest go.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable
    where Identifier.MessageType == Message, Message.Subject: AnyObject {
        MessageSequence<Message>(center: self, subject: subject, limit: limit)
    }

    /// The same for the messages of all subjects of a type.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable where Identifier.MessageType == Message {
        MessageSequence<Message>(center: self, subject: nil, limit: limit)
    }

    /// The same by the type of the message; without a subject for all.
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
        let both = Observation {
            observation.cancel()
            delivery.end()
        }
        return ObservationToken(both, of: self)
    }

    private static func message<Message: AsyncMessage>(_: Message.Type, in notification: Notification) -> Message? {
        notification.userInfo?[messageKey] as? Message ?? Message.makeMessage(notification)
    }

    private static let timesLost = Locked<UInt64>(0)

    /// Some had no room, because their observers do not take them in time (T2).
    static func noteLost(_ count: Int) {
        guard count > 0 else { return }
        ContextDelivery.lost.add(UInt64(count), ordering: .relaxed)
        if let told = timesLost.withLock({ Log.throttle(&$0, times: UInt64(count)) }) {
            Log.warning("messages are lost, as their observers do not take them in time (\(told) so far)")
        }
    }

    fileprivate struct MessageStream<Message: AsyncMessage> {
        let stream: AsyncStream<Message>
        let token: ObservationToken
    }

    fileprivate func stream<Message: AsyncMessage>(
        of _: Message.Type, _ subject: Any?, _ policy: AsyncStream<Message>.Continuation.BufferingPolicy
    ) -> MessageStream<Message> {
        let (stream, continuation) = AsyncStream.makeStream(of: Message.self, bufferingPolicy: policy)
        let token = observeMessages(named: Message.name, of: subject) { notification in
            if let message = NotificationCenter.message(Message.self, in: notification) { continuation.yield(message) }
        }
        return MessageStream(stream: stream, token: token)
    }

    private struct MessageSequence<Message: AsyncMessage>: AsyncSequence, Sendable {
        typealias Element = Message
        typealias Failure = Never

        private let center: NotificationCenter
        private let subject: Subject
        private let limit: Int

        /// Held weakly: who waits for messages of an object does not keep it.
        private struct Subject: @unchecked Sendable {
            // Sendable: the weak reference never changes but by the end of the object, which the runtime guards.
            weak var object: AnyObject?
            let isAny: Bool
        }

        init(center: NotificationCenter, subject: AnyObject?, limit: Int) {
            precondition(limit > 0, "a buffer for nothing would lose everything")
            self.center = center
            self.subject = Subject(object: subject, isAny: subject == nil)
            self.limit = limit
        }

        func makeAsyncIterator() -> Iterator {
            // Of an object that is over nothing comes: an object that nobody else has stands for it.
            let object: AnyObject? = subject.isAny ? nil : subject.object ?? Gone()
            return Iterator(center.stream(of: Message.self, object, .bufferingNewest(limit)))
        }

        private final class Gone: Sendable {}

        struct Iterator: AsyncIteratorProtocol {
            private var base: AsyncStream<Message>.Iterator
            private let token: ObservationToken
            private var turn = ReaderTurn()

            init(_ messages: MessageStream<Message>) {
                base = messages.stream.makeAsyncIterator()
                token = messages.token
            }

            mutating func next() async -> Message? {
                await next(isolation: nil)
            }

            mutating func next(isolation actor: isolated (any Actor)?) async -> Message? {
                await turn.begin(isolation: actor)
                return await base.next(isolation: actor)
            }
        }
    }
}
