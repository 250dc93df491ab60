// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonThreadDelivery
import Foundation

// `Notification` in the other files of this target is Foundation's type; the core has a class of the same name.

extension DistributedNotificationCenter {
    /// The type of a notification center. There is one type, as on macOS.
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

    /// The treatment of the notifications that an observer matches while its program is suspended (S1). The raw values
    /// are those of macOS.
    public enum SuspensionBehavior: UInt, Sendable, CaseIterable {
        /// Notifications are not queued.
        case drop = 1
        /// The queue keeps the last notification of each name, object and origin for the observer.
        case coalesce = 2
        /// The queue keeps all notifications, up to the limit of the service's queue.
        case hold = 3
        /// Notifications are delivered as if the program were not suspended, after the notifications that are held
        /// (S3).
        case deliverImmediately = 4
    }

    /// The options of a post. The raw values are those of macOS.
    public struct Options: OptionSet, Sendable {
        public let rawValue: UInt

        public init(rawValue: UInt) {
            self.rawValue = rawValue
        }

        /// Delivers the notification to suspended programs at once, after the notifications that are held for them
        /// (S3).
        public static let deliverImmediately = Options(rawValue: 1)
        /// Sends the notification to the other sessions of the machine as well, as far as their configuration imports
        /// the name (G1). If the configuration of this session does not export the name, the service refuses the post
        /// with ``DistributedNotificationError/notAllowed(_:)``.
        public static let postToAllSessions = Options(rawValue: 2)
    }

    /// The thread or queue of observers that were added without a queue.
    public enum DefaultDelivery: Sendable {
        /// The main thread, while its loop runs in one of the common modes (M4). The loop is a GLib main loop,
        /// `RunLoop.main` or `dispatchMain()`; the program need not name it. With `dispatchMain()` the observers run on
        /// the main queue, because the main thread ends there.
        case mainThread
        /// A thread of the library, for programs that run no loop. It calls one observer after the other.
        case ownQueue
    }

    /// The registration of an observer, which ends when this object is released, or with `cancel()` (C7).
    ///
    /// Threads: any. The type belongs to another module, because a type `Observation` of this module would hide Swift's
    /// module of the same name from `@Observable`.
    public typealias Observation = CarillonThreadDelivery.Observation

    /// The state of the center's connection to the bus and the service.
    public typealias ConnectionState = CarillonClient.ConnectionState

    /// The reason why notifications may have been missed (E3, S4).
    public typealias Gap = CarillonClient.Gap

    /// An event that a center reports to its program about itself.
    public enum Event: Sendable {
        case connectionStateChanged(ConnectionState)
        case mayHaveMissedNotifications(Gap)
        /// The service suspended or resumed this program. The event may repeat the current state, after an earlier
        /// notice of the service may have been lost (E3, E5).
        case suspensionChanged(isSuspended: Bool, cause: String)
        /// The service refused to register an observer, which therefore receives nothing.
        case observerRefused(name: Foundation.Notification.Name?, object: String?, DistributedNotificationError)
        /// The service refuses to send the ``DistributedNotificationCenter/details`` that the program requested.
        case detailsRefused(DistributedNotificationError)
        /// Posts without a requested outcome were not made, for this reason. Events about refusals by the service, the
        /// lack of a service and ``DistributedNotificationError/tooManyUnsentPosts(limit:)`` follow at most once a
        /// second, with one event for each different reason. Any other post that was refused before it left the process
        /// has an event of its own. ``Statistics/failedPosts`` is the total number so far.
        case postFailed(DistributedNotificationError)
        /// This number of posts without a requested outcome may be lost, because the service or the connection to it
        /// ended before their acceptance was confirmed (E10). The service has accepted those of them that it read
        /// before. Posts may be lost that left the process in the last tenth of a second, or since the service stopped
        /// answering. The event is reported at most once a second, with all such posts since the previous event.
        case postsMayBeLost(count: Int)
    }

    /// The counts of a center since the program started.
    public struct Statistics: Equatable, Sendable {
        /// Notifications received.
        public var received: UInt64 = 0
        /// Posts accepted for sending.
        public var posted: UInt64 = 0
        /// Posts refused before they left the process, and posts without a requested outcome that failed later.
        public var failedPosts: UInt64 = 0
        /// Posts without a requested outcome that may be lost, because the service or the connection to it ended soon
        /// after they left the process.
        public var uncertainPosts: UInt64 = 0
        /// Observers refused.
        public var refusedObservers: UInt64 = 0
        /// Notifications that the service lost for this program, or whose sequence numbers are missing.
        public var missed: UInt64 = 0
        /// Notifications dropped in this process, because the thread, queue or sequence of their observer did not take
        /// them in time (T2).
        public var overflowed: UInt64 = 0
        /// Notifications that are not a message of the type that their observer expects.
        public var undecodable: UInt64 = 0
    }
}

extension Foundation.Notification.Name {
    /// The name of the local notification that reports that distributed notifications may have been missed. It is
    /// posted to Foundation's `NotificationCenter.default`, with the distributed center as its object.
    /// `userInfo["gap"]` is a ``DistributedNotificationCenter/Gap``.
    public static let distributedNotificationsMayHaveBeenMissed = Self(
        "org.carillon.DistributedNotificationsMayHaveBeenMissed")
    /// The name of the local notification that reports a change of ``DistributedNotificationCenter/connectionState``.
    /// It is posted to Foundation's `NotificationCenter.default`, with the distributed center as its object.
    /// `userInfo["state"]` is the new state.
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
