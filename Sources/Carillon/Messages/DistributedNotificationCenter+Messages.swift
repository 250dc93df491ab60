// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonThreadDelivery
import Foundation

/// Typed messages, with the names and the behavior of those of Foundation's center, as far as they can cross a process.
extension DistributedNotificationCenter {
    #if compiler(>=6.2)
        /// What a type of messages has to be, so that observers on other threads can be told of it.
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
    /// It is a notification as well: of ``name``, with the text of its subject as the object, and with its coded
    /// properties as userInfo, as a ``DistributedMessage``. So programs in other languages post and observe it.
    ///
    /// Within a process the post of such a message returns when its observers have run. Between processes nobody waits
    /// (D3): they run later.
    public protocol MainActorMessage: Codable, MessageMetatype {
        /// What a message is about, and what an observer may ask for.
        associatedtype Subject: MessageSubject = String

        /// The name as a notification; that of the type with its module, where nothing else is said. Programs with other
        /// modules need one that is said.
        static var name: Foundation.Notification.Name { get }
        /// The message that a notification stands for; nil when it stands for none. By default it is decoded from the
        /// userInfo.
        @MainActor static func makeMessage(_ notification: Foundation.Notification) throws -> Self?
        /// The notification that is posted, of which only the userInfo counts; by default the properties.
        @MainActor static func makeNotification(_ message: Self) throws -> Foundation.Notification
    }

    /// A message that is posted from anywhere, and observed by an asynchronous function.
    ///
    /// As a notification it is what a ``MainActorMessage`` is.
    public protocol AsyncMessage: Codable, Sendable {
        /// What a message is about, and what an observer may ask for.
        associatedtype Subject: MessageSubject = String

        /// The name as a notification; that of the type with its module, where nothing else is said. Programs with other
        /// modules need one that is said.
        static var name: Foundation.Notification.Name { get }
        /// The message that a notification stands for; nil when it stands for none. By default it is decoded from the
        /// userInfo.
        static func makeMessage(_ notification: Foundation.Notification) throws -> Self?
        /// The notification that is posted, of which only the userInfo counts; by default the properties.
        static func makeNotification(_ message: Self) throws -> Foundation.Notification
    }

    /// What a message can be about: something that has one text in every process, as no reference crosses them (N3).
    ///
    /// Strings are subjects. A type that is identified by one, or represented by one, becomes a subject by saying so:
    /// `extension Document: DistributedNotificationCenter.MessageSubject {}`.
    public protocol MessageSubject {
        /// The object of the notification; an empty one is none.
        var notificationObject: String { get }
    }

    /// Stands for a type of messages, so that it can be written as `.didStart`.
    public protocol MessageIdentifier {
        associatedtype MessageType
    }

    /// What identifiers are made of: `extension DistributedNotificationCenter.MessageIdentifier where Self ==
    /// DistributedNotificationCenter.BaseMessageIdentifier<DidStart> { static var didStart: Self { .init() } }`.
    public struct BaseMessageIdentifier<MessageType>: MessageIdentifier, Sendable {
        public init() where MessageType: MainActorMessage {}
        public init() where MessageType: AsyncMessage {}
    }

    /// An observer of messages, which lasts as long as somebody holds this.
    public typealias ObservationToken = CarillonThreadDelivery.ObservationToken

    /// Ends an observer of messages. With the token of another center nothing happens. What waits for the observer
    /// already is not delivered any more.
    public func removeObserver(_ token: ObservationToken) {
        token.end(in: self)
    }

    // MARK: For both kinds

    /// Posts what a message is as a notification; what can't be posted is logged, counted and reported.
    func postNoting(
        _ type: Any.Type, named name: Foundation.Notification.Name, subject: String?, _ options: Options,
        _ makeNotification: () throws -> Foundation.Notification
    ) {
        do throws(DistributedNotificationError) {
            let userInfo = try Self.userInfo(of: type, makeNotification)
            try send(name, object: subject, userInfo: userInfo, options: try wireOptions(options))
        } catch {
            noteRefusedPost(error)
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

    /// The message that what arrived stands for. What stands for none is logged and counted.
    func message<Message>(
        of type: Message.Type, in received: Received, _ makeMessage: (Foundation.Notification) throws -> Message?
    ) -> Message? {
        do {
            if let message = try makeMessage(received.notification) { return message }
            noteUndecodable(received, as: type, "it stands for none")
        } catch {
            noteUndecodable(received, as: type, MessageCoder.describe(error))
        }
        return nil
    }

    func noteUndecodable(_ received: Received, as type: Any.Type, _ reason: String) {
        noteUndecodable(received.arrived.name, from: received.arrived.poster.rawValue, as: type, reason)
    }

    func noteUndecodable(_ name: String, from poster: String, as type: Any.Type, _ reason: String) {
        count { $0.undecodable += 1 }
        Log.warning(
            "a notification is no \(type): \(reason)", ["CARILLON_NAME": name, "CARILLON_CLIENT": poster])
    }

    /// The name of a type, the same in all processes of a program.
    fileprivate static func name(of type: Any.Type) -> Foundation.Notification.Name {
        let name = String(reflecting: type)
        guard name.contains("(unknown context at ") else { return .init(name) }
        // That of a private type has an address in it, which is another in each process.
        return .init(name.replacing(/\(unknown context at [^)]*\)\./, with: ""))
    }
}

// MARK: - What is said where a message says nothing

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
