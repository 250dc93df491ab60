// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The signals from other sessions: rate limits, sequence numbers, acknowledgments, and the import of their content. No
/// sender is trusted to limit its messages, and its user is known from the bus and not from the messages (G1, R8).
extension SystemBusSession {
    /// The rate limits of one user's messages, for all of the user's sessions together: 500 messages and 4 MiB per
    /// second. The burst is 2,000 messages and 16 MiB, and in addition the windows of all sessions that a user may
    /// have.
    ///
    /// Acknowledgments are delayed until the limits have space for all of these windows again. Therefore a session that
    /// waits for acknowledgments never exceeds the limits. Excess messages of other sessions are lost.
    struct Allowance {
        private var count = RateLimit(perSecond: 500, burst: 2000 + windows.count)
        private var bytes = RateLimit(perSecond: 4 << 20, burst: 16 << 20 + windows.bytes)

        /// The rate limit of losses that are reported to observers, because each loss uses up a sequence number of each
        /// client that it concerns.
        private var losses = RateLimit(perSecond: 10_000, burst: 1_000_000)

        /// The messages and bytes that the sessions of a user may send without an acknowledgment. Each session has a
        /// window of 64 messages and 256 KiB. The last message in it may exceed these bytes, by up to 1 MiB.
        private static let windows = (
            count: 64 * SessionSlots.maxPeersOfUser, bytes: (1 << 20 + 256 << 10) * SessionSlots.maxPeersOfUser
        )

        /// Whether the limits have recovered fully.
        ///
        /// - Parameter now: the time in microseconds, as for the other methods.
        func isFull(at now: Int64) -> Bool { count.isFull(at: now) && bytes.isFull(at: now) }

        /// Takes a message of this size, in bytes, from the limits. Returns whether it is within them.
        mutating func take(_ size: Int, at now: Int64) -> Bool { count.take(at: now) && bytes.take(size, at: now) }

        /// Takes reported losses from their limit. Returns how many of them may be reported.
        mutating func takeLosses(_ count: UInt64, at now: Int64) -> UInt64 {
            let taken = min(count, UInt64(losses.left(at: now)))
            return losses.take(Int(taken), at: now) ? taken : 0
        }

        /// Returns the delay of the next acknowledgment, in microseconds; 0 if it may be sent now.
        func pause(at now: Int64) -> Int64 {
            max(count.time(until: Self.windows.count, at: now), bytes.time(until: Self.windows.bytes, at: now))
        }
    }

    /// Handles a signal with a sequence number. Signals with unknown names are ignored.
    func take(_ message: Message, from peer: SessionPeer) {
        let isNotification = message.hasMember(SessionNotification.member)
        let isOther = [RemovedSignal.member, ValuesSignal.member, LostSignal.member].contains(where: message.hasMember)
        guard isNotification || isOther else { return }
        guard let userID = peer.userID, slots.standing(of: peer.name) == .session else {
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

    /// Handles a notification: posts it in this session, if the rules import it.
    ///
    /// - Parameter isAllowed: whether it is within the user's rate limits.
    /// - Throws: the reason for a refusal, which is logged.
    private func takeNotification(
        _ message: Message, from peer: SessionPeer, _ userID: UInt32, isAllowed: Bool
    ) throws(BusError) {
        // The number is recorded first, so that a refused or lost notification leaves no gap in the numbers.
        let place = try SessionNotification.place(of: message)
        try note(place.number, lost: place.lost, from: peer, userID)
        let limits = owner.limits()
        let notification = try SessionNotification(message, limits: limits) { name, object throws(CenterError) in
            guard !name.isEmpty else { throw .invalidName }
            try limits.check(.nameLength, name.utf8.count)
            try limits.check(.objectLength, object.utf8.count)
        }
        #if CARILLON_PLANTED
            let isTaken = PlantedFault.strikes(.importWithoutPolicy)
        #else
            let isTaken = false
        #endif
        let isImported = isTaken || owner.rules.imports(notification.name, of: userID)
        // Above the rate limit it is lost, and observers of an imported name get a report of the loss.
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

    /// Handles the end of a value, the beginning or the end of a replay, or a report of losses.
    ///
    /// - Parameter isAllowed: whether the signal is within the user's rate limits. Without a signal about values these
    ///   may be wrong, so a replay is requested. A report of losses above the limits is only counted.
    /// - Throws: the reason for a refusal, which is logged.
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
                // A session that wants no names from this one has not sent its features. Its replay shows this feature.
                peer.understands.insert(UnderstandsSignal.values)
                peer.values.begin()
            } else {
                peer.values.end()
                owner.checkValues(after: 0)
            }
        } else {
            let lost = try LostSignal(message)
            guard lost.entries.count <= LostSignal.maxEntries else {
                throw .invalidArgs("it reports losses of too many names")
            }
            let total = lost.entries.reduce(0) { UInt64(clamping: UInt128($0) + UInt128($1.count)) }
            try note(lost.number, lost: total, from: peer, userID)
            guard isAllowed else { return }
            var announced = lost.entries.filter { owner.rules.imports($0.name, of: userID) }
            for index in announced.indices {
                announced[index].count =
                    allowances[userID, default: Allowance()].takeLosses(announced[index].count, at: now)
            }
            owner.center?.lose(announced)
        }
    }

