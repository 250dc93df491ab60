// SPDX-License-Identifier: Apache-2.0
/// A piece of information about a notification besides its name, object and userInfo. A client gets the details that it
/// asked for with its option `details` (P1).
public enum Detail: String, Sendable, CaseIterable {
    /// The user of the poster's process.
    case userID = "uid"
    /// The poster's process.
    case processID = "pid"
    /// The kernel's short name of the poster's program.
    case process = "process"
    /// The poster's application ID.
    case application = "app"
    /// The systemd unit of the poster's process.
    case unit = "unit"
    /// The machine from which the notification came, as its poster states. It is absent for this machine.
    case host = "host"
    /// The user of the session from which the notification came, as its poster states. It is absent for this session,
    /// and where the poster does not state it.
    case user = "user"
    /// Whether it is a retained value from before the registration of the observer.
    case retained = "retained"
    /// The time when it was posted.
    case time = "time"
    /// Whether it was posted with a retention, so that it became the value of its name, object and origin (R1).
    case kept = "kept"
    /// The time when it expires; absent when it never does.
    case expiry = "expiry"
    /// Whether its retention ends when its poster leaves the bus (R1).
    case whileConnected = "while-connected"
    /// Whether it was posted to all sessions of the machine (G1).
    case allSessions = "all-sessions"

    /// Whether the detail identifies the poster. A sandbox may not ask for such details (P2).
    public var isAboutPoster: Bool {
        switch self {
        case .userID, .processID, .process, .application, .unit, .host, .user: true
        case .retained, .time, .kept, .expiry, .whileConnected, .allSessions: false
        }
    }
}

/// A set of details, with one bit for each.
public struct Details: OptionSet, Sendable {
    public let rawValue: UInt16

    /// The bits are a part of the recovery log's format.
    public init(rawValue: UInt16) {
        self.rawValue = rawValue
    }

    public static let userID = Details(rawValue: 1 << 0)
    public static let processID = Details(rawValue: 1 << 1)
    public static let process = Details(rawValue: 1 << 2)
    public static let application = Details(rawValue: 1 << 3)
    public static let unit = Details(rawValue: 1 << 4)
    public static let host = Details(rawValue: 1 << 5)
    public static let user = Details(rawValue: 1 << 6)
    public static let retained = Details(rawValue: 1 << 7)
    public static let time = Details(rawValue: 1 << 8)
    public static let kept = Details(rawValue: 1 << 9)
    public static let expiry = Details(rawValue: 1 << 10)
    public static let whileConnected = Details(rawValue: 1 << 11)
    public static let allSessions = Details(rawValue: 1 << 12)

    public init(_ detail: Detail) {
        self =
            switch detail {
            case .userID: .userID
            case .processID: .processID
            case .process: .process
            case .application: .application
            case .unit: .unit
            case .host: .host
            case .user: .user
            case .retained: .retained
            case .time: .time
            case .kept: .kept
            case .expiry: .expiry
            case .whileConnected: .whileConnected
            case .allSessions: .allSessions
            }
    }

    public init(_ details: some Sequence<Detail>) {
        self = details.reduce(into: []) { $0.insert(Details($1)) }
    }

    public func contains(_ detail: Detail) -> Bool { contains(Details(detail)) }

    /// The details in the set, in the order of the cases.
    public var all: [Detail] { Detail.allCases.filter { contains($0) } }
}
