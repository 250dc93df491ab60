// SPDX-License-Identifier: Apache-2.0
import BusNames
import Collections
import MainLoop
import NotificationCore
import NotificationWire

/// How far another session has told its values.
struct ToldValues {
    /// Grows with each time that it begins.
    private(set) var round: UInt64 = 0
    /// What was told earlier than in this round is no value of it any more.
    private(set) var validFrom: UInt64 = 0
    private(set) var isTelling = false

    /// Whether it has told all, at least once, and is not about to do so again.
    var isComplete: Bool { round > 0 && !isTelling }

    mutating func begin() {
        round += 1
        isTelling = true
    }

    mutating func end() {
        guard isTelling else { return }
        isTelling = false
        validFrom = round
    }
}

/// Which of the values here are those of which other session (R8).
///
/// The core keeps them like any value, also beyond the life of the process; who has them is known by what the sessions say
/// while they are there. A value that no session of its user has ends when that is certain: at once where a session says
/// so; for one that goes with its poster some seconds after its session has gone, as a service that comes again has it
/// again; for others when a session of that user has told all that it has.
struct SessionValues {
    private struct Claim {
        let peer: SessionPeer
        let round: UInt64
    }

    private var claims: [NotificationKind: Claim] = [:]

    /// For so long a session may be away before values end with it, in microseconds.
    static let grace: Int64 = 5_000_000

    var count: Int { claims.count }

    /// A session has told that this is its value.
    mutating func claim(_ kind: NotificationKind, for peer: SessionPeer) {
        claims[kind] = Claim(peer: peer, round: peer.values.round)
    }

    /// A session has told that this is its value no more.
    ///
    /// - Returns: whether it ends.
    mutating func release(_ kind: NotificationKind, by peer: SessionPeer) -> Bool {
        if let claim = claims[kind], claim.peer !== peer, isThere(claim) { return false }
        claims[kind] = nil
        return true
    }

    private func isThere(_ claim: Claim) -> Bool {
        claim.peer.goneAt == nil && claim.round >= claim.peer.values.validFrom
    }

    /// What is known of the sessions of a user.
    struct Presence {
        /// Whether one has told all its values, and none of those that tell any is still to do so.
        var isComplete = false
        /// Whether one is still to tell some.
        var isTelling = false
        /// Whether one is there that never tells which it has.
        var isSilent = false
    }

    /// Whether a value is to end.
    ///
    /// - Parameter isSettled: whether there was time for all sessions to say that they are there.
    func isOver(_ kind: NotificationKind, _ retention: Retention, _ presence: Presence, isSettled: Bool, now: Int64)
        -> Bool
    {
        if let claim = claims[kind] {
            if isThere(claim) { return false }
            if let left = claim.peer.goneAt, now - left < Self.grace { return false }
        }
        if presence.isTelling { return false }
        if retention.endsWithSession { return isSettled || presence.isComplete }
        return presence.isComplete && !presence.isSilent
    }

    /// Forgets who had what is no value any more, and sessions that left long ago.
    ///
    /// - Returns: when it is to be looked again, in microseconds; nil for not.
    mutating func clean(keeping kinds: Set<NotificationKind>, now: Int64) -> Int64? {
        claims = claims.filter { kind, claim in
            kinds.contains(kind) && claim.peer.goneAt.map { now - $0 < Self.grace } ?? true
        }
        return claims.values.compactMap(\.peer.goneAt).min().map { $0 + Self.grace }
    }
}
