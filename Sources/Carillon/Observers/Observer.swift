import Foundation
import NotificationCore
import NotificationWire
import Synchronization
import ServiceClient
import ThreadDelivery

/// A notification as it arrived, on its way to the program's observers.
struct Received: Sendable {
    let signal: NotificationSignal
    /// About how much memory it keeps.
    let byteCount: Int

    init(signal: NotificationSignal) {
        self.signal = signal
        byteCount = 256 + signal.name.utf8.count + signal.object.utf8.count + approximateByteCount(of: signal.userInfo)
    }

    var origin: Origin {
        Origin(poster: signal.poster.rawValue, serial: signal.serial, sequence: signal.sequence)
    }

    /// As Foundation's type, which is not `Sendable`: made anew where it is used.
    var notification: Foundation.Notification {
        Foundation.Notification(
            name: .init(signal.name), object: signal.object.isEmpty ? nil : signal.object,
            userInfo: signal.userInfo.isEmpty ? nil : UserInfoDecoder.decode(signal.userInfo))
    }
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
