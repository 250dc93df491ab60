// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// A pattern for names of notifications, as policy files, the configuration of sessions and the bridge have it. It is
/// one name, all names below a prefix (`org.example.*`), or all names (`*`).
///
/// Names are compared byte for byte (D2).
package enum NamePattern: Hashable, Sendable, CustomStringConvertible {
    case all
    /// All names that begin with this prefix and are longer. The prefix has the dot at its end: `org.example.`.
    case below(String)
    /// One name.
    case exactly(String)

    /// Parses a pattern.
    ///
    /// - Parameter text: `*`, `org.example.*` or `org.example.Ding`. Any other form gives nil.
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

    /// Whether the pattern matches a name.
    ///
    /// - Parameter name: the name of a post or of an observer. It is empty for an observer of any name, which ``all``
    ///   alone matches.
    package func matches(_ name: String) -> Bool {
        #if CARILLON_PLANTED
            // Injects a fault, in builds that test whether the simulation finds it (E7).
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

    /// Returns the intersection of two lists: patterns for the names that both lists match. Policies use it where a
    /// list may only restrict another one.
    ///
    /// Of two patterns with a common name, one covers the other. Therefore the intersection has the patterns of each
    /// list that the other list covers.
    package static func common(of one: [NamePattern], and other: [NamePattern]) -> [NamePattern] {
        let (first, second) = (Index(one), Index(other))
        return one.filter(second.covers) + other.filter { !first.contains($0) && first.covers($0) }
    }

    /// A list of patterns as sets, so that a lookup does not depend on the length of the list.
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

        /// Whether the list has this very pattern.
        func contains(_ pattern: NamePattern) -> Bool {
            switch pattern {
            case .all: hasAll
            case .below(let prefix): prefixes.contains(ExactText(prefix))
            case .exactly(let text): exact.contains(ExactText(text))
            }
        }

        /// Whether the list matches all names that a pattern matches.
        func covers(_ pattern: NamePattern) -> Bool {
            if hasAll || contains(pattern) { return true }
            // Each part of the text up to a dot may be a prefix in the list. The last character is no end of a prefix,
            // as a name is longer than its prefix.
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

    /// The error for an entry of a list that is no pattern.
    package struct Malformed: Error {
        package let text: String
        /// The character in the entry that was probably meant as a separator, for the error message. A name may contain
        /// it.
        fileprivate var mark: String?

        /// The error message for the user that wrote the list.
        ///
        /// - Parameter key: the key of the list in the configuration.
        package func reason(for key: String) -> String {
            guard let mark else { return "'\(text)' for \(key) is neither a name nor a prefix (org.example.*)" }
            return "'\(text)' for \(key) has \(mark); ; separates names (org.example.*;org.x.Ding)"
        }
    }

    /// Parses a list of patterns between semicolons, as in configuration files. A last semicolon is allowed.
    package static func list(_ value: String) throws(Malformed) -> [NamePattern] {
        var patterns: [NamePattern] = []
        for part in parts(of: value) { patterns.append(try read(part)) }
        return patterns
    }

    /// Splits a list at semicolons. White space around entries is removed, and so are empty entries.
    package static func parts(of value: String) -> [String] {
        value.split(separator: ";").compactMap { part in
            let text = part.drop { $0.isWhitespace }
            return text.lastIndex { !$0.isWhitespace }.map { String(text[...$0]) }
        }
    }

    /// Parses one entry of a list, and rejects entries that are probably two names.
    package static func read(_ text: String) throws(Malformed) -> NamePattern {
        if text.utf8.contains(UInt8(ascii: ",")) { throw Malformed(text: text, mark: "a comma") }
        // A name may contain white space. Between two names with dots it was probably meant as a separator.
        if text.split(whereSeparator: \.isWhitespace).filter({ $0.utf8.contains(UInt8(ascii: ".")) }).count > 1 {
            throw Malformed(text: text, mark: "white space between names")
        }
        guard let pattern = NamePattern(text) else { throw Malformed(text: text) }
        return pattern
    }
}
