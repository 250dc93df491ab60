// SPDX-License-Identifier: Apache-2.0
import CarillonThreadDelivery

extension NotificationCenter {
    /// The registrations, which are used under the center's lock. The caller releases removed registrations after the
    /// lock, because objects of observers may end with them and run code of their own.
    ///
    /// The type is not copyable, so that threads that read it at the same time do not contend for reference counts.
    struct State: ~Copyable, @unchecked Sendable {
        // Sendable: senders with value types are only compared under the lock, and never handed out.
        var index = RegistrationIndex()
        private var targets: [ObjectIdentifier: TargetRegistrations] = [:]
        private var contexts: [ObjectIdentifier: OfContext] = [:]
        private var insertionsUntilSweep = 1_024
        private var lastIncomparable: UInt64 = 0

        private struct OfContext {
            let delivery: ContextDelivery
            var registrations: [Registration] = []
        }

        // MARK: Insertion

        /// Returns the target of an object. `dead` has the registrations of an earlier object with the same address,
        /// which are removed.
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

        /// - Returns: the registrations that were removed because their targets are gone, and the context, if this is
        ///   the first registration for it.
        mutating func insert(_ registration: Registration) -> (dead: [Registration], newContext: ContextDelivery?) {
            registration.position = index.insert(registration, name: registration.name, object: registration.sender)
            var newContext: ContextDelivery?
            if case .context(let delivery, modes: _) = registration.place {
                let id = ObjectIdentifier(delivery)
                if contexts[id] == nil { newContext = delivery }
                registration.contextSlot = contexts[id, default: OfContext(delivery: delivery)]
                    .registrations.append(returningSlotOf: registration)
            }
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
            // As many insertions as there are registrations to examine pay for the next sweep.
            insertionsUntilSweep = max(1_024, index.count)
            return dead
        }

        // MARK: Removal

        /// - Returns: whether the registration existed.
        @discardableResult
        mutating func remove(_ registration: Registration) -> Bool {
            guard let position = registration.position else { return false }
            registration.position = nil
            registration.markRemoved()
            index.remove(at: position)
            if case .context(let delivery, modes: _) = registration.place {
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

        /// Returns the registrations of an object, and those of earlier objects with the same address. While the object
        /// ends, it can't be distinguished from these; the caller removes both.
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

        /// The contexts that have had registrations and may still exist.
        var followed: [ContextDelivery] {
            contexts.values.map(\.delivery)
        }
    }
}
