// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Messages that are heard by asynchronous functions, wherever those run.
extension DistributedNotificationCenter {
    /// Has an asynchronous closure called for each message of a subject, one after the other, in their order.
    ///
    /// What it has not taken yet is bounded as deliveries are: the oldest go first, which is counted, logged and
    /// reported as `Gap.overflow` (T2). It needs no loop. In it ``Origin/current`` says where the message is from.
    ///
    /// - Parameter suspensionBehavior: what happens to messages while the program is suspended.
    /// - Returns: what keeps the observer: hold it as long as messages are to be heard.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier, suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: subject.notificationObject, suspensionBehavior, observer)
    }

    /// The same for the messages of all subjects of a type, and those of none.
    public func addObserver<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: nil, suspensionBehavior, observer)
    }

    /// The same by the type of the message; without a subject for all.
    public func addObserver<Message: AsyncMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken {
        observe(Message.self, of: subject?.notificationObject, suspensionBehavior, observer)
    }

    /// Posts a message of a subject, and returns at once. Threads: any.
    ///
    /// What can't be posted is logged, counted and reported as an ``Event``.
    public func post<Message: AsyncMessage>(_ message: Message, subject: Message.Subject, options: Options = []) {
        post(message, of: subject.notificationObject, options)
    }

    /// The same for a message of no subject in particular.
    public func post<Message: AsyncMessage>(_ message: Message, options: Options = []) {
        post(message, of: nil, options)
    }

    /// The messages of a subject as an asynchronous sequence: each iterator hears what is posted from its making on.
    ///
    /// - Parameters:
    ///   - suspensionBehavior: what happens to messages while the program is suspended.
    ///   - limit: how many may wait for an iterator. Beyond it the oldest go, which is counted, logged and reported as
    ///     `Gap.overflow`.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject, for identifier: Identifier, suspensionBehavior: SuspensionBehavior = .coalesce,
        bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable where Identifier.MessageType == Message {
        MessageSequence<Message>(self, subject.notificationObject, suspensionBehavior, limit)
    }

    /// The same for the messages of all subjects of a type, and those of none.
    public func messages<Identifier: MessageIdentifier, Message: AsyncMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        suspensionBehavior: SuspensionBehavior = .coalesce, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable where Identifier.MessageType == Message {
        MessageSequence<Message>(self, nil, suspensionBehavior, limit)
    }

    /// The same by the type of the message; without a subject for all.
    public func messages<Message: AsyncMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        suspensionBehavior: SuspensionBehavior = .coalesce, bufferSize limit: Int = 10
    ) -> some AsyncSequence<Message, Never> & Sendable {
        MessageSequence<Message>(self, subject?.notificationObject, suspensionBehavior, limit)
    }

    private func post<Message: AsyncMessage>(_ message: Message, of subject: String?, _ options: Options) {
        postNoting(Message.self, named: Message.name, subject: subject, options) {
            try Message.makeNotification(message)
        }
    }

    private func message<Message: AsyncMessage>(of type: Message.Type, in received: Received) -> Message? {
        message(of: type, in: received) { try type.makeMessage($0) }
    }

    private func observe<Message: AsyncMessage>(
        _ type: Message.Type, of subject: String?, _ behavior: SuspensionBehavior,
        _ observer: @escaping @Sendable (Message) async -> Void
    ) -> ObservationToken {
        let delivery = AsyncDelivery()
        let observation = observation(
            name: type.name, object: subject, suspensionBehavior: behavior, on: DirectTarget()
        ) { [weak self] received in
            // Decoded in the task: code of the program has no place on the bus thread.
            let lost = delivery.append(byteCount: received.byteCount) { [weak self] in
                guard let message = self?.message(of: type, in: received) else { return }
                await Origin.$current.withValue(received.origin) { await observer(message) }
            }
            self?.noteOverflow(lost)
        }
        let both = Observation {
            observation.cancel()
            delivery.end()
        }
        return ObservationToken(both, of: self)
    }

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
            precondition(limit > 0, "a buffer for nothing would lose everything")
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

/// The messages in what arrives, decoded where the reader runs: code of the program has no place on the bus
/// thread. What is no message is passed over.
struct DecodedMessages<Message: Sendable>: AsyncIteratorProtocol {
    typealias Element = Message
    typealias Failure = Never

    private let reader: Readers<Received>.Reader
    private let decode: @Sendable (Received) -> Message?
    private var turn = ReaderTurn()

    init(_ reader: Readers<Received>.Reader, decode: @escaping @Sendable (Received) -> Message?) {
        self.reader = reader
        self.decode = decode
    }

    mutating func next() async -> Message? {
        await next(isolation: nil)
    }

    mutating func next(isolation actor: isolated (any Actor)?) async -> Message? {
        while true {
            await turn.begin(isolation: actor)
            guard let received = await reader.next(isolation: actor) else { return nil }
            if let message = decode(received) { return message }
        }
    }
}
