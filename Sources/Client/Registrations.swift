// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonWire

/// The registrations that the program wants at the service, and the registrations that are known to exist there (E3).
///
/// Decides and does no input or output. Not thread-safe by itself.
struct Registrations {
    /// The changes that a service needs so that its registrations match the program's wishes.
    struct Repair: Equatable {
        /// The registrations to add.
        var missing: [RegistrationKey] = []
        /// The registrations to remove, because they are no longer wanted or exist twice.
        var surplus: [ObserverID] = []
    }

    private enum State {
        case wanted
        /// The service has been asked and has not answered yet.
        case asked
        case known(ObserverID)
    }

    private struct Entry {
        var state: State
        /// A new service receives the registrations in the order in which they were first wanted, as the old one did.
        let order: UInt64
    }

    private var entries: [RegistrationKey: Entry] = [:]
    private var keys: [ObserverID: RegistrationKey] = [:] { didSet { recent = ([], []) } }
    /// The result of the last lookup, because notifications for the same observers often follow each other.
    private var recent: (ids: [ObserverID], keys: [RegistrationKey]) = ([], [])
    private var askedCount = 0
    /// The numbers that another service assigned than the one in the last comparison, because it owned the name when
    /// the call arrived.
    private var ofAnother: Set<ObserverID> = []
    private var lastOrder: UInt64 = 0

    var isEmpty: Bool { entries.isEmpty }

    /// Whether the service in the last comparison had a registration that an earlier service was known to have.
    /// Registrations that it received itself do not show whether it knows earlier ones.
    private(set) var areAnyRemembered = false

    /// Whether a registration has been requested whose number is not known yet.
    var areAnyAsked: Bool { askedCount > 0 }

    func key(of id: ObserverID) -> RegistrationKey? { keys[id] }

    /// Returns the known keys of these numbers, in their order.
    mutating func keys(of ids: [ObserverID]) -> [RegistrationKey] {
        if ids != recent.ids { recent = (ids, ids.compactMap { keys[$0] }) }
        return recent.keys
    }

    mutating func want(_ key: RegistrationKey) {
        guard entries[key] == nil else { return }
        lastOrder += 1
        entries[key] = Entry(state: .wanted, order: lastOrder)
    }

    /// - Returns: the number of the registration to remove at the service, if the number is known.
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

    /// Notes that the service registered `key`.
    ///
    /// - Parameter isAnother: whether it is another service than the one in the last comparison.
    /// - Returns: whether the registration is still wanted; otherwise the caller removes it there.
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

    /// Notes that the registration does not exist, because the answer is missing or was a refusal.
    mutating func failed(_ key: RegistrationKey) {
        if case .asked = entries[key]?.state { set(.wanted, of: key) }
    }

    /// Notes that the service removed the registration and would refuse it again. A later service is asked again.
    ///
    /// - Returns: the key of the registration; nil when the number is unknown.
    mutating func revoked(_ id: ObserverID) -> RegistrationKey? {
        guard let key = keys.removeValue(forKey: id) else { return nil }
        entries[key]?.state = .wanted
        return key
    }

    /// Forgets all numbers after a change of the bus connection, because no service there knows this program.
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

    /// Compares the registrations with the list of a service, perhaps a new one. A listed registration with an unknown
    /// number is taken over: its service ended between adding and answering.
    mutating func compare(with listed: [ListedObserver]) -> Repair {
        let (before, ofAnother) = (keys, ofAnother)
        reset()
        areAnyRemembered = false
        // Known numbers come first: of two registrations for one key, the known one stays.
        for entry in listed {
            guard let key = before[entry.id], entries[key] != nil else { continue }
            _ = added(key, id: entry.id)
            if !ofAnother.contains(entry.id) { areAnyRemembered = true }
        }
        var missing = entries.filter { if case .wanted = $0.value.state { true } else { false } }
            .sorted { $0.value.order < $1.value.order }.map(\.key)
        var repair = Repair()
        for entry in listed where keys[entry.id] == nil {
            // The list does not contain all options, so an entry is taken over only if exactly one key fits.
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
