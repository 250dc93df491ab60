// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Observing and posting messages of the main actor.
extension DistributedNotificationCenter {
    /// Calls a closure on the main actor with each message of a subject.
    ///
    /// The closure runs on the main thread, regardless of ``defaultDelivery``, so the program has to run one of its
    /// loops.
    ///
    /// - Parameter suspensionBehavior: the treatment of messages while the program is suspended.
    /// - Returns: the token of the observer. Keep it for as long as the observer shall receive messages.
    public func addObserver<Identifier: MessageIdentifier, Message: MainActorMessage>(
        of subject: Message.Subject, for identifier: Identifier, suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: subject.notificationObject, suspensionBehavior, observer)
    }

    /// Calls a closure with the messages of all subjects of a type, and with messages without a subject. Otherwise like
    /// the variant for one subject.
    public func addObserver<Identifier: MessageIdentifier, Message: MainActorMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        suspensionBehavior: SuspensionBehavior = .coalesce, using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: nil, suspensionBehavior, observer)
    }

    /// Calls a closure with the messages of a message type. Without a subject, it receives those of all subjects.
    /// Otherwise like the variant with an identifier.
    public func addObserver<Message: MainActorMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        suspensionBehavior: SuspensionBehavior = .coalesce, using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken {
        observe(Message.self, of: subject?.notificationObject, suspensionBehavior, observer)
    }

    /// Posts a message of a subject, and returns at once.
    ///
    /// A post that is refused is logged, counted and reported as an ``Event``.
    @MainActor
    public func post<Message: MainActorMessage>(
        _ message: Message, subject: Message.Subject, options: Options = []
    ) {
        post(message, of: subject.notificationObject, options)
    }

    /// Posts a message without a subject, and returns at once. A post that is refused is logged, counted and reported
    /// as an ``Event``.
    @MainActor
    public func post<Message: MainActorMessage>(_ message: Message, options: Options = []) {
        post(message, of: nil, options)
    }

    /// Posts a message of a subject, or of none.
    @MainActor
    private func post<Message: MainActorMessage>(_ message: Message, of subject: String?, _ options: Options) {
        postOrReport(Message.self, named: Message.name, subject: subject, options) {
            try Message.makeNotification(message)
        }
    }

    /// Observes the messages of a subject; nil for all subjects.
    private func observe<Message: MainActorMessage>(
        _ type: Message.Type, of subject: String?, _ behavior: SuspensionBehavior,
        _ observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken {
        let observation = observation(
            name: type.name, object: subject, suspensionBehavior: behavior, on: MainThreadTarget.shared
        ) { [weak self] received in
            MainActor.assumeIsolated {
                let message = self?.message(of: type, in: received) { try Message.makeMessage($0) }
                if let message { observer(message) }
            }
        }
        return ObservationToken(observation, of: self)
    }
}
