// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation
import Synchronization

/// A notification as it arrived, on its way to the program's observers.
///
/// Its userInfo is decoded when the first of them looks at it, and where there are several, once for all (F3).
final class Received: Sendable {
    let arrived: ArrivedNotification
    /// About how much memory it keeps.
    let byteCount: Int
    /// What was made of it so far; nil where there is one observer, for whom nothing is kept.
    private let shared: Shared?

    private final class Shared: Sendable {
        let values = Locked<[String: PropertyList]?>(nil)
        let notification = Locked<MadeNotification?>(nil)
    }

    /// - Parameter isShared: whether it goes to several observers.
    init(_ arrived: ArrivedNotification, isShared: Bool) {
        self.arrived = arrived
        shared = isShared ? Shared() : nil
        let userInfo = arrived.userInfo
        var bytes = 256 + arrived.name.utf8.count + arrived.object.utf8.count + userInfo.byteCount
        // Who waits for its turn then keeps what another had decoded.
        if isShared { bytes += userInfo.byteCount + Self.decodedValue * userInfo.valueCount }
        byteCount = bytes
    }

    /// About what a value takes besides its bytes when it is decoded: in the dictionary of values, and in that of a
    /// notification.
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

    /// As Foundation's type. Threads: any.
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
        // What several share is decoded once, also where others want the values; what one gets goes straight there.
        let entries = shared == nil ? UserInfoDecoder.decode(arrived.userInfo) : UserInfoDecoder.decode(userInfo)
        return MadeNotification(
            value: Foundation.Notification(
                name: .init(arrived.name), object: arrived.object.isEmpty ? nil : arrived.object,
                userInfo: entries.isEmpty ? nil : entries))
    }
}

/// A notification for observers on several threads.
private struct MadeNotification: @unchecked Sendable {
    // Sendable: what is in it are values, and numbers of Foundation, none of which changes any more.
    let value: Foundation.Notification
}

/// One observer of the program.
final class Observer: Sendable {
    /// What it does with a notification.
    enum Action: Sendable {
        case block(@Sendable (Received) -> Void)
        /// A method of an object that is not kept alive, but while it is called. Returns false when it is gone (C5).
        case method(@Sendable (Received) -> Bool)
    }

    let key: RegistrationKey
    /// The place among all observers of the center; they are called in this order (C3).
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

    /// From now on it is not called any more, also for what waits on its thread already (C8).
    func deactivate() {
        isActive.store(false, ordering: .releasing)
    }

    /// - Returns: false when its target is gone, and it can be removed.
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
