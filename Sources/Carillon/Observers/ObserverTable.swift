// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonThreadDelivery

/// The table of a center's observers. Observers with equal keys share one registration at the service (C11), so the
/// table counts the observers of each key. Its methods return the registrations to add and remove, which the caller
/// submits.
///
/// The release of an observer may run a `deinit` of the program, which may use the center again. Therefore the table
/// releases no object itself: the caller takes the removed objects with ``takeReleased()``, and releases them with no
/// lock held.
///
/// Not thread-safe by itself; used under the center's lock.
struct ObserverTable: ~Copyable {
    /// The owner of observers: a token, or the object whose methods observe.
    ///
    /// The key of an owner is its address, which a new object may have after the owner's end (C12). The weak reference
    /// shows whether the owner still exists.
    private struct Owner {
        weak var object: AnyObject?
        /// The token, retained until its observer is removed, even if the program does not keep it (C5).
        var token: AnyObject?
        var positions: Set<ObserverIndex<RegistrationKey, Never, Observer>.Position> = []
    }

    /// The registrations that a change adds to the service, and removes from it.
    struct Change: Equatable {
        var registered: RegistrationKey?
        var unregistered: [RegistrationKey] = []
    }

    /// The observers by their keys. A key takes the place of the index's name, and the index has no objects.
    private var index = ObserverIndex<RegistrationKey, Never, Observer>()
    /// The owners by their address.
    private var owners: [ObjectIdentifier: Owner] = [:]
    /// The number of observers of each key.
    private var counts: [RegistrationKey: Int] = [:]
    private var lastOrder: UInt64 = 0
    /// The removed objects, which the caller releases.
    private var released: [AnyObject] = []
    /// The result of the last lookup, because notifications of the same registrations often follow each other. Every
    /// change clears it, so that it keeps no removed observer alive.
    private var recent: (keys: [RegistrationKey], observers: [Observer]) = ([], [])
    /// The number of owners at which the table removes the observers of objects that are gone.
    private var nextSweepCount = 64

    var count: Int { index.count }

    /// Adds an observer after all others.
    ///
    /// - Parameters:
    ///   - owner: a token, which is retained, or the object of a method, which is not.
    mutating func add(
        owner: AnyObject, isToken: Bool, key: RegistrationKey, target: any DeliveryTarget, action: Observer.Action
    ) -> Change {
        recent = ([], [])
        var change = Change()
        // A different owner at this address has ended, and its observers with it.
        if let known = owners[ObjectIdentifier(owner)], known.object !== owner {
            change.unregistered = remove(known.positions)
            owners[ObjectIdentifier(owner)] = nil
        }
        // Observers of ended objects are usually found when a notification arrives for them. Those without
        // notifications are removed here; they would otherwise keep their registrations for ever (E1). The search runs
        // when the number of owners has doubled, so the cost is O(1) for each observer, amortized.
        if owners.count >= nextSweepCount {
            change.unregistered += removeDead().unregistered
            nextSweepCount = max(64, owners.count * 2)
        }
        lastOrder += 1
        let observer = Observer(key: key, order: lastOrder, target: target, action: action)
        let position = index.insert(observer, name: key, object: nil)
        owners[ObjectIdentifier(owner), default: Owner(object: owner, token: isToken ? owner : nil)]
            .positions.insert(position)
        counts[key, default: 0] += 1
        if counts[key] == 1 {
            // A registration that was removed in the same change is kept.
            if let again = change.unregistered.firstIndex(of: key) {
                change.unregistered.remove(at: again)
            } else {
                change.registered = key
            }
        }
        return change
    }

    /// Removes the owner's observers that fulfil the condition (C6). Without any, the call has no effect (C10).
    mutating func remove(of owner: AnyObject, where condition: (RegistrationKey) -> Bool = { _ in true }) -> Change {
        guard let known = owners[ObjectIdentifier(owner)] else { return Change() }
        guard known.object === owner else {
            // The weak reference is empty: the former owner at this address is gone, or the owner calls this from its
            // `deinit`, as is usual on macOS. All observers are removed in both cases.
            owners[ObjectIdentifier(owner)] = nil
            return Change(unregistered: remove(known.positions))
        }
        let removed = known.positions.filter { condition(index[$0].key) }
        owners[ObjectIdentifier(owner)]!.positions.subtract(removed)
        if removed.count == known.positions.count { owners[ObjectIdentifier(owner)] = nil }
        // The strong reference of this call may have become the last one, if other threads released the owner.
        released.append(owner)
        return Change(unregistered: remove(removed))
    }

    /// Removes the observers of objects that are gone.
    mutating func removeDead() -> Change {
        var unregistered: [RegistrationKey] = []
        for (identifier, owner) in owners {
            // The object still exists. This strong reference may become the last one, so the object is released later.
            if let object = owner.object {
                if owner.token == nil { released.append(object) }
                continue
            }
            unregistered += remove(owner.positions)
            owners[identifier] = nil
        }
        return Change(unregistered: unregistered)
    }

    /// Removes the observers whose delivery target is gone.
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

    /// Returns the objects that were removed since the last call, for the caller to release with no lock held.
    mutating func takeReleased() -> [AnyObject] {
        defer { released = [] }
        return released
    }

    /// Returns the observers of these registrations, in the order in which they were added.
    mutating func observers(of keys: [RegistrationKey]) -> [Observer] {
        // The session passes the same array again for the same registrations.
        if keys == recent.keys { return recent.observers }
        var observers: [Observer] = []
        for key in keys { index.forEachMatch(name: key, object: nil) { observers.append($0) } }
        // The observers of one key are already in order.
        if keys.count > 1 { observers.sort { $0.order < $1.order } }
        recent = (keys, observers)
        return observers
    }

    /// Removes observers by their positions.
    ///
    /// - Returns: the registrations that have no observer left.
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
