// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// One connection of this service to the system bus, over which the services of all sessions of the machine exchange
/// notifications by signals (G1). ``Sessions`` makes a new object for each connection.
///
/// The services find each other by the broadcast `Here`. This file has the connection and the other sessions on it. The
/// extensions have the signals from and to them: `SystemBusSession+Incoming.swift`, `SystemBusSession+Outgoing.swift`.
///
/// Any process may send any message on the system bus. A connection that announces itself therefore counts as a session
/// only when the bus has reported its user. Content is sent to such sessions only, and accepted only from them. The
/// number of sessions is limited, for each user and in all (``SessionSlots``). The rate of messages is limited too:
/// messages above a user's rate are lost, and the loss is counted.
final class SystemBusSession {
    /// The connection to the system bus.
    let bus: any BusConnection
    /// The owner, which has the rules and posts the notifications.
    unowned let owner: Sessions
    private let onEnd: (BusError) -> Void
    /// The watch on connections that leave the system bus.
    private let departures: DepartureWatch
    /// Answers introspection calls.
    private let exporter = ObjectExporter(path: SessionsWire.path, interface: SessionsWire.table)
    /// The other sessions and candidates.
    private(set) var slots = SessionSlots()
    /// The candidates about which the bus is yet to be asked.
    private var unasked = Deque<UniqueName>()
    /// The number of questions to the bus without an answer.
    private var asking = 0
    /// The connections that wait until they may be candidates.
    private var postponed = RandomBag<UniqueName>(most: 512)
    /// The timer after which the next ones become candidates.
    private var postponement: EventSource?
    /// The time of ``postponement``, in milliseconds.
    private static let postponementTime: UInt32 = 50
    /// The rate limits of incoming messages, by user ID. The limit of a user without a session stays until it has
    /// recovered fully, so a session gains nothing by leaving and returning.
    var allowances: [UInt32: Allowance] = [:]
    /// The timer that removes rate limits of users without a session. It runs while there are any.
    private var clearing: EventSource?
    /// The rate limit of reading, for all senders together. It is high, because unread messages of one sender delay
    /// those of others, and messages of users without import are discarded at little cost.
    private var readings = RateLimit(perSecond: 100_000, burst: 100_000)
    /// The rate limit of questions to the bus about connections.
    private var questions = RateLimit(perSecond: 500, burst: 500)
    /// The timer of a pause in reading, because the rate limit was reached or the session bus is congested.
    private var readingPause: EventSource?
    /// Whether reading is paused by the owner.
    private var isPaused = false
    /// The timer after which `Here` is broadcast again, because a connection was passed over.
    private var rebroadcastTimer: EventSource?
    /// The number of such broadcasts in a row, with each of which the pause before the next one doubles.
    private var misses: UInt32 = 0
    /// The time at which a connection was last passed over, in microseconds.
    private var lastMiss: Int64 = 0
    /// Whether the connection has ended or was closed.
    private var isOver = false
    /// Whether the connection has joined the bus and can receive the broadcasts of other sessions.
    private(set) var hasJoined = false
    /// The message serial of the last notification. Notifications are encoded directly with a serial from the upper
    /// half of the range; the connection numbers all other messages in the lower half.
    var lastSerial = firstSerial
    static let firstSerial: UInt32 = 1 << 31
    /// The size of the queues of all sessions, in bytes.
    var waitingBytes = 0

    /// The maximum of ``asking``.
    private static let maxAsking = 16
    /// The pause in reading after the rate limit was reached, in milliseconds.
    private static let restTime: UInt32 = 100
    /// The pause in reading while many bytes wait to be written to the session bus, in milliseconds.
    private static let restOfWriting: UInt32 = 5
    /// The time of ``clearing``, in milliseconds.
    private static let clearingPause: UInt32 = 1000
    /// The first and the longest time that a session has for an acknowledgment (``SessionPeer/ackTimer``), in
    /// milliseconds.
    static let firstAckTimeout: UInt32 = 10_000
    static let longestAckTimeout: UInt32 = 600_000
    /// The first and the longest time of ``rebroadcastTimer``, in milliseconds.
    private static let firstPause: UInt32 = 1000
    private static let longestPause: UInt32 = 60_000

    /// - Parameters:
    ///   - bus: a new connection, which has not registered with the bus.
    ///   - owner: the owner, which keeps this object.
    ///   - onEnd: called with the reason when the connection ends by itself; at most once.
    init(_ bus: any BusConnection, of owner: Sessions, onEnd: @escaping (BusError) -> Void) {
        self.bus = bus
        self.owner = owner
        self.onEnd = onEnd
        departures = DepartureWatch(bus: bus)
        bus.onMessage = { [weak self] message in self?.handle(message) ?? true }
        bus.onDisconnect = { [weak self] in self?.end(.disconnected("the system bus closed the connection")) }
    }

