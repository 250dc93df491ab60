// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus

/// The D-Bus properties of the service: their values, and their encoding and decoding. Clients read them with `GetAll`,
/// and the service builds its property table from ``table(_:)``.
public struct CenterProperties: Sendable {
    /// The version of the service's software.
    public var version: String
    /// The source of application activity; `none` without one.
    public var activitySource: String
    /// The state of that source: `off`, `waiting`, `following` or `lost`, and values of later services.
    public var activityState: String
    /// The reason why no client is suspended for inactivity now, with a remedy for the user; empty in the state
    /// `following`.
    public var activityReason: String
    /// The access rules that concern the reader.
    public var policy: PolicyProperty
    /// The limits in force.
    public var limits: NamedNumbers<Limits.Key>
    /// The counters and current values.
    public var statistics: NamedNumbers<StatisticsKey>
    /// The other sessions of the machine; empty for a service or a reader without access to them.
    public var sessions: [String: PropertyList]
    /// The configuration files and their errors; nil for an older service.
    public var configuration: ConfigurationProperty?
    /// The properties that only a later service has, by their names.
    public var others: [String: PropertyList] = [:]

    public init(
        version: String, activitySource: String, activityState: String, activityReason: String,
        policy: PolicyProperty, limits: NamedNumbers<Limits.Key>, statistics: NamedNumbers<StatisticsKey>,
        sessions: [String: PropertyList] = [:], configuration: ConfigurationProperty? = nil
    ) {
        self.version = version
        self.activitySource = activitySource
        self.activityState = activityState
        self.activityReason = activityReason
        self.policy = policy
        self.limits = limits
        self.statistics = statistics
        self.sessions = sessions
        self.configuration = configuration
    }

    /// The names of the properties on the bus.
    public enum Name: String, CaseIterable, Sendable {
        case version = "Version"
        case activitySource = "ActivitySource"
        case activityState = "ActivityState"
        case activityReason = "ActivityReason"
        case policy = "Policy"
        case limits = "Limits"
        case statistics = "Statistics"
        case sessions = "Sessions"
        case configuration = "Configuration"
    }

    // MARK: Clients

    /// Returns the call that reads all properties.
    ///
    /// - Parameter startsService: Whether the bus starts a service if there is none.
    public static func getAll(startsService: Bool = true) -> Message {
        let message = Message.methodCall(
            to: Wire.busName, path: Wire.path, interface: "org.freedesktop.DBus.Properties", member: "GetAll",
            startsService: startsService)
        var writer = MessageWriter(message)
        writer.append(Wire.interface.rawValue)
        return message
    }

    /// Decodes the reply to ``getAll(startsService:)``.
    ///
    /// - Throws: InvalidArgs if a property of the contract is missing, or has the wrong type.
    public init(in reply: Message) throws(BusError) {
        var reader = MessageReader(reply)
        var rest = WireDictionary(try UserInfoCoding.read(from: &reader))
        version = try rest.take(Name.version.rawValue, \.string)
        activitySource = try rest.take(Name.activitySource.rawValue, \.string)
        activityState = try rest.take(Name.activityState.rawValue, \.string)
        activityReason = try rest.take(Name.activityReason.rawValue, \.string, orElse: "")
        policy = try PolicyProperty(try rest.take(Name.policy.rawValue, \.dictionary, orElse: [:]))
        limits = try NamedNumbers(try rest.take(Name.limits.rawValue, \.dictionary))
        statistics = try NamedNumbers(try rest.take(Name.statistics.rawValue, \.dictionary))
        sessions = try rest.take(Name.sessions.rawValue, \.dictionary, orElse: [:])
        let configuration = try rest.take(Name.configuration.rawValue, \.dictionary, orElse: [:])
        self.configuration = configuration.isEmpty ? nil : try ConfigurationProperty(configuration)
        others = rest.entries
    }

    /// All properties, by their names.
    public var entries: [String: PropertyList] {
        var entries = others
        entries[Name.version.rawValue] = .string(version)
        entries[Name.activitySource.rawValue] = .string(activitySource)
        entries[Name.activityState.rawValue] = .string(activityState)
        entries[Name.activityReason.rawValue] = .string(activityReason)
        entries[Name.policy.rawValue] = .dictionary(policy.entries)
        entries[Name.limits.rawValue] = limits.propertyList
        entries[Name.statistics.rawValue] = statistics.propertyList
        entries[Name.sessions.rawValue] = .dictionary(sessions)
        entries[Name.configuration.rawValue] = configuration.map { .dictionary($0.entries) }
        return entries
    }

    // MARK: Service

