// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Messages on the main actor.
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

    /// A mark of the thread that posts a message. During the post this is the main actor's thread, whichever thread
    /// that is.
    private final class Posting: Sendable {}
    private static let posting = ThreadLocal<Posting>()

    @MainActor
    private func postOnMainActor(_ notification: Notification) {
        let outer = NotificationCenter.posting.value
        NotificationCenter.posting.value = outer ?? Posting()
        defer { NotificationCenter.posting.value = outer }
        post(notification)
    }

    /// Whether the calling thread is the main actor's.
    static var isMainActor: Bool { posting.value != nil || MainContext.isMainThread }

    private func observe<Message: MainActorMessage>(
        _: Message.Type, of subject: Any?, _ observer: @escaping @MainActor (Message) -> Void
    ) -> ObservationToken {
        observeMessages(named: Message.name, of: subject) { notification in
            let notification = Carried(notification)
            let hear: @Sendable () -> Void = {
                MainActor.assumeIsolated {
                    let posted = notification.value.userInfo?[NotificationCenter.messageKey] as? Message
                    if let message = posted ?? Message.makeMessage(notification.value) { observer(message) }
                }
            }
            // A message arrives on the main thread; a notification of its name may be posted on any thread.
            if NotificationCenter.isMainActor {
                hear()
            } else {
                NotificationCenter.noteLost(
                    MainThreadTarget.shared.deliver(byteCount: PayloadSize.of(notification.value), hear))
            }
        }
    }
}
