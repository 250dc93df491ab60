// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonWire

/// Which registrations the program wants at the service, and which it is known to have there (E3).
///
/// Decides and does no input or output. Not thread-safe by itself.
struct Registrations {
    /// What has to be asked of a service so that it has what the program wants.
    struct Repair: Equatable {
        /// Not there: to be added.
        var missing: [RegistrationKey] = []
        /// There, and wanted no more, or twice.
        var surplus: [ObserverID] = []
    }

    private enum State {
        case wanted
        /// The service has been asked and did not answer yet.
        case asked
        case known(ObserverID)
    }

    private struct Entry {
        var state: State
        /// A new service gets the registrations in the order in which they were first wanted, as the old one did.
        let order: UInt64
    }

    private var entries: [RegistrationKey: Entry] = [:]
    private var keys: [ObserverID: RegistrationKey] = [:] { didSet { recent = ([], []) } }
    /// What was asked for last, as notifications for the same observers come one behind the other.
    private var recent: (ids: [ObserverID], keys: [RegistrationKey]) = ([], [])
    private var askedCount = 0
    /// The numbers that came from another service than the one that was compared with: it had the name by the time it
    /// was asked.
    private var ofAnother: Set<ObserverID> = []
    private var lastOrder: UInt64 = 0

    var isEmpty: Bool { entries.isEmpty }

    /// Whether the service that was compared with last had any that one before it was known to have. What it was asked
    /// for itself tells nothing of what it knows of those before.
    private(set) var areAnyRemembered = false

    /// Whether any has been asked for of which the number is not known yet.
    var areAnyAsked: Bool { askedCount > 0 }

    func key(of id: ObserverID) -> RegistrationKey? { keys[id] }

    /// Those that are known of these, in their order.
    mutating func keys(of ids: [ObserverID]) -> [RegistrationKey] {
        if ids != recent.ids { recent = (ids, ids.compactMap { keys[$0] }) }
        return recent.keys
    }

    mutating func want(_ key: RegistrationKey) {
        guard entries[key] == nil else { return }
        lastOrder += 1
        entries[key] = Entry(state: .wanted, order: lastOrder)
    }

    /// - Returns: the number of the registration to remove at the service, where it is known.
    mutating func forget(_ key: RegistrationKey) -> ObserverID? {
        let state = entries.removeValue(forKey: key)?.state
        if case .asked = state { askedCount -= 1 }
        guard case .known(let id) = state else { return nil }
        keys[id] = nil
        return id
    }

    mutating func asked(_ key: RegistrationKey) {
        set(.asked, of: key)
    }

    /// The service registered `key`.
    ///
    /// - Parameter isAnother: it is not the service that was compared with.
    /// - Returns: whether that is still wanted; otherwise the caller removes it there.
    mutating func added(_ key: RegistrationKey, id: ObserverID, byAnother isAnother: Bool = false) -> Bool {
        switch entries[key]?.state {
        case nil, .known: return false
        case .wanted, .asked:
            set(.known(id), of: key)
            keys[id] = key
            if isAnother { ofAnother.insert(id) }
            return true
        }
    }

    /// The answer did not come, or said no: it is not there.
    mutating func failed(_ key: RegistrationKey) {
        if case .asked = entries[key]?.state { set(.wanted, of: key) }
    }

    /// The service has it no longer, and would not take it again; a later service is asked.
    ///
    /// - Returns: what it was for; nil when it is not ours.
    mutating func revoked(_ id: ObserverID) -> RegistrationKey? {
        guard let key = keys.removeValue(forKey: id) else { return nil }
        entries[key]?.state = .wanted
        return key
    }

    /// The connection to the bus is another: no service there knows anything of us.
    mutating func reset() {
        keys = [:]
        ofAnother = []
        askedCount = 0
        for key in entries.keys { entries[key]!.state = .wanted }
    }

    private mutating func set(_ state: State, of key: RegistrationKey) {
        guard let entry = entries[key] else { return }
        if case .asked = entry.state { askedCount -= 1 }
        if case .asked = state { askedCount += 1 }
        entries[key]!.state = state
    }

    /// Compares with what a service, perhaps a new one, has of ours. What it has under a number that we did not learn,
    /// as its predecessor ended between adding and answering, is taken over.
    mutating func compare(with listed: [ListedObserver]) -> Repair {
        let (before, ofAnother) = (keys, ofAnother)
        reset()
        areAnyRemembered = false
        // Known numbers first: of two registrations for one key it is the one we know that stays.
        for entry in listed {
            guard let key = before[entry.id], entries[key] != nil else { continue }
            _ = added(key, id: entry.id)
            if !ofAnother.contains(entry.id) { areAnyRemembered = true }
        }
        var missing = entries.filter { if case .wanted = $0.value.state { true } else { false } }
            .sorted { $0.value.order < $1.value.order }.map(\.key)
        var repair = Repair()
        for entry in listed where keys[entry.id] == nil {
            // The list does not tell all options, so only a key that is the only one to fit is taken over.
            let fitting = missing.filter(entry.fits)
            if fitting.count == 1, added(fitting[0], id: entry.id) {
                missing.removeAll { $0 == fitting[0] }
            } else {
                repair.surplus.append(entry.id)
            }
        }
        repair.missing = missing
        return repair
    }
}

extension ListedObserver {
    func fits(_ key: RegistrationKey) -> Bool {
        ExactText(name) == key.name ?? ExactText("") && ExactText(object) == key.object ?? ExactText("")
            && suspensionBehavior == ListedObserver.word(for: key.options)
    }
}
