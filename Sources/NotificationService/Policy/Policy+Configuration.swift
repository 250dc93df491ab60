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
        case .openNames: openNames = try NamePattern.list(entry, of: file)
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
        applications[id, default: [:]][action] = try NamePattern.list(entry, of: file)
    }
}

extension NamePattern {
    /// Names between semicolons, as lists in key files are; one may stand at the end.
    static func list(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> [NamePattern] {
        var patterns: [NamePattern] = []
        for part in parts(of: entry.value) { patterns.append(try read(part, entry, of: file)) }
        return patterns
    }

    /// What stands between semicolons, without white space around it; nothing counts for nothing.
    static func parts(of value: String) -> [String] {
        value.split(separator: ";").compactMap { part in
            let text = part.drop { $0.isWhitespace }
            return text.lastIndex { !$0.isWhitespace }.map { String(text[...$0]) }
        }
    }

    static func read(
        _ text: String, _ entry: KeyFile.Entry, of file: KeyFile
    ) throws(KeyFile.Fault) -> NamePattern {
        guard let pattern = NamePattern(text) else {
            throw file.fault(
                entry, "'\(text)' is no name for \(entry.key), nor the beginning of one (org.example.*)")
        }
        return pattern
    }
}
