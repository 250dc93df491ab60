// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// The origin of a distributed notification: its poster, numbers and time, as reported by the bus and the service. An
/// observer reads it from ``current``.
public struct Origin: Hashable, Sendable {
    /// The poster's unique name on the bus, such as `:1.42`. The bus verified it, so it cannot be forged (D6).
    public let poster: String
    /// The number of the notification among all that the service has accepted (D4).
    public let serial: UInt64
    /// The number of the notification among those sent to this program: 1, 2, 3 … (D6).
    public let sequence: UInt64
    /// The poster's process, as far as ``DistributedNotificationCenter/details`` asks for it.
    public internal(set) var process = Poster()
    /// The time of the post, with `time` among the ``DistributedNotificationCenter/details``.
    public internal(set) var date: Date?

    /// Whether it is a retained value that existed before the observer was registered (R2), with `retained` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isRetained = false
    /// Whether it was posted as the retained value of its name, object and origin (R1), with `kept` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isKept = false
    /// Whether it is retained only until its poster leaves the bus, with `while-connected` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isKeptWhileConnected = false
    /// Whether it was posted to the other sessions of the machine as well, with `all-sessions` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isForAllSessions = false
    /// The expiry time, with `expiry` among the ``DistributedNotificationCenter/details``; nil if it does not expire.
    public internal(set) var expiry: Date?

    /// The machine of origin, as its poster states, with `host` among the ``DistributedNotificationCenter/details``;
    /// nil for this machine (G3).
    public internal(set) var host: String?
    /// The user in whose session it was posted, as its poster states, with `user` among the
    /// ``DistributedNotificationCenter/details``; nil for this session (G3).
    public internal(set) var user: String?

    init(poster: String, serial: UInt64, sequence: UInt64) {
        self.poster = poster
        self.serial = serial
        self.sequence = sequence
    }

    /// The origin of the notification that the calling observer receives; nil elsewhere.
    ///
    /// It is available in blocks, methods and observers of messages. A `Task` that they start inherits it.
    @TaskLocal public static var current: Origin?

    /// Sets the property for a detail from the service. Unknown details of a later version are ignored.
    mutating func note(_ key: String, _ value: PropertyList) {
        switch (Detail(rawValue: key), value) {
        case (.userID, .uint32(let id)): process.userID = id
        case (.processID, .uint32(let id)): process.processID = Int32(bitPattern: id)
        case (.process, .string(let name)): process.name = name
        case (.application, .string(let id)): process.application = id
        case (.unit, .string(let unit)): process.unit = unit
        case (.host, .string(let host)): self.host = host
        case (.user, .string(let user)): self.user = user
        case (.retained, .boolean(let isRetained)): self.isRetained = isRetained
        case (.time, .int64(let time)): date = Self.date(time)
        case (.kept, .boolean(let isKept)): self.isKept = isKept
        case (.whileConnected, .boolean(let isOfPoster)): isKeptWhileConnected = isOfPoster
        case (.allSessions, .boolean(let isForAll)): isForAllSessions = isForAll
        case (.expiry, .int64(let time)): expiry = Self.date(time)
        default: break
        }
    }

    /// Returns the time of a number of microseconds since 1970.
    private static func date(_ microseconds: Int64) -> Date {
        Date(timeIntervalSince1970: Double(microseconds) / 1_000_000)
    }
}

/// The process that posted a notification, as the bus and the kernel verified it when it first used the service (P1).
/// It may have ended since. A property that could not be verified is nil.
public struct Poster: Hashable, Sendable {
    /// The user of the process.
    public var userID: UInt32?
    public var processID: Int32?
    /// The kernel's short name of its program, which the program can change.
    public var name: String?
    /// The id of its application, which is the name of its desktop file. It is known from the sandbox or the systemd
    /// unit.
    public var application: String?
    /// The systemd unit of the process.
    public var unit: String?

    /// Creates a poster without known properties.
    public init() {}
}

extension Foundation.Notification {
    /// The poster of the distributed notification that the calling observer receives, as far as
    /// ``DistributedNotificationCenter/details`` asks for it; nil elsewhere.
    ///
    /// It is available in blocks and methods. A loop over a sequence uses
    /// ``DistributedNotificationCenter/Notifications/withOrigins`` instead. Local notifications have no poster.
    public var poster: Poster? { Origin.current?.process }
}
