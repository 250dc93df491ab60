// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Observing and posting messages that asynchronous functions receive, on any executor, and sequences of them.
extension DistributedNotificationCenter {
    /// Calls an asynchronous closure with each message of a subject, one after the other, in their order.
    ///
    /// Messages that wait for the closure are bounded: the oldest are dropped, which is counted, logged and reported as
    /// `Gap.overflow` (T2). The program need not run a loop. In the closure, ``Origin/current`` is the origin of the
    /// message.
    ///
    /// - Parameter suspensionBehavior: the treatment of messages while the program is suspended.
    /// - Returns: the token of the observer. Keep it for as long as the observer shall receive messages.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier, suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: subject.notificationObject, suspensionBehavior, observer)
    }

    /// Calls a closure with the messages of all subjects of a type, and with messages without a subject. Otherwise like
    /// the variant for one subject.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: nil, suspensionBehavior, observer)
    }

    /// Calls a closure with the messages of a message type. Without a subject, it receives those of all subjects.
    /// Otherwise like the variant with an identifier.
    public func addObserver<Message: AsyncMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken {
        observe(Message.self, of: subject?.notificationObject, suspensionBehavior, observer)
    }

    /// Posts a message of a subject, and returns at once. Threads: any.
    ///
    /// A post that is refused is logged, counted and reported as an ``Event``.
    public func post<Message: AsyncMessage>(_ message: Message, subject: Message.Subject, options: Options = []) {
        post(message, of: subject.notificationObject, options)
    }

    /// Posts a message without a subject, and returns at once. A post that is refused is logged, counted and reported
    /// as an ``Event``.
    public func post<Message: AsyncMessage>(_ message: Message, options: Options = []) {
        post(message, of: nil, options)
    }

    /// Returns an asynchronous sequence of the messages of a subject. Each iterator receives the messages from its
    /// creation on.
    ///
    /// - Parameters:
    ///   - suspensionBehavior: the treatment of messages while the program is suspended.
    ///   - limit: the maximum number of messages that wait for an iterator, greater than zero. Beyond it the oldest are
    ///     dropped, which is counted, logged and reported as `Gap.overflow`.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier, suspensionBehavior: SuspensionBehavior = .coalesce,
        bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable where Identifier.MessageType == Message {
        MessageSequence<Message>(self, subject.notificationObject, suspensionBehavior, limit)
    }

    /// Returns an asynchronous sequence of the messages of all subjects of a type, and of messages without a subject.
    /// Otherwise like the variant for one subject.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        suspensionBehavior: SuspensionBehavior = .coalesce, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable where Identifier.MessageType == Message {
        MessageSequence<Message>(self, nil, suspensionBehavior, limit)
    }

    /// Returns an asynchronous sequence of the messages of a message type. Without a subject, it has those of all
    /// subjects. Otherwise like the variant with an identifier.
    public func messages<Message: AsyncMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        suspensionBehavior: SuspensionBehavior = .coalesce, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable {
        MessageSequence<Message>(self, subject?.notificationObject, suspensionBehavior, limit)
    }

    /// Posts a message of a subject, or of none.
    private func post<Message: AsyncMessage>(_ message: Message, of subject: String?, _ options: Options) {
        postOrReport(Message.self, named: Message.name, subject: subject, options) {
            try Message.makeNotification(message)
        }
    }

    /// Returns the message of a notification; nil if it has none, which is logged and counted.
    private func message<Message: AsyncMessage>(of type: Message.Type, in received: ReceivedNotification) -> Message? {
        message(of: type, in: received) { try type.makeMessage($0) }
    }

    /// Observes the messages of a subject; nil for all subjects.
    private func observe<Message: AsyncMessage>(
        _ type: Message.Type, of subject: String?, _ behavior: SuspensionBehavior,
        _ observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken {
        let delivery = AsyncDelivery()
        let observation = observation(
            name: type.name, object: subject, suspensionBehavior: behavior, on: DirectTarget()
        ) { [weak self] received in
            // The message is decoded in the observer's task, because the program's decoding must not run on the bus
            // thread.
            let lost = delivery.append(byteCount: received.byteCount) { [weak self] in
                guard let message = self?.message(of: type, in: received) else { return }
                await Origin.$current.withValue(received.origin) { await observer(message) }
            }
            self?.noteOverflow(lost)
        }
        // The end of the token ends the observer and discards the messages that wait for it.
        let both = Observation {
            observation.cancel()
            delivery.end()
        }
        return ObservationToken(both, of: self)
    }

    /// An asynchronous sequence of messages. Each iterator observes from its own creation on.
    private struct MessageSequence<Message: AsyncMessage>: AsyncSequence, Sendable {
        typealias Element = Message
        typealias Failure = Never

        private let center: DistributedNotificationCenter
        private let subject: String?
        private let behavior: SuspensionBehavior
        private let limit: Int

        init(
            _ center: DistributedNotificationCenter, _ subject: String?, _ behavior: SuspensionBehavior, _ limit: Int
        ) {
            precondition(limit > 0, "the limit of a buffer must be positive")
            self.center = center
            self.subject = subject
            self.behavior = behavior
            self.limit = limit
        }

        func makeAsyncIterator() -> DecodedMessages<Message> {
            let reader = center.reader(
                name: Message.name, object: subject, suspensionBehavior: behavior, bufferLimit: limit)
            return DecodedMessages(reader) { [weak center] in center?.message(of: Message.self, in: $0) }
        }
    }
}

/// An iterator over the messages of received notifications. It decodes them in the reader's task, because the program's
/// decoding must not run on the bus thread. Notifications that cannot be decoded are skipped.
struct DecodedMessages<Message: Sendable>: AsyncIteratorProtocol {
    typealias Element = Message
    typealias Failure = Never

    private let reader: Readers<ReceivedNotification>.Reader
    private let decode: @Sendable (ReceivedNotification) -> Message?
    private var budget = ReaderBudget()

    init(_ reader: Readers<ReceivedNotification>.Reader, decode: @escaping @Sendable (ReceivedNotification) -> Message?)
    {
        self.reader = reader
        self.decode = decode
    }

    mutating func next() async -> Message? {
        await next(isolation: nil)
    }

    mutating func next(isolation actor: isolated (any Actor)?) async -> Message? {
        while true {
            await budget.begin(isolation: actor)
            guard let received = await reader.next(isolation: actor) else { return nil }
            if let message = decode(received) { return message }
        }
    }
}
