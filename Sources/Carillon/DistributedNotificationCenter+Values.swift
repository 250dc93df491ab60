// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonDBus
import CarillonWire
import Foundation

/// Values that stay (R1 to R3): what the service keeps of a name and an object, for those who come later.
extension DistributedNotificationCenter {
    /// How long the service keeps a post as the value of its name and object, if no other one takes its place and nobody
    /// removes it.
    public struct Retention: Hashable, Sendable {
        private var goesWithPoster = false
        private var time: Duration?

        /// As long as the session's bus is there, across the life of the program and of the service.
        public static let untilReplaced = Retention()

        /// As long as this program is connected to the bus, however that ends. A name and object have one value: that of
        /// another program takes its place, and goes with that program. Each instance needs an object of its own.
        public static let whileConnected = Retention(goesWithPoster: true)

        private init(goesWithPoster: Bool = false) {
            self.goesWithPoster = goesWithPoster
        }

        /// The same, and no longer than that.
        ///
        /// - Parameter time: a second or more; parts of a second are rounded up.
        public func expiring(after time: Duration) -> Retention {
            var retention = self
            retention.time = time
            return retention
        }

        func apply(to options: inout PostOptions) throws(DistributedNotificationError) {
            options.retention = CarillonCore.Retention(whileConnected: goesWithPoster)
            guard let time else { return }
            let seconds = time.components.seconds + (time.components.attoseconds > 0 ? 1 : 0)
            guard time > .zero, let seconds = UInt32(exactly: seconds) else {
                throw .unsupportedOption(reason: "a post can't be kept for \(time)")
            }
            options.expiresAfter = seconds
        }
    }

    /// A value that the service keeps.
    public struct RetainedValue: @unchecked Sendable {
        // Sendable: what is in the notification are values, and numbers of Foundation, none of which changes any more.

        public let notification: Foundation.Notification
        /// Of who posted it: its unique name on the bus.
        public let poster: String
        /// The place among all notifications that the service accepted.
        public let serial: UInt64
        /// When it was posted.
        public let date: Date
        /// The machine that it comes from, by the word of its poster; nil where it is this one (G3).
        public let host: String?
        /// The user in whose session it was posted, by the word of its poster; nil where it is this session.
        public let user: String?
    }

    /// The values of a name, in the order in which they were posted (R3).
    ///
    /// - Parameters:
    ///   - name: nil for any.
    ///   - object: nil for whatever object; the empty string is no object of its own.
    /// - Throws: why the service does not tell.
    public func values(
        named name: Foundation.Notification.Name?, object: String? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> [RetainedValue] {
        if let name { try check(name: name) }
        let object = try text(ofObject: object)
        let kept = try await answer(to: Get(name: name?.rawValue ?? "", object: object ?? ""), isolation)
        return kept.map { value in
            let userInfo = UserInfoDecoder.decode(value.userInfo)
            return RetainedValue(
                notification: Foundation.Notification(
                    name: .init(value.name), object: value.object.isEmpty ? nil : value.object,
                    userInfo: userInfo.isEmpty ? nil : userInfo),
                poster: value.poster ?? "", serial: value.serial ?? 0,
                date: Date(timeIntervalSince1970: Double(value.time ?? 0) / 1_000_000),
                host: value.host, user: value.user)
        }
    }

    /// The value of a name and an object (R3); the newest where some are from elsewhere.
    ///
    /// - Parameter object: nil for the value of the name without an object.
    /// - Returns: nil when there is none.
    /// - Throws: why the service does not tell.
    public func value(
        named name: Foundation.Notification.Name, object: String? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> RetainedValue? {
        let values = try await values(named: name, object: object, isolation: isolation)
        return values.last { $0.notification.object as? String == (object?.isEmpty == true ? nil : object) }
    }

    /// Removes the values of a name, whoever posted them and wherever they are from. Observers are not told.
    ///
    /// - Parameter object: nil for whatever object.
    /// - Returns: how many there were.
    /// - Throws: why the service does not do it.
    @discardableResult
    public func removeValues(
        named name: Foundation.Notification.Name, object: String? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Int {
        try check(name: name)
        let object = try text(ofObject: object)
        return try await answer(to: RemoveRetained(name: name.rawValue, object: object ?? ""), isolation)
    }

    func answer<Method: CenterMethod>(
        to method: Method, _ isolation: isolated (any Actor)?
    ) async throws(DistributedNotificationError) -> Method.Reply where Method.Reply: Sendable {
        typealias Reply = Result<Method.Reply, DistributedNotificationError>
        let reply = await PendingAnswer<Reply>.of(isolation: isolation, orCancelled: .failure(.cancelled)) { answer in
            submit(.call(method) { answer.answer($0.mapError(DistributedNotificationError.init)) })
        }
        return try reply.get()
    }
}
