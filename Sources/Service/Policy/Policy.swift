// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The policy: an access-control list by application, for the names that it may post and the names that it may observe
/// (P2, P3). It comes from the configuration, and ``PolicyGate`` checks each call against it.
///
/// An application may always use its *own* names, which are its ID and names that begin with the ID and a dot, and the
/// *open* names. A list of the application for an action allows further names. Without such a list, a process outside
/// sandboxes may use all names, and an application in a sandbox no further ones.
struct Policy: Equatable {
    /// The caller on which policy decides.
    enum Subject: Hashable {
        /// A process outside any sandbox, with the ID of its application if that is known.
        case session(application: String?)
        /// An application in a sandbox, with its ID.
        case sandbox(String)
        /// An unidentified connection that may belong to a sandbox.
        case unidentified

        /// Whether it is, or may be, in a sandbox.
        var isConfined: Bool { if case .session = self { false } else { true } }
    }

    /// The action that a list allows; the raw value is its key in the configuration.
    enum Action: String, CaseIterable {
        case post = "post"
        case observe = "observe"
    }

    /// The treatment of a call whose connection can't be identified, usually because it left the bus at once.
    enum Unidentified: String, CaseIterable {
        /// Like a process outside sandboxes, unless an application in a sandbox could have made the call.
        case automatic = "auto"
        /// Like a process outside sandboxes.
        case allow = "allow"
        /// Like a sandbox without an ID, which may use only the open names.
        case refuse = "refuse"
    }

    /// The names that every caller may post and observe.
    var openNames: [NamePattern] = []
    /// The treatment of unidentified callers.
    var unidentified = Unidentified.automatic
    /// The lists of applications, by application ID.
    var applications: [String: [Action: [NamePattern]]] = [:]
    /// The lists in ``applications`` that restrict only processes outside sandboxes, and allow nothing to the
    /// application in a sandbox. They come from a file with a fault, which must not give permissions (E9).
    var forSessionOnly: [String: Set<Action>] = [:]

    /// Whether policy could refuse anything to a process outside sandboxes.
    var concernsSession: Bool { !applications.isEmpty }

    /// Returns the reason why `subject` may not perform the action, as a sentence; nil if it may.
    ///
    /// - Parameter name: the notification's name; empty for an observer of all names.
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

    /// Returns the application's ID, and the list of names that `subject` may use besides its own and the open ones. A
    /// nil list allows all names.
    private func standing(of subject: Subject, _ action: Action) -> (id: String?, list: [NamePattern]?) {
        switch subject {
        case .session(let id): (id, id.flatMap { applications[$0]?[action] })
        case .sandbox(let id): (id, isForSessionOnly(id, action) ? [] : applications[id]?[action] ?? [])
        case .unidentified: (nil, [])
        }
    }

    /// Whether the application's list allows nothing to a sandbox.
    private func isForSessionOnly(_ id: String, _ action: Action) -> Bool {
        forSessionOnly[id]?.contains(action) == true
    }

    /// Returns the lists that apply to an application in a sandbox.
    func listsOfSandbox(_ id: String) -> [Action: [NamePattern]] {
        (applications[id] ?? [:]).filter { !isForSessionOnly(id, $0.key) }
    }

    /// Whether a name is one of the application's own names.
    private func owns(_ id: String, _ name: String) -> Bool {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.prefixWithoutDot) { return name.utf8.starts(with: id.utf8) }
        #endif
        return name.utf8.elementsEqual(id.utf8) || name.utf8.starts(with: (id + ".").utf8)
    }

    /// Returns the rule by which policy refused, as the end of a sentence.
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

    /// Returns the reason why `subject` may not use a function that concerns other programs, which no sandbox may; nil
    /// if it may.
    ///
    /// - Parameter what: the function, as a verb phrase that follows "may not".
    func refusal(of what: String, to subject: Subject) -> String? {
        guard subject.isConfined else { return nil }
        return "\(words(for: subject)) may not \(what): no application in a sandbox may"
    }

    /// Returns the reason why `subject` may not give its posts an origin on another machine, as a bridge does (G3); nil
    /// if it may. An application whose posts are restricted to a list may not.
    func refusalOfOrigin(to subject: Subject) -> String? {
        let what = "set an outside origin of notifications (options host and user)"
        if case .session(let id?) = subject, let list = applications[id]?[.post], !list.contains(.all) {
            return "\(id) may not \(what): post in [Policy \(id)] restricts it"
        }
        return refusal(of: what, to: subject)
    }

    /// Returns the subject for an error text.
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
