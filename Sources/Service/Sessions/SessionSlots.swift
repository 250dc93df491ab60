// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections

/// The admission control for connections of the system bus that announce themselves as other sessions (G1, E4). A
/// session needs a slot to exchange notifications. There are 64 slots, at most 8 of them for one user.
///
/// A connection passes through these states (``Standing``): it announces itself and becomes a candidate, the bus
/// reports its user, and it is admitted to a slot or turned away. If all slots are taken, the user with the most
/// sessions loses one to a user with at least two fewer. A session that was turned away or lost its slot is remembered,
/// and gets the next slot that its user may have. Therefore the bus is asked once for the user of each remembered
/// connection.
///
/// ``SystemBusSession`` calls the methods, and acts on their results.
struct SessionSlots {
    /// The state of a connection.
    enum Standing: Equatable {
        /// It has not announced itself, or is no longer remembered.
        case unknown
        /// The bus was asked for its user.
        case candidate
        /// It has a slot.
        case session
        /// Its user is known, and it waits for a slot.
        case turnedAway
    }

    /// The number of slots.
    static let maxPeers = 64
    /// The maximum number of slots of one user.
    static let maxPeersOfUser = 8
    /// The maximum number of candidates.
    static let maxCandidates = 128
    /// The maximum number of sessions that are remembered without a slot. The oldest is forgotten above it.
    static let maxTurnedAway = 2048

    /// The sessions with a slot.
    private(set) var peers: [UniqueName: SessionPeer] = [:]
    private var candidates: [UniqueName: SessionPeer] = [:]
    private var turnedAway: [UniqueName: SessionPeer] = [:]
    /// The names in ``turnedAway``, the oldest first. It may also contain connections that are no longer turned away.
    private var waiting = Deque<UniqueName>()
    /// The number of sessions with a slot, by user ID.
    private var counts: [UInt32: Int] = [:]

    /// The numbers of connections in each state.
    var kept: (sessions: Int, candidates: Int, turnedAway: Int) { (peers.count, candidates.count, turnedAway.count) }

    /// The sessions with a slot and the candidates, as the property `Sessions` shows them.
    var shown: [SessionPeer] { (Array(peers.values) + candidates.values).sorted { $0.name < $1.name } }

    /// All remembered connections.
    var all: [SessionPeer] { Array(peers.values) + candidates.values + turnedAway.values }

    /// The entry of a connection, in any state.
    subscript(name: UniqueName) -> SessionPeer? { peers[name] ?? candidates[name] ?? turnedAway[name] }

    func standing(of name: UniqueName) -> Standing {
        if peers[name] != nil { return .session }
        if candidates[name] != nil { return .candidate }
        return turnedAway[name] != nil ? .turnedAway : .unknown
    }

    var mayAddCandidate: Bool { candidates.count < Self.maxCandidates }

    /// Adds a connection that has announced itself as a session. The caller asks the bus for its user.
    mutating func addCandidate(_ name: UniqueName) {
        candidates[name] = SessionPeer(name)
    }

    /// The result of ``identify(_:as:)``.
    struct Admission {
        /// Whether the candidate has got a slot.
        var isAdmitted = false
        /// The session that lost its slot to the candidate.
        var displaced: SessionPeer?
        /// The session without a slot that is no longer remembered, because there are too many.
        var forgotten: SessionPeer?
    }

    /// Takes the user of a candidate, and admits it to a slot or turns it away.
    mutating func identify(_ name: UniqueName, as userID: UInt32) -> Admission {
        var admission = Admission()
        guard let peer = candidates.removeValue(forKey: name) else { return admission }
        peer.userID = userID
        admission.displaced = freeSlot(for: userID)
        if hasFreeSlot(for: userID) {
            seat(peer)
            admission.isAdmitted = true
        } else {
            admission.forgotten = turnAway(peer)
        }
        if let displaced = admission.displaced { admission.forgotten = turnAway(displaced) ?? admission.forgotten }
        return admission
    }

    /// Removes a connection that has left the bus.
    ///
    /// - Returns: its entry, and the session that has got its slot.
    mutating func remove(_ name: UniqueName) -> (left: SessionPeer?, admitted: SessionPeer?) {
        if let peer = candidates.removeValue(forKey: name) ?? turnedAway.removeValue(forKey: name) {
            return (peer, nil)
        }
        guard let peer = peers[name] else { return (nil, nil) }
        unseat(peer)
        return (peer, admitNext())
    }

    // MARK: Slots

    /// Whether there is a free slot that the user may have.
    private func hasFreeSlot(for userID: UInt32) -> Bool {
        peers.count < Self.maxPeers && counts[userID, default: 0] < Self.maxPeersOfUser
    }

    /// Takes a slot from the user with the most sessions, if that user has at least two more than this one. Among
    /// several such users it is the one with the greatest ID. The session with the greatest name loses its slot. Both
    /// choices are arbitrary, but the same for the same sessions, as dictionaries have no fixed order.
    private mutating func freeSlot(for userID: UInt32) -> SessionPeer? {
        guard peers.count >= Self.maxPeers,
            let most = counts.max(by: { ($0.value, $0.key) < ($1.value, $1.key) }),
            most.value > counts[userID, default: 0] + 1
        else { return nil }
        let displaced = peers.values.filter { $0.userID == most.key }.max { $0.name < $1.name }
        if let displaced { unseat(displaced) }
        return displaced
    }

    /// Gives a session a slot.
    private mutating func seat(_ peer: SessionPeer) {
        peers[peer.name] = peer
        if let userID = peer.userID { counts[userID, default: 0] += 1 }
    }

    /// Takes a session's slot away.
    private mutating func unseat(_ peer: SessionPeer) {
        peers[peer.name] = nil
        guard let userID = peer.userID, let count = counts[userID] else { return }
        counts[userID] = count > 1 ? count - 1 : nil
    }

    /// Remembers a session without a slot.
    ///
    /// - Returns: the session that is no longer remembered instead.
    private mutating func turnAway(_ peer: SessionPeer) -> SessionPeer? {
        peer.discardTables()
        turnedAway[peer.name] = peer
        waiting.append(peer.name)
        var forgotten: SessionPeer?
        while turnedAway.count > Self.maxTurnedAway, let oldest = waiting.popFirst() {
            forgotten = turnedAway.removeValue(forKey: oldest)
        }
        // Names that are outdated or repeated are removed when there are many.
        if waiting.count > 2 * Self.maxTurnedAway {
            var seen: Set<UniqueName> = []
            var rest = Deque<UniqueName>()
            while let name = waiting.popFirst() {
                if turnedAway[name] != nil, seen.insert(name).inserted { rest.append(name) }
            }
            waiting = rest
        }
        return forgotten
    }

    /// Admits the first waiting session for which there is a slot.
    private mutating func admitNext() -> SessionPeer? {
        // Sessions of users without a free slot keep their order.
        var passed: [UniqueName] = []
        defer { for name in passed.reversed() { waiting.prepend(name) } }
        while let name = waiting.popFirst() {
            guard let peer = turnedAway[name], let userID = peer.userID else { continue }
            guard hasFreeSlot(for: userID) else {
                passed.append(name)
                continue
            }
            turnedAway[name] = nil
            seat(peer)
            return peer
        }
        return nil
    }
}
