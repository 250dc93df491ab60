// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonWire

/// The mapping between topics of devices and names (G2): messages of devices arrive as notifications, and notifications
/// are published to devices. A mapping grants nothing: the lists of imports and exports apply to it as well (G2).
struct TopicMap: Equatable {
    struct Rule: Equatable {
        let name: String
        /// The topics whose messages arrive under the name; nil for none.
        var source: TopicPattern?
        /// The additional topic on which notifications of the name are published; nil for none.
        var target: TopicPattern?
    }

    /// The rules, in the order of the configuration.
    private(set) var rules: [Rule] = [] {
        didSet { takingRules = rules.filter { $0.source != nil && !isShadowed($0) } }
    }

    /// The rules whose messages arrive.
    private var takingRules: [Rule] = []

    /// The user of a device's origin.
    static let user = "device"

    /// Changes the rule of a name.
    mutating func change(_ name: String, _ change: (inout Rule) -> Void) {
        let index = rules.firstIndex { ExactText.matches($0.name, name) }
        if index == nil { rules.append(Rule(name: name)) }
        change(&rules[index ?? rules.count - 1])
    }

    mutating func remove(_ name: String) { rules.removeAll { ExactText.matches($0.name, name) } }

    /// Whether an earlier rule takes some of the same topics: a broker would send their messages twice, and they have
    /// no numbers.
    func isShadowed(_ rule: Rule) -> Bool {
        guard let source = rule.source else { return false }
        return rules.prefix { $0 != rule }.contains { $0.source?.overlaps(source) == true }
    }

    /// Returns the filters of the subscriptions for the wanted names.
    func filters(where isWanted: (_ name: String) -> Bool) -> Set<String> {
        Set(takingRules.compactMap { isWanted($0.name) ? $0.source?.text : nil })
    }

    /// Whether messages of a device arrive under a name.
    func takes(_ name: String, of origin: Origin) -> Bool {
        rules.contains { rule in
            ExactText.matches(rule.name, name) && rule.source.map { ExactText.matches($0.root, origin.host) } == true
        }
    }

    /// Returns the message of a device as a client of this realm would publish it; the topic's first level is the host.
    /// Nil for a message that no rule takes, and for a bridge's message to devices, which is also on that bridge's own
    /// topic.
    func translated(_ publication: Publication, in realm: String) -> Publication? {
        for rule in takingRules {
            guard let object = rule.source?.object(of: publication.topic),
                let host = rule.source?.root, let origin = Origin(host: host, user: Self.user)
            else { continue }
            guard MessageProperties(publication.userProperties)?.place == nil else { return nil }
            let isValue = publication.isRetained && !object.isEmpty
            let subject: BridgeTopic.Subject =
                isValue ? .value(name: rule.name, object: object) : .notification(name: rule.name)
            var properties = MessageProperties()
            properties.object = object
            var translated = publication
            translated.topic = BridgeTopic(subject, of: origin).text(in: realm)
            // The user properties of a device, if it has any, have another meaning.
            translated.userProperties = properties.all
            return translated
        }
        return nil
    }

    /// The topic on which a notification is published for devices.
    enum Target: Equatable {
        case none
        case topic(String)
        /// The object can't stand for the wildcards.
        case impossible
    }

    func target(of name: String, _ object: String) -> Target {
        guard let pattern = rules.first(where: { ExactText.matches($0.name, name) })?.target else { return .none }
        return pattern.topic(of: object).map(Target.topic) ?? .impossible
    }
}

/// A topic in which wildcards stand for a notification's object: `zigbee2mqtt/+/set` with `+` for one level of it, or
/// `owntracks/#` with `#` for the rest. The parts of several wildcards are joined by `/`.
struct TopicPattern: Equatable {
    /// The error for a text that is no pattern.
    struct Malformed: Error, Equatable {
        let reason: String
    }

    let text: String
    private let levels: [String]

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

    /// Not split by characters: a combining scalar behind a slash would form one character with it.
    private static func levels(of text: String) -> [String] {
        text.unicodeScalars.split(separator: "/", omittingEmptySubsequences: false).map { String(Substring($0)) }
    }

    var root: String { levels[0] }

    /// Whether both patterns match some topic.
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

    /// - Returns: the text that the wildcards stand for in a topic; nil for a topic that does not match.
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

    /// - Returns: the topic in which an object replaces the wildcards; nil for an object that can't.
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
