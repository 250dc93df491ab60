// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Signals from other sessions: nobody is trusted for how much it sends, or for what it says of itself (G1, R8).
extension SystemBusSession {
    /// The rate at which a user may send: 500 a second and 4 MiB, more of both at once, and as much besides as the windows of a user's
    /// sessions hold. A session that waits for confirmations never has more on the way, as they are held back before that is
    /// used; one that does not loses what is beyond it.
    struct Allowance {
        private var count = RateLimit(perSecond: 500, burst: 2000 + windows.count)
        private var bytes = RateLimit(perSecond: 4 << 20, burst: 16 << 20 + windows.bytes)

        /// Losses that are told to observers; serial numbers are used up by them.
        private var losses = RateLimit(perSecond: 10_000, burst: 1_000_000)

        private static let windows = (
            count: 64 * SessionPlaces.maxPeersOfUser, bytes: (1 << 20 + 256 << 10) * SessionPlaces.maxPeersOfUser
        )

        func isFull(at now: Int64) -> Bool { count.isFull(at: now) && bytes.isFull(at: now) }

        mutating func take(_ size: Int, at now: Int64) -> Bool { count.take(at: now) && bytes.take(size, at: now) }

        /// How many of so many losses are told.
        mutating func takeLosses(_ count: UInt64, at now: Int64) -> UInt64 {
            let taken = min(count, UInt64(losses.left(at: now)))
            return losses.take(Int(taken), at: now) ? taken : 0
        }

        /// How long confirmations are held back, in microseconds.
        func pause(at now: Int64) -> Int64 {
            max(count.time(until: Self.windows.count, at: now), bytes.time(until: Self.windows.bytes, at: now))
        }
    }

    /// Takes a signal that has a number.
    func take(_ message: Message, from peer: SessionPeer) {
        let isNotification = message.hasMember(SessionNotification.member)
        let isOther = [RemovedSignal.member, ValuesSignal.member, LostSignal.member].contains(where: message.hasMember)
        guard isNotification || isOther else { return }
        guard let userID = peer.userID, places.standing(of: peer.name) == .session else {
            return owner.noteRefusal(
                of: peer.name, peer.userID,
                peer.userID == nil ? "nobody has said yet whose it is" : "there are too many sessions")
        }
        let isAllowed = allowances[userID, default: Allowance()].take(message.byteCount, at: now)
        do throws(BusError) {
            if isNotification {
                try takeNotification(message, from: peer, userID, isAllowed: isAllowed)
            } else {
                try takeOther(message, from: peer, userID, isAllowed: isAllowed)
            }
        } catch {
            owner.noteRefusal(of: peer.name, userID, error.message)
        }
    }

    private func takeNotification(
        _ message: Message, from peer: SessionPeer, _ userID: UInt32, isAllowed: Bool
    ) throws(BusError) {
        let place = try SessionNotification.place(of: message)
        try note(place.number, lost: place.lost, from: peer, userID)
        let limits = owner.limits()
        let notification = try SessionNotification(message, limits: limits) { name, object throws(CenterError) in
            guard !name.isEmpty else { throw .invalidName }
            try limits.check(.nameLength, name.utf8.count)
            try limits.check(.objectLength, object.utf8.count)
        }
        #if CARILLON_PLANTED
            let isTaken = PlantedFault.strikes(.importUnpoliced)
        #else
            let isTaken = false
        #endif
        let isImported = isTaken || owner.rules.imports(notification.name, of: userID)
        guard isAllowed else {
            owner.noteLoss(1, "of user \(userID), who sends more than is taken in a time,")
            if isImported {
                owner.center?.lose([.init(name: notification.name, object: notification.object, count: 1)])
            }
            return
        }
        guard isImported else {
            throw BusError(
                .notAllowed,
                message: "import in [Sessions] does not have '\(notification.name.prefix(200))' of this user")
        }
        #if CARILLON_PLANTED
            let userID = notification.options.claimedUser ?? userID
        #endif
        try owner.take(notification, of: userID, from: peer)
        peer.received += 1
    }

