// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// One connection to the system bus, which is shared with the services of other sessions (G1).
///
/// Any process may send any message there. A connection therefore counts as a session only when the bus has verified
/// its user. Content is sent to verified connections only, and accepted from these only. The number of sessions is
/// limited, per user and in all. The rate of reading is limited too: the excess of a flooding session is lost, and the
/// loss is counted.
final class SystemBusSession {
    let bus: any BusConnection
    unowned let owner: Sessions
    private let onEnd: (BusError) -> Void
    private let departures: DepartureWatch
    private let exporter = ObjectExporter(path: SessionsWire.path, interface: SessionsWire.table)
    private(set) var places = SessionSlots()
    /// The candidates about which the bus is yet to be asked.
    private var unasked = Deque<UniqueName>()
    private var asking = 0
    /// The connections that wait until they may be candidates.
    private var postponed = RandomBag<UniqueName>(most: 512)
    private var postponement: EventSource?
    private static let postponementTime: UInt32 = 50
    /// The rate limits of users. The limit of a user without a session stays until it has recovered fully: a session
    /// that leaves and comes back gives its user no more.
    var allowances: [UInt32: Allowance] = [:]
    /// Set while there are rate limits of users without a session.
    private var clearing: EventSource?
    /// The rate limit of reading, for all senders together. Messages of users without import are dropped at once, so
    /// that many can be read: unread messages delay those of others.
    private var readings = RateLimit(perSecond: 100_000, burst: 100_000)
    private var questions = RateLimit(perSecond: 500, burst: 500)
    /// Set while reading pauses, because the rate limit was reached.
    private var rest: EventSource?
    private var isPaused = false
    /// Set when a connection was passed over; then all sessions are asked again.
    private var again: EventSource?
    private var misses: UInt32 = 0
    private var lastMiss: Int64 = 0
    private var isOver = false
    private(set) var isThere = false
    /// The serial of the last message with one of its own. These serials are in the upper half of the range; the
    /// connection numbers all other messages in the lower half.
    var lastSerial = firstSerial
    static let firstSerial: UInt32 = 1 << 31
    /// The size of the queues of all sessions, in bytes.
    var waitingBytes = 0

    private static let maxAsking = 16
    private static let restTime: UInt32 = 100
    private static let restOfWriting: UInt32 = 5
    private static let clearingPause: UInt32 = 1000
    static let firstDoubt: UInt32 = 10_000
    static let longestDoubt: UInt32 = 600_000
    private static let firstPause: UInt32 = 1000
    private static let longestPause: UInt32 = 60_000

    /// - Parameters:
    ///   - bus: a new connection.
    ///   - owner: the owner, which keeps this object.
    ///   - onEnd: called once, from the loop.
    init(_ bus: any BusConnection, of owner: Sessions, onEnd: @escaping (BusError) -> Void) {
        self.bus = bus
        self.owner = owner
        self.onEnd = onEnd
        departures = DepartureWatch(bus: bus)
        bus.onMessage = { [weak self] message in self?.handle(message) ?? true }
        bus.onDisconnect = { [weak self] in self?.end(.disconnected("the system bus closed the connection")) }
    }

    func start() {
        bus.hello { [weak self] result in
            guard let self, !isOver else { return }
            if case .failure(let error) = result { return end(error) }
            bus.addMatch(SessionsWire.matchRule) { [weak self] result in
                guard let self, !isOver else { return }
                if case .failure(let error) = result { return end(error) }
                isThere = true
                applyPause()
                owner.joined()
                // Sent behind the match rule, so that of two sessions that join at once one receives the other's
                // signal.
                bus.send(HereSignal().message(to: nil))
            }
        }
    }

    private func end(_ error: BusError) {
        guard !isOver else { return }
        isOver = true
        onEnd(error)
    }

    /// Stops all activity. If the bus is still there, the other sessions get a report of the notifications that will
    /// not be sent.
    ///
    /// - Returns: the number of notifications that were not sent.
    func close() -> UInt64 {
        let isLast = !isOver
        isOver = true
        (rest, again, clearing, postponement) = (nil, nil, nil, nil)
        let before = places.all.reduce(0) { $0 + $1.line.lost }
        if isLast { tellLastLosses() }
        for peer in places.all {
            peer.line.clear()
            peer.stop()
            peer.goneAt = now
        }
        let count = places.all.reduce(0) { $0 + $1.line.lost } - before
        places = SessionSlots()
        owner.center?.bytesForSessions = 0
        return count
    }

    func pause(_ isPaused: Bool) {
        self.isPaused = isPaused
        applyPause()
    }

