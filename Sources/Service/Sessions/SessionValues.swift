// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The progress of a session's replay of its values.
struct ToldValues {
    /// The number of replays that have begun.
    private(set) var round: UInt64 = 0
    /// The first valid round: the session no longer has values that were last sent in earlier rounds.
    private(set) var validFrom: UInt64 = 0
    private(set) var isTelling = false

    /// Whether a replay was completed, and no other is under way.
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

/// The table of which other session has which of the imported values (R8).
///
/// The core keeps imported values like any others, also beyond the life of the process. Their owners are known from the
/// sessions' signals while they are present. A value that no session of its user has ends as follows:
/// - at once, where a session reports its end;
/// - a value that ends with its poster: 5 s after its session has left, as a restarted service has the value again;
/// - another value: when a session of that user has replayed all its values.
struct SessionValues {
    private struct Claim {
        let peer: SessionPeer
        let round: UInt64

        var isThere: Bool { peer.goneAt == nil && round >= peer.values.validFrom }
    }

    /// The sessions that have a value of this name and object: first the owner of the imported one, then others of the
    /// same user with a value of their own.
    private var claims: [NotificationKey: [Claim]] = [:]

    /// The time for which a session may be absent before its values end, in microseconds.
    static let grace: Int64 = 5_000_000

    var count: Int { claims.count }

    /// Notes that a session has a value.
    ///
    /// - Parameter isTold: whether the value is replayed, and was posted before.
    /// - Returns: whether this value is the one to be imported. A replayed value does not replace the value of another
    ///   present session of the user.
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

    /// The effect of the end of a session's value on the imported one.
    enum Release {
        case stays
        case ends
        /// This session has a value of its own, which it is to replay.
        case follows(SessionPeer)
    }

    /// Notes that a session no longer has a value.
    mutating func release(_ kind: NotificationKey, by peer: SessionPeer) -> Release {
        let before = claims[kind] ?? []
        let rest = before.filter { $0.peer !== peer && $0.isThere }
        claims[kind] = rest.isEmpty ? nil : rest
        if let holder = before.first, holder.peer !== peer, holder.isThere { return .stays }
        return rest.first.map { .follows($0.peer) } ?? .ends
    }

    /// The state of a user's present sessions, as far as it concerns values.
    struct Presence {
        /// The progress of the sessions that replay their values.
        enum Told {
            /// No such session is present.
            case nothing
            /// At least one has not completed its replay.
            case some
            case all
        }

        var told = Told.nothing
        /// Whether a session is present that never replays its values.
        var isSilent = false
    }

    /// Whether a value is to end.
    ///
    /// - Parameter isSettled: whether all sessions have had time to announce themselves.
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

    /// Returns the sessions that are to replay a value: the session whose value was imported has left, and they have
    /// another value of the same name and object.
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

    /// Removes claims on ended values, and claims of sessions that left long ago.
    ///
    /// - Returns: the time of the next check, in microseconds; nil for none.
    mutating func clean(keeping kinds: Set<NotificationKey>, now: Int64) -> Int64? {
        claims = claims.compactMapValues { all in
            let rest = all.filter { claim in claim.peer.goneAt.map { now - $0 < Self.grace } ?? true }
            return rest.isEmpty ? nil : rest
        }.filter { kinds.contains($0.key) }
        return claims.values.lazy.flatMap { $0.compactMap(\.peer.goneAt) }.min().map { $0 + Self.grace }
    }
}
