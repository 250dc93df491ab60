// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonWire

/// The mapping between topics of devices, which do not use a bridge's topics, and names of notifications (`[Map NAME]`
/// in the configuration, G2). Messages of devices arrive as notifications, and notifications are also published to
/// devices. The lists of imports and exports apply to mapped names as well.
struct TopicMap: Equatable {
    /// The mapping of one name.
    struct Rule: Equatable {
        /// The name of the notifications.
        let name: String
        /// The topics whose messages arrive under the name; nil for none.
        var source: TopicPattern?
        /// The additional topic on which notifications of the name are published; nil for none.
        var target: TopicPattern?
    }

    /// All rules, in the order of the configuration.
    private(set) var rules: [Rule] = [] {
        didSet { takingRules = rules.filter { $0.source != nil && !isShadowed($0) } }
    }

    /// The rules by which messages of devices arrive: those with source topics that no earlier rule has
    /// (``isShadowed(_:)``).
    private var takingRules: [Rule] = []

    /// The user in the origin of a device's message. Its host is the first level of the topic.
    static let user = "device"

    /// Changes the rule of a name, which is created if necessary.
    mutating func change(_ name: String, _ change: (inout Rule) -> Void) {
        let index = rules.firstIndex { ExactText.matches($0.name, name) }
        if index == nil { rules.append(Rule(name: name)) }
        change(&rules[index ?? rules.count - 1])
    }

    /// Removes the rule of a name.
    mutating func remove(_ name: String) { rules.removeAll { ExactText.matches($0.name, name) } }

    /// Whether an earlier rule has some of the same source topics. The later rule is not used: a broker could send the
    /// messages twice, and without sequence numbers the bridge would not recognize the duplicates.
    func isShadowed(_ rule: Rule) -> Bool {
        guard let source = rule.source else { return false }
        return rules.prefix { $0 != rule }.contains { $0.source?.overlaps(source) == true }
    }

    /// Returns the topic filters of the subscriptions for wanted names.
    func filters(where isWanted: (_ name: String) -> Bool) -> Set<String> {
        Set(takingRules.compactMap { isWanted($0.name) ? $0.source?.text : nil })
    }

    /// Whether a rule, used or shadowed, maps messages of this device to this name. ``Importer`` keeps such values when
    /// the configuration changes, and removes those of other devices.
    func takes(_ name: String, of origin: Origin) -> Bool {
        rules.contains { rule in
            ExactText.matches(rule.name, name) && rule.source.map { ExactText.matches($0.root, origin.host) } == true
        }
    }

    /// Returns the message of a device as if a plain client had published it on a bridge's topic.
    ///
    /// - Returns: nil for a message that no rule maps, and for a bridge's own message to devices, which also arrives on
    ///   that bridge's topic.
    func translated(_ publication: Publication, in realm: String) -> Publication? {
        for rule in takingRules {
            guard let object = rule.source?.object(of: publication.topic),
                let host = rule.source?.root, let origin = Origin(host: host, user: Self.user)
            else { continue }
            // A message with a sequence number is of a bridge.
            guard MessageProperties(publication.userProperties)?.sequenceNumber == nil else { return nil }
            let isValue = publication.isRetained && !object.isEmpty
            let subject: BridgeTopic.Subject =
                isValue ? .value(name: rule.name, object: object) : .notification(name: rule.name)
            var properties = MessageProperties()
            properties.object = object
            var translated = publication
            translated.topic = BridgeTopic(subject, of: origin).text(in: realm)
            // User properties of a device have another meaning, and are replaced.
            translated.userProperties = properties.all
            return translated
        }
        return nil
    }

    /// The topic of devices on which a notification is published.
    enum Target: Equatable {
        /// The name is not mapped to a topic.
        case none
        case topic(String)
        /// The name is mapped, and the object can't replace the wildcards of the topic.
        case impossible
    }

    /// Returns the topic of devices for a notification.
    func target(of name: String, _ object: String) -> Target {
        guard let pattern = rules.first(where: { ExactText.matches($0.name, name) })?.target else { return .none }
        return pattern.topic(of: object).map(Target.topic) ?? .impossible
    }
}

