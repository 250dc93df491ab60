// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation
import Synchronization

/// A received notification on its way to the program's observers.
///
/// The userInfo is decoded when the first observer reads it. With several observers it is decoded once for all (F3).
final class Received: Sendable {
    let arrived: ArrivedNotification
    /// The approximate memory that the notification retains, in bytes.
    let byteCount: Int
    /// The decoded forms so far; nil with a single observer, for which nothing is kept.
    private let shared: Shared?

    private final class Shared: Sendable {
        let values = Locked<[String: PropertyList]?>(nil)
        let notification = Locked<MadeNotification?>(nil)
    }

    /// - Parameter isShared: whether there are several observers.
    init(_ arrived: ArrivedNotification, isShared: Bool) {
        self.arrived = arrived
        shared = isShared ? Shared() : nil
        let userInfo = arrived.userInfo
        var bytes = 256 + arrived.name.utf8.count + arrived.object.utf8.count + userInfo.byteCount
        // A waiting delivery may retain the values that another observer decoded.
        if isShared { bytes += userInfo.byteCount + Self.decodedValue * userInfo.valueCount }
        byteCount = bytes
    }

    /// The approximate memory of a decoded value besides its content, in bytes: its entries in the dictionary of values
    /// and in that of a notification.
    private static let decodedValue = 192

    var origin: Origin {
        var origin = Origin(poster: arrived.poster.rawValue, serial: arrived.serial, sequence: arrived.sequence)
        arrived.details?.forEachEntry { origin.note($0, $1) }
        return origin
    }

    /// Threads: any.
    var userInfo: [String: PropertyList] {
        guard let shared else { return arrived.userInfo.decoded() }
        return shared.values.withLock { values in
            if let values { return values }
            let decoded = arrived.userInfo.decoded()
            values = decoded
            return decoded
        }
    }

    /// The notification as Foundation's type. Threads: any.
    var notification: Foundation.Notification {
        guard let shared else { return makeNotification().value }
        return shared.notification.withLock { notification in
            if let notification { return notification }
            let made = makeNotification()
            notification = made
            return made
        }.value
    }

    private func makeNotification() -> MadeNotification {
        // For several observers the values are decoded once, also for observers that read the property list. For a
        // single observer they are decoded directly.
        let entries = shared == nil ? UserInfoDecoder.decode(arrived.userInfo) : UserInfoDecoder.decode(userInfo)
        return MadeNotification(
            value: Foundation.Notification(
                name: .init(arrived.name), object: arrived.object.isEmpty ? nil : arrived.object,
                userInfo: entries.isEmpty ? nil : entries))
    }
}

/// A notification for observers on several threads.
private struct MadeNotification: @unchecked Sendable {
    // Sendable: the notification contains values and numbers of Foundation, which do not change.
    let value: Foundation.Notification
}

/// One observer of the program.
final class Observer: Sendable {
    /// The action of an observer on a notification.
    enum Action: Sendable {
        case block(@Sendable (Received) -> Void)
        /// A method of an object that is retained only during the call. It returns false if the object is gone (C5).
        case method(@Sendable (Received) -> Bool)
    }

    let key: RegistrationKey
    /// The position among all observers of the center, which are called in this order (C3).
    let order: UInt64
    let target: any DeliveryTarget
    private let action: Action
    private let isActive = Atomic(true)

    init(key: RegistrationKey, order: UInt64, target: any DeliveryTarget, action: Action) {
        self.key = key
        self.order = order
        self.target = target
        self.action = action
    }

    /// Prevents all further calls, including those for notifications that already wait on its thread (C8).
    func deactivate() {
        isActive.store(false, ordering: .releasing)
    }

    /// - Returns: false if the target is gone, so that the observer can be removed.
    func call(with received: Received) -> Bool {
        guard isActive.load(ordering: .acquiring) else { return true }
        return Origin.$current.withValue(received.origin) {
            switch action {
            case .block(let block):
                block(received)
                return true
            case .method(let method): return method(received)
            }
        }
    }
}
