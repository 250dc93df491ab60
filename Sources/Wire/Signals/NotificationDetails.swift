// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The encoding of the details of a notification, such as the poster's user, which a client requested with
/// ``SetClientOptions`` (P1). They are the `a{sv}` at the end of a notification in a batch or on a channel. Details
/// that are unknown or were not requested are left out.
enum NotificationDetails {
    /// The maximum size of an entry, in bytes, without the texts of values.
    private static let maxBytesOfEntry = 48

    /// The maximum number of bytes that ``append(of:to:)`` appends.
    static func maxBytes(of delivery: Delivery) -> Int {
        guard !delivery.details.isEmpty else { return MarshalledBytes.maxBytesOfArray }
        return MarshalledBytes.maxBytesOfArray + maxBytesOfEntry * Detail.allCases.count
            + (delivery.notification.identity?.byteCount ?? 0)
    }

    /// Appends the details that the receiver of the delivery requested.
    static func append(of delivery: Delivery, to body: inout MarshalledBytes) {
        guard !delivery.details.isEmpty else { return body.array { _ in } }
        let holdsNoNUL = UserInfoLayout.append(entries: entries(of: delivery), to: &body)
        assert(holdsNoNUL, "the texts of an identity contain no NUL character (P1)")
    }

    private static func entries(of delivery: Delivery) -> [(key: String, value: PropertyList)] {
        delivery.details.all.compactMap { detail in
            value(of: detail, in: delivery).map { (detail.rawValue, $0) }
        }
    }

    private static func value(of detail: Detail, in delivery: Delivery) -> PropertyList? {
        let identity = delivery.notification.identity
        return switch detail {
        case .userID: identity?.userID.map { .uint32($0) }
        case .processID: identity?.processID.map { .uint32($0) }
        case .process: identity?.process.map { .string($0) }
        case .application: identity?.application.map { .string($0) }
        case .unit: identity?.unit.map { .string($0) }
        case .host: identity?.origin?.host.map { .string($0) }
        case .user: identity?.origin?.user.map { .string($0) }
        case .retained: .boolean(delivery.isRetained)
        case .time: .int64(delivery.notification.time)
        case .kept: .boolean(delivery.notification.retention != nil)
        case .whileConnected: .boolean(delivery.notification.retention?.whileConnected == true)
        case .allSessions: .boolean(delivery.notification.goesToAllSessions)
        case .expiry: delivery.expiryTime.map { .int64($0) }
        }
    }
}
