// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation
import Synchronization

/// A received notification during its delivery to the program's observers.
///
/// It decodes lazily, on the thread of an observer: the userInfo is decoded when an observer reads it. Several
/// observers share one decoded form (F3).
final class ReceivedNotification: Sendable {
    /// The notification in the encoded form of the wire.
    let arrived: ArrivedNotification
    /// The approximate memory that the notification retains, in bytes.
    let byteCount: Int
    /// The decoded forms so far, for several observers; nil with a single observer.
    private let shared: Shared?

    /// The decoded forms: as property-list values, and as Foundation's notification.
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

    /// The approximate memory of a decoded value besides its content, in bytes: its entries in the dictionaries of both
    /// decoded forms.
    private static let decodedValue = 192

    /// The poster, the numbers and the requested details.
    var origin: Origin {
        var origin = Origin(poster: arrived.poster.rawValue, serial: arrived.serial, sequence: arrived.sequence)
        arrived.details?.forEachEntry { origin.note($0, $1) }
        return origin
    }

    /// The userInfo as property-list values, for typed messages and values. Threads: any.
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
        // Several observers share the decoded property-list values. For a single observer, the bytes are decoded
        // directly into Foundation's types, without that intermediate form.
        let entries = shared == nil ? UserInfoDecoder.decode(arrived.userInfo) : UserInfoDecoder.decode(userInfo)
        return MadeNotification(
            value: Foundation.Notification(
                name: .init(arrived.name), object: arrived.object.isEmpty ? nil : arrived.object,
                userInfo: entries.isEmpty ? nil : entries))
    }
}

/// A decoded notification that observers on several threads share.
private struct MadeNotification: @unchecked Sendable {
    // Sendable: the notification contains values and numbers of Foundation, which do not change.
    let value: Foundation.Notification
}

/// An observer of the program: a block or a method, the registration that it shares, and the thread or queue that runs
/// it.
final class Observer: Sendable {
    /// The action of an observer on a notification.
    enum Action: Sendable {
        case block(@Sendable (ReceivedNotification) -> Void)
        /// A method of an object that is retained only during the call. It returns false if the object is gone (C5).
        case method(@Sendable (ReceivedNotification) -> Bool)
    }

    let key: RegistrationKey
    /// The position among all observers of the center, which are called in this order (C3).
    let order: UInt64
    /// The thread or queue that runs the action.
    let target: any DeliveryTarget
    private let action: Action
    /// False once the observer has been removed.
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

    /// Runs the action with a notification, unless the observer was removed. Called on the thread of the target.
    ///
    /// - Returns: false if the object of the method is gone, so that the observer can be removed.
    func call(with received: ReceivedNotification) -> Bool {
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