    private func takeOther(
        _ message: Message, from peer: SessionPeer, _ userID: UInt32, isAllowed: Bool
    ) throws(BusError) {
        if message.hasMember(RemovedSignal.member) {
            let removed = try RemovedSignal(message)
            try note(removed.number, from: peer, userID)
            guard isAllowed else { return askForValues(peer) }
            guard owner.rules.keeps(removed.name, of: userID) else { return }
            try owner.removed(name: removed.name, object: removed.object, of: userID, by: peer)
        } else if message.hasMember(ValuesSignal.member) {
            let values = try ValuesSignal(message)
            try note(values.number, from: peer, userID)
            guard isAllowed else { return askForValues(peer) }
            if values.isBeginning {
                // Where it takes nothing from here, it has had no reason to say so.
                peer.understands.insert(UnderstandsSignal.values)
                peer.values.begin()
            } else {
                peer.values.end()
                owner.lookThrough(after: 0)
            }
        } else {
            let lost = try LostSignal(message)
            guard lost.entries.count <= LostSignal.maxEntries else { throw .invalidArgs("it tells of too many names") }
            let total = lost.entries.reduce(0) { UInt64(clamping: UInt128($0) + UInt128($1.count)) }
            try note(lost.number, lost: total, from: peer, userID)
            guard isAllowed else { return }
            var told = lost.entries.filter { owner.rules.imports($0.name, of: userID) }
            for index in told.indices {
                told[index].count =
                    allowances[userID, default: Allowance()].takeLosses(told[index].count, at: now)
            }
            owner.center?.lose(told)
        }
    }

    /// Something came that has a number.
    ///
    /// - Parameter lost: what its sender had no room for before.
    /// - Throws: that it came before, or that nothing of its user is taken.
    private func note(
        _ number: UInt64, lost: UInt64 = 0, from peer: SessionPeer, _ userID: UInt32
    ) throws(BusError) {
        guard number > peer.lastNumber else { throw .invalidArgs("its number goes back") }
        let isImported = owner.rules.imports[userID] != nil
        // Before anything is refused: a refused notification is not lost on its way, and its sender goes on. Losses that
        // are reported by users without import do not count.
        if isImported { noteHole(before: number, lost: lost, of: peer) }
        confirmLater(number, to: peer)
        guard isImported else { throw BusError(.notAllowed, message: "import in [Sessions] has nothing of this user") }
    }

    /// Counts notifications that the other side had no room for, and those that the bus did not carry.
    private func noteHole(before number: UInt64, lost: UInt64, of peer: SessionPeer) {
        let hole = number - peer.lastNumber - 1
        let count = UInt64(clamping: UInt128(hole) + UInt128(lost))
        guard count > 0 else { return }
        peer.lostThere = UInt64(clamping: UInt128(peer.lostThere) + UInt128(count))
        owner.noteLoss(count, "of \(peer.name)")
        if hole > 0 { askForValues(peer) }
    }

    private func confirmLater(_ number: UInt64, to peer: SessionPeer) {
        peer.lastNumber = number
        // Once for all that is at hand.
        if peer.confirmation == nil { confirm(peer, after: 0) }
    }

    /// Confirms what came, when its user may send more.
    ///
    /// - Parameter pause: in microseconds.
    private func confirm(_ peer: SessionPeer, after pause: Int64) {
        peer.confirmation = .once(milliseconds: UInt32((pause + 999) / 1000), on: bus.context) {
            [unowned self, unowned peer] in
            peer.confirmation = nil
            if let pause = peer.userID.flatMap({ allowances[$0] })?.pause(at: now), pause > 0 {
                return confirm(peer, after: pause)
            }
            bus.send(TakenSignal(upTo: peer.lastNumber).message(to: peer.name))
        }
    }

    func takeFeatures(_ message: Message, of peer: SessionPeer) {
        guard peer.words.take(at: now), message.byteCount <= Self.maxBytesOfFeatures,
            let understands = try? UnderstandsSignal(message)
        else {
            return owner.noteRefusal(of: peer.name, peer.userID, "it understands more than a session may")
        }
        peer.understands = Set(understands.features).intersection(Self.features)
    }

    private static let maxBytesOfFeatures = 4096
}
