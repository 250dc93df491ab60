// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The gate that checks calls against policy (P2, P3).
///
/// Every row of the method table states its need (``CenterHandlers``), which is checked here.
final class PolicyGate {
    /// The permission that a call needs.
    enum Need {
        /// None: the call concerns only the caller.
        case nothing
        case post(name: String)
        /// The name is empty for any name.
        case observe(name: String)
        /// A permission that concerns the session; the text is a verb phrase that follows "may not".
        case session(String)
    }

    /// The clients that a caller may see.
    struct Visibility {
        /// Whether the caller sees everything in the session.
        let isWhole: Bool
        private let isVisible: (UniqueName) -> Bool

        fileprivate static var whole: Visibility { Visibility(isWhole: true) { _ in true } }

        fileprivate static func some(_ isVisible: @escaping (UniqueName) -> Bool) -> Visibility {
            Visibility(isWhole: false, isVisible: isVisible)
        }

        func shows(_ client: UniqueName) -> Bool { isVisible(client) }
    }

    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    var policy = Policy()
    var sessions = SessionRules()
    private unowned let callers: Callers
    /// Whether an application in a sandbox could have called and left before it was identified.
    private let maySandboxesCall: () -> Bool
    /// Whether a sandbox has called, or could have. Once true, it stays true.
    private var couldSandboxesCall = false

    /// - Parameter maySandboxesCall: returns whether sandboxes could have called until now, as far as that is known.
    init(callers: Callers, maySandboxesCall: @escaping () -> Bool) {
        self.callers = callers
        self.maySandboxesCall = maySandboxesCall
    }

    /// Takes the identity of a connection.
    func learned(_ caller: Callers.Caller) {
        if caller.sandbox != nil { couldSandboxesCall = true }
    }

    /// Whether a call of a connection that left before it was identified is judged as a sandbox's.
    var confinesUnidentified: Bool {
        switch policy.unidentified {
        case .allow: return false
        case .refuse: return true
        case .automatic:
            if !couldSandboxesCall { couldSandboxesCall = maySandboxesCall() }
            return couldSandboxesCall
        }
    }

    /// Whether no policy applies to a caller.
    func isFree(_ caller: UniqueName) -> Bool { subject(caller) == .session(application: nil) }

    /// Checks the permission that a call needs.
    ///
    /// - Throws: NotAllowed, with the rule.
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

    /// Checks the permissions that the options of a post need besides its name.
    ///
    /// - Parameter isOfMany: whether it arrived in a call of many posts, or on a channel.
    /// - Throws: NotAllowed, with the rule.
    func check(
        _ options: PostOptions, ofPost name: String, _ poster: UniqueName, isOfMany: Bool = false
    ) throws(BusError) {
        guard options.origin != nil || options.goesToAllSessions else { return }
        #if CARILLON_PLANTED
            if isOfMany, PlantedFault.strikes(.optionsUnpoliced) { return }
        #endif
        let subject = subject(poster)
        var refusal: String?
        if options.origin != nil { refusal = policy.refusalOfOrigin(to: subject) }
        if options.goesToAllSessions {
            refusal =
                policy.refusal(of: "post to all sessions", to: subject) ?? sessions.refusal(toExport: name)
        }
        if let refusal { throw BusError(.notAllowed, message: refusal) }
    }

    /// Returns the visible clients: all for a process of the session; those of the same sandbox for a sandbox.
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

    /// Whether a client may receive the posters of notifications (P2): only when it sees other clients.
    func mayKnowPosters(_ caller: UniqueName) -> Bool { visibility(of: caller).isWhole }

    /// Returns the reason for which a client may not observe this name; nil when it may.
    func refusal(toObserve name: String, _ client: UniqueName) -> String? {
        policy.refusal(of: .observe, name, to: subject(client))
    }

    /// Returns the registrations that policy forbids the client.
    func forbidden(_ registrations: some Sequence<Registration>, of client: UniqueName) -> Set<ObserverID> {
        let subject = subject(client)
        guard subject != .session(application: nil) else { return [] }
        return Set(
            registrations.filter { policy.refusal(of: .observe, $0.name ?? "", to: subject) != nil }.map(\.id))
    }

    /// Returns the part of the policy in force that concerns `reader`: a sandbox does not see others' lists.
    func shown(to reader: UniqueName) -> ShownPolicy {
        let visible =
            switch subject(reader) {
            case .session: policy.applications
            case .sandbox(let id): policy.applications[id] == nil ? [:] : [id: policy.listsOfSandbox(id)]
            case .unidentified: [:] as [String: [Policy.Action: [NamePattern]]]
            }
        return ShownPolicy(
            openNames: policy.openNames.map(\.description), unidentified: policy.unidentified.rawValue,
            confinesUnidentified: confinesUnidentified,
            applications: visible.mapValues { lists in
                Dictionary(uniqueKeysWithValues: lists.map { ($0.key.rawValue, $0.value.map(\.description)) })
            })
    }

    /// Returns the subject of a connection. The application of a process of the session is looked up only where policy
    /// depends on it.
    private func subject(_ name: UniqueName) -> Policy.Subject {
        guard let caller = callers[name] else { return unidentified }
        switch caller.confinement {
        case .sandbox(let id): return .sandbox(id)
        case .unknown: return unidentified
        case .none: return .session(application: policy.concernsSession ? caller.application : nil)
        }
    }

    private var unidentified: Policy.Subject {
        confinesUnidentified ? .unidentified : .session(application: nil)
    }
}
