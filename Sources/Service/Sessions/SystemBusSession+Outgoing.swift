// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The signals to other sessions: notifications, ends of retained values, replays of values, and reports of losses (G1,
/// R8).
///
/// Each session has a queue with a window of unacknowledged signals (``SessionSendQueue``). A session that does not
/// acknowledge loses the oldest notifications of its queue, and delays no other session.
extension SystemBusSession {
    /// Sends the changed lists of wanted names after a change of the rules.
    func rulesChanged() {
        for peer in sessions { sendWants(to: peer) }
    }

    /// Sends a notification to all sessions that import its name.
    func export(_ notification: ExportedNotification) {
        for peer in sessions where wants(notification.name, peer) {
            #if CARILLON_PLANTED
                if peer.queue.isBlocked, PlantedFault.strikes(.slowSessionSkipped) { continue }
            #endif
            append(.notification(notification), byteCount: size(of: notification), to: peer)
        }
        trimQueues()
    }

    /// Sends the end of a retained value to the sessions that may have it.
    func exportEnded(_ key: NotificationKey) {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.valueEndUnreported) { return }
        #endif
        for peer in sessions where peer.understandsValues && wants(key.name, peer) {
            append(.ended(key), byteCount: key.name.utf8.count + key.object.utf8.count + Self.overhead, to: peer)
        }
        trimQueues()
    }

    /// The sessions sorted by name, so that the same events have the same results in every process.
    private var sessions: [SessionPeer] { slots.peers.values.sorted { $0.name < $1.name } }

    /// Whether a session imports a name from this user.
    private func wants(_ name: String, _ peer: SessionPeer) -> Bool {
        #if CARILLON_PLANTED
            if !peer.wants.isEmpty, PlantedFault.strikes(.unwantedExport) { return true }
        #endif
        return peer.wants.contains { $0.matches(name) }
    }

    /// Returns the approximate size of a notification in a queue, in bytes.
    private func size(of notification: ExportedNotification) -> Int {
        notification.userInfo.byteCount + notification.name.utf8.count + notification.object.utf8.count + Self.overhead
    }

    /// The approximate size of a signal's header and options and of its entry in the queue, in bytes.
    private static let overhead = 256
    /// The maximum size of the queues of all sessions together, in bytes: at most an eighth of `memory-bytes` (E4).
    private var maxWaitingBytes: Int { min(16 << 20, Int(owner.limits()[.memoryBytes]) / 8) }

    // MARK: Queues

    /// Appends an item to the queue of a session, and sends as much as its window allows.
    private func append(_ item: SessionPeer.Item, byteCount: Int, to peer: SessionPeer) {
        let isNotification = if case .notification = item { true } else { false }
        let dropped = changeQueue(of: peer) {
            $0.queue.append(item, byteCount: byteCount, countsAsLoss: isNotification)
        }
        noteDropped(dropped, of: peer)
        pump(peer)
    }

    /// Runs `change`, which changes the queue of a session, and updates the total size of the queues.
    func changeQueue<Result>(of peer: SessionPeer, _ change: (SessionPeer) -> Result) -> Result {
        let before = peer.queue.waitingBytes
        defer {
            waitingBytes += peer.queue.waitingBytes - before
            owner.center?.bytesForSessions = waitingBytes
        }
        return change(peer)
    }

    /// Discards the oldest items of the largest queue, while the total size of the queues exceeds its maximum.
    private func trimQueues() {
        let most = maxWaitingBytes
        while waitingBytes > most,
            let largest = sessions.max(by: { $0.queue.waitingBytes < $1.queue.waitingBytes })
        {
            noteDropped(changeQueue(of: largest) { $0.queue.dropFirst() }.map { [$0] } ?? [], of: largest)
        }
    }

    /// Counts discarded notifications as losses. If a change of a value was discarded, a replay of all values becomes
    /// due.
    private func noteDropped(_ items: [SessionPeer.Item], of peer: SessionPeer) {
        var count: UInt64 = 0
        for item in items {
            switch item {
            case .notification(let notification):
                count += 1
                if peer.understandsLosses { peer.losses.add(notification) }
                if notification.retention != nil { scheduleReplay(to: peer) }
            case .ended: scheduleReplay(to: peer)
            }
        }
        if count > 0 { owner.noteLoss(count, "to the slow consumer \(peer.name)") }
    }

    // MARK: Sending

    /// Sends as much to a session as its window allows: first reports of losses, then a replay that has begun or may
    /// begin, then the queue. Runs the timer for acknowledgments while something waits for one.
    func pump(_ peer: SessionPeer) {
        while peer.queue.hasRoom, sendLosses(to: peer) || sendValue(to: peer) || sendNext(to: peer) {}
        guard peer.isBlocked else { return peer.ackTimer = nil }
        guard peer.ackTimer == nil else { return }
        let pause = min(Self.firstAckTimeout << min(peer.ackTimeouts, 16), Self.longestAckTimeout)
        peer.ackTimer = .once(milliseconds: pause, on: bus.context) { [unowned self, unowned peer] in
            peer.ackTimer = nil
            peer.ackTimeouts += 1
            // The signals in flight may be lost, and no longer count as in flight. If they are lost, the other session
            // detects a gap in the sequence numbers. Values among them are sent again by a replay. Until the next
            // acknowledgment the queue sends one message at a time.
            peer.queue.giveUp()
            Log.info("\(peer.name) on the system bus acknowledges nothing: sending one message at a time")
            scheduleReplay(to: peer)
            pump(peer)
        }
    }

    /// Sends the oldest item of the queue.
    ///
    /// - Returns: whether an item was sent.
    private func sendNext(to peer: SessionPeer) -> Bool {
        guard let (item, number, lost) = changeQueue(of: peer, { $0.queue.next() }) else { return false }
        switch item {
        case .notification(let notification): send(notification, number, lost: lost, to: peer)
        case .ended(let key):
            bus.send(RemovedSignal(number, name: key.name, object: key.object).message(to: peer.name))
        }
        return true
    }

    /// Sends a report of losses by name, ahead of the queue.
    ///
    /// - Returns: whether a report was sent.
    private func sendLosses(to peer: SessionPeer) -> Bool {
        #if CARILLON_PLANTED
            if !peer.losses.isEmpty, PlantedFault.strikes(.sessionLossUnreported) {
                (_, _) = (peer.losses.take(), peer.queue.takeUnreported())
                return false
            }
        #endif
        guard !peer.losses.isEmpty, let number = peer.queue.next(byteCount: Self.overhead) else { return false }
        // The report replaces the number of losses that the next notification would carry.
        _ = peer.queue.takeUnreported()
        bus.send(LostSignal(number, peer.losses.take()).message(to: peer.name))
        return true
    }

    /// Discards all queues at the end, and reports the discarded notifications to each session. The report is one
    /// signal, regardless of the window.
    func reportLastLosses() {
        for peer in sessions where peer.understandsLosses {
            while let item = changeQueue(of: peer, { $0.queue.dropFirst() }) {
                if case .notification(let notification) = item { peer.losses.add(notification) }
            }
            guard !peer.losses.isEmpty else { continue }
            bus.send(LostSignal(peer.queue.last(byteCount: Self.overhead), peer.losses.take()).message(to: peer.name))
        }
    }

    /// Sends a notification.
    ///
    /// - Parameters:
    ///   - isKept: whether it is an existing value that is part of a replay.
    ///   - number: its sequence number.
    ///   - lost: the number of losses before it that no signal has reported.
    private func send(
        _ notification: ExportedNotification, isKept: Bool = false, _ number: UInt64, lost: UInt64 = 0,
        to peer: SessionPeer
    ) {
        var options = options(of: notification, number, lost)
        let endsWithPoster = notification.retention?.whileConnected == true
        if peer.understandsValues {
            (options.isKept, options.whileConnected) = (isKept, endsWithPoster)
        } else if endsWithPoster {
            // The receiver can't end values, and would keep this one for ever.
            options.isRetained = false
        }
        if peer.understands.contains(UnderstandsSignal.identities) {
            (options.serial, options.time) = (notification.serial, notification.time)
        }
        guard let userInfo = notification.userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        lastSerial = lastSerial == .max ? Self.firstSerial : lastSerial + 1
        bus.send(SessionNotification.message(to: peer.name, userInfo, options, serial: lastSerial))
        owner.counts.sent += 1
    }

    /// Returns the options that do not depend on the receiver's features.
    private func options(
        of notification: ExportedNotification, _ number: UInt64, _ lost: UInt64
    ) -> SessionNotification.Options {
        var options = SessionNotification.Options()
        options.number = number
        options.lost = lost
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.sessionLossUnreported) { options.lost = 0 }
        #endif
        options.deliverImmediately = notification.deliverImmediately
        options.isRetained = notification.retention != nil
        if let expiry = notification.expiry {
            let left = (expiry - owner.uptime + 999_999) / 1_000_000
            // Rounded up to seconds. A notification that has expired in the queue is still sent, with 1 s.
            options.expiresAfter = UInt32(clamping: max(1, left))
        }
        return options
    }

    /// Takes a session's acknowledgment of all signals up to a number.
    func confirmed(upTo number: UInt64, by peer: SessionPeer) {
        guard peer.queue.confirm(upTo: number) else {
            return owner.noteRefusal(of: peer.name, peer.userID, "it acknowledges a message that was not sent")
        }
        (peer.ackTimer, peer.ackTimeouts) = (nil, 0)
        pump(peer)
    }

    // MARK: Retained values

    /// Replays the values to all sessions after a change of the names for export. Values that are exported no more then
    /// end in the other sessions, because the replay does not contain them.
    func replayValuesToAll() {
        for peer in sessions {
            scheduleReplay(to: peer)
            pump(peer)
        }
    }

    /// Makes a replay of all values to a session due, because the session may lack some.
    private func scheduleReplay(to peer: SessionPeer) {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.missingValuesUnsent) { return }
        #endif
        if peer.understandsValues, !peer.wants.isEmpty { peer.replay = .due }
    }

    /// Sends the next signal of a replay: its beginning, a value, or its end.
    ///
    /// - Returns: whether a signal was sent; false also if the replay is continued later.
    private func sendValue(to peer: SessionPeer) -> Bool {
        guard let center = owner.center, peer.replayTimer == nil else { return false }
        switch peer.replay {
        case .done: return false
        // The replay begins when the queue is empty, so that it overtakes no queued notification, and within its rate
        // limit. The newest serial bounds it, because newer values are sent as notifications.
        case .due:
            guard peer.queue.waitingCount == 0 else { return false }
            guard peer.replayLimit.take(at: now) else {
                return goOn(with: peer, after: peer.replayLimit.time(until: 1, at: now))
            }
            guard let number = peer.queue.next(byteCount: Self.overhead) else { return false }
            bus.send(ValuesSignal(number, isBeginning: true).message(to: peer.name))
            peer.replay = .begun(after: 0, through: center.newestSerial)
            return true
        // The next wanted value in the order of serials is sent, or the end of the replay if none is left.
        case .begun(var after, let through):
            for _ in 0..<Self.maxLookedAt {
                guard let (value, serial) = center.valueForSessions(after: after, through: through) else {
                    guard let number = peer.queue.next(byteCount: Self.overhead) else { return false }
                    bus.send(ValuesSignal(number, isBeginning: false).message(to: peer.name))
                    peer.replay = .done
                    return true
                }
                after = serial
                guard owner.rules.exports(value.name), wants(value.name, peer),
                    value.expiry.map({ $0 > owner.uptime }) ?? true
                else { continue }
                guard let number = peer.queue.next(byteCount: size(of: value)) else { return false }
                send(value, isKept: true, number, to: peer)
                peer.replay = .begun(after: after, through: through)
                return true
            }
            peer.replay = .begun(after: after, through: through)
            return goOn(with: peer, after: 0)
        }
    }

    /// The maximum number of values that one iteration of the loop examines, in search of a wanted one.
    private static let maxLookedAt = 256

    /// Continues a replay later.
    ///
    /// - Parameter time: the delay in microseconds.
    /// - Returns: false, because nothing is sent now.
    private func goOn(with peer: SessionPeer, after time: Int64) -> Bool {
        peer.replayTimer = .once(milliseconds: UInt32((time + 999) / 1000), on: bus.context) {
            [unowned self, unowned peer] in
            peer.replayTimer = nil
            pump(peer)
        }
        return false
    }

    /// Handles the signal `Wants`: the names that a session imports from this user. A replay of the values follows.
    func takeWants(_ message: Message, of peer: SessionPeer) {
        guard peer.listLimit.take(at: now), message.byteCount <= 2 * SessionsWire.maxWantedBytes,
            let wants = try? WantsSignal(message),
            wants.names.count <= SessionsWire.maxWanted
        else { return owner.noteRefusal(of: peer.name, peer.userID, "its list of wanted names exceeds the limit") }
        // A text that is no pattern here may be one in a later version of the sender, so it is ignored.
        peer.wants = wants.names.compactMap(NamePattern.init)
        guard slots.standing(of: peer.name) != .turnedAway else { return peer.discardTables() }
        scheduleReplay(to: peer)
        if slots.standing(of: peer.name) == .session { pump(peer) }
    }

    /// Starts to send to a session that got a slot.
    func welcome(_ peer: SessionPeer) {
        scheduleReplay(to: peer)
        pump(peer)
    }
}
