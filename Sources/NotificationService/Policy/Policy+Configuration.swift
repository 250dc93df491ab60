// SPDX-License-Identifier: Apache-2.0
import MainLoop

/// Policy as it stands in the configuration: `[Policy]`, and `[Policy ID]` for an application.
extension Policy {
    /// What the name of an application's group begins with.
    static let groupPrefix = "Policy "

    private enum Key: String, CaseIterable {
        case openNames = "open-names"
        case unidentified = "unidentified"
    }

    /// Takes an entry of the group `[Policy]`.
    mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        switch Key(rawValue: entry.key) {
        case .openNames: openNames = try patterns(entry, of: file)
        case .unidentified:
            guard let word = Unidentified(rawValue: entry.value) else {
                let known = Unidentified.allCases.map(\.rawValue).joined(separator: ", ")
                throw file.fault(entry, "'\(entry.value)' is no word for \(entry.key); there are: \(known)")
            }
            unidentified = word
        case nil:
            let known = Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "there is no key '\(entry.key)' in [Policy], only: \(known)")
        }
    }

    /// Takes an entry of an application's group.
    mutating func applyApplication(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        let id = String(entry.group.dropFirst(Self.groupPrefix.count))
        guard !id.isEmpty, !id.contains(where: { $0.isWhitespace || $0 == "*" }) else {
            throw file.fault(entry, "'\(id)' in [\(entry.group)] is no id of an application")
        }
        guard let action = Action(rawValue: entry.key) else {
            let known = Action.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "there is no key '\(entry.key)' in [\(entry.group)], only: \(known)")
        }
        applications[id, default: [:]][action] = try patterns(entry, of: file)
    }

    /// Names between semicolons, as lists in key files are; one may stand at the end.
    private func patterns(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> [NamePattern] {
        var patterns: [NamePattern] = []
        for part in entry.value.split(separator: ";") {
            let text = part.drop { $0.isWhitespace }
            let end = text.lastIndex { !$0.isWhitespace }
            guard let end else { continue }
            guard let pattern = NamePattern(String(text[...end])) else {
                throw file.fault(
                    entry, "'\(text[...end])' is no name for \(entry.key), nor the beginning of one (org.example.*)")
            }
            patterns.append(pattern)
        }
        return patterns
    }
}