    /// Pauses or resumes reading. Before AddMatch is answered the connection is not paused, as the bus's answers could
    /// not be read.
    private func applyPause() { (bus as? Connection)?.isPaused = (isPaused && isThere) || rest != nil }

    var now: Int64 { owner.now }

    // MARK: Arriving messages

    private func handle(_ message: Message) -> Bool {
        guard !isOver else { return true }
        if let change = OwnerChange(message) {
            if let name = change.departed { forget(name) }
            return true
        }
        // Calls come from connections that the bus's policy lets through; by default there are none.
        if message.kind == .methodCall { return exporter.handle(message, from: bus) }
        guard message.kind == .signal, message.hasInterface(SessionsWire.interface), message.hasPath(SessionsWire.path),
            let sender = message.sender, sender != bus.uniqueName
        else { return false }
        if !readings.take(at: now) { takeRest() }
        if owner.center?.isWriting == true { takeRest(Self.restOfWriting) }
        if message.hasMember(HereSignal.member) {
            heard(of: sender, isBroadcast: message.destination == nil)
        } else if let peer = places[sender], message.destination != nil {
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

    /// Whether reading pauses, for tests.
    var isResting: Bool { rest != nil }

    /// Pauses reading, because messages arrive faster than they can be handled or passed on. Unread messages wait in
    /// the bus, which limits them per connection.
    private func takeRest(_ milliseconds: UInt32 = SystemBusSession.restTime) {
        guard rest == nil else { return }
        rest = .once(milliseconds: milliseconds, on: bus.context) { [unowned self] in
            rest = nil
            if owner.center?.isWriting == true { takeRest(Self.restOfWriting) }
            applyPause()
        }
        applyPause()
    }

    // MARK: Sessions on the bus

    private func heard(of name: UniqueName, isBroadcast: Bool) {
        switch places.standing(of: name) {
        case .session:
            guard let peer = places[name] else { return }
            // The sender may have missed this session's signals.
            if isBroadcast, peer.answers.take(at: now) { greet(peer, answers: true) }
        // The answer of the bus is known or pending.
        case .candidate, .turnedAway: break
        case .unknown:
            if isBroadcast { unanswered.insert(name) }
            guard postponed.isEmpty, begin(name) else { return postpone(name) }
            askNext()
        }
    }

    /// Makes a connection a candidate.
    ///
    /// - Returns: false where too many questions are pending.
    private func begin(_ name: UniqueName) -> Bool {
        guard places.hasRoomForCandidate, questions.take(at: now) else { return false }
        places.addCandidate(name)
        unasked.append(name)
        return true
    }

    /// Makes a connection a candidate later. Where there are many, the next one and those passed over are chosen at
    /// random: thousands of connections of one sender can't precede a connection that announced itself once.
    private func postpone(_ name: UniqueName) {
        if let passedOver = postponed.insert(name) {
            unanswered.remove(passedOver)
            missed()
        }
        guard postponement == nil else { return }
        postponement = .once(milliseconds: Self.postponementTime, on: bus.context) { [unowned self] in
            postponement = nil
            while let name = postponed.next, begin(name) { postponed.removeNext() }
            askNext()
            if let name = postponed.next { postpone(name) }
        }
    }

    /// The connections that broadcast Here, and are to be answered when their user is known.
    private var unanswered: Set<UniqueName> = []

    private func askNext() {
        while asking < Self.maxAsking, let name = unasked.popFirst() {
            guard places.standing(of: name) == .candidate else { continue }
            asking += 1
            // Asked behind the match rule: either this fails, or a later departure is announced.
            departures.watch(name) { [weak self] in self?.forget(name) }
            bus.credentials(of: name) { [weak self] result in
                guard let self, !isOver else { return }
                asking -= 1
                learned(name, result.map(\.userID))
                askNext()
            }
        }
    }

    private func learned(_ name: UniqueName, _ answer: Result<UInt32?, BusError>) {
        guard places.standing(of: name) == .candidate else { return }
        guard case .success(let userID?) = answer else {
            forget(name)
            // Without an answer of the bus, a session that is still there was passed over.
            if case .failure(let error) = answer, error.name != BusError.nameHasNoOwnerName { missed() }
            return
        }
        let admission = places.identify(name, as: userID)
        if let displaced = admission.displaced { lost(displaced, "to a session of another user") }
        if let forgotten = admission.forgotten {
            end(forgotten)
            missed()
        }
        guard admission.isAdmitted, let peer = places[name] else { return }
        joined(peer)
    }

    private func joined(_ peer: SessionPeer) {
        Log.info("\(peer.name) on the system bus is a session of user \(peer.userID ?? 0)")
        peer.goneAt = nil
        greet(peer, answers: unanswered.remove(peer.name) != nil)
        welcome(peer)
    }

    /// Handles the loss of a session's slot.
    private func lost(_ peer: SessionPeer, _ why: String) {
        Log.info("\(peer.name) on the system bus, a session of user \(peer.userID ?? 0), lost its slot \(why)")
        let count = changeLine(of: peer) { $0.leavePlace() }
        if count > 0 { owner.noteLoss(count, "to \(peer.name), which lost its slot,") }
        noteLeft(peer)
        if let userID = peer.userID, allowances[userID] != nil { clearLater() }
    }

    /// Announces this session and its wanted names to another session.
    private func greet(_ peer: SessionPeer, answers: Bool) {
        if answers {
            bus.send(HereSignal().message(to: peer.name))
            peer.told = []
        }
        tellWants(to: peer)
    }

    func tellWants(to peer: SessionPeer) {
        guard let userID = peer.userID else { return }
        let wants = (owner.rules.imports[userID] ?? []).map(\.description)
        guard wants != peer.told else { return }
        peer.told = wants
        bus.send(UnderstandsSignal(Self.features).message(to: peer.name))
        bus.send(WantsSignal(wants).message(to: peer.name))
    }

    static let features = [UnderstandsSignal.values, UnderstandsSignal.losses, UnderstandsSignal.identities]

    /// Asks a session to replay its values, as some may be missing.
    func askForValues(_ peer: SessionPeer) {
        guard peer.understandsValues, peer.told?.isEmpty == false, peer.questions.take(at: now) else { return }
        peer.told = nil
        tellWants(to: peer)
    }

    /// Notes that a session has left. Its values end, unless it comes back within the grace time.
    private func noteLeft(_ peer: SessionPeer) {
        peer.goneAt = now
        owner.lookThrough(after: SessionValues.grace)
    }

    /// Returns the state of a user's sessions, as far as it concerns values.
    func presence(of userID: UInt32) -> SessionValues.Presence {
        let sessions = places.peers.values.filter { $0.userID == userID && $0.told?.isEmpty == false }
        let telling = sessions.filter(\.understandsValues)
        return SessionValues.Presence(
            told: telling.isEmpty ? .nothing : telling.allSatisfy(\.values.isComplete) ? .all : .some,
            isSilent: telling.count < sessions.count)
    }

    private func forget(_ name: UniqueName) {
        let wasSession = places.standing(of: name) == .session
        let (left, admitted) = places.remove(name)
        guard let peer = left else { return }
        end(peer)
        if wasSession {
            _ = changeLine(of: peer) { $0.line.clear() }
            noteLeft(peer)
        }
        if wasSession, let userID = peer.userID {
            Log.info("\(name) on the system bus, a session of user \(userID), is gone")
            if allowances[userID] != nil { clearLater() }
        }
        if let admitted { joined(admitted) }
    }

    /// Releases everything that is kept of a connection.
    private func end(_ peer: SessionPeer) {
        peer.stop()
        unanswered.remove(peer.name)
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.sessionStays) { return }
        #endif
        departures.forget(peer.name)
    }

    private func clearLater() {
        guard clearing == nil else { return }
        clearing = .once(milliseconds: Self.clearingPause, on: bus.context) { [unowned self] in
            clearing = nil
            let (present, now) = (Set(places.peers.values.compactMap(\.userID)), now)
            allowances = allowances.filter { present.contains($0.key) || !$0.value.isFull(at: now) }
            if !present.isSuperset(of: allowances.keys) { clearLater() }
        }
    }

    /// Notes that a session was passed over, because of a limit or without an answer of the bus. All sessions are asked
    /// again: after 1 s, then after pauses that double, up to 60 s.
    private func missed() {
        guard again == nil else { return }
        // After two minutes without such an event the pauses start again at 1 s.
        let now = now
        if now - lastMiss > 2 * 1000 * Int64(Self.longestPause) { misses = 0 }
        lastMiss = now
        let pause = min(Self.firstPause << min(misses, 16), Self.longestPause)
        misses += 1
        again = .once(milliseconds: pause, on: bus.context) { [unowned self] in
            again = nil
            bus.send(HereSignal().message(to: nil))
        }
    }

    /// The numbers of table entries per session, for tests.
    var kept: [(what: String, count: Int)] {
        [
            ("sessions", places.kept.sessions), ("sessions without a place", places.kept.turnedAway),
            ("sessions without a user yet", places.kept.candidates), ("sessions without an answer", unanswered.count),
            ("questions about sessions", unasked.count + postponed.count), ("allowances of users", allowances.count),
            ("match rules for sessions", departures.keptCount),
        ]
    }

    var shown: [[String: PropertyList]] { places.shown.map(\.shown) }
}
