// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Messages on the main actor.
extension DistributedNotificationCenter {
    /// Has a closure called on the main actor for each message of a subject.
    ///
    /// It runs on the main thread, whatever ``defaultDelivery`` is, so the program has to run one of its loops.
    ///
    /// - Parameter suspensionBehavior: what happens to messages while the program is suspended.
    /// - Returns: what keeps the observer: hold it as long as messages are to be heard.
    public func addObserver<Identifier: MessageIdentifier, Message: MainActorMessage>(
        of subject: Message.Subject, for identifier: Identifier, suspensionBehavior: SuspensionBehavior = .coalesce,
        using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: subject.notificationObject, suspensionBehavior, observer)
    }

    /// The same for the messages of all subjects of a type, and those of none.
    public func addObserver<Identifier: MessageIdentifier, Message: MainActorMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        suspensionBehavior: SuspensionBehavior = .coalesce, using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: nil, suspensionBehavior, observer)
    }

    /// The same by the type of the message; without a subject for all.
    public func addObserver<Message: MainActorMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        suspensionBehavior: SuspensionBehavior = .coalesce, using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken {
        observe(Message.self, of: subject?.notificationObject, suspensionBehavior, observer)
    }

    /// Posts a message of a subject, and returns at once.
    ///
    /// What can't be posted is logged, counted and reported as an ``Event``.
    @MainActor
    public func post<Message: MainActorMessage>(
        _ message: Message, subject: Message.Subject, options: Options = []
    ) {
        post(message, of: subject.notificationObject, options)
    }

    /// The same for a message of no subject in particular.
    @MainActor
    public func post<Message: MainActorMessage>(_ message: Message, options: Options = []) {
        post(message, of: nil, options)
    }

    @MainActor
    private func post<Message: MainActorMessage>(_ message: Message, of subject: String?, _ options: Options) {
        postNoting(Message.self, named: Message.name, subject: subject, options) {
            try Message.makeNotification(message)
        }
    }

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
