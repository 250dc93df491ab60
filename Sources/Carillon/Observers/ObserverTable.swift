// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonThreadDelivery

/// The program's observers, by the registration at the service that they share (C11).
///
/// A value that says what changed; the caller tells the service. Not thread-safe by itself.
///
/// What an observer holds may end with it, and run code of the program, which may use the center again. So nothing is
/// released in here: the caller takes it with ``takeReleased()``, and lets go of it with no lock held.
struct ObserverTable: ~Copyable {
    /// Whom an observer belongs to: its token, or the object whose method it is.
    ///
    /// An object is known by its address, which another one may get after its end (C12); so the object is held weakly
    /// beside it.
    private struct Owner {
        weak var object: AnyObject?
        /// A token lives until its observer is removed, also when the program does not keep it (C5).
        var token: AnyObject?
        var positions: Set<ObserverIndex<RegistrationKey, Never, Observer>.Position> = []
    }

    /// The registrations at the service that a change makes necessary, or unnecessary.
    struct Change: Equatable {
        var registered: RegistrationKey?
        var unregistered: [RegistrationKey] = []
    }

    private var index = ObserverIndex<RegistrationKey, Never, Observer>()
    private var owners: [ObjectIdentifier: Owner] = [:]
    /// Observers of each key.
    private var counts: [RegistrationKey: Int] = [:]
    private var lastOrder: UInt64 = 0
    private var released: [AnyObject] = []
    /// Whose observers were asked for last, as notifications of the same registrations come one behind the other. None
    /// of them lives by it: it is forgotten before any is removed.
    private var recent: (keys: [RegistrationKey], observers: [Observer]) = ([], [])
    /// At so many owners those that are gone are looked for.
    private var sweepAt = 64

    var count: Int { index.count }

    /// Adds an observer behind all others.
    ///
    /// - Parameters:
    ///   - owner: a token, which is retained, or the object of a method, which is not.
    mutating func add(
        owner: AnyObject, isToken: Bool, key: RegistrationKey, target: any DeliveryTarget, action: Observer.Action
    ) -> Change {
        recent = ([], [])
        var change = Change()
        if let known = owners[ObjectIdentifier(owner)], known.object !== owner {
            change.unregistered = remove(known.positions)
            owners[ObjectIdentifier(owner)] = nil
        }
        // Objects whose notifications never come would otherwise leave their registrations behind for ever (E1).
        // Doubling makes it O(1) for each observer in the end.
        if owners.count >= sweepAt {
            change.unregistered += removeDead().unregistered
            sweepAt = max(64, owners.count * 2)
        }
        lastOrder += 1
        let observer = Observer(key: key, order: lastOrder, target: target, action: action)
        let position = index.insert(observer, name: key, object: nil)
        owners[ObjectIdentifier(owner), default: Owner(object: owner, token: isToken ? owner : nil)]
            .positions.insert(position)
        counts[key, default: 0] += 1
        if counts[key] == 1 {
            if let again = change.unregistered.firstIndex(of: key) {
                change.unregistered.remove(at: again)
            } else {
                change.registered = key
            }
        }
        return change
    }

    /// Removes the owner's observers that fulfil the condition (C6). Harmless when there are none (C10).
    mutating func remove(of owner: AnyObject, where condition: (RegistrationKey) -> Bool = { _ in true }) -> Change {
        guard let known = owners[ObjectIdentifier(owner)] else { return Change() }
        guard known.object === owner else {
            // What was added is gone, or is just going: this is its `deinit`, which removes it as usual on macOS.
            owners[ObjectIdentifier(owner)] = nil
            return Change(unregistered: remove(known.positions))
        }
        let removed = known.positions.filter { condition(index[$0].key) }
        owners[ObjectIdentifier(owner)]!.positions.subtract(removed)
        if removed.count == known.positions.count { owners[ObjectIdentifier(owner)] = nil }
        released.append(owner)
        return Change(unregistered: remove(removed))
    }

    /// Removes the observers of objects that are gone.
    mutating func removeDead() -> Change {
        var unregistered: [RegistrationKey] = []
        for (identifier, owner) in owners {
            // Asking makes a reference, which is the last one if everyone else lets go at this moment.
            if let object = owner.object {
                if owner.token == nil { released.append(object) }
                continue
            }
            unregistered += remove(owner.positions)
            owners[identifier] = nil
        }
        return Change(unregistered: unregistered)
    }

    /// Removes the observers whose place is gone.
    mutating func remove(where isGone: (any DeliveryTarget) -> Bool) -> Change {
        var unregistered: [RegistrationKey] = []
        for (identifier, owner) in owners {
            let gone = owner.positions.filter { isGone(index[$0].target) }
            guard !gone.isEmpty else { continue }
            unregistered += remove(gone)
            owners[identifier]!.positions.subtract(gone)
            if gone.count == owner.positions.count {
                owners[identifier] = nil
                if let token = owner.token { released.append(token) }
            }
        }
        return Change(unregistered: unregistered)
    }

    /// What was removed since this was last asked, for the caller to release with no lock held.
    mutating func takeReleased() -> [AnyObject] {
        defer { released = [] }
        return released
    }

    /// The observers of these registrations, in the order in which they were added.
    mutating func observers(of keys: [RegistrationKey]) -> [Observer] {
        // The session hands over the same array again where they are the same.
        if keys == recent.keys { return recent.observers }
        var observers: [Observer] = []
        for key in keys { index.forEachMatch(name: key, object: nil) { observers.append($0) } }
        // Each key's are in order already.
        if keys.count > 1 { observers.sort { $0.order < $1.order } }
        recent = (keys, observers)
        return observers
    }

    private mutating func remove(
        _ positions: Set<ObserverIndex<RegistrationKey, Never, Observer>.Position>
    ) -> [RegistrationKey] {
        recent = ([], [])
        var unregistered: [RegistrationKey] = []
        for position in positions {
            let observer = index.remove(at: position)
            observer.deactivate()
            released.append(observer)
            counts[observer.key]! -= 1
            if counts[observer.key] == 0 {
                counts[observer.key] = nil
                unregistered.append(observer.key)
            }
        }
        return unregistered
    }
}