    /// Registers with the bus, subscribes to the broadcasts of other sessions, and broadcasts `Here`.
    func start() {
        bus.hello { [weak self] result in
            guard let self, !isOver else { return }
            if case .failure(let error) = result { return end(error) }
            bus.addMatch(SessionsWire.matchRule) { [weak self] result in
                guard let self, !isOver else { return }
                if case .failure(let error) = result { return end(error) }
                hasJoined = true
                applyPause()
                owner.joined()
                // Sent behind the match rule. If two sessions join at once, at least one then receives the other's
                // signal.
                bus.send(HereSignal().message(to: nil))
            }
        }
    }

    /// Reports the end of the connection.
    private func end(_ error: BusError) {
        guard !isOver else { return }
        isOver = true
        onEnd(error)
    }

    /// Stops all activity. If the connection still exists, the other sessions get a report of the queued notifications,
    /// which will not be sent.
    ///
    /// - Returns: the number of these notifications.
    func close() -> UInt64 {
        let isLast = !isOver
        isOver = true
        (readingPause, rebroadcastTimer, clearing, postponement) = (nil, nil, nil, nil)
        // The report and ``SessionSendQueue/clear()`` count each discarded notification as lost.
        let before = slots.all.reduce(0) { $0 + $1.queue.lost }
        if isLast { reportLastLosses() }
        for peer in slots.all {
            peer.queue.clear()
            peer.stop()
            peer.goneAt = now
        }
        let count = slots.all.reduce(0) { $0 + $1.queue.lost } - before
        slots = SessionSlots()
        owner.center?.bytesForSessions = 0
        return count
    }

    /// Pauses or resumes reading, as the owner wants it.
    func pause(_ isPaused: Bool) {
        self.isPaused = isPaused
        applyPause()
    }

    /// Pauses or resumes the connection; a simulation in tests has no pause. The owner's pause begins only after the
    /// bus has answered AddMatch, because a paused connection would not read the answer.
    private func applyPause() { (bus as? Connection)?.isPaused = (isPaused && hasJoined) || readingPause != nil }

    /// The time in microseconds (``Sessions/now``).
    var now: Int64 { owner.now }

    // MARK: Arriving messages

    /// Handles a message from the system bus. Returns whether it was for this object.
    private func handle(_ message: Message) -> Bool {
        guard !isOver else { return true }
        if let change = OwnerChange(message) {
            if let name = change.departed { forget(name) }
            return true
        }
        // Calls are only answered with the introspection data. By default the bus's policy lets none through.
        if message.kind == .methodCall { return exporter.handle(message, from: bus) }
        guard message.kind == .signal, message.hasInterface(SessionsWire.interface), message.hasPath(SessionsWire.path),
            let sender = message.sender, sender != bus.uniqueName
        else { return false }
        if !readings.take(at: now) { pauseReading() }
        if owner.center?.isWriting == true { pauseReading(Self.restOfWriting) }
        if message.hasMember(HereSignal.member) {
            takeHere(of: sender, isBroadcast: message.destination == nil)
        } else if let peer = slots[sender], message.destination != nil {
            if message.hasMember(TakenSignal.member) {
                if let taken = try? TakenSignal(message) { confirmed(upTo: taken.number, by: peer) }
            } else if message.hasMember(WantsSignal.member) {
                takeWants(message, of: peer)
            } else if message.hasMember(UnderstandsSignal.member) {
                takeFeatures(message, of: peer)
            } else {
                take(message, from: peer)
            }
        } else if message.hasMember(SessionNotification.member) {
            owner.noteRefusal(of: sender, nil, "it has not announced itself as a session, or there are too many")
        }
        return true
    }

    /// Whether reading pauses because of the rate or of the session bus, for tests.
    var isResting: Bool { readingPause != nil }

    /// Pauses reading, because messages arrive faster than they can be handled or written to the session bus. Unread
    /// messages wait in the system bus, which limits them for each connection.
    private func pauseReading(_ milliseconds: UInt32 = SystemBusSession.restTime) {
        guard readingPause == nil else { return }
        readingPause = .once(milliseconds: milliseconds, on: bus.context) { [unowned self] in
            readingPause = nil
            if owner.center?.isWriting == true { pauseReading(Self.restOfWriting) }
            applyPause()
        }
        applyPause()
    }

    // MARK: Sessions on the bus

