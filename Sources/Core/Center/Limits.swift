// SPDX-License-Identifier: Apache-2.0
/// The limits of all resources that clients can use (E1): numbers, or bytes for keys that end with `bytes` or `length`.
/// The configuration file sets them. ``table`` has the default, the range and the reason of each.
public struct Limits: Equatable, Sendable {
    /// The key of a limit: its name on the bus, in errors and in the configuration file. A key with `per-client` limits
    /// one connection; other keys limit the total of all connections, or a property of one message.
    public enum Key: String, CaseIterable, Sendable {
        case clients = "clients"
        case observers = "observers"
        case observersPerClient = "observers-per-client"
        case observerBytes = "observer-bytes"
        case observerBytesPerClient = "observer-bytes-per-client"
        case queuedPerClient = "queued-per-client"
        case queuedBytesPerClient = "queued-bytes-per-client"
        case queuedBytes = "queued-bytes"
        case queuedPostsPerClient = "queued-posts-per-client"
        case queuedPostBytesPerClient = "queued-post-bytes-per-client"
        case queuedPostBytes = "queued-post-bytes"
        case answerBytesPerClient = "answer-bytes-per-client"
        case answerBytes = "answer-bytes"
        case inFlightBytes = "in-flight-bytes"
        case waitingCallBytes = "waiting-call-bytes"
        case retained = "retained"
        case retainedPerClient = "retained-per-client"
        case retainedBytes = "retained-bytes"
        case retainedBytesPerClient = "retained-bytes-per-client"
        case stateBytes = "state-bytes"
        case memoryBytes = "memory-bytes"
        case nameLength = "name-length"
        case objectLength = "object-length"
        case userInfoBytes = "user-info-bytes"
        case userInfoDepth = "user-info-depth"
        case postsPerCall = "posts-per-call"
        case channelsPerProcess = "channels-per-process"
    }

    /// A limit with its default and its range.
    public struct Row: Sendable {
        public let key: Key
        /// The limit without a setting in the configuration file.
        public let standard: UInt64
        /// The maximum that the configuration file can set.
        public let hardMaximum: UInt64
        /// The minimum that the configuration file can set.
        public let minimum: UInt64
        /// The reason of the default, for the documents.
        public let reason: String

        init(key: Key, standard: UInt64, hardMaximum: UInt64, minimum: UInt64 = 1, reason: String) {
            self.key = key
            self.standard = standard
            self.hardMaximum = hardMaximum
            self.minimum = minimum
            self.reason = reason
        }

        /// The values that the configuration file can set.
        public var range: ClosedRange<UInt64> { minimum...hardMaximum }
    }

