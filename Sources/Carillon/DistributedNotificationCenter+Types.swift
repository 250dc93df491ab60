// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonThreadDelivery
import Foundation

// Every other file of this target means Foundation's notification; the core has a class of the same name.

extension DistributedNotificationCenter {
    /// Which of the notification centers of a system; one, as on macOS.
    public struct CenterType: RawRepresentable, Hashable, Sendable {
        public let rawValue: String

        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        public init(_ rawValue: String) {
            self.rawValue = rawValue
        }

        /// The center of the user's session, on the session bus.
        public static let localNotificationCenterType = CenterType(rawValue: "NSLocalNotificationCenterType")
    }

    /// What happens to a notification that an observer matches while its program is suspended (S1). The numbers are
    /// those of macOS.
    public enum SuspensionBehavior: UInt, Sendable, CaseIterable {
        /// It is not queued.
        case drop = 1
        /// Only the last one of the observer's, with the same name and object, is kept.
        case coalesce = 2
        /// All are kept, up to the bound of the service's queue.
        case hold = 3
        /// It is delivered as if the program were not suspended, after what is held.
        case deliverImmediately = 4
    }

    /// What a poster may ask for. The numbers are those of macOS.
    public struct Options: OptionSet, Sendable {
        public let rawValue: UInt

        public init(rawValue: UInt) {
            self.rawValue = rawValue
        }

        /// Suspended programs get it at once, too, after what is held for them (S3).
        public static let deliverImmediately = Options(rawValue: 1)
        /// The other sessions of the machine get it too, as far as they take it (G1). The service refuses what its
        /// configuration does not let out: ``DistributedNotificationError/notAllowed(_:)``.
        public static let postToAllSessions = Options(rawValue: 2)
    }

    /// Where observers run that did not ask for a queue.
    public enum DefaultDelivery: Sendable {
        /// On the main thread, when its loop runs in one of the common modes (M4): a GLib main loop, `RunLoop.main` or
        /// `dispatchMain()`, which need not be told apart. With `dispatchMain()` it is the main queue, as the main
        /// thread ends there.
        case mainThread
        /// On a thread of the library's own, one after the other, for programs that run no loop.
        case ownQueue
    }

    /// An observer's registration, which ends when this object goes away, or with `cancel()` (C7).
    ///
    /// Threads: any. It is no type of the module's, as it would hide Swift's module of the same name from `@Observable`.
    public typealias Observation = CarillonThreadDelivery.Observation

    /// Where the center stands with the bus and the service.
    public typealias ConnectionState = CarillonClient.ConnectionState

    /// Why notifications may have been missed (E3, S4).
    public typealias Gap = CarillonClient.Gap

    /// What a center tells its program about itself.
    public enum Event: Sendable {
        case connectionStateChanged(ConnectionState)
        case mayHaveMissedNotifications(Gap)
        /// The service suspended or resumed this program. Tells the same again where that may not have arrived (E3, E5).
        case suspensionChanged(isSuspended: Bool, cause: String)
        /// The service refused to register an observer, which therefore receives nothing.
        case observerRefused(name: Foundation.Notification.Name?, object: String?, DistributedNotificationError)
        /// The service does not tell what ``DistributedNotificationCenter/details`` asks for.
        case detailsRefused(DistributedNotificationError)
        /// Posts that did not ask for their outcome were not made for this reason. One event announces all that the service
        /// did not take for the same reason in a second; ``Statistics/failedPosts`` says how many so far.
        case postFailed(DistributedNotificationError)
        /// The service ended, or the connection to it, before it could be known that it has taken so many posts that did not ask
        /// for their outcome (E10): some of those that left in the last tenth of a second, or since the service stopped answering. It has taken those of them that it read before. Once in a second at most, for all since the one before.
        case postsMayBeLost(count: Int)
    }

    /// Counts since the program began.
    public struct Statistics: Equatable, Sendable {
        /// Notifications that arrived.
        public var received: UInt64 = 0
        /// Posts that were accepted for sending.
        public var posted: UInt64 = 0
        /// Posts that were refused before they left the process, and those without an outcome that failed later.
        public var failedPosts: UInt64 = 0
        /// Posts without an outcome that may be lost, as the service ended, or the connection to it, soon after they left.
        public var uncertainPosts: UInt64 = 0
        /// Observers that were refused.
        public var refusedObservers: UInt64 = 0
        /// Notifications that the service lost for this program, or that are missing in its count.
        public var missed: UInt64 = 0
        /// Notifications that waited too long for their observer's thread, queue or sequence.
        public var overflowed: UInt64 = 0
        /// Notifications that are no message of the type that their observer expects.
        public var undecodable: UInt64 = 0
    }
}

extension Foundation.Notification.Name {
    /// Posted to Foundation's `NotificationCenter.default`, with the distributed center as object, when distributed
    /// notifications may have been missed. `userInfo["gap"]` is a ``DistributedNotificationCenter/Gap``.
    public static let distributedNotificationsMayHaveBeenMissed = Self(
        "org.carillon.DistributedNotificationsMayHaveBeenMissed")
    /// Posted to Foundation's `NotificationCenter.default`, with the distributed center as object, when its
    /// ``DistributedNotificationCenter/connectionState`` changed, which `userInfo["state"]` is.
    public static let distributedNotificationCenterStateDidChange = Self(
        "org.carillon.DistributedNotificationCenterStateDidChange")
}

extension CarillonCore.SuspensionBehavior {
    init(_ behavior: DistributedNotificationCenter.SuspensionBehavior) {
        switch behavior {
        case .drop: self = .drop
        case .coalesce: self = .coalesce
        case .hold: self = .hold
        case .deliverImmediately: self = .deliverImmediately
        }
    }
}
