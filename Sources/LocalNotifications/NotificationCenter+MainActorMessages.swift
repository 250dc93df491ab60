// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Observing and posting messages of the main actor: the post waits for the observers.
extension NotificationCenter {
    /// Adds a closure that is called on the main actor for each message of a subject.
    ///
    /// - Returns: the token that keeps the observer: hold it as long as the closure shall be called.
    public func addObserver<Identifier: MessageIdentifier, Message: MainActorMessage>(
        of subject: Message.Subject, for identifier: Identifier, using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken where Identifier.MessageType == Message, Message.Subject: AnyObject {
        observe(Message.self, of: subject, observer)
    }

    /// Adds a closure that is called on the main actor for each message of any subject of a type.
    public func addObserver<Identifier: MessageIdentifier, Message: MainActorMessage>(
        of subject: Message.Subject.Type, for identifier: Identifier,
        using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken where Identifier.MessageType == Message {
        observe(Message.self, of: nil, observer)
    }

    /// Adds a closure that is called on the main actor for each message of a type; without a subject, for the messages
    /// of all subjects.
    public func addObserver<Message: MainActorMessage>(
        of subject: Message.Subject? = nil, for messageType: Message.Type,
        using observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken where Message.Subject: AnyObject {
        observe(Message.self, of: subject, observer)
    }

    /// Posts a message of a subject, and returns when its observers have run.
    @MainActor
    public func post<Message: MainActorMessage>(_ message: Message, subject: Message.Subject)
    where Message.Subject: AnyObject {
        postOnMainActor(Message.makeNotification(message).carrying(message, named: Message.name, subject: subject))
    }

    /// Posts a message without a subject, and returns when its observers have run.
    @MainActor
    public func post<Message: MainActorMessage>(_ message: Message) {
        postOnMainActor(Message.makeNotification(message).carrying(message, named: Message.name, subject: nil))
    }

    /// A mark of a thread while it posts a message. Such a thread runs the main actor, even if it is not the main
    /// thread: after `dispatchMain()` the main actor runs on other threads.
    private final class Posting: Sendable {}
    private static let posting = ThreadLocal<Posting>()

    /// Posts the notification of a message, and marks the thread meanwhile.
    @MainActor
    private func postOnMainActor(_ notification: Notification) {
        let outer = NotificationCenter.posting.value
        NotificationCenter.posting.value = outer ?? Posting()
        defer { NotificationCenter.posting.value = outer }
        post(notification)
    }

    /// Whether the calling thread runs the main actor.
    static var isMainActor: Bool { posting.value != nil || MainContext.isMainThread }

    /// Observes the messages of a subject; nil for any subject.
    private func observe<Message: MainActorMessage>(
        _: Message.Type, of subject: Any?, _ observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken {
        observeMessages(named: Message.name, of: subject) { notification in
            let notification = CrossThreadBox(notification)
            let callObserver: @Sendable () -> Void = {
                MainActor.assumeIsolated {
                    let posted = notification.value.userInfo?[NotificationCenter.messageKey] as? Message
                    if let message = posted ?? Message.makeMessage(notification.value) { observer(message) }
                }
            }
            // A message is posted on the main actor. A plain notification of its name may be posted on any thread; then
            // the observer runs later on the main thread.
            if NotificationCenter.isMainActor {
                callObserver()
            } else {
                NotificationCenter.noteLost(
                    MainThreadTarget.shared.deliver(byteCount: PayloadSize.of(notification.value), callObserver))
            }
        }
    }
}
