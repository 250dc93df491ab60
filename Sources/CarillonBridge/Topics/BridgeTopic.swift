// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// An MQTT topic of a bridge: `carillon/1/<realm>/<host>/<user>/…`, with the protocol version 1. A realm is a group of
/// hosts that exchange notifications. No other code knows the form of topics.
struct BridgeTopic {
    /// The subject of the messages on a topic, with the levels behind the user.
    enum Subject {
        /// `n/com/example/Saved`: notifications of a name, and its value without an object. The dots of the name
        /// separate levels, so that a wildcard matches all names with a prefix.
        case notification(name: String)
        /// `v/com/example/Battery/BAT0`: the value of a name and an object. A broker retains one message for each
        /// topic, so each object needs its own.
        case value(name: String, object: String)
        /// `online`: the presence of the host, retained.
        case online
        /// `status`: the losses of the host, retained.
        case status
        /// `test`: messages of the bridge to itself.
        case test
    }

    /// The first level of each topic.
    static let top = "carillon"
    /// The maximum length of a topic in MQTT, in bytes.
    private static let maxBytes = 65_535
    /// The maximum number of levels. Brokers limit them; mosquitto to 200.
    private static let maxLevels = 200

    /// The host that publishes on the topic.
    let origin: Origin
    let subject: Subject

    /// Creates a topic of a host.
    init(_ subject: Subject, of origin: Origin) {
        self.origin = origin
        self.subject = subject
    }

    /// Creates the topic on which a bridge publishes a value.
    ///
    /// - Parameter object: empty for none.
    init(value name: String, _ object: String, of origin: Origin) {
        self.init(object.isEmpty ? .notification(name: name) : .value(name: name, object: object), of: origin)
    }

    /// Parses a topic.
    ///
    /// - Returns: nil for a topic of another realm or version, and for any other text.
    init?(_ text: String, in realm: String) {
        // Split by scalars: a combining scalar behind a slash would form one `Character` with it.
        let levels = text.unicodeScalars.split(separator: "/", omittingEmptySubsequences: false).map(Substring.init)
        guard levels.count >= 6, levels[0] == "carillon", levels[1] == "1",
            ExactText.matches(TopicLevel.encoded(realm), String(levels[2])),
            let host = TopicLevel.decoded(levels[3]), let user = TopicLevel.decoded(levels[4]),
            let origin = Origin(host: host, user: user)
        else { return nil }
        self.origin = origin
        let rest = levels[6...]
        switch (levels[5], rest.count) {
        case ("online", 0): subject = .online
        case ("status", 0): subject = .status
        case ("test", 0): subject = .test
        case ("n", 1...):
            guard let name = Self.name(of: rest) else { return nil }
            subject = .notification(name: name)
        case ("v", 2...):
            guard let name = Self.name(of: rest.dropLast()), let object = TopicLevel.decoded(rest.last!),
                !object.isEmpty
            else { return nil }
            subject = .value(name: name, object: object)
        default: return nil
        }
    }

    /// Returns the realm of a bridge's topic; nil for a topic that can't be a bridge's.
    static func realm(of topic: String) -> String? {
        let levels = topic.unicodeScalars.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        guard levels.count == 4 else { return nil }
        return TopicLevel.decoded(Substring(levels[2]))
    }

    /// Returns the name that levels represent; nil if it is empty or malformed.
    private static func name(of levels: ArraySlice<Substring>) -> String? {
        var parts: [String] = []
        for level in levels {
            guard let part = TopicLevel.decoded(level) else { return nil }
            parts.append(part)
        }
        let name = parts.joined(separator: ".")
        return name.isEmpty ? nil : name
    }

    /// Returns the topic as a text.
    func text(in realm: String) -> String {
        let root = Self.root(of: origin, in: realm)
        return switch subject {
        case .notification(let name): root + "n/" + Self.levels(of: name)
        case .value(let name, let object): root + "v/" + Self.levels(of: name) + "/" + TopicLevel.encoded(object)
        case .online: root + "online"
        case .status: root + "status"
        case .test: root + "test"
        }
    }

    /// Returns the levels up to the user, each of which may be a wildcard.
    private static func root(_ realm: String, _ host: String, _ user: String) -> String {
        "carillon/1/\(TopicLevel.encoded(realm))/\(host)/\(user)/"
    }

