// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The parsing of policy in configuration files: the groups `[Policy]`, and `[Policy ID]` for the application with that
/// ID.
///
/// The files are applied one after the other, and a later file replaces entries of an earlier one. The `apply` methods
/// take an entry of a valid file. The `restrict` methods take an entry of a file with a fault, because such a file may
/// only reduce the permissions of the earlier files (E9).
extension Policy {
    /// The prefix of an application's group.
    static let groupPrefix = "Policy "

    /// The keys of the group `[Policy]`.
    private enum Key: String, CaseIterable {
        case openNames = "open-names"
        case unidentified = "unidentified"
    }

    /// Applies an entry of the group `[Policy]` of a valid file.
    mutating func apply(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        switch Key(rawValue: entry.key) {
        case .openNames: openNames = try NamePattern.list(entry, of: file)
        case .unidentified:
            guard let word = Unidentified(rawValue: entry.value) else {
                let known = Unidentified.allCases.map(\.rawValue).joined(separator: ", ")
                throw file.fault(entry, "'\(entry.value)' is not a value of \(entry.key); there are: \(known)")
            }
            unidentified = word
        case nil:
            let known = Key.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "there is no key '\(entry.key)' in [Policy], only: \(known)")
        }
    }

    /// Applies an entry of the group `[Policy]` of a file with a fault, as far as it restricts. An unknown key may be a
    /// misspelling of either key, so it restricts as both.
    mutating func restrict(by entry: KeyFile.Entry) {
        let key = Key(rawValue: entry.key)
        // Only names that both this list and the earlier one have stay open. A faulty list counts as empty.
        if key != .unidentified {
            openNames = NamePattern.common(
                of: openNames, and: key.flatMap { _ in try? NamePattern.list(entry.value) } ?? [])
        }
        guard key != .openNames else { return }
        // The order from the least to the most restrictive value is allow, auto, refuse.
        switch Unidentified(rawValue: entry.value) {
        case .allow: break
        case .automatic: if unidentified == .allow { unidentified = .automatic }
        case .refuse, nil: unidentified = .refuse
        }
    }

    /// The lists in the group of one application in a file with a fault.
    struct Restriction {
        fileprivate var lists: [Action: [NamePattern]] = [:]
        fileprivate var hasFaultyLine = false

        /// Adds an entry. A faulty list counts as empty. A line with an unknown key makes all lists of the group count
        /// as empty.
        mutating func add(_ entry: KeyFile.Entry) {
            if let action = Action(rawValue: entry.key) {
                lists[action] = (try? NamePattern.list(entry.value)) ?? []
            } else {
                hasFaultyLine = true
            }
        }
    }

    /// Restricts an application to the names that both a file with a fault and the earlier files allow. A list that
    /// only this file has restricts processes outside sandboxes, and allows nothing to a sandbox.
    mutating func restrict(_ application: String, by restriction: Restriction) {
        for action in Action.allCases {
            guard let list = restriction.hasFaultyLine ? [] : restriction.lists[action] else { continue }
            let before = applications[application]?[action]
            if before == nil { forSessionOnly[application, default: []].insert(action) }
            applications[application, default: [:]][action] =
                before.map { NamePattern.common(of: $0, and: list) } ?? list
        }
    }

    /// Allows nothing to applications in a sandbox except their own names, until a later valid file does.
    mutating func closeSandboxes() {
        openNames = []
        unidentified = .refuse
        for (id, lists) in applications { forSessionOnly[id] = Set(lists.keys) }
    }

    /// Whether a text has the form of an application's ID.
    static func isID(_ text: String) -> Bool {
        !text.isEmpty && !text.contains { $0.isWhitespace || $0 == "*" }
    }

    /// Applies an entry of the group `[Policy ID]` of a valid file.
    mutating func applyApplication(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) {
        let id = String(entry.group.dropFirst(Self.groupPrefix.count))
        guard Self.isID(id) else {
            throw file.fault(entry, "'\(id)' in [\(entry.group)] is not the id of an application")
        }
        guard let action = Action(rawValue: entry.key) else {
            let known = Action.allCases.map(\.rawValue).joined(separator: ", ")
            throw file.fault(entry, "there is no key '\(entry.key)' in [\(entry.group)], only: \(known)")
        }
        applications[id, default: [:]][action] = try NamePattern.list(entry, of: file)
        forSessionOnly[id]?.remove(action)
    }
}

extension NamePattern {
    /// Returns the list of name patterns in an entry; throws the fault with its file and line.
    static func list(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> [NamePattern] {
        do throws(Malformed) {
            return try list(entry.value)
        } catch {
            throw fault(error, entry, of: file)
        }
    }

    /// Returns one name pattern in an entry; throws the fault with its file and line.
    static func read(
        _ text: String, _ entry: KeyFile.Entry, of file: KeyFile
    ) throws(KeyFile.Fault) -> NamePattern {
        do throws(Malformed) {
            return try read(text)
        } catch {
            throw fault(error, entry, of: file)
        }
    }

    private static func fault(_ error: Malformed, _ entry: KeyFile.Entry, of file: KeyFile) -> KeyFile.Fault {
        file.fault(entry, error.reason(for: entry.key))
    }
}
