// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections

/// The sessions that have a place, among all that say they are some (G1, E4): so many of all, and of each user.
///
/// The bus is asked about a connection once, however often it says so, as long as that is remembered. Where all places are
/// taken, the user who has most of them gives one up for a user who has fewer. A session without a place is remembered, and
/// gets one when there is one.
struct SessionPlaces {
    /// The standing of a connection.
    enum Standing: Equatable {
        case unknown
        /// The bus was asked whose it is.
        case candidate
        case session
        /// It is somebody's, and there is no place for it.
        case turnedAway
    }

    static let maxPeers = 64
    static let maxPeersOfUser = 8
    static let maxCandidates = 128
    static let maxTurnedAway = 2048

    private(set) var peers: [UniqueName: SessionPeer] = [:]
    private var candidates: [UniqueName: SessionPeer] = [:]
    private var turnedAway: [UniqueName: SessionPeer] = [:]
    /// Those in their order; also some that are not turned away any more.
    private var waiting = Deque<UniqueName>()
    private var counts: [UInt32: Int] = [:]

    /// How many are kept, of each standing.
    var kept: (sessions: Int, candidates: Int, turnedAway: Int) { (peers.count, candidates.count, turnedAway.count) }

    /// Those with a place, and those of whom it is not known yet whose they are.
    var shown: [SessionPeer] { (Array(peers.values) + candidates.values).sorted { $0.name < $1.name } }

    var all: [SessionPeer] { Array(peers.values) + candidates.values + turnedAway.values }

    /// That of a connection, whatever its standing.
    subscript(name: UniqueName) -> SessionPeer? { peers[name] ?? candidates[name] ?? turnedAway[name] }

    func standing(of name: UniqueName) -> Standing {
        if peers[name] != nil { return .session }
        if candidates[name] != nil { return .candidate }
        return turnedAway[name] != nil ? .turnedAway : .unknown
    }

    var hasRoomForCandidate: Bool { candidates.count < Self.maxCandidates }

    /// A connection says that it is a session, and is asked about.
    mutating func addCandidate(_ name: UniqueName) {
        candidates[name] = SessionPeer(name)
    }

    /// The result of ``identify(_:as:)``.
    struct Admission {
        /// Whether it has a place.
        var isAdmitted = false
        /// Those that were pushed out: of its place for it, or out of all that is remembered.
        var displaced: SessionPeer?
        var forgotten: SessionPeer?
    }

    /// The bus has told whose a candidate is.
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

    /// A connection has left.
    ///
    /// - Returns: it, and who gets a place by that.
    mutating func remove(_ name: UniqueName) -> (left: SessionPeer?, admitted: SessionPeer?) {
        if let peer = candidates.removeValue(forKey: name) ?? turnedAway.removeValue(forKey: name) {
            return (peer, nil)
        }
        guard let peer = peers[name] else { return (nil, nil) }
        unseat(peer)
        return (peer, admitNext())
    }

    // MARK: Places

    private func hasPlace(for userID: UInt32) -> Bool {
        peers.count < Self.maxPeers && counts[userID, default: 0] < Self.maxPeersOfUser
    }

    /// Takes a place from the user who has most, if that is more than this one has with another.
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

    /// - Returns: who is forgotten for it.
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

    /// The first of those that have waited and for which there is a place.
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
