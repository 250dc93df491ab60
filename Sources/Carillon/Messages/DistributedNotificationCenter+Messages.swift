// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// The protocols of typed messages. Names and behavior are those of Foundation's center, as far as they apply between
/// processes. The observing and posting methods are in `+MainActorMessages` and `+AsyncMessages`.
extension DistributedNotificationCenter {
    #if compiler(>=6.2)
        /// The requirement on a message type that observers on other threads use.
        public typealias MessageMetatype = SendableMetatype
    #else
        public typealias MessageMetatype = Any
    #endif

    /// A message that is posted and observed on the main actor.
    ///
    /// ```swift
    /// struct DidOpen: DistributedNotificationCenter.MainActorMessage {
    ///     static let name = Notification.Name("com.example.DidOpen")
    ///     var pages: Int
    /// }
    ///
    /// let token = center.addObserver(for: DidOpen.self) { message in window.show(message.pages) }
    /// center.post(DidOpen(pages: 3), subject: "report.txt")
    /// ```
    ///
    /// It is also a notification with ``name``, with the text of its subject as the object, and with its encoded
    /// properties as userInfo, like a ``DistributedMessage``. Therefore programs in other languages post and observe
    /// it.
    ///
    /// Within a process, the post of such a message returns after its observers have run. Between processes the post
    /// does not wait (D3): the observers run later.
    public protocol MainActorMessage: Codable, MessageMetatype {
        /// The subject of a message, by which an observer may select messages.
        associatedtype Subject: MessageSubject = String

        /// The name of the notification. By default it is the name of the type with its module. Programs with other
        /// modules need an explicit name.
        static var name: Foundation.Notification.Name { get }
        /// Returns the message of a notification; nil if it has none. By default the message is decoded from the
        /// userInfo.
        @MainActor static func makeMessage(_ notification: Foundation.Notification) throws -> Self?
        /// Returns the notification to post, of which only the userInfo is used. By default the userInfo has the
        /// encoded properties.
        @MainActor static func makeNotification(_ message: Self) throws -> Foundation.Notification
    }

    /// A message that is posted from any thread, and observed by an asynchronous function.
    ///
    /// Its notification is that of a ``MainActorMessage``.
    public protocol AsyncMessage: Codable, Sendable {
        /// The subject of a message, by which an observer may select messages.
        associatedtype Subject: MessageSubject = String

        /// The name of the notification. By default it is the name of the type with its module. Programs with other
        /// modules need an explicit name.
        static var name: Foundation.Notification.Name { get }
        /// Returns the message of a notification; nil if it has none. By default the message is decoded from the
        /// userInfo.
        static func makeMessage(_ notification: Foundation.Notification) throws -> Self?
        /// Returns the notification to post, of which only the userInfo is used. By default the userInfo has the
        /// encoded properties.
        static func makeNotification(_ message: Self) throws -> Foundation.Notification
    }

    /// A subject of messages. It has the same text in every process, because no reference crosses processes (N3).
    ///
    /// Strings are subjects. A type whose identifier or raw value is a string becomes a subject by a declaration:
    /// `extension Document: DistributedNotificationCenter.MessageSubject {}`.
    public protocol MessageSubject {
        /// The object of the notification; an empty text stands for no object.
        var notificationObject: String { get }
    }

    /// An identifier of a message type, which can be written as `.didStart`.
    public protocol MessageIdentifier {
        associatedtype MessageType
    }

    /// The type of identifiers, declared as `extension DistributedNotificationCenter.MessageIdentifier where Self ==
    /// DistributedNotificationCenter.BaseMessageIdentifier<DidStart> { static var didStart: Self { .init() } }`.
    public struct BaseMessageIdentifier<MessageType>: MessageIdentifier, Sendable {
        public init() where MessageType: MainActorMessage {}
        public init() where MessageType: AsyncMessage {}
    }

    /// The token of an observer of messages. The observer ends when the last copy of the token is released.
    public typealias ObservationToken = CarillonThreadDelivery.ObservationToken

    /// Ends an observer of messages. A token of another center has no effect. Messages that already wait for the
    /// observer are not delivered.
    public func removeObserver(_ token: ObservationToken) {
        token.end(in: self)
    }

