// SPDX-License-Identifier: Apache-2.0
import CarillonThreadDelivery

extension NotificationCenter {
    /// The table of a center's registrations, used under the center's lock. An index finds the matches of a post; other
    /// tables group the registrations by target object and by main context.
    ///
    /// Methods return the registrations that they remove. The caller releases them after the lock, because objects of
    /// observers may end with them and run a `deinit` that uses the center.
    ///
    /// The type is not copyable, so that threads that read it at the same time do not contend for reference counts.
    struct State: ~Copyable, @unchecked Sendable {
        // Sendable: senders with value types are only compared under the lock, and never handed out.
        /// The registrations by name and sender.
        var index = RegistrationIndex()
        /// The registrations of observing methods by the address of their object.
        private var targets: [ObjectIdentifier: TargetRegistrations] = [:]
        /// The registrations of observers on main contexts by their context.
        private var contexts: [ObjectIdentifier: ContextEntry] = [:]
        /// The number of insertions until the next search for registrations whose target or sender is gone.
        private var insertionsUntilSweep = 1_024
        /// The last number of a sender that equals nothing.
        private var lastIncomparable: UInt64 = 0

        private struct ContextEntry {
            let delivery: ContextDelivery
            var registrations: [Registration] = []
        }

        // MARK: Insertion

        /// Returns the target of an object, and creates it if necessary.
        ///
        /// - Returns: also `dead`: the removed registrations of an earlier object that had the same address.
        mutating func target(for object: AnyObject) -> (Target, dead: [Registration]) {
            let id = ObjectIdentifier(object)
            var dead: [Registration] = []
            if let known = targets[id] {
                if known.target.object === object { return (known.target, []) }
                dead = known.registrations(name: nil, sender: nil)
                for registration in dead { remove(registration) }
            }
            let target = Target(object)
            targets[id] = TargetRegistrations(of: target)
            return (target, dead)
        }

        /// Returns a key that equals no other key.
        mutating func incomparableKey() -> SenderKey {
            lastIncomparable += 1
            return .incomparable(lastIncomparable)
        }

        /// Adds a registration. A sweep follows if it is due.
        ///
        /// - Returns: the registrations that the sweep removed, and the context if this is its first registration. The
        ///   caller then watches for the end of that context.
        mutating func insert(_ registration: Registration) -> (dead: [Registration], newContext: ContextDelivery?) {
            registration.position = index.insert(registration, name: registration.name, object: registration.sender)
            var newContext: ContextDelivery?
            if case .context(let delivery, modes: _) = registration.destination {
                let id = ObjectIdentifier(delivery)
                if contexts[id] == nil { newContext = delivery }
                registration.contextSlot = contexts[id, default: ContextEntry(delivery: delivery)]
                    .registrations.append(returningSlotOf: registration)
            }
            // A block has no target. It stays until its token is removed, so no sweep has to find it.
            guard let target = registration.target else { return ([], newContext) }
            targets[target.id]!.insert(registration)
            insertionsUntilSweep -= 1
            return (insertionsUntilSweep > 0 ? [] : sweep(), newContext)
        }

        /// Removes the registrations whose target or sender is gone.
        mutating func sweep() -> [Registration] {
            var dead: [Registration] = []
            for known in targets.values { dead += known.registrations(name: nil, sender: nil).filter(\.isDead) }
            for registration in dead { remove(registration) }
            // The next sweep follows after as many insertions as it has registrations to examine, at least 1,024. The
            // cost for each insertion is therefore constant, amortized.
            insertionsUntilSweep = max(1_024, index.count)
            return dead
        }

        // MARK: Removal

        /// Removes a registration from all tables, and prevents further calls of its observer.
        ///
        /// - Returns: whether the registration existed.
        @discardableResult
        mutating func remove(_ registration: Registration) -> Bool {
            guard let position = registration.position else { return false }
            registration.position = nil
            registration.markRemoved()
            index.remove(at: position)
            if case .context(let delivery, modes: _) = registration.destination {
                contexts[ObjectIdentifier(delivery)]?.registrations
                    .fillGap(at: registration.contextSlot) { $0.contextSlot = $1 }
            }
            guard let target = registration.target, let known = targets[target.id] else { return true }
            known.remove(registration)
            if known.isEmpty { targets[target.id] = nil }
            return true
        }

        /// Removes the registration of a token, if it exists and has this name and sender; nil means any.
        ///
        /// - Returns: the removed registration.
        mutating func remove(_ token: Token, name: String?, sender: SenderKey?) -> Registration? {
            guard index.order(at: token.position) == token.order else { return nil }
            let registration = index[token.position]
            guard name == nil || registration.name == name, sender == nil || registration.sender == sender else {
                return nil
            }
            return remove(registration) ? registration : nil
        }

        /// Returns the registrations of an object, and those of earlier objects with the same address. The two can't be
        /// distinguished when the object calls from its `deinit`, because weak references to it are already empty. The
        /// caller removes both.
        func registrations(of target: AnyObject, name: String?, sender: SenderKey?) -> [Registration] {
            targets[ObjectIdentifier(target)]?.registrations(name: name, sender: sender) ?? []
        }

        // MARK: Contexts

        /// Removes the registrations for a context that is gone.
        mutating func contextEnded(_ delivery: ContextDelivery) -> [Registration] {
            let registrations = contexts[ObjectIdentifier(delivery)]?.registrations ?? []
            for registration in registrations { remove(registration) }
            contexts[ObjectIdentifier(delivery)] = nil
            return registrations
        }

        /// The contexts that have had a registration and have not ended. The center watches for their end.
        var watchedContexts: [ContextDelivery] {
            contexts.values.map(\.delivery)
        }
    }
}
