extension NotificationCenter {
    /// The registrations; used under the lock. What it returns is released after that, as observers' objects may end
    /// with it and run code of their own.
    struct State: @unchecked Sendable {
        // Sendable: senders that are values are only compared, under the lock, and never handed out.
        var index = RegistrationIndex()
        private var byTarget: [ObjectIdentifier: [Registration]] = [:]
        private var byTargetAndName: [TargetAndName: [Registration]] = [:]
        private var insertionsUntilSweep = 1_024

        private struct TargetAndName: Hashable {
            let target: ObjectIdentifier
            let name: String?
        }

        /// - Returns: registrations that went because their target had gone.
        mutating func insert(_ registration: Registration) -> [Registration] {
            registration.position = index.insert(registration, name: registration.name, object: registration.sender)
            guard let target = registration.targetID else { return [] }
            registration.targetSlot = byTarget[target, default: []].append(andReturnIndexOf: registration)
            registration.targetNameSlot = byTargetAndName[
                TargetAndName(target: target, name: registration.name), default: []
            ].append(andReturnIndexOf: registration)

            insertionsUntilSweep -= 1
            guard insertionsUntilSweep <= 0 else { return [] }
            let dead = byTarget.values.flatMap { $0.filter(\.isDead) }
            for registration in dead { remove(registration) }
            // Paid for by as many insertions as there are registrations to look at.
            insertionsUntilSweep = max(1_024, index.count)
            return dead
        }

        /// - Returns: whether it was there.
        @discardableResult
        mutating func remove(_ registration: Registration) -> Bool {
            guard let position = registration.position else { return false }
            registration.position = nil
            registration.markRemoved()
            index.remove(at: position)
            guard let target = registration.targetID else { return true }
            let isLast = byTarget[target]!.fillGap(at: registration.targetSlot) { $0.targetSlot = $1 }
            if isLast { byTarget[target] = nil }
            let key = TargetAndName(target: target, name: registration.name)
            let isLastOfName = byTargetAndName[key]!.fillGap(at: registration.targetNameSlot) { $0.targetNameSlot = $1 }
            if isLastOfName { byTargetAndName[key] = nil }
            return true
        }

        /// The registrations of the object, or of one that had its address; with nil as name all.
        func registrations(of target: AnyObject, name: String?) -> [Registration] {
            let target = ObjectIdentifier(target)
            guard let name else { return byTarget[target] ?? [] }
            return byTargetAndName[TargetAndName(target: target, name: name)] ?? []
        }
    }
}

extension [Registration] {
    fileprivate mutating func append(andReturnIndexOf registration: Registration) -> Int {
        append(registration)
        return count - 1
    }

    /// Removes an element by putting the last one in its place, of which `moved` is told.
    ///
    /// - Returns: whether nothing is left.
    fileprivate mutating func fillGap(at slot: Int, moved: (Registration, Int) -> Void) -> Bool {
        let last = removeLast()
        if slot < count {
            self[slot] = last
            moved(last, slot)
        }
        return isEmpty
    }
}
