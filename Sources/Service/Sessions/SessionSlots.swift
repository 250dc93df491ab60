// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections

/// The admission of sessions to slots, of which there are 64, and 8 per user (G1, E4).
///
/// The bus is asked about a connection once, as long as the answer is remembered. Where all slots are taken, the user
/// with the most sessions gives one up to a user with fewer. A session without a slot is remembered, and gets the next
/// free slot.
struct SessionSlots {
    /// The state of a connection.
    enum Standing: Equatable {
        case unknown
        /// The bus was asked for its user.
        case candidate
        case session
        /// Its user is known, and there is no slot for it.
        case turnedAway
    }

    static let maxPeers = 64
    static let maxPeersOfUser = 8
    static let maxCandidates = 128
    static let maxTurnedAway = 2048

    private(set) var peers: [UniqueName: SessionPeer] = [:]
    private var candidates: [UniqueName: SessionPeer] = [:]
    private var turnedAway: [UniqueName: SessionPeer] = [:]
    /// The order of ``turnedAway``; it may contain connections that are no longer turned away.
    private var waiting = Deque<UniqueName>()
    private var counts: [UInt32: Int] = [:]

    /// The numbers of connections in each state.
    var kept: (sessions: Int, candidates: Int, turnedAway: Int) { (peers.count, candidates.count, turnedAway.count) }

    /// The sessions with a slot, and the candidates.
    var shown: [SessionPeer] { (Array(peers.values) + candidates.values).sorted { $0.name < $1.name } }

    var all: [SessionPeer] { Array(peers.values) + candidates.values + turnedAway.values }

    /// The entry of a connection, in any state.
    subscript(name: UniqueName) -> SessionPeer? { peers[name] ?? candidates[name] ?? turnedAway[name] }

    func standing(of name: UniqueName) -> Standing {
        if peers[name] != nil { return .session }
        if candidates[name] != nil { return .candidate }
        return turnedAway[name] != nil ? .turnedAway : .unknown
    }

    var hasRoomForCandidate: Bool { candidates.count < Self.maxCandidates }

    /// Adds a connection that has announced itself as a session, whose user the bus is asked for.
    mutating func addCandidate(_ name: UniqueName) {
        candidates[name] = SessionPeer(name)
    }

    /// The result of ``identify(_:as:)``.
    struct Admission {
        /// Whether it has a slot.
        var isAdmitted = false
        /// The session that lost its slot to it.
        var displaced: SessionPeer?
        /// A session without a slot that is no longer remembered.
        var forgotten: SessionPeer?
    }

    /// Admits a candidate whose user is known, or remembers it without a slot.
    mutating func identify(_ name: UniqueName, as userID: UInt32) -> Admission {
        var admission = Admission()
        guard let peer = candidates.removeValue(forKey: name) else { return admission }
        peer.userID = userID
        admission.displaced = makePlace(for: userID)
        if hasPlace(for: userID) {
            seat(peer)
            admission.isAdmitted = true
        } else {
            admission.forgotten = turnAway(peer)
        }
        if let displaced = admission.displaced { admission.forgotten = turnAway(displaced) ?? admission.forgotten }
        return admission
    }

    /// Removes a connection that has left.
    ///
    /// - Returns: its entry, and the session that gets its slot.
    mutating func remove(_ name: UniqueName) -> (left: SessionPeer?, admitted: SessionPeer?) {
        if let peer = candidates.removeValue(forKey: name) ?? turnedAway.removeValue(forKey: name) {
            return (peer, nil)
        }
        guard let peer = peers[name] else { return (nil, nil) }
        unseat(peer)
        return (peer, admitNext())
    }

    // MARK: Slots

    private func hasPlace(for userID: UInt32) -> Bool {
        peers.count < Self.maxPeers && counts[userID, default: 0] < Self.maxPeersOfUser
    }

    /// Takes a slot from the user with the most sessions, if that user has at least two more than this one.
    private mutating func makePlace(for userID: UInt32) -> SessionPeer? {
        guard peers.count >= Self.maxPeers,
            let most = counts.max(by: { ($0.value, $0.key) < ($1.value, $1.key) }),
            most.value > counts[userID, default: 0] + 1
        else { return nil }
        let displaced = peers.values.filter { $0.userID == most.key }.max { $0.name < $1.name }
        if let displaced { unseat(displaced) }
        return displaced
    }

    private mutating func seat(_ peer: SessionPeer) {
        peers[peer.name] = peer
        if let userID = peer.userID { counts[userID, default: 0] += 1 }
    }

    private mutating func unseat(_ peer: SessionPeer) {
        peers[peer.name] = nil
        guard let userID = peer.userID, let count = counts[userID] else { return }
        counts[userID] = count > 1 ? count - 1 : nil
    }

    /// - Returns: the session that is no longer remembered.
    private mutating func turnAway(_ peer: SessionPeer) -> SessionPeer? {
        peer.forgetMuch()
        turnedAway[peer.name] = peer
        waiting.append(peer.name)
        var forgotten: SessionPeer?
        while turnedAway.count > Self.maxTurnedAway, let oldest = waiting.popFirst() {
            forgotten = turnedAway.removeValue(forKey: oldest)
        }
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
        var passed: [UniqueName] = []
        defer { for name in passed.reversed() { waiting.prepend(name) } }
        while let name = waiting.popFirst() {
            guard let peer = turnedAway[name], let userID = peer.userID else { continue }
            guard hasPlace(for: userID) else {
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