    /// Takes the sequence number of a signal: counts the losses before it, and schedules its acknowledgment.
    ///
    /// - Parameter lost: the number of notifications that the sender's queue has lost before the signal.
    /// - Throws: an error if the number is not greater than the last one, or the rules import nothing of the user.
    private func note(
        _ number: UInt64, lost: UInt64 = 0, from peer: SessionPeer, _ userID: UInt32
    ) throws(BusError) {
        guard number > peer.lastNumber else { throw .invalidArgs("its sequence number goes back") }
        let isImported = owner.rules.imports[userID] != nil
        // A refused signal is counted and acknowledged too, because it was not lost and its sender must be able to go
        // on. Losses of users without import do not matter here.
        if isImported { noteHole(before: number, lost: lost, of: peer) }
        confirmLater(number, to: peer)
        guard isImported else { throw BusError(.notAllowed, message: "import in [Sessions] has no names of this user") }
    }

    /// Counts the losses before a signal: the number that the sender reports, and a gap in the sequence numbers, whose
    /// signals the bus did not carry. A gap may contain changes of values, so a replay is requested.
    private func noteHole(before number: UInt64, lost: UInt64, of peer: SessionPeer) {
        let hole = number - peer.lastNumber - 1
        let count = UInt64(clamping: UInt128(hole) + UInt128(lost))
        guard count > 0 else { return }
        peer.lostBeforeArrival = UInt64(clamping: UInt128(peer.lostBeforeArrival) + UInt128(count))
        owner.noteLoss(count, "of \(peer.name)")
        if hole > 0 { askForValues(peer) }
    }

    /// Schedules the acknowledgment of a signal.
    private func confirmLater(_ number: UInt64, to peer: SessionPeer) {
        peer.lastNumber = number
        // Sent in the next iteration of the loop, one acknowledgment covers all signals that have arrived.
        if peer.confirmation == nil { confirm(peer, after: 0) }
    }

    /// Acknowledges all signals of a session after a delay, and later if the rate limits of its user require it.
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

    /// Handles the signal `Understands`: the features of a session. Features that this service does not have are
    /// ignored.
    func takeFeatures(_ message: Message, of peer: SessionPeer) {
        guard peer.listLimit.take(at: now), message.byteCount <= Self.maxBytesOfFeatures,
            let understands = try? UnderstandsSignal(message)
        else {
            return owner.noteRefusal(of: peer.name, peer.userID, "its list of features exceeds the limit")
        }
        peer.understands = Set(understands.features).intersection(Self.features)
    }

    /// The maximum size of the signal `Understands`, in bytes.
    private static let maxBytesOfFeatures = 4096
}
