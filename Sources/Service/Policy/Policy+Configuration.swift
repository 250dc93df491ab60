// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The configuration of policy: `[Policy]`, and `[Policy ID]` for an application.
extension Policy {
    /// The prefix of an application's group.
    static let groupPrefix = "Policy "

    private enum Key: String, CaseIterable {
        case openNames = "open-names"
        case unidentified = "unidentified"
    }

    /// Applies an entry of the group `[Policy]`.
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

    /// Applies an entry of the group `[Policy]` of a file with a fault, as far as it restricts.
    mutating func restrict(by entry: KeyFile.Entry) {
        let key = Key(rawValue: entry.key)
        if key != .unidentified {
            openNames = NamePattern.common(
                of: openNames, and: key.flatMap { _ in try? NamePattern.list(entry.value) } ?? [])
        }
        guard key != .openNames else { return }
        switch Unidentified(rawValue: entry.value) {
        case .allow: break
        case .automatic: if unidentified == .allow { unidentified = .automatic }
        case .refuse, nil: unidentified = .refuse
        }
    }

    /// The group of an application in a file with a fault.
    struct Restriction {
        fileprivate var lists: [Action: [NamePattern]] = [:]
        fileprivate var hasFaultyLine = false

        /// Adds an entry. A faulty list is empty, and so are all lists of a group that has another faulty line.
        mutating func add(_ entry: KeyFile.Entry) {
            if let action = Action(rawValue: entry.key) {
                lists[action] = (try? NamePattern.list(entry.value)) ?? []
            } else {
                hasFaultyLine = true
            }
        }
    }

    /// Restricts an application to the names that both a file with a fault and the less important files allow. A list
    /// that is only in this file confines a process of the session, and opens nothing to a sandbox.
    mutating func restrict(_ application: String, by restriction: Restriction) {
        for action in Action.allCases {
            guard let list = restriction.hasFaultyLine ? [] : restriction.lists[action] else { continue }
            let before = applications[application]?[action]
            if before == nil { forSessionOnly[application, default: []].insert(action) }
            applications[application, default: [:]][action] =
                before.map { NamePattern.common(of: $0, and: list) } ?? list
        }
    }

    /// Opens nothing to a sandbox, until a file without a fault does.
    mutating func closeSandboxes() {
        openNames = []
        unidentified = .refuse
        for (id, lists) in applications { forSessionOnly[id] = Set(lists.keys) }
    }

    /// Whether a text may be the ID of an application.
    static func isID(_ text: String) -> Bool {
        !text.isEmpty && !text.contains { $0.isWhitespace || $0 == "*" }
    }

    /// Applies an entry of an application's group.
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
    /// Returns the names of an entry that is a list.
    static func list(_ entry: KeyFile.Entry, of file: KeyFile) throws(KeyFile.Fault) -> [NamePattern] {
        do throws(Malformed) {
            return try list(entry.value)
        } catch {
            throw fault(error, entry, of: file)
        }
    }

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