    /// All limits, in the order of their keys.
    public static let table: [Row] = [
        Row(
            key: .clients, standard: 4096, hardMaximum: 65_536,
            reason: "a desktop has a few hundred connections; each costs about 1 KiB here and a match rule in the bus"),
        Row(
            key: .observers, standard: 262_144, hardMaximum: 4_194_304,
            reason: "sixteen clients, each at the limit of one client"),
        Row(
            key: .observersPerClient, standard: 16_384, hardMaximum: 1_048_576,
            reason: "one program may observe thousands of objects; sixteen such programs fill the total"),
        Row(
            key: .observerBytes, standard: 128 << 20, hardMaximum: 4 << 30,
            reason: "the memory of all registrations; each takes half a KiB and its texts"),
        Row(
            key: .observerBytesPerClient, standard: 16 << 20, hardMaximum: 1 << 30,
            reason: "the maximum registrations of one client, with texts of half a KiB each"),
        Row(
            key: .queuedPerClient, standard: 131_072, hardMaximum: 1_048_576,
            reason: "a burst of 100,000 notifications to a slow consumer, with a reserve"),
        Row(
            key: .queuedBytesPerClient, standard: 64 << 20, hardMaximum: 1 << 30,
            reason: "the same burst, at 300 bytes each; the maximum cost of one client that does not read"),
        Row(
            key: .queuedBytes, standard: 128 << 20, hardMaximum: 4 << 30,
            reason: "the maximum cost of all clients that do not read; the process that uses most loses notifications"),
        Row(
            key: .queuedPostsPerClient, standard: 131_072, hardMaximum: 1_048_576,
            reason: "posts with asap or when-idle: 100,000 posts of a script, with a reserve"),
        Row(
            key: .queuedPostBytesPerClient, standard: 64 << 20, hardMaximum: 1 << 30,
            reason: "the same 100,000 posts at 280 bytes each; the maximum cost of one poster"),
        Row(
            key: .queuedPostBytes, standard: 128 << 20, hardMaximum: 4 << 30,
            reason: "the maximum cost of all posters; beyond it, posts with asap or when-idle are refused"),
        Row(
            key: .answerBytesPerClient, standard: 8 << 20, hardMaximum: 1 << 30,
            reason: "replies to twenty thousand calls that a program makes before it reads the first reply"),
        Row(
            key: .answerBytes, standard: 32 << 20, hardMaximum: 4 << 30,
            reason: "the cost of all callers that do not read; a process may use at most half of the free part"),
        Row(
            // Below this minimum, one program that does not read could leave no capacity for answers to others.
            key: .inFlightBytes, standard: 32 << 20, hardMaximum: 1 << 30, minimum: 1 << 20,
            reason: "bytes that the bus holds for all clients; a process may use at most half of the free part"),
        Row(
            key: .waitingCallBytes, standard: 128 << 20, hardMaximum: 4 << 30,
            reason:
                "100,000 posts that wait; a process may use 31/32 of the part that others do not use"),
        Row(
            key: .retained, standard: 32_768, hardMaximum: 262_144,
            reason:
                "fifty other machines with 400 values each; a process may use 7/8 of the part that others do not use"),
        Row(
            key: .retainedPerClient, standard: 4096, hardMaximum: 65_536,
            reason: "the state of a program with thousands of objects; for a bridge, the state of one machine"),
        Row(
            key: .retainedBytes, standard: 32 << 20, hardMaximum: 256 << 20,
            reason: "the same values at 1 KiB each; they survive the service, so they also count toward state-bytes"),
        Row(
            key: .retainedBytesPerClient, standard: 4 << 20, hardMaximum: 64 << 20,
            reason: "the same values at 1 KiB each, of one connection, including values that it left behind"),
        Row(
            key: .stateBytes, standard: 64 << 20, hardMaximum: 1 << 30,
            reason: "the user's runtime directory is memory; beyond the limit, queues are not saved"),
        Row(
            key: .memoryBytes, standard: 256 << 20, hardMaximum: 16 << 30,
            reason:
                "less than the sum of the other totals; queued notifications are discarded first"
        ),
        Row(
            key: .nameLength, standard: 1024, hardMaximum: 65_536,
            reason: "bytes of UTF-8; names are reverse domain names"),
        Row(
            key: .objectLength, standard: 4096, hardMaximum: 65_536,
            reason: "bytes of UTF-8; objects are often paths, which Linux bounds at 4096"),
        Row(
            key: .userInfoBytes, standard: 1 << 20, hardMaximum: 16 << 20,
            reason: "bytes on the wire; a notification announces data and does not carry it"),
        Row(
            key: .userInfoDepth, standard: 16, hardMaximum: 20,
            reason: "D-Bus nests at most 64 containers and a dictionary in a dictionary takes three"),
        Row(
            key: .postsPerCall, standard: 16_384, hardMaximum: 65_536,
            reason: "posts in one call; the reply has an outcome of up to 64 bytes for each"),
        Row(
            key: .channelsPerProcess, standard: 16, hardMaximum: 1024,
            reason: "a program has one connection or a few; each channel takes a descriptor of the service"),
    ]

    /// The limits in effect, by ``Key/index``.
    private var values: [UInt64]

    /// Creates the default limits.
    public init() {
        values = Key.allCases.map { key in Self.row(key).standard }
    }

    public static func row(_ key: Key) -> Row {
        table.first { $0.key == key }!
    }

    /// The limit in effect; a greater value than the hard maximum is reduced to it.
    public subscript(key: Key) -> UInt64 {
        get { values[key.index] }
        set { values[key.index] = min(newValue, Self.row(key).hardMaximum) }
    }
}

extension Limits.Key {
    /// The position of the key in `allCases`.
    fileprivate var index: Int {
        switch self {
        case .clients: 0
        case .observers: 1
        case .observersPerClient: 2
        case .observerBytes: 3
        case .observerBytesPerClient: 4
        case .queuedPerClient: 5
        case .queuedBytesPerClient: 6
        case .queuedBytes: 7
        case .queuedPostsPerClient: 8
        case .queuedPostBytesPerClient: 9
        case .queuedPostBytes: 10
        case .answerBytesPerClient: 11
        case .answerBytes: 12
        case .inFlightBytes: 13
        case .waitingCallBytes: 14
        case .retained: 15
        case .retainedPerClient: 16
        case .retainedBytes: 17
        case .retainedBytesPerClient: 18
        case .stateBytes: 19
        case .memoryBytes: 20
        case .nameLength: 21
        case .objectLength: 22
        case .userInfoBytes: 23
        case .userInfoDepth: 24
        case .postsPerCall: 25
        case .channelsPerProcess: 26
        }
    }
}