    // MARK: Both kinds of messages

    /// Posts the notification of a message. A post that is refused is logged, counted and reported.
    ///
    /// - Parameter makeNotification: returns the notification of the message, of which only the userInfo is used.
    func postOrReport(
        _ type: Any.Type, named name: Foundation.Notification.Name, subject: String?, _ options: Options,
        _ makeNotification: () throws -> Foundation.Notification
    ) {
        do throws(DistributedNotificationError) {
            let userInfo = try Self.userInfo(of: type, makeNotification)
            try send(name, object: subject, userInfo: userInfo, options: try wireOptions(options))
        } catch {
            reportRefusedPost(error)
        }
    }

    private static func userInfo(
        of type: Any.Type, _ makeNotification: () throws -> Foundation.Notification
    ) throws(DistributedNotificationError) -> [AnyHashable: Any]? {
        do {
            return try makeNotification().userInfo
        } catch let error as DistributedNotificationError {
            throw error
        } catch {
            throw .encodingFailed(type: "\(type)", reason: "\(error)")
        }
    }

    /// Returns the message of a received notification. A notification without a message is logged and counted, and the
    /// result is nil.
    func message<Message>(
        of type: Message.Type, in received: ReceivedNotification,
        _ makeMessage: (Foundation.Notification) throws -> Message?
    ) -> Message? {
        do {
            if let message = try makeMessage(received.notification) { return message }
            noteUndecodable(received, as: type, "its type returned no message for the notification")
        } catch {
            noteUndecodable(received, as: type, MessageCoder.describe(error))
        }
        return nil
    }

    /// Counts and logs a notification that is not a message of the expected type.
    func noteUndecodable(_ received: ReceivedNotification, as type: Any.Type, _ reason: String) {
        noteUndecodable(received.arrived.name, from: received.arrived.poster.rawValue, as: type, reason)
    }

    func noteUndecodable(_ name: String, from poster: String, as type: Any.Type, _ reason: String) {
        count { $0.undecodable += 1 }
        Log.warning(
            "a notification is not a \(type): \(reason)", ["CARILLON_NAME": name, "CARILLON_CLIENT": poster])
    }

    /// Returns the default name of a message type: the name of the type with its module. It is the same in all
    /// processes of a program.
    fileprivate static func name(of type: Any.Type) -> Foundation.Notification.Name {
        let name = String(reflecting: type)
        guard name.contains("(unknown context at ") else { return .init(name) }
        // The name of a private type contains an address, which differs between processes.
        return .init(name.replacing(/\(unknown context at [^)]*\)\./, with: ""))
    }
}

// MARK: - Default implementations

extension DistributedNotificationCenter.MainActorMessage {
    public static var name: Foundation.Notification.Name { DistributedNotificationCenter.name(of: Self.self) }

    @MainActor public static func makeMessage(_ notification: Foundation.Notification) throws -> Self? {
        try MessageCoder.message(Self.self, from: notification)
    }

    @MainActor public static func makeNotification(_ message: Self) throws -> Foundation.Notification {
        Foundation.Notification(name: name, object: nil, userInfo: try MessageCoder.userInfo(of: message))
    }
}

extension DistributedNotificationCenter.AsyncMessage {
    public static var name: Foundation.Notification.Name { DistributedNotificationCenter.name(of: Self.self) }

    public static func makeMessage(_ notification: Foundation.Notification) throws -> Self? {
        try MessageCoder.message(Self.self, from: notification)
    }

    public static func makeNotification(_ message: Self) throws -> Foundation.Notification {
        Foundation.Notification(name: name, object: nil, userInfo: try MessageCoder.userInfo(of: message))
    }
}

extension String: DistributedNotificationCenter.MessageSubject {
    /// The text itself.
    public var notificationObject: String { self }
}

extension DistributedNotificationCenter.MessageSubject where Self: Identifiable, ID == String {
    public var notificationObject: String { id }
}

extension DistributedNotificationCenter.MessageSubject where Self: RawRepresentable, RawValue == String {
    public var notificationObject: String { rawValue }
}
