// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

#if compiler(>=6.2)
    /// What a type of messages has to be, so that observers on other threads can be told of it.
    public typealias MessageMetatype = SendableMetatype
#else
    public typealias MessageMetatype = Any
#endif

/// Typed messages, with the names and the behavior of those of Foundation's center.
extension NotificationCenter {
    /// A message that is posted and observed on the main actor: the post returns when the observers have run.
    ///
    /// It is a notification as well: of ``name``, with the subject as its object. A conformance that converts the one
    /// into the other is understood by those who post and observe notifications of that name, too.
    public protocol MainActorMessage: MessageMetatype {
        /// What a message is about: an object that posts it, and that an observer may ask for.
        associatedtype Subject

        /// The name as a notification; the name of the type, where nothing else is said.
        static var name: Notification.Name { get }
        /// The message that a notification stands for; nil when it stands for none.
        @MainActor static func makeMessage(_ notification: Notification) -> Self?
        /// What those hear that observe the notification.
        @MainActor static func makeNotification(_ message: Self) -> Notification
    }

    /// A message that is posted from anywhere, and observed later: the post does not wait.
    public protocol AsyncMessage: Sendable {
        /// What a message is about: an object that posts it, and that an observer may ask for.
        associatedtype Subject

        /// The name as a notification; the name of the type, where nothing else is said.
        static var name: Notification.Name { get }
        /// The message that a notification stands for; nil when it stands for none.
        static func makeMessage(_ notification: Notification) -> Self?
        /// What those hear that observe the notification.
        static func makeNotification(_ message: Self) -> Notification
    }

    /// Stands for a type of messages, so that it can be written as `.didStart`.
    public protocol MessageIdentifier {
        associatedtype MessageType
    }

    /// What identifiers are made of: `extension NotificationCenter.MessageIdentifier where Self ==
    /// NotificationCenter.BaseMessageIdentifier<DidStart> { static var didStart: Self { .init() } }`.
    public struct BaseMessageIdentifier<MessageType>: MessageIdentifier, Sendable {
        public init() where MessageType: MainActorMessage {}
        public init() where MessageType: AsyncMessage {}
    }

    /// An observer of messages, which lasts as long as somebody holds this.
    public typealias ObservationToken = CarillonThreadDelivery.ObservationToken

    /// Ends an observer of messages. With the token of another center nothing happens.
    public func removeObserver(_ token: ObservationToken) {
        token.end(in: self)
    }

    /// The key in userInfo under which the message itself goes.
    static var messageKey: AnyHashable { AnyHashable(MessageKey()) }

    private struct MessageKey: Hashable, Sendable {}

    /// Observes the notifications of a message, for as long as the token lives.
    func observeMessages(
        named name: Notification.Name, of subject: Any?, _ heard: @escaping @Sendable (Notification) -> Void
    ) -> ObservationToken {
        ObservationToken(observe(name, object: subject, using: heard), of: self)
    }
}

extension NotificationCenter.MainActorMessage {
    public static var name: Notification.Name { Notification.Name(String(reflecting: Self.self)) }
    @MainActor public static func makeMessage(_ notification: Notification) -> Self? { nil }
    @MainActor public static func makeNotification(_ message: Self) -> Notification { Notification(name: name) }
}

extension NotificationCenter.AsyncMessage {
    public static var name: Notification.Name { Notification.Name(String(reflecting: Self.self)) }
    public static func makeMessage(_ notification: Notification) -> Self? { nil }
    public static func makeNotification(_ message: Self) -> Notification { Notification(name: name) }
}

extension Notification {
    /// The same as that of a message: with its name, its subject, and itself.
    func carrying(_ message: Any, named name: Notification.Name, subject: Any?) -> Notification {
        var userInfo = userInfo ?? [:]
        userInfo[NotificationCenter.messageKey] = message
        return Notification(name: name, object: subject, userInfo: userInfo)
    }
}