    /// Returns the rows of the service's property table.
    ///
    /// The values of `Policy`, `Sessions` and `Configuration` depend on the reader, so a signal for all clients does
    /// not carry them. `Statistics` changes with each post, and is not announced. An empty array needs the type of its
    /// elements: dictionaries for `peers` in `Sessions`, otherwise texts.
    ///
    /// - Parameter current: Returns the values, at each read. Its argument is the reading client; it is nil for a
    ///   property with the same value for all clients.
    public static func table(_ current: @escaping (UniqueName?) -> CenterProperties) -> [Interface.Property] {
        [
            Interface.Property(Name.version.rawValue, "s", change: .never) { $0.append(current(nil).version) },
            Interface.Property(Name.activitySource.rawValue, "s", change: .announced) {
                $0.append(current(nil).activitySource)
            },
            Interface.Property(Name.activityState.rawValue, "s", change: .announced) {
                $0.append(current(nil).activityState)
            },
            Interface.Property(Name.activityReason.rawValue, "s", change: .announced) {
                $0.append(current(nil).activityReason)
            },
            Interface.Property(Name.policy.rawValue, "a{sv}", change: .invalidated) { writer, reader in
                UserInfoCoding.append(checked: current(reader).policy.entries, emptyArraysOf: { _ in "s" }, to: &writer)
            },
            Interface.Property(Name.limits.rawValue, "a{sv}", change: .announced) { writer in
                UserInfoCoding.append(current(nil).limits.entries.map { ($0.key, .uint64($0.value)) }, to: &writer)
            },
            Interface.Property(Name.statistics.rawValue, "a{st}", change: .notAnnounced) { writer in
                writer.array(of: "{st}") { writer in
                    for (key, value) in current(nil).statistics.entries {
                        writer.dictEntry { writer in
                            writer.append(key)
                            writer.append(value)
                        }
                    }
                }
            },
            Interface.Property(Name.sessions.rawValue, "a{sv}", change: .notAnnounced) { writer, reader in
                UserInfoCoding.append(
                    checked: current(reader).sessions, emptyArraysOf: { $0 == "peers" ? "a{sv}" : "s" }, to: &writer)
            },
            Interface.Property(Name.configuration.rawValue, "a{sv}", change: .notAnnounced) { writer, reader in
                UserInfoCoding.append(
                    checked: current(reader).configuration?.entries ?? [:], emptyArraysOf: { _ in "s" }, to: &writer)
            },
        ]
    }
}

/// The entries of the property `Statistics`, by their names on the bus: counters since the service started, and current
/// values. Sizes are in bytes.
public enum StatisticsKey: String, CaseIterable, Sendable {
    /// Posted notifications, which is the last serial.
    case posted = "posted"
    /// Deliveries: at most one to each client for each notification.
    case delivered = "delivered"
    /// Notifications that are queued for clients now.
    case queued = "queued"
    /// Lost notifications.
    case dropped = "dropped"
    /// Current clients.
    case clients = "clients"
    /// Current observers.
    case observers = "observers"
    /// The size of the observers' registrations.
    case observerBytes = "observer-bytes"
    /// The size of everything that the service holds, as it accounts for it.
    case memoryBytes = "memory-bytes"
    /// Posted notifications that no observer matched.
    case unmatched = "unmatched"
    /// Queued notifications and posts that a newer one replaced.
    case coalesced = "coalesced"
    /// The size of the notifications in `queued`.
    case queuedBytes = "queued-bytes"
    /// The size of the state of minimum intervals.
    case intervalBytes = "interval-bytes"
    /// Posts in the queues of their posters now.
    case queuedPosts = "queued-posts"
    /// The size of the posts in `queued-posts`.
    case queuedPostBytes = "queued-post-bytes"
    /// Queued posts that an earlier process of the service could not save when it ended.
    case lostPosts = "lost-posts"
    /// The size of unacknowledged messages.
    case inFlightBytes = "in-flight-bytes"
    /// The size of replies in reply queues.
    case answerBytes = "answer-bytes"
    /// The size of calls in the call queue.
    case waitingCallBytes = "waiting-call-bytes"
    /// Retained values.
    case retained = "retained"
    /// The size of the retained values.
    case retainedBytes = "retained-bytes"
    /// Posts with `retain` that were not retained, because a limit was exceeded.
    case unretained = "unretained"
    /// Values of posters that have left, removed to free space for other values.
    case displaced = "displaced"
    /// Notifications and values that expired.
    case expired = "expired"
    /// Clients that have a channel now.
    case channels = "channels"
    /// Calls that the service refused.
    case refused = "refused"
    /// Signals that the bus rejected.
    case rejected = "rejected"
}

/// A dictionary of numbers, with known keys and possibly additional keys of a later service: the type of the properties
/// `Limits` and `Statistics`.
public struct NamedNumbers<Key: RawRepresentable<String> & CaseIterable & Sendable>: Sendable {
    private var values: [String: UInt64]

    /// - Parameter value: Returns the number of a key.
    public init(_ value: (Key) -> UInt64) {
        values = Dictionary(uniqueKeysWithValues: Key.allCases.map { ($0.rawValue, value($0)) })
    }

    init(_ entries: [String: PropertyList]) throws(BusError) {
        values = [:]
        for (key, entry) in entries {
            guard let value = entry.uint64 else { throw .invalidArgs("'\(key)' is not a number") }
            values[key] = value
        }
    }

    /// The number of a key; nil if the service does not report it.
    public subscript(key: Key) -> UInt64? { values[key.rawValue] }

    /// All numbers: the known ones in the order of the contract, then the others by name.
    public var entries: [(key: String, value: UInt64)] {
        let known = Key.allCases.map(\.rawValue)
        return (known + values.keys.filter { !known.contains($0) }.sorted()).compactMap { key in
            values[key].map { (key, $0) }
        }
    }

    var propertyList: PropertyList { .dictionary(values.mapValues(PropertyList.uint64)) }
}
