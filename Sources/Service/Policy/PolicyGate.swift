// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The check of calls against policy: it maps a caller to a subject of ``Policy`` by its verified identity (P2, P3).
///
/// Each row of the method table states the permission that the call needs (``CenterHandlers``), and the check here
/// throws if the caller lacks it. The gate also decides which other clients a caller may see.
final class PolicyGate {
    /// The permission that a call needs.
    enum Need {
        /// None, because the call concerns only the caller.
        case nothing
        /// To post this name.
        case post(name: String)
        /// To observe this name; empty for all names.
        case observe(name: String)
        /// To use a function that concerns other programs of the session. Every process outside sandboxes may, and no
        /// sandbox. The text is a verb phrase that follows "may not" in the error.
        case session(String)
    }

    /// The clients that a caller may see in lists and explanations.
    struct Visibility {
        /// Whether the caller sees all clients of the session.
        let isWhole: Bool
        private let isVisible: (UniqueName) -> Bool

        fileprivate static var whole: Visibility { Visibility(isWhole: true) { _ in true } }

        fileprivate static func some(_ isVisible: @escaping (UniqueName) -> Bool) -> Visibility {
            Visibility(isWhole: false, isVisible: isVisible)
        }

        /// Whether the caller sees this client.
        func shows(_ client: UniqueName) -> Bool { isVisible(client) }
    }

    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    /// The policy in force.
    var policy = Policy()
    /// The rules in force for the exchange with other sessions.
    var sessions = SessionRules()
    private unowned let callers: Callers
    /// Returns whether a sandbox could have called and left before it was identified.
    private let maySandboxesCall: () -> Bool
    /// Whether a sandbox has called since the start, or could have. Once true, it stays true.
    private var couldSandboxesCall = false

    /// - Parameter maySandboxesCall: returns whether sandboxes could have called until now, as far as that is known.
    init(callers: Callers, maySandboxesCall: @escaping () -> Bool) {
        self.callers = callers
        self.maySandboxesCall = maySandboxesCall
    }

    /// Notes the identity of a new caller: a sandbox is now known to call.
    func learned(_ caller: Callers.Caller) {
        if caller.sandbox != nil { couldSandboxesCall = true }
    }

    /// Whether an unidentified caller is treated like a sandbox.
    var confinesUnidentified: Bool {
        switch policy.unidentified {
        case .allow: return false
        case .refuse: return true
        case .automatic:
            if !couldSandboxesCall { couldSandboxesCall = maySandboxesCall() }
            return couldSandboxesCall
        }
    }

    /// Whether policy can refuse nothing to a caller.
    func isFree(_ caller: UniqueName) -> Bool { subject(caller) == .session(application: nil) }

    /// Checks the permission that a call needs.
    ///
    /// - Parameter need: returns the permission; it is called only if policy applies to the caller.
    /// - Throws: NotAllowed, with the rule; or the error of `need`.
    func check(_ caller: UniqueName, _ need: () throws(BusError) -> Need) throws(BusError) {
        let subject = subject(caller)
        guard subject != .session(application: nil) else { return }
        let refusal =
            switch try need() {
            case .nothing: nil as String?
            case .post(let name): policy.refusal(of: .post, name, to: subject)
            case .observe(let name): policy.refusal(of: .observe, name, to: subject)
            case .session(let what): policy.refusal(of: what, to: subject)
            }
        if let refusal { throw BusError(.notAllowed, message: refusal) }
    }

    /// Checks the permissions that the options of a post need: an outside origin, and the delivery to all sessions.
    ///
    /// - Parameter isOfMany: whether the post arrived in `PostMany` or on a channel. Only fault injection uses it.
    /// - Throws: NotAllowed, with the rule.
    func check(
        _ options: PostOptions, ofPost name: String, _ poster: UniqueName, isOfMany: Bool = false
    ) throws(BusError) {
        guard options.origin != nil || options.goesToAllSessions else { return }
        #if CARILLON_PLANTED
            if isOfMany, PlantedFault.strikes(.optionsWithoutPolicy) { return }
        #endif
        let subject = subject(poster)
        // Decoding refuses a post with both options, so at most one of the two refusals applies.
        var refusal: String?
        if options.origin != nil { refusal = policy.refusalOfOrigin(to: subject) }
        if options.goesToAllSessions {
            refusal =
                policy.refusal(of: "post to all sessions", to: subject) ?? sessions.refusal(toExport: name)
        }
        if let refusal { throw BusError(.notAllowed, message: refusal) }
    }

    /// Returns the clients that a caller may see: all for a process outside sandboxes, those of the same application
    /// for a sandbox, and only itself for an unidentified caller.
    func visibility(of caller: UniqueName) -> Visibility {
        switch subject(caller) {
        case .session: .whole
        #if CARILLON_PLANTED
            case .sandbox where PlantedFault.strikes(.sandboxSeesAll): .whole
        #endif
        case .sandbox(let id): .some { [callers] in $0 == caller || callers.identity(of: $0)?.sandbox == id }
        case .unidentified: .some { $0 == caller }
        }
    }

    /// Whether a client may receive the posters of notifications: only if it may see other clients (P2).
    func mayKnowPosters(_ caller: UniqueName) -> Bool { visibility(of: caller).isWhole }

    /// Returns the reason why a client may not observe this name; nil if it may.
    func refusal(toObserve name: String, _ client: UniqueName) -> String? {
        policy.refusal(of: .observe, name, to: subject(client))
    }

    /// Returns those of the client's registrations that policy forbids.
    func forbidden(_ registrations: some Sequence<Registration>, of client: UniqueName) -> Set<ObserverID> {
        let subject = subject(client)
        guard subject != .session(application: nil) else { return [] }
        return Set(
            registrations.filter { policy.refusal(of: .observe, $0.name ?? "", to: subject) != nil }.map(\.id))
    }

    /// Returns the policy in force for the D-Bus property `Policy`. A sandbox sees only the lists of its own
    /// application.
    func shown(to reader: UniqueName) -> PolicyProperty {
        let visible =
            switch subject(reader) {
            case .session: policy.applications
            case .sandbox(let id): policy.applications[id] == nil ? [:] : [id: policy.listsOfSandbox(id)]
            case .unidentified: [:] as [String: [Policy.Action: [NamePattern]]]
            }
        return PolicyProperty(
            openNames: policy.openNames.map(\.description), unidentified: policy.unidentified.rawValue,
            confinesUnidentified: confinesUnidentified,
            applications: visible.mapValues { lists in
                Dictionary(uniqueKeysWithValues: lists.map { ($0.key.rawValue, $0.value.map(\.description)) })
            })
    }

    /// Returns the subject of a connection. The application of a process outside sandboxes is left out if policy has no
    /// lists, so that the result `.session(application: nil)` means that policy can refuse nothing.
    private func subject(_ name: UniqueName) -> Policy.Subject {
        guard let caller = callers[name] else { return unidentified }
        switch caller.confinement {
        case .sandbox(let id): return .sandbox(id)
        case .unknown: return unidentified
        case .none: return .session(application: policy.concernsSession ? caller.application : nil)
        }
    }

    /// The subject of an unidentified connection.
    private var unidentified: Policy.Subject {
        confinesUnidentified ? .unidentified : .session(application: nil)
    }
}