/// A topic filter of the configuration whose wildcards stand for the object of a notification. In `zigbee2mqtt/+/set`
/// the `+` stands for one level of the object, and in `owntracks/#` the `#` for all levels. The parts of several
/// wildcards are joined by `/`.
struct TopicPattern: Equatable {
    /// The fault of a text that is no pattern.
    struct Malformed: Error, Equatable {
        let reason: String
    }

    /// The pattern as configured, which is also the filter of the subscription.
    let text: String
    private let levels: [String]

    /// Parses a pattern.
    init(_ text: String) throws(Malformed) {
        let levels = Self.levels(of: text)
        guard !text.isEmpty, text.unicodeScalars.allSatisfy(TopicLevel.isAllowed), BridgeTopic.isPossible(text) else {
            throw Malformed(reason: "is not a topic")
        }
        for (index, level) in levels.enumerated() where level.utf8.contains(where: Self.wildcards.contains) {
            guard level == "+" || level == "#" && index == levels.count - 1 else {
                throw Malformed(reason: "has a wildcard that is not a whole level, or a # that is not the last")
            }
        }
        guard let root = levels.first, !root.isEmpty, !root.utf8.contains(where: Self.wildcards.contains) else {
            throw Malformed(reason: "lacks the text of its first level, which all devices of a mapping share")
        }
        // `$SYS` holds the status of the broker. Other first levels with a dollar sign have special meanings in MQTT.
        guard root != BridgeTopic.top, root == "$SYS" || !root.hasPrefix("$") else {
            throw Malformed(reason: "begins with \(root), which is not a topic of devices")
        }
        guard Origin(host: root, user: "-") != nil else {
            throw Malformed(reason: "has more than \(OutsideOrigin.maxBytes) bytes in its first level")
        }
        self.text = text
        self.levels = levels
    }

    private static let wildcards = Array("+#".utf8)

    /// Returns the levels of a topic. Split by scalars: a combining scalar behind a slash would form one `Character`
    /// with it.
    private static func levels(of text: String) -> [String] {
        text.unicodeScalars.split(separator: "/", omittingEmptySubsequences: false).map { String(Substring($0)) }
    }

    /// The first level, which all devices of the mapping share and which is the host of their messages.
    var root: String { levels[0] }

    /// Whether a topic exists that both patterns match.
    func overlaps(_ other: TopicPattern) -> Bool {
        for index in 0..<max(levels.count, other.levels.count) {
            // A # also matches the topic above it.
            if index < levels.count, levels[index] == "#" { return other.levels.count >= index }
            if index < other.levels.count, other.levels[index] == "#" { return levels.count >= index }
            guard index < levels.count, index < other.levels.count else { return false }
            let (one, two) = (levels[index], other.levels[index])
            guard one == "+" || two == "+" || ExactText.matches(one, two) else { return false }
        }
        return true
    }

    /// Returns the object: the parts of a topic that the wildcards match; nil for a topic that does not match.
    func object(of topic: String) -> String? {
        let given = Self.levels(of: topic)
        var parts: [String] = []
        for (index, level) in levels.enumerated() {
            if level == "#" {
                guard given.count >= index else { return nil }
                return (parts + given[index...]).joined(separator: "/")
            }
            guard index < given.count else { return nil }
            if level == "+" {
                parts.append(given[index])
            } else if !ExactText.matches(level, given[index]) {
                return nil
            }
        }
        return given.count == levels.count ? parts.joined(separator: "/") : nil
    }

    /// Returns the topic in which the levels of an object replace the wildcards; nil for an object that does not fit.
    func topic(of object: String) -> String? {
        guard levels.contains(where: { $0 == "+" || $0 == "#" }) else { return text }
        guard object.unicodeScalars.allSatisfy({ TopicLevel.isAllowed($0) && $0 != "+" && $0 != "#" }) else {
            return nil
        }
        var parts = Self.levels(of: object)[...]
        guard parts.allSatisfy({ !$0.isEmpty }) else { return nil }
        var topic: [String] = []
        for level in levels {
            switch level {
            case "+":
                guard let part = parts.popFirst() else { return nil }
                topic.append(part)
            case "#":
                guard !parts.isEmpty else { return nil }
                topic += parts
                parts = []
            default: topic.append(level)
            }
        }
        let text = topic.joined(separator: "/")
        return parts.isEmpty && BridgeTopic.isPossible(text) ? text : nil
    }
}
