// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// Who may do what (P2, P3): decides, and looks at nothing but what it is told.
///
/// An application always has its *own* names, which are its id and what begins with that and a dot, and the *open* ones.
/// What else it may post or observe is in its list. Without one, a process of the session may do everything, and an
/// application in a sandbox nothing.
struct Policy: Equatable {
    /// Who asks.
    enum Subject: Hashable {
        /// A process of the session itself; of which application, where that is known.
        case session(application: String?)
        /// An application in a sandbox.
        case sandbox(String)
        /// A connection of which nobody can say any more whose it was, where it may have been a sandbox's.
        case unidentified

        var isConfined: Bool { if case .session = self { false } else { true } }
    }

    /// What a list is for; its key in the configuration.
    enum Action: String, CaseIterable {
        case post = "post"
        case observe = "observe"
    }

    /// What happens to a call of a connection that left before the bus could say whose it was.
    enum Unidentified: String, CaseIterable {
        /// It is a process's of the session, unless an application in a sandbox could have made it.
        case automatic = "auto"
        /// It is a process's of the session.
        case allow = "allow"
        /// It is judged as one of a sandbox without an id.
        case refuse = "refuse"
    }

    /// The names that are open to all.
    var openNames: [NamePattern] = []
    var unidentified = Unidentified.automatic
    /// The lists of applications, by their ids.
    var applications: [String: [Action: [NamePattern]]] = [:]
    /// Those of these lists that confine a process of the session and open nothing to a sandbox, as they are of a file with
    /// a fault (E9).
    var forSessionOnly: [String: Set<Action>] = [:]

    /// Whether a process of the session could be refused anything.
    var concernsSession: Bool { !applications.isEmpty }

    /// Why `subject` may not do this; nil when it may.
    ///
    /// - Parameter name: of the notification; empty for any name.
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

    /// What is allowed to `subject` besides its own names and the open ones; nil when everything is.
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

    /// The lists of an application in a sandbox.
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
            return "because of a mistake in a configuration file \(action.rawValue) in [Policy \(id)] opens nothing "
                + "to it"
        case .session(let id?), .sandbox(let id):
            if applications[id]?[action] != nil {
                return "neither its own names, nor open-names in [Policy], nor \(action.rawValue) in [Policy \(id)] "
                    + "have it"
            }
            return "by default an application in a sandbox has its own names, \(id) and \(id).*, and open-names in "
                + "[Policy]"
        case .session(nil), .unidentified:
            return "its process is not known, and unidentified in [Policy] leaves it open-names only"
        }
    }

    /// Why `subject` may not do what concerns others than itself; nil when it may.
    ///
    /// - Parameter what: in words, behind "may not".
    func refusal(of what: String, to subject: Subject) -> String? {
        guard subject.isConfined else { return nil }
        return "\(words(for: subject)) may not \(what): no application in a sandbox may"
    }

    /// Why `subject` may not say that what it posts comes from outside (G3); nil when it may.
    func refusalOfOrigin(to subject: Subject) -> String? {
        let what = "say that a notification comes from elsewhere (options host and user)"
        if case .session(let id?) = subject, let list = applications[id]?[.post], !list.contains(.all) {
            return "\(id) may not \(what): post in [Policy \(id)] confines it"
        }
        return refusal(of: what, to: subject)
    }

    private func words(for subject: Subject) -> String {
        switch subject {
        case .session(let id?), .sandbox(let id): id
        case .session(nil): "the caller"
        case .unidentified: "a caller of which nothing could be found out, as one that left the bus at once"
        }
    }

    /// Not more of a name than anybody reads.
    private func quoted(_ name: String) -> String {
        if name.isEmpty { return "any name" }
        return "'\(name.prefix(200))\(name.count > 200 ? "…" : "")'"
    }
}
