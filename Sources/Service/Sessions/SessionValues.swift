// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// How far another session has told its values.
struct ToldValues {
    /// Grows with each time that it begins.
    private(set) var round: UInt64 = 0
    /// Values that were told in earlier rounds only are none of it any more.
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

        var isThere: Bool { peer.goneAt == nil && round >= peer.values.validFrom }
    }

    /// The session that has the value that is here, first, and those of the same user with one of their own of that kind.
    private var claims: [NotificationKey: [Claim]] = [:]

    /// For so long a session may be away before values end with it, in microseconds.
    static let grace: Int64 = 5_000_000

    var count: Int { claims.count }

    /// A session tells that it has a value.
    ///
    /// - Parameter isTold: whether it was posted before, and is told again.
    /// - Returns: whether it is the one that is to be here. One that is told again does not take the place of what another
    ///   session of the user, which is there, has posted.
    mutating func claim(_ kind: NotificationKey, for peer: SessionPeer, isTold: Bool) -> Bool {
        let before = claims[kind] ?? []
        var rest = before.filter { $0.peer !== peer && $0.isThere }
        let claim = Claim(peer: peer, round: peer.values.round)
        let holder = before.first
        let isOfOther = isTold && holder.map { $0.peer !== peer && $0.isThere } ?? false
        rest.insert(claim, at: isOfOther ? min(1, rest.count) : 0)
        claims[kind] = rest
        return !isOfOther
    }

    /// The end of a session's value, as it is here.
    enum Release {
        case stays
        case ends
        /// This one has another one, which is to be told again.
        case follows(SessionPeer)
    }

    /// A session has told that this is its value no more.
    mutating func release(_ kind: NotificationKey, by peer: SessionPeer) -> Release {
        let before = claims[kind] ?? []
        let rest = before.filter { $0.peer !== peer && $0.isThere }
        claims[kind] = rest.isEmpty ? nil : rest
        if let holder = before.first, holder.peer !== peer, holder.isThere { return .stays }
        return rest.first.map { .follows($0.peer) } ?? .ends
    }

    /// The sessions of a user that are there, as far as their values are known.
    struct Presence {
        /// How far those that tell their values have come.
        enum Told {
            /// None is there.
            case nothing
            /// One is still to tell some.
            case some
            case all
        }

        var told = Told.nothing
        /// Whether one is there that never tells which it has.
        var isSilent = false
    }

    /// Whether a value is to end.
    ///
    /// - Parameter isSettled: whether there was time for all sessions to say that they are there.
    func isOver(_ kind: NotificationKey, _ retention: Retention, _ presence: Presence, isSettled: Bool, now: Int64)
        -> Bool
    {
        if let holder = claims[kind]?.first {
            if holder.isThere { return false }
            if let left = holder.peer.goneAt, now - left < Self.grace { return false }
        }
        switch presence.told {
        case .some: return false
        case .nothing: return retention.endsWithSession && isSettled
        case .all: return retention.endsWithSession || !presence.isSilent
        }
    }

    /// Those that have another value of a kind whose own has ended: it is to be told again.
    mutating func takeFollowers(now: Int64) -> [SessionPeer] {
        var followers: [SessionPeer] = []
        for (kind, all) in claims {
            guard let holder = all.first, !holder.isThere, now - (holder.peer.goneAt ?? 0) >= Self.grace,
                let next = all.dropFirst().first(where: \.isThere)
            else { continue }
            claims[kind] = all.filter(\.isThere)
            if !followers.contains(where: { $0 === next.peer }) { followers.append(next.peer) }
        }
        return followers
    }

    /// Forgets who had what is no value any more, and sessions that left long ago.
    ///
    /// - Returns: when it is to be looked again, in microseconds; nil for not.
    mutating func clean(keeping kinds: Set<NotificationKey>, now: Int64) -> Int64? {
        claims = claims.compactMapValues { all in
            let rest = all.filter { claim in claim.peer.goneAt.map { now - $0 < Self.grace } ?? true }
            return rest.isEmpty ? nil : rest
        }.filter { kinds.contains($0.key) }
        return claims.values.lazy.flatMap { $0.compactMap(\.peer.goneAt) }.min().map { $0 + Self.grace }
    }
}
