// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The policy: the rules that allow clients to post and observe (P2, P3). Its decisions depend on its arguments only.
///
/// An application may always use its *own* names, which are its ID and names that begin with the ID and a dot, and the
/// *open* names. Its list allows further names to post or to observe. Without a list, a process of the session may use
/// all names, and an application in a sandbox no others.
struct Policy: Equatable {
    /// The kind of caller on which policy decides.
    enum Subject: Hashable {
        /// A process of the session itself, with its application where that is known.
        case session(application: String?)
        /// An application in a sandbox.
        case sandbox(String)
        /// An unidentified connection, which may have been a sandbox's.
        case unidentified

        var isConfined: Bool { if case .session = self { false } else { true } }
    }

    /// The action that a list allows; the raw value is its key in the configuration.
    enum Action: String, CaseIterable {
        case post = "post"
        case observe = "observe"
    }

    /// The treatment of a call whose connection left before the bus could identify it.
    enum Unidentified: String, CaseIterable {
        /// As a process of the session, unless an application in a sandbox could have made it.
        case automatic = "auto"
        /// As a process of the session.
        case allow = "allow"
        /// As a sandbox without an ID.
        case refuse = "refuse"
    }

    /// The names that are open to all.
    var openNames: [NamePattern] = []
    var unidentified = Unidentified.automatic
    /// The lists of applications, by application ID.
    var applications: [String: [Action: [NamePattern]]] = [:]
    /// The lists in ``applications`` that confine a process of the session and open nothing to a sandbox, because they
    /// are from a file with a fault (E9).
    var forSessionOnly: [String: Set<Action>] = [:]

    /// Whether policy could refuse anything to a process of the session.
    var concernsSession: Bool { !applications.isEmpty }

    /// Returns the reason for which `subject` may not perform the action; nil when it may.
    ///
    /// - Parameter name: the notification's name; empty for any name.
    func refusal(of action: Action, _ name: String, to subject: Subject) -> String? {
        let (id, list) = standing(of: subject, action)
        guard let list else { return nil }
        if list.contains(where: { $0.matches(name) }) { return nil }
        if !name.isEmpty, openNames.contains(where: { $0.matches(name) }) || id.map({ owns($0, name) }) == true {
            return nil
        }
        return "\(words(for: subject)) may not \(action.rawValue) \(quoted(name)): "
            + rule(for: subject, action)
    }

    /// Returns the names that `subject` may use besides its own names and the open names; nil for all names.
    private func standing(of subject: Subject, _ action: Action) -> (id: String?, list: [NamePattern]?) {
        switch subject {
        case .session(let id): (id, id.flatMap { applications[$0]?[action] })
        case .sandbox(let id): (id, isForSessionOnly(id, action) ? [] : applications[id]?[action] ?? [])
        case .unidentified: (nil, [])
        }
    }

    private func isForSessionOnly(_ id: String, _ action: Action) -> Bool {
        forSessionOnly[id]?.contains(action) == true
    }

    /// Returns the lists of an application in a sandbox.
    func listsOfSandbox(_ id: String) -> [Action: [NamePattern]] {
        (applications[id] ?? [:]).filter { !isForSessionOnly(id, $0.key) }
    }

    private func owns(_ id: String, _ name: String) -> Bool {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.prefixWithoutDot) { return name.utf8.starts(with: id.utf8) }
        #endif
        return name.utf8.elementsEqual(id.utf8) || name.utf8.starts(with: (id + ".").utf8)
    }

    private func rule(for subject: Subject, _ action: Action) -> String {
        switch subject {
        case .sandbox(let id) where isForSessionOnly(id, action):
            return "a configuration file has a mistake, so \(action.rawValue) in [Policy \(id)] allows it no names"
        case .session(let id?), .sandbox(let id):
            if applications[id]?[action] != nil {
                return "neither its own names, nor open-names in [Policy], nor \(action.rawValue) in [Policy \(id)] "
                    + "contain it"
            }
            return "by default an application in a sandbox may use its own names, \(id) and \(id).*, and "
                + "open-names in [Policy]"
        case .session(nil), .unidentified:
            return "its process is not known, and unidentified in [Policy] allows it open-names only"
        }
    }

    /// Returns the reason for which `subject` may not do something that concerns others; nil when it may.
    ///
    /// - Parameter what: a verb phrase that follows "may not".
    func refusal(of what: String, to subject: Subject) -> String? {
        guard subject.isConfined else { return nil }
        return "\(words(for: subject)) may not \(what): no application in a sandbox may"
    }

    /// Returns the reason for which `subject` may not set an outside origin of its posts (G3); nil when it may.
    func refusalOfOrigin(to subject: Subject) -> String? {
        let what = "set an outside origin of notifications (options host and user)"
        if case .session(let id?) = subject, let list = applications[id]?[.post], !list.contains(.all) {
            return "\(id) may not \(what): post in [Policy \(id)] restricts it"
        }
        return refusal(of: what, to: subject)
    }

    private func words(for subject: Subject) -> String {
        switch subject {
        case .session(let id?), .sandbox(let id): id
        case .session(nil): "the caller"
        case .unidentified: "an unidentified caller (it may have left the bus at once)"
        }
    }

    /// Quotes a name, shortened to 200 characters.
    private func quoted(_ name: String) -> String {
        if name.isEmpty { return "any name" }
        return "'\(name.prefix(200))\(name.count > 200 ? "…" : "")'"
    }
}
