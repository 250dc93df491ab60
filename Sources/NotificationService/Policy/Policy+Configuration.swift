// SPDX-License-Identifier: Apache-2.0
import MainLoop
import NotificationCore

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

    /// Takes an entry of the group `[Policy]` of a file with a fault, if it can only restrict.
    mutating func restrict(by entry: KeyFile.Entry) {
        guard entry.key == Key.unidentified.rawValue else { return }
        switch Unidentified(rawValue: entry.value) {
        case .allow: break
        case .automatic: if unidentified == .allow { unidentified = .automatic }
        case .refuse, nil: unidentified = .refuse
        }
    }

    /// Takes an entry of an application's group of a file with a fault, unless another file has such a list. A line with
    /// a fault, and an action that nobody knows, stand for all actions.
    mutating func restrictApplication(by entry: KeyFile.Entry) {
        let id = String(entry.group.dropFirst(Self.groupPrefix.count))
        for action in Action(rawValue: entry.key).map({ [$0] }) ?? Action.allCases {
            guard applications[id]?[action] == nil else { continue }
            let list = action.rawValue == entry.key ? try? NamePattern.list(entry.value) : nil
            applications[id, default: [:]][action] = list ?? []
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
    /// The names of an entry that is a list.
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
        file.fault(entry, "'\(error.text)' is no name for \(entry.key), nor the beginning of one (org.example.*)")
    }
}
