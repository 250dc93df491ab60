// SPDX-License-Identifier: Apache-2.0
/// A detail of a notification that a client can ask for, besides its content (P1).
public enum Detail: String, Sendable, CaseIterable {
    case userID = "uid"
    case processID = "pid"
    case process = "process"
    case application = "app"
    case unit = "unit"
    /// The machine of a notification from outside, as its poster states; absent for this machine.
    case host = "host"
    /// The user of the session in which it was posted, as its poster states; absent for this user.
    case user = "user"
    /// Whether it is a retained value from before the registration.
    case retained = "retained"
    /// The time when it was posted.
    case time = "time"
    /// Whether it was posted to be retained as the value of its name and object (R1).
    case kept = "kept"
    /// The time when it expires; absent when it never does.
    case expiry = "expiry"
    /// Whether it is retained only until its poster leaves the bus (R1).
    case whileConnected = "while-connected"
    /// Whether it was posted for the other sessions of the machine, too (G1).
    case allSessions = "all-sessions"

    /// Whether the detail identifies the poster. A sandbox may not ask for such details (P2).
    public var isAboutPoster: Bool {
        switch self {
        case .userID, .processID, .process, .application, .unit, .host, .user: true
        case .retained, .time, .kept, .expiry, .whileConnected, .allSessions: false
        }
    }
}

/// A set of details.
public struct Details: OptionSet, Sendable {
    public let rawValue: UInt16

    /// The number is part of the recovery log's format.
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

    /// The details in the set, in the order of the D-Bus interface.
    public var all: [Detail] { Detail.allCases.filter { contains($0) } }
}
