// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A pattern for names of notifications as users write it: one name, all names below a prefix with a dot, or all names.
///
/// Names are compared byte for byte (D2).
package enum NamePattern: Hashable, Sendable, CustomStringConvertible {
    case all
    /// The prefix with the dot at its end: `org.example.`.
    case below(String)
    case exactly(String)

    /// - Parameter text: `*`, `org.example.*` or `org.example.Ding`; the result is nil for any other form.
    package init?(_ text: String) {
        if text == "*" {
            self = .all
        } else if text.hasSuffix(".*"), text.utf8.count > 2, !text.dropLast().contains("*") {
            self = .below(String(text.dropLast()))
        } else if !text.isEmpty, !text.contains("*") {
            self = .exactly(text)
        } else {
            return nil
        }
    }

    /// - Parameter name: the name; empty for any name, which only ``all`` matches.
    package func matches(_ name: String) -> Bool {
        #if CARILLON_PLANTED
            if case .below(let prefix) = self, PlantedFault.strikes(.prefixWithoutDot) {
                return name.utf8.starts(with: prefix.utf8.dropLast())
            }
        #endif
        return switch self {
        case .all: true
        case .below(let prefix): name.utf8.count > prefix.utf8.count && name.utf8.starts(with: prefix.utf8)
        case .exactly(let text): name.utf8.elementsEqual(text.utf8)
        }
    }

    /// Returns patterns for the names that both lists match.
    package static func common(of one: [NamePattern], and other: [NamePattern]) -> [NamePattern] {
        let (first, second) = (Index(one), Index(other))
        return one.filter(second.covers) + other.filter { !first.contains($0) && first.covers($0) }
    }

    /// A list of patterns, indexed for many lookups.
    private struct Index {
        private var hasAll = false
        private var exact: Set<ExactText> = []
        private var prefixes: Set<ExactText> = []

        init(_ patterns: [NamePattern]) {
            for pattern in patterns {
                switch pattern {
                case .all: hasAll = true
                case .below(let prefix): prefixes.insert(ExactText(prefix))
                case .exactly(let text): exact.insert(ExactText(text))
                }
            }
        }

        func contains(_ pattern: NamePattern) -> Bool {
            switch pattern {
            case .all: hasAll
            case .below(let prefix): prefixes.contains(ExactText(prefix))
            case .exactly(let text): exact.contains(ExactText(text))
            }
        }

        /// Whether the list matches all names of a pattern.
        func covers(_ pattern: NamePattern) -> Bool {
            if hasAll || contains(pattern) { return true }
            // A prefix may end at any dot. A name is longer than its prefix.
            return switch pattern {
            case .all: false
            case .below(let text), .exactly(let text):
                text.utf8.indices.dropLast().contains { index in
                    text.utf8[index] == UInt8(ascii: ".") && prefixes.contains(ExactText(String(text[...index])))
                }
            }
        }
    }

    package var description: String {
        switch self {
        case .all: "*"
        case .below(let prefix): prefix + "*"
        case .exactly(let text): text
        }
    }

    package static func == (left: NamePattern, right: NamePattern) -> Bool {
        left.description.utf8.elementsEqual(right.description.utf8)
    }

    /// An entry of a list that is neither a name nor a prefix.
    package struct Malformed: Error {
        package let text: String
        /// The mark that the entry probably does not mean as part of a name, though a name may contain it.
        fileprivate var mark: String?

        /// The error message for the author of the list.
        ///
        /// - Parameter key: the key of the list in the configuration.
        package func reason(for key: String) -> String {
            guard let mark else { return "'\(text)' for \(key) is neither a name nor a prefix (org.example.*)" }
            return "'\(text)' for \(key) has \(mark); ; separates names (org.example.*;org.x.Ding)"
        }
    }

    /// Reads names between semicolons, as in lists of configuration files; a last semicolon may follow.
    package static func list(_ value: String) throws(Malformed) -> [NamePattern] {
        var patterns: [NamePattern] = []
        for part in parts(of: value) { patterns.append(try read(part)) }
        return patterns
    }

    /// Splits a list at semicolons. White space around entries, and empty entries, are removed.
    package static func parts(of value: String) -> [String] {
        value.split(separator: ";").compactMap { part in
            let text = part.drop { $0.isWhitespace }
            return text.lastIndex { !$0.isWhitespace }.map { String(text[...$0]) }
        }
    }

    package static func read(_ text: String) throws(Malformed) -> NamePattern {
        if text.utf8.contains(UInt8(ascii: ",")) { throw Malformed(text: text, mark: "a comma") }
        // A name may contain white space, but between two names with dots it is probably meant as a separator.
        if text.split(whereSeparator: \.isWhitespace).filter({ $0.utf8.contains(UInt8(ascii: ".")) }).count > 1 {
            throw Malformed(text: text, mark: "white space between names")
        }
        guard let pattern = NamePattern(text) else { throw Malformed(text: text) }
        return pattern
    }
}
