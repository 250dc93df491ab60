// SPDX-License-Identifier: Apache-2.0
/// The application that a process belongs to, as the kernel and systemd tell.
struct Application: Hashable {
    let id: String
    /// Whether Flatpak or a snap confines it.
    let isSandboxed: Bool
}

/// What the configuration says of policy, and what docs/security.md says that it means (P2, P3).
struct PolicyFile: Equatable {
    enum Action: String, CaseIterable {
        case post
        case observe
    }

    /// Calls of a connection that left before the bus could say whose it was.
    enum Unidentified: String, CaseIterable {
        case automatic = "auto"
        case allow
        case refuse
    }

    /// The caller, as the service knows it.
    enum Subject: Hashable {
        case application(Application)
        /// A process of the session of which nothing else is known.
        case process
        /// A connection that had left.
        case unidentified
    }

    var openNames: [String] = []
    var unidentified = Unidentified.automatic
    /// What applications may do besides, by their ids.
    var lists: [String: [Action: [String]]] = [:]
    /// Its part about other sessions.
    var sessions = SessionsFile()

    /// As it stands in `carillon.conf`.
    var text: String {
        var lines = ["[Policy]", "unidentified=" + unidentified.rawValue]
        if !openNames.isEmpty { lines.append("open-names=" + openNames.joined(separator: ";")) }
        for (id, actions) in lists.sorted(by: { $0.key < $1.key }) {
            lines.append("[Policy \(id)]")
            for (action, names) in actions.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
                lines.append("\(action.rawValue)=" + names.joined(separator: ";"))
            }
        }
        return lines.joined(separator: "\n") + "\n" + sessions.text
    }

    /// - Parameters:
    ///   - name: nil for any.
    ///   - areSandboxesThere: whether an application in a sandbox could have called and left.
    func allows(
        _ action: Action, _ name: String?, to subject: Subject, areSandboxesThere: Bool
    ) -> Bool {
        let isOpen = name.map { name in openNames.contains { Self.matches($0, name) } } ?? false
        switch subject {
        case .process: return true
        case .unidentified:
            return isOpen || unidentified == .allow || unidentified == .automatic && !areSandboxesThere
        case .application(let application):
            guard let list = lists[application.id]?[action] ?? (application.isSandboxed ? [] : nil) else { return true }
            guard let name else { return list.contains("*") }
            return isOpen || name == application.id || name.hasPrefix(application.id + ".")
                || list.contains { Self.matches($0, name) }
        }
    }

    /// Whether it may say that something comes from outside (G3).
    func allowsOrigin(to subject: Subject, areSandboxesThere: Bool) -> Bool {
        switch subject {
        case .process: true
        case .unidentified: unidentified == .allow || unidentified == .automatic && !areSandboxesThere
        case .application(let application):
            !application.isSandboxed && lists[application.id]?[.post].map { $0.contains("*") } != false
        }
    }

    /// Whether it may post a name to all sessions (G1).
    func allowsExport(of name: String, to subject: Subject, areSandboxesThere: Bool) -> Bool {
        guard sessions.exports(name) else { return false }
        switch subject {
        case .process: return true
        case .unidentified: return unidentified == .allow || unidentified == .automatic && !areSandboxesThere
        case .application(let application): return !application.isSandboxed
        }
    }

    static func matches(_ pattern: String, _ name: String) -> Bool {
        if pattern == "*" { return true }
        guard pattern.hasSuffix(".*") else { return pattern == name }
        return name.hasPrefix(pattern.dropLast()) && name.utf8.count >= pattern.utf8.count
    }
}

extension PolicyFile: CustomStringConvertible {
    var description: String { text.split(separator: "\n").joined(separator: " ") }
}
