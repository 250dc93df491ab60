// SPDX-License-Identifier: Apache-2.0
/// Names of notifications as a person writes them: one, those that begin with another and a dot, or all.
///
/// Compared byte for byte, as names are (D2).
enum NamePattern: Hashable, CustomStringConvertible {
    case all
    /// With the dot at its end: `org.example.`.
    case below(String)
    case exactly(String)

    /// - Parameter text: `*`, `org.example.*` or `org.example.Ding`; nil when it is none of these.
    init?(_ text: String) {
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

    /// - Parameter name: empty for any name.
    func matches(_ name: String) -> Bool {
        switch self {
        case .all: true
        case .below(let prefix): name.utf8.count > prefix.utf8.count && name.utf8.starts(with: prefix.utf8)
        case .exactly(let text): name.utf8.elementsEqual(text.utf8)
        }
    }

    var description: String {
        switch self {
        case .all: "*"
        case .below(let prefix): prefix + "*"
        case .exactly(let text): text
        }
    }

    static func == (left: NamePattern, right: NamePattern) -> Bool {
        left.description.utf8.elementsEqual(right.description.utf8)
    }
}
