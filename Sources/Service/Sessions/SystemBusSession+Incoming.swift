// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Signals from other sessions. No sender is trusted for its amount of messages, or for its claims about itself (G1,
/// R8).
extension SystemBusSession {
    /// The rate limit of a user's messages: 500 messages and 4 MiB per second, with a burst of 2,000 messages and 16
    /// MiB plus the windows of the user's sessions.
    ///
    /// A session that waits for acknowledgements never exceeds it, as they are delayed before it is used up. A session
    /// that does not wait loses the excess.
    struct Allowance {
        private var count = RateLimit(perSecond: 500, burst: 2000 + windows.count)
        private var bytes = RateLimit(perSecond: 4 << 20, burst: 16 << 20 + windows.bytes)

        /// The rate limit of losses that are reported to observers, as each loss uses up a serial number.
        private var losses = RateLimit(perSecond: 10_000, burst: 1_000_000)

        private static let windows = (
            count: 64 * SessionSlots.maxPeersOfUser, bytes: (1 << 20 + 256 << 10) * SessionSlots.maxPeersOfUser
        )

        func isFull(at now: Int64) -> Bool { count.isFull(at: now) && bytes.isFull(at: now) }

        mutating func take(_ size: Int, at now: Int64) -> Bool { count.take(at: now) && bytes.take(size, at: now) }

        /// Returns how many of these losses may be reported.
        mutating func takeLosses(_ count: UInt64, at now: Int64) -> UInt64 {
            let taken = min(count, UInt64(losses.left(at: now)))
            return losses.take(Int(taken), at: now) ? taken : 0
        }

        /// Returns the delay of acknowledgements, in microseconds.
        func pause(at now: Int64) -> Int64 {
            max(count.time(until: Self.windows.count, at: now), bytes.time(until: Self.windows.bytes, at: now))
        }
    }

    /// Handles a signal that carries a sequence number.
    func take(_ message: Message, from peer: SessionPeer) {
        let isNotification = message.hasMember(SessionNotification.member)
        let isOther = [RemovedSignal.member, ValuesSignal.member, LostSignal.member].contains(where: message.hasMember)
        guard isNotification || isOther else { return }
        guard let userID = peer.userID, places.standing(of: peer.name) == .session else {
            return owner.noteRefusal(
                of: peer.name, peer.userID,
                peer.userID == nil ? "its user is not verified yet" : "too many sessions")
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
            owner.noteLoss(1, "from user \(userID), above the rate limit,")
            if isImported {
                owner.center?.lose([.init(name: notification.name, object: notification.object, count: 1)])
            }
            return
        }
        guard isImported else {
            throw BusError(
                .notAllowed,
                message: "import in [Sessions] does not contain '\(notification.name.prefix(200))' of this user")
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
                // A session that wants nothing from this one has had no reason to send its features.
                peer.understands.insert(UnderstandsSignal.values)
                peer.values.begin()
            } else {
                peer.values.end()
                owner.lookThrough(after: 0)
            }
        } else {
            let lost = try LostSignal(message)
            guard lost.entries.count <= LostSignal.maxEntries else {
                throw .invalidArgs("it reports losses of too many names")
            }
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

    /// Handles the sequence number of a signal.
    ///
    /// - Parameter lost: the number of notifications that the sender's queue lost before it.
    /// - Throws: an error when the number was seen before, or the rules import nothing of its user.
    private func note(
        _ number: UInt64, lost: UInt64 = 0, from peer: SessionPeer, _ userID: UInt32
    ) throws(BusError) {
        guard number > peer.lastNumber else { throw .invalidArgs("its sequence number goes back") }
        let isImported = owner.rules.imports[userID] != nil
        // Counted before anything is refused: a refused notification was not lost in flight, and its sender continues.
        // Losses that are reported by users without import do not count.
        if isImported { noteHole(before: number, lost: lost, of: peer) }
        confirmLater(number, to: peer)
        guard isImported else { throw BusError(.notAllowed, message: "import in [Sessions] has no names of this user") }
    }

    /// Counts notifications lost in the sender's queue, and gaps in the sequence, which the bus did not carry.
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
        // One acknowledgement covers all messages at hand.
        if peer.confirmation == nil { confirm(peer, after: 0) }
    }

    /// Acknowledges the received signals, when their user may send more.
    ///
    /// - Parameter pause: the delay in microseconds.
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
            return owner.noteRefusal(of: peer.name, peer.userID, "its list of features exceeds the limit")
        }
        peer.understands = Set(understands.features).intersection(Self.features)
    }

    private static let maxBytesOfFeatures = 4096
}