    /// Takes the signal `Here` of another session.
    ///
    /// - Parameter isBroadcast: whether the signal is a broadcast, which is answered, and not itself an answer.
    private func takeHere(of name: UniqueName, isBroadcast: Bool) {
        switch slots.standing(of: name) {
        case .session:
            guard let peer = slots[name] else { return }
            // A session that broadcasts again may have missed signals, so it is answered again.
            if isBroadcast, peer.answers.take(at: now) { greet(peer, answers: true) }
        // The bus was asked already.
        case .candidate, .turnedAway: break
        case .unknown:
            if isBroadcast { unanswered.insert(name) }
            guard postponed.isEmpty, begin(name) else { return postpone(name) }
            askNext()
        }
    }

    /// Makes a connection a candidate, about which the bus is asked.
    ///
    /// - Returns: false if there are too many candidates or questions.
    private func begin(_ name: UniqueName) -> Bool {
        guard slots.mayAddCandidate, questions.take(at: now) else { return false }
        slots.addCandidate(name)
        unasked.append(name)
        return true
    }

    /// Makes a connection a candidate later. If too many wait, a random one is passed over, and the next candidate is
    /// chosen at random. In a queue, thousands of connections of one sender would precede a connection that announced
    /// itself once.
    private func postpone(_ name: UniqueName) {
        if let passedOver = postponed.insert(name) {
            unanswered.remove(passedOver)
            rebroadcastLater()
        }
        guard postponement == nil else { return }
        postponement = .once(milliseconds: Self.postponementTime, on: bus.context) { [unowned self] in
            postponement = nil
            while let name = postponed.next, begin(name) { postponed.removeNext() }
            askNext()
            if let name = postponed.next { postpone(name) }
        }
    }

    /// The connections that have broadcast `Here`, and are answered when they are sessions.
    private var unanswered: Set<UniqueName> = []

    /// Asks the bus about the next candidates, up to ``maxAsking`` at a time.
    private func askNext() {
        while asking < Self.maxAsking, let name = unasked.popFirst() {
            guard slots.standing(of: name) == .candidate else { continue }
            asking += 1
            // The match rule for the departure is sent ahead of the question. Thus a connection that leaves in between
            // is noticed: the question fails, or the departure is announced.
            departures.watch(name) { [weak self] in self?.forget(name) }
            bus.credentials(of: name) { [weak self] result in
                guard let self, !isOver else { return }
                asking -= 1
                learned(name, result.map(\.userID))
                askNext()
            }
        }
    }

    /// Takes the bus's answer about a candidate: its user ID, or an error.
    private func learned(_ name: UniqueName, _ answer: Result<UInt32?, BusError>) {
        guard slots.standing(of: name) == .candidate else { return }
        guard case .success(let userID?) = answer else {
            forget(name)
            // If the bus could not answer although the connection exists, a session may be passed over.
            if case .failure(let error) = answer, error.name != BusError.nameHasNoOwnerName { rebroadcastLater() }
            return
        }
        let admission = slots.identify(name, as: userID)
        if let displaced = admission.displaced { lost(displaced, "to a session of another user") }
        if let forgotten = admission.forgotten {
            end(forgotten)
            rebroadcastLater()
        }
        guard admission.isAdmitted, let peer = slots[name] else { return }
        joined(peer)
    }

    /// Begins the exchange with a session that got a slot.
    private func joined(_ peer: SessionPeer) {
        Log.info("\(peer.name) on the system bus is a session of user \(peer.userID ?? 0)")
        peer.goneAt = nil
        greet(peer, answers: unanswered.remove(peer.name) != nil)
        welcome(peer)
    }

    /// Takes the loss of a session's slot.
    ///
    /// - Parameter why: the reason for the log, the end of its sentence.
    private func lost(_ peer: SessionPeer, _ why: String) {
        Log.info("\(peer.name) on the system bus, a session of user \(peer.userID ?? 0), lost its slot \(why)")
        let count = changeQueue(of: peer) { $0.loseSlot() }
        if count > 0 { owner.noteLoss(count, "to \(peer.name), which lost its slot,") }
        noteLeft(peer)
        if let userID = peer.userID, allowances[userID] != nil { clearLater() }
    }

    /// Announces this session and its wanted names to another session.
    ///
    /// - Parameter answers: whether the other session's broadcast is answered with `Here`. It may be a restarted
    ///   service, so the wanted names are sent to it in any case.
    private func greet(_ peer: SessionPeer, answers: Bool) {
        if answers {
            bus.send(HereSignal().message(to: peer.name))
            peer.announced = []
        }
        sendWants(to: peer)
    }

