// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonDBus
import CarillonWire
import Foundation

/// Retained values (R1 to R3): reading and removing them. The service keeps the newest retained post of a name and an
/// object as their value, for programs that start later.
extension DistributedNotificationCenter {
    /// The time for which the service keeps a post as the value of its name and object. A newer retained post, or a
    /// removal, ends it earlier.
    public struct Retention: Hashable, Sendable {
        /// Whether the value ends when its poster leaves the bus.
        private var endsWithPoster = false
        /// The maximum time; nil for none.
        private var time: Duration?

        /// Keeps the value as long as the session's bus exists. The value survives the end of the program and of the
        /// service.
        public static let untilReplaced = Retention()

        /// Keeps the value as long as this program is connected to the bus, and ends it however the connection ends.
        ///
        /// A name and object have one value. A value of another program replaces it, and ends with that program.
        /// Therefore each instance needs an object of its own.
        public static let whileConnected = Retention(endsWithPoster: true)

        private init(endsWithPoster: Bool = false) {
            self.endsWithPoster = endsWithPoster
        }

        /// Returns this retention with a maximum time.
        ///
        /// - Parameter time: the maximum time, greater than zero; rounded up to whole seconds.
        public func expiring(after time: Duration) -> Retention {
            var retention = self
            retention.time = time
            return retention
        }

        /// Sets the retention in the options of a post.
        func apply(to options: inout PostOptions) throws(DistributedNotificationError) {
            options.retention = CarillonCore.Retention(whileConnected: endsWithPoster)
            guard let time else { return }
            let seconds = time.components.seconds + (time.components.attoseconds > 0 ? 1 : 0)
            guard time > .zero, let seconds = UInt32(exactly: seconds) else {
                throw .unsupportedOption(reason: "a post can't be retained for \(time)")
            }
            options.expiresAfter = seconds
        }
    }

    /// A retained value of the service.
    public struct RetainedValue: @unchecked Sendable {
        // Sendable: the notification contains values and numbers of Foundation, which do not change.

        public let notification: Foundation.Notification
        /// The unique name of the poster on the bus.
        public let poster: String
        /// The number of the notification among all that the service has accepted.
        public let serial: UInt64
        /// The time of the post.
        public let date: Date
        /// The machine of origin, as its poster states; nil for this machine (G3).
        public let host: String?
        /// The user in whose session it was posted, as its poster states; nil for this session.
        public let user: String?
    }

    /// Returns the values of a name, in the order in which they were posted (R3).
    ///
    /// - Parameters:
    ///   - name: the name; nil for any.
    ///   - object: the object; nil and the empty string stand for any.
    /// - Throws: the reason why the service did not answer with the values.
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

    /// Returns the value of a name and an object (R3). If there are values of several origins, it is the newest.
    ///
    /// - Parameter object: the object; nil for the value without an object.
    /// - Returns: the value; nil if there is none.
    /// - Throws: the reason why the service did not answer with the value.
    public func value(
        named name: Foundation.Notification.Name, object: String? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> RetainedValue? {
        let values = try await values(named: name, object: object, isolation: isolation)
        return values.last { $0.notification.object as? String == (object?.isEmpty == true ? nil : object) }
    }

    /// Removes the values of a name, regardless of their posters and origins. Observers are not notified.
    ///
    /// - Parameter object: the object; nil for any.
    /// - Returns: the number of removed values.
    /// - Throws: the reason why the service did not remove them.
    @discardableResult
    public func removeValues(
        named name: Foundation.Notification.Name, object: String? = nil,
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Int {
        try check(name: name)
        let object = try text(ofObject: object)
        return try await answer(to: RemoveRetained(name: name.rawValue, object: object ?? ""), isolation)
    }

    /// Makes a call to the service and waits for its reply.
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
