// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore

/// A topic in the bridges' part of a broker: `carillon/1/<realm>/<host>/<user>/…`, version 1. No other code knows how
/// topics are written.
struct BridgeTopic {
    /// The subject of the messages on a topic.
    enum Subject {
        /// `n/com/example/Saved`: a notification. The dots of a name separate levels, so that a wildcard matches a
        /// prefix of names.
        case notification(name: String)
        /// `v/com/example/Battery/BAT0`: a value with an object. A broker retains one message for each topic, and the
        /// session keeps one value for each name and object.
        case value(name: String, object: String)
        /// `online`: the presence of the bridge.
        case online
        /// `status`: the losses of the bridge.
        case status
        /// `test`: messages of the bridge to itself.
        case test
    }

    /// The first level of each topic.
    static let top = "carillon"
    /// The maximum length of a topic in MQTT, in bytes.
    private static let maxBytes = 65_535
    /// The maximum number of levels: brokers limit them, mosquitto to 200.
    private static let maxLevels = 200

    let origin: Origin
    let subject: Subject

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

    /// - Returns: nil for a topic of another realm or version, and for any other text.
    init?(_ text: String, in realm: String) {
        // Not split by characters: a combining scalar behind a slash would form one character with it.
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

    private static func name(of levels: ArraySlice<Substring>) -> String? {
        var parts: [String] = []
        for level in levels {
            guard let part = TopicLevel.decoded(level) else { return nil }
            parts.append(part)
        }
        let name = parts.joined(separator: ".")
        return name.isEmpty ? nil : name
    }

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

    private static func root(_ realm: String, _ host: String, _ user: String) -> String {
        "carillon/1/\(TopicLevel.encoded(realm))/\(host)/\(user)/"
    }

    private static func levels(of name: String) -> String {
        name.unicodeScalars.split(separator: ".", omittingEmptySubsequences: false)
            .map { TopicLevel.encoded(Substring($0)) }.joined(separator: "/")
    }

    /// Whether MQTT, and brokers that limit the levels, accept a topic.
    static func isPossible(_ topic: String) -> Bool {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.topicUnchecked) { return true }
        #endif
        return topic.utf8.count <= maxBytes && topic.utf8.lazy.filter { $0 == UInt8(ascii: "/") }.count < maxLevels
    }

    /// Whether notifications of a name can have a topic, and can be subscribed to.
    static func isPossible(name: String) -> Bool {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.topicUnchecked) { return true }
        #endif
        let count = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).count
        // Root, kind and an object stand before and behind the name, each text at its maximum length.
        return count + 8 <= maxLevels && levels(of: name).utf8.count + 3 * 4 * OutsideOrigin.maxBytes <= maxBytes
    }

    // MARK: Filters

    /// Returns the filters for everything that one host, or each host, publishes under a name: notifications, and
    /// values of its objects.
    static func filters(name: String, of origin: Origin? = nil, in realm: String) -> [String] {
        let root = root(of: origin, in: realm)
        return [root + "n/" + levels(of: name), root + "v/" + levels(of: name) + "/+"]
    }

    /// Returns the filters for everything that one host, or each host, publishes under names with a prefix.
    ///
    /// - Parameter prefix: the prefix, with the dot at its end.
    static func filters(below prefix: String, of origin: Origin? = nil, in realm: String) -> [String] {
        let root = root(of: origin, in: realm)
        let levels = levels(of: String(prefix.unicodeScalars.dropLast()))
        return [root + "n/" + levels + "/#", root + "v/" + levels + "/#"]
    }

    /// Whether a filter is for topics of bridges, in any realm and version.
    static func isOfBridges(_ filter: String) -> Bool { filter.utf8.starts(with: (top + "/").utf8) }

    /// Whether a filter matches a topic.
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

    private static func root(of origin: Origin?, in realm: String) -> String {
        guard let origin else { return root(realm, "+", "+") }
        return root(realm, TopicLevel.encoded(origin.host), TopicLevel.encoded(origin.user))
    }

    static func presenceFilter(in realm: String) -> String { root(of: nil, in: realm) + "online" }

    /// Returns another filter for the same topics as a subscription's filter: a broker has one subscription for each
    /// filter text.
    static func alias(of filter: String) -> String {
        "carillon/+/" + filter.dropFirst("carillon/1/".count)
    }

    /// Returns the filter for one host in place of a filter for all hosts; nil for any other filter.
    static func filter(_ filter: String, of origin: Origin, in realm: String) -> String? {
        let all = root(realm, "+", "+")
        return filter.hasPrefix(all) ? root(of: origin, in: realm) + filter.dropFirst(all.count) : nil
    }

    /// Returns a filter that matches the presence of a host, and is not its topic.
    static func presenceCanary(of origin: Origin, in realm: String) -> String {
        root(realm, TopicLevel.encoded(origin.host), "+") + "online"
    }

    /// Returns the filters for everything that one origin keeps at the broker.
    static func filters(of origin: Origin, in realm: String) -> [String] {
        let root = root(of: origin, in: realm)
        return [root + "n/#", root + "v/#"]
    }
}
