// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonWire

/// The table of the registrations that the program's observers need, with their state and numbers at the service
/// (E3).
///
/// ``ServiceSession`` sends the registrations. After a change of the service it compares this table with the service's
/// list and repairs the differences. A plain value without input and output. Not thread-safe by itself.
struct Registrations {
    /// The changes at the service after which its registrations match the program's.
    struct Repair: Equatable {
        /// The registrations to add.
        var missing: [RegistrationKey] = []
        /// The registrations to remove, because they are no longer wanted or exist twice.
        var surplus: [ObserverID] = []
    }

    /// The state of a registration at the service.
    private enum State {
        /// The registration does not exist at the service, as far as is known.
        case wanted
        /// The service has been asked and has not answered yet.
        case asked
        /// The service has assigned this number.
        case known(ObserverID)
    }

    private struct Entry {
        var state: State
        /// The position in the order in which the program added the registrations. A new service receives them in this
        /// order.
        let order: UInt64
    }

    private var entries: [RegistrationKey: Entry] = [:]
    /// The keys of the known numbers.
    private var keys: [ObserverID: RegistrationKey] = [:] { didSet { recent = ([], []) } }
    /// The result of the last lookup, because notifications for the same observers often follow each other.
    private var recent: (ids: [ObserverID], keys: [RegistrationKey]) = ([], [])
    /// The number of registrations in the state `asked`.
    private var askedCount = 0
    /// The numbers from a service that took over the name between the request of a registration and its arrival. This
    /// service has not been compared yet. If its list contains such a number, this does not show that it has inherited
    /// registrations (``hasInherited``), because it assigned the number itself.
    private var assignedByOther: Set<ObserverID> = []
    private var lastOrder: UInt64 = 0

    var isEmpty: Bool { entries.isEmpty }

    /// Whether the service in the last comparison has taken over at least one registration of its predecessor.
    /// Registrations that the program added at this service itself do not count. If false, the service may not know the
    /// program, and then numbers its notifications from one.
    private(set) var hasInherited = false

    /// Whether a request for a registration is in flight, so that its number is not known.
    var hasPendingRequests: Bool { askedCount > 0 }

    func key(of id: ObserverID) -> RegistrationKey? { keys[id] }

    /// Returns the known keys of these numbers, in their order.
    mutating func keys(of ids: [ObserverID]) -> [RegistrationKey] {
        if ids != recent.ids { recent = (ids, ids.compactMap { keys[$0] }) }
        return recent.keys
    }

    /// Adds a registration that the program wants; the caller requests it at the service.
    mutating func want(_ key: RegistrationKey) {
        guard entries[key] == nil else { return }
        lastOrder += 1
        entries[key] = Entry(state: .wanted, order: lastOrder)
    }

    /// Removes a registration that the program no longer wants.
    ///
    /// - Returns: the number of the registration to remove at the service; nil if it is not known. If the request is in
    ///   flight, ``added(_:id:byAnother:)`` asks for the removal later.
    mutating func forget(_ key: RegistrationKey) -> ObserverID? {
        let state = entries.removeValue(forKey: key)?.state
        if case .asked = state { askedCount -= 1 }
        guard case .known(let id) = state else { return nil }
        keys[id] = nil
        return id
    }

    /// Records that the service was asked for the registration.
    mutating func asked(_ key: RegistrationKey) {
        set(.asked, of: key)
    }

    /// Records that the service registered `key` under a number.
    ///
    /// - Parameter isAnother: whether it is another service than the one in the last comparison.
    /// - Returns: whether the registration is wanted and has no other number; otherwise the caller removes it there. It
    ///   has one if it was requested twice, because a comparison came between a request and its answer.
    mutating func added(_ key: RegistrationKey, id: ObserverID, byAnother isAnother: Bool = false) -> Bool {
        switch entries[key]?.state {
        case nil, .known: return false
        case .wanted, .asked:
            set(.known(id), of: key)
            keys[id] = key
            if isAnother { assignedByOther.insert(id) }
            return true
        }
    }

    /// Records that the registration does not exist, because the answer is missing or was a refusal.
    mutating func failed(_ key: RegistrationKey) {
        if case .asked = entries[key]?.state { set(.wanted, of: key) }
    }

    /// Records that the service removed the registration by its policy. It is not requested again until the next
    /// comparison, because this service would refuse it.
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
        assignedByOther = []
        askedCount = 0
        for key in entries.keys { entries[key]!.state = .wanted }
    }

    /// Sets the state and keeps ``askedCount``.
    private mutating func set(_ state: State, of key: RegistrationKey) {
        guard let entry = entries[key] else { return }
        if case .asked = entry.state { askedCount -= 1 }
        if case .asked = state { askedCount += 1 }
        entries[key]!.state = state
    }

    /// Compares the registrations with the list of a service, perhaps a new one, and takes over the listed numbers.
    ///
    /// A listed registration with an unknown number is taken over as well: its service ended after it had added the
    /// registration and before it answered.
    ///
    /// - Returns: the registrations to add and to remove at the service.
    mutating func compare(with listed: [ListedObserver]) -> Repair {
        let (before, assignedByOther) = (keys, assignedByOther)
        // Each registration that is not in the list is wanted again, even if a request for it is in flight.
        reset()
        hasInherited = false
        // Known numbers come first: of two registrations for one key, the known one stays.
        for entry in listed {
            guard let key = before[entry.id], entries[key] != nil else { continue }
            _ = added(key, id: entry.id)
            if !assignedByOther.contains(entry.id) { hasInherited = true }
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
    /// Whether the entry may be the registration of this key. The list contains the name, the object and the suspension
    /// behavior, and no other options.
    func fits(_ key: RegistrationKey) -> Bool {
        ExactText(name) == key.name ?? ExactText("") && ExactText(object) == key.object ?? ExactText("")
            && suspensionBehavior == ListedObserver.word(for: key.options)
    }
}