    /// Sends a session the names that are imported from its user, and this service's features, if they have changed
    /// since they were last sent. A session that gets its wanted names replays its values.
    func sendWants(to peer: SessionPeer) {
        guard let userID = peer.userID else { return }
        let wants = (owner.rules.imports[userID] ?? []).map(\.description)
        guard wants != peer.announced else { return }
        peer.announced = wants
        bus.send(UnderstandsSignal(Self.features).message(to: peer.name))
        bus.send(WantsSignal(wants).message(to: peer.name))
    }

    /// The features of this service beyond the first version of the protocol.
    static let features = [UnderstandsSignal.values, UnderstandsSignal.losses, UnderstandsSignal.identities]

    /// Asks a session for a replay of its retained values, because signals were lost. The request is the list of wanted
    /// names, sent once more.
    func askForValues(_ peer: SessionPeer) {
        guard peer.understandsValues, peer.announced?.isEmpty == false, peer.questions.take(at: now) else { return }
        peer.announced = nil
        sendWants(to: peer)
    }

    /// Notes that a session has left or lost its slot. After ``SessionValues/grace`` its values are checked, and end if
    /// the session has not come back.
    private func noteLeft(_ peer: SessionPeer) {
        peer.goneAt = now
        owner.checkValues(after: SessionValues.grace)
    }

    /// Returns the state of the replays of a user's sessions, as far as this session wants names of them.
    func presence(of userID: UInt32) -> SessionValues.Presence {
        let sessions = slots.peers.values.filter { $0.userID == userID && $0.announced?.isEmpty == false }
        let replaying = sessions.filter(\.understandsValues)
        return SessionValues.Presence(
            announced: replaying.isEmpty ? .nothing : replaying.allSatisfy(\.values.isComplete) ? .all : .some,
            isSilent: replaying.count < sessions.count)
    }

    /// Takes the departure of a connection from the system bus, or a failed question about it.
    private func forget(_ name: UniqueName) {
        let wasSession = slots.standing(of: name) == .session
        let (left, admitted) = slots.remove(name)
        guard let peer = left else { return }
        end(peer)
        if wasSession {
            _ = changeQueue(of: peer) { $0.queue.clear() }
            noteLeft(peer)
        }
        if wasSession, let userID = peer.userID {
            Log.info("\(name) on the system bus, a session of user \(userID), is gone")
            if allowances[userID] != nil { clearLater() }
        }
        if let admitted { joined(admitted) }
    }

    /// Releases the timers and the watch of a connection that is no longer remembered.
    private func end(_ peer: SessionPeer) {
        peer.stop()
        unanswered.remove(peer.name)
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.sessionStays) { return }
        #endif
        departures.forget(peer.name)
    }

    /// Schedules the removal of rate limits of users without a session, when they have recovered.
    private func clearLater() {
        guard clearing == nil else { return }
        clearing = .once(milliseconds: Self.clearingPause, on: bus.context) { [unowned self] in
            clearing = nil
            let (present, now) = (Set(slots.peers.values.compactMap(\.userID)), now)
            allowances = allowances.filter { present.contains($0.key) || !$0.value.isFull(at: now) }
            if !present.isSuperset(of: allowances.keys) { clearLater() }
        }
    }

    /// Schedules a broadcast of `Here`, because a session was passed over: a limit was reached, or the bus did not
    /// answer. All sessions answer the broadcast. It follows after 1 s, in repeated cases after pauses that double up
    /// to 60 s.
    private func rebroadcastLater() {
        guard rebroadcastTimer == nil else { return }
        // After two minutes without such an event the pauses start again at 1 s.
        let now = now
        if now - lastMiss > 2 * 1000 * Int64(Self.longestPause) { misses = 0 }
        lastMiss = now
        let pause = min(Self.firstPause << min(misses, 16), Self.longestPause)
        misses += 1
        rebroadcastTimer = .once(milliseconds: pause, on: bus.context) { [unowned self] in
            rebroadcastTimer = nil
            bus.send(HereSignal().message(to: nil))
        }
    }

    /// The numbers of entries in the tables, for tests of leaks.
    var kept: [(what: String, count: Int)] {
        [
            ("sessions", slots.kept.sessions), ("sessions without a slot", slots.kept.turnedAway),
            ("sessions without a user yet", slots.kept.candidates), ("sessions without an answer", unanswered.count),
            ("questions about sessions", unasked.count + postponed.count), ("rate limits of users", allowances.count),
            ("match rules for sessions", departures.keptCount),
        ]
    }

    /// The other sessions, as the property `Sessions` shows them.
    var shown: [[String: PropertyList]] { slots.shown.map(\.shown) }
}
