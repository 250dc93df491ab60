// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire
import Foundation

/// Where a distributed notification comes from, as the bus and the service tell it.
public struct Origin: Hashable, Sendable {
    /// The poster's unique name on the bus, such as `:1.42`, which the bus verified and nobody can forge (D6).
    public let poster: String
    /// The place among all notifications that the service accepted (D4).
    public let serial: UInt64
    /// The place among those that this program was sent: 1, 2, 3 … (D6).
    public let sequence: UInt64
    /// Who that was, as far as ``DistributedNotificationCenter/details`` asks for it.
    public internal(set) var process = Poster()
    /// When it was posted, with `time` among the ``DistributedNotificationCenter/details``.
    public internal(set) var date: Date?

    /// Whether it is a value that there was before the observer came (R2), with `retained` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isRetained = false
    /// Whether it was posted to be kept as the value of its name and object (R1), with `kept` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isKept = false
    /// Whether it is kept only until its poster leaves the bus, with `while-connected` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isKeptWhileConnected = false
    /// Whether it was posted for the other sessions of the machine, too, with `all-sessions` among the
    /// ``DistributedNotificationCenter/details``.
    public internal(set) var isForAllSessions = false
    /// When it is over, with `expiry` among the ``DistributedNotificationCenter/details``; nil where it never is.
    public internal(set) var expiry: Date?

    /// The machine that it comes from, by the word of its poster, with `host` among the
    /// ``DistributedNotificationCenter/details``; nil where it is this one (G3).
    public internal(set) var host: String?
    /// The user in whose session it was posted, by the word of its poster, with `user` among the
    /// ``DistributedNotificationCenter/details``; nil where it is this session (G3).
    public internal(set) var user: String?

    init(poster: String, serial: UInt64, sequence: UInt64) {
        self.poster = poster
        self.serial = serial
        self.sequence = sequence
    }

    /// The origin of the notification that the calling observer is being given; nil elsewhere.
    ///
    /// For blocks and methods. What they start as a task inherits it.
    @TaskLocal public static var current: Origin?

    /// Takes over what the service tells. What a later one may tell besides is passed over.
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

    private static func date(_ microseconds: Int64) -> Date {
        Date(timeIntervalSince1970: Double(microseconds) / 1_000_000)
    }
}

/// The process that posted a notification, as the bus and the kernel verified it when it used the service first (P1). It
/// may have ended since. What nobody could verify is nil.
public struct Poster: Hashable, Sendable {
    /// The user that it belongs to.
    public var userID: UInt32?
    public var processID: Int32?
    /// The kernel's short name of its program, which the program can change.
    public var name: String?
    /// The id of its application, as its desktop file is named: by its sandbox, or by its systemd unit.
    public var application: String?
    /// The systemd unit that it runs in.
    public var unit: String?

    /// Of whom nothing is known.
    public init() {}
}

extension Foundation.Notification {
    /// Who posted the distributed notification that the calling observer is being given, as far as
    /// ``DistributedNotificationCenter/details`` asks for it; nil elsewhere.
    ///
    /// For blocks and methods; with a sequence it is ``DistributedNotificationCenter/Notifications/withOrigins`` that
    /// tells. Local notifications have none.
    public var poster: Poster? { Origin.current?.process }
}
