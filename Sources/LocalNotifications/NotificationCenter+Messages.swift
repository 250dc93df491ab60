// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

#if compiler(>=6.2)
    /// The metatype requirement of messages, so that their types can be used by observers on other threads.
    public typealias MessageMetatype = SendableMetatype
#else
    public typealias MessageMetatype = Any
#endif

/// Typed messages, with the names and the behavior of the messages of Foundation's center. A message travels through
/// the center inside a notification: in its userInfo, under ``messageKey``. The observing and posting methods are in
/// `+MainActorMessages` and `+AsyncMessages`.
extension NotificationCenter {
    /// A message that is posted and observed on the main actor: the post returns when the observers have run.
    ///
    /// A message is also a notification with the name ``name`` and the subject as its object. A type that implements
    /// ``makeMessage(_:)`` and ``makeNotification(_:)`` exchanges messages with code that posts and observes plain
    /// notifications of that name.
    public protocol MainActorMessage: MessageMetatype {
        /// The subject of a message: an object that posts it, and that an observer may select.
        associatedtype Subject

        /// The name of the message as a notification. The default is the name of the type.
        static var name: Notification.Name { get }
        /// Returns the message for a notification; nil when the notification stands for none. The default returns nil.
        @MainActor static func makeMessage(_ notification: Notification) -> Self?
        /// Returns the notification that observers of notifications receive. The default has only the name.
        @MainActor static func makeNotification(_ message: Self) -> Notification
    }

    /// A message that is posted on any thread and observed asynchronously: the post does not wait.
    public protocol AsyncMessage: Sendable {
        /// The subject of a message: an object that posts it, and that an observer may select.
        associatedtype Subject

        /// The name of the message as a notification. The default is the name of the type.
        static var name: Notification.Name { get }
        /// Returns the message for a notification; nil when the notification stands for none. The default returns nil.
        static func makeMessage(_ notification: Notification) -> Self?
        /// Returns the notification that observers of notifications receive. The default has only the name.
        static func makeNotification(_ message: Self) -> Notification
    }

    /// An identifier of a type of messages, which can be written as `.didStart`.
    public protocol MessageIdentifier {
        associatedtype MessageType
    }

    /// The type of identifiers. A program declares an identifier of its message `DidStart` like this:
    ///
    /// ```swift
    /// extension NotificationCenter.MessageIdentifier
    /// where Self == NotificationCenter.BaseMessageIdentifier<DidStart> {
    ///     static var didStart: Self { .init() }
    /// }
    /// ```
    public struct BaseMessageIdentifier<MessageType>: MessageIdentifier, Sendable {
        public init() where MessageType: MainActorMessage {}
        public init() where MessageType: AsyncMessage {}
    }

    /// The token of an observer of messages. The observer lasts as long as the program holds the token.
    public typealias ObservationToken = CarillonThreadDelivery.ObservationToken

    /// Ends an observer of messages. The token of another center has no effect.
    public func removeObserver(_ token: ObservationToken) {
        token.end(in: self)
    }

    /// The userInfo key under which a notification carries the message itself, so that observers need not decode it.
    static var messageKey: AnyHashable { AnyHashable(MessageKey()) }

    private struct MessageKey: Hashable, Sendable {}

    /// Observes the notifications of a message as long as the token exists.
    ///
    /// - Parameter handler: the block that is called for each of them, on the posting thread.
    func observeMessages(
        named name: Notification.Name, of subject: Any?, _ handler: @escaping @Sendable (Notification) -> Void
    ) -> ObservationToken {
        ObservationToken(observe(name, object: subject, using: handler), of: self)
    }
}

// Default implementations.
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
    /// The same notification with the name and the subject of a message, and with the message in its userInfo.
    func carrying(_ message: Any, named name: Notification.Name, subject: Any?) -> Notification {
        var userInfo = userInfo ?? [:]
        userInfo[NotificationCenter.messageKey] = message
        return Notification(name: name, object: subject, userInfo: userInfo)
    }
}