    /// Returns the levels for a name.
    private static func levels(of name: String) -> String {
        name.unicodeScalars.split(separator: ".", omittingEmptySubsequences: false)
            .map { TopicLevel.encoded(Substring($0)) }.joined(separator: "/")
    }

    /// Whether a topic is within the limits of MQTT and of common brokers.
    static func isPossible(_ topic: String) -> Bool {
        // A fault of test builds (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.topicUnchecked) { return true }
        #endif
        return topic.utf8.count <= maxBytes && topic.utf8.lazy.filter { $0 == UInt8(ascii: "/") }.count < maxLevels
    }

    /// Whether every filter for a name is within the limits, for any host. A topic with a long object may exceed them.
    static func isPossible(name: String) -> Bool {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.topicUnchecked) { return true }
        #endif
        let count = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).count
        // Up to 8 levels are not of the name. Realm, host and user have up to `OutsideOrigin.maxBytes` each, and up to
        // three times that when percent-encoded. The fourth part is for the other levels.
        return count + 8 <= maxLevels && levels(of: name).utf8.count + 3 * 4 * OutsideOrigin.maxBytes <= maxBytes
    }

    // MARK: Filters

    /// Returns the filters for the notifications and the values of a name, of one host or of all hosts.
    static func filters(name: String, of origin: Origin? = nil, in realm: String) -> [String] {
        let root = root(of: origin, in: realm)
        return [root + "n/" + levels(of: name), root + "v/" + levels(of: name) + "/+"]
    }

    /// Returns the filters for the notifications and the values of all names with a prefix, of one host or of all
    /// hosts.
    ///
    /// - Parameter prefix: the prefix, with the dot at its end.
    static func filters(below prefix: String, of origin: Origin? = nil, in realm: String) -> [String] {
        let root = root(of: origin, in: realm)
        let levels = levels(of: String(prefix.unicodeScalars.dropLast()))
        return [root + "n/" + levels + "/#", root + "v/" + levels + "/#"]
    }

    /// Whether a filter is for topics of bridges, in any realm and version.
    static func isOfBridges(_ filter: String) -> Bool { filter.utf8.starts(with: (top + "/").utf8) }

    /// Whether a filter matches a topic, by the rules of MQTT.
    static func matches(_ filter: String, _ topic: String) -> Bool {
        let wanted = filter.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        let levels = topic.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        for (index, level) in wanted.enumerated() {
            if level.elementsEqual("#".utf8) { return levels.count >= index }
            guard index < levels.count, level.elementsEqual("+".utf8) || level.elementsEqual(levels[index]) else {
                return false
            }
        }
        return wanted.count == levels.count
    }

    /// Returns the levels up to the user, of one host or with wildcards for all hosts.
    private static func root(of origin: Origin?, in realm: String) -> String {
        guard let origin else { return root(realm, "+", "+") }
        return root(realm, TopicLevel.encoded(origin.host), TopicLevel.encoded(origin.user))
    }

    /// Returns the filter for the presence of all hosts.
    static func presenceFilter(in realm: String) -> String { root(of: nil, in: realm) + "online" }

    /// Returns another filter for the same topics, with a wildcard for the version. A query uses it beside the
    /// subscription with the original filter, because a broker keeps one subscription for each filter text.
    static func alias(of filter: String) -> String {
        "carillon/+/" + filter.dropFirst("carillon/1/".count)
    }

    /// Returns the filter for one host that replaces a filter for all hosts; nil for any other filter.
    static func filter(_ filter: String, of origin: Origin, in realm: String) -> String? {
        let all = root(realm, "+", "+")
        return filter.hasPrefix(all) ? root(of: origin, in: realm) + filter.dropFirst(all.count) : nil
    }

    /// Returns a filter that matches the presence of a host and differs from its topic. It is the filter of the canary
    /// (``RetainedQueries``).
    static func presenceCanary(of origin: Origin, in realm: String) -> String {
        root(realm, TopicLevel.encoded(origin.host), "+") + "online"
    }

    /// Returns the filters for all notifications and values of one host.
    static func filters(of origin: Origin, in realm: String) -> [String] {
        let root = root(of: origin, in: realm)
        return [root + "n/#", root + "v/#"]
    }
}
