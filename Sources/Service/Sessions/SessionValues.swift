// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The progress of another session's replays. A replay (a snapshot) sends all retained values of the session that this
/// session wants, between two `Values` signals. Values that a complete replay did not contain have ended.
struct ReplayProgress {
    /// The number of replays that have begun. It is the current round.
    private(set) var round: UInt64 = 0
    /// The round of the last complete replay. The session no longer has values that were last sent in an earlier round.
    private(set) var validFrom: UInt64 = 0
    /// Whether a replay is under way.
    private(set) var isReplaying = false

    /// Whether a replay was completed, and no other is under way.
    var isComplete: Bool { round > 0 && !isReplaying }

    /// Takes the beginning of a replay.
    mutating func begin() {
        round += 1
        isReplaying = true
    }

    /// Takes the end of a replay; without a beginning it has no effect.
    mutating func end() {
        guard isReplaying else { return }
        isReplaying = false
        validFrom = round
    }
}

/// The table of the other sessions that have each imported retained value (R8). ``Sessions`` uses it to decide when an
/// imported value ends.
///
/// The core stores imported values like others, and they survive a restart of this process. The table is built from the
/// signals of the sessions, so after a restart it is empty until they have replayed their values.
///
/// An imported value has one owner, the session from which it was imported. Other sessions of the same user may have a
/// value with the same name and object. If the owner's value ends, one of these sessions replays its own value. A value
/// that no session of its user has any more ends at one of these times:
/// - at once, if a session reports its end;
/// - 5 s (``grace``) after its session has left, if the value ends with its poster. A restarted service has the value
///   again within that time;
/// - when all present sessions of the user have completed a replay without it, for any other value. While a session is
///   present that does not support replays, or none is present, such a value stays.
struct SessionValues {
    /// The statement of a session that it has a value.
    private struct Claim {
        let peer: SessionPeer
        /// The session's round of replays at that time (``ReplayProgress/round``).
        let round: UInt64

        /// Whether the session is present and still has the value.
        var isValid: Bool { peer.goneAt == nil && round >= peer.values.validFrom }
    }

    /// The claims on each value: the first is the owner's, then those of other sessions of the same user.
    private var claims: [NotificationKey: [Claim]] = [:]

    /// The time for which a session may be absent before its values end, in microseconds.
    static let grace: Int64 = 5_000_000

    /// The number of values with claims.
    var count: Int { claims.count }

    /// Takes a value of a session: a new post, or a value in a replay.
    ///
    /// - Parameters:
    ///   - key: the key of the value.
    ///   - isReplayed: whether the value is part of a replay, and was posted earlier.
    /// - Returns: whether the value is imported, so that the session is its owner. A replayed value does not replace
    ///   the value of another present session of the user.
    mutating func claim(_ key: NotificationKey, for peer: SessionPeer, isReplayed: Bool) -> Bool {
        let before = claims[key] ?? []
        var rest = before.filter { $0.peer !== peer && $0.isValid }
        let claim = Claim(peer: peer, round: peer.values.round)
        let owner = before.first
        let isOfOther = isReplayed && owner.map { $0.peer !== peer && $0.isValid } ?? false
        rest.insert(claim, at: isOfOther ? min(1, rest.count) : 0)
        claims[key] = rest
        return !isOfOther
    }

    /// The effect on the imported value when a session's value ends.
    enum Release {
        /// The imported value is another session's, and stays.
        case stays
        /// The imported value ends.
        case ends
        /// The imported value is replaced by that of this session, which is asked for a replay.
        case follows(SessionPeer)
    }

    /// Takes the end of a session's value.
    mutating func release(_ key: NotificationKey, by peer: SessionPeer) -> Release {
        let before = claims[key] ?? []
        let rest = before.filter { $0.peer !== peer && $0.isValid }
        claims[key] = rest.isEmpty ? nil : rest
        if let owner = before.first, owner.peer !== peer, owner.isValid { return .stays }
        return rest.first.map { .follows($0.peer) } ?? .ends
    }

    /// The replays of all present sessions of one user together.
    struct Presence {
        /// The progress of those sessions that support replays.
        enum Announced {
            /// No such session is present.
            case nothing
            /// At least one of them has not completed a replay.
            case some
            /// All of them have completed a replay.
            case all
        }

        var announced = Announced.nothing
        /// Whether a session is present that does not support replays. Its values are not known.
        var isSilent = false
    }

    /// Whether an imported value ends, because no session of its user has it.
    ///
    /// - Parameters:
    ///   - key: the key of the value.
    ///   - retention: the retention of the value.
    ///   - presence: the replays of the sessions of its user.
    ///   - isSettled: whether all present sessions have had time to announce themselves.
    ///   - now: the time in microseconds, as for ``SessionPeer/goneAt``.
    func isOver(_ key: NotificationKey, _ retention: Retention, _ presence: Presence, isSettled: Bool, now: Int64)
        -> Bool
    {
        if let owner = claims[key]?.first {
            if owner.isValid { return false }
            if let left = owner.peer.goneAt, now - left < Self.grace { return false }
        }
        switch presence.announced {
        // A replay that is not complete may still contain the value.
        case .some: return false
        case .nothing: return retention.endsWithSession && isSettled
        case .all: return retention.endsWithSession || !presence.isSilent
        }
    }

    /// Returns the sessions that have to replay their values, because they have the value of a key and its owner no
    /// longer has. Such an owner is present without the value, or has been absent for ``grace``.
    ///
    /// - Parameter now: the time in microseconds.
    mutating func takeFollowers(now: Int64) -> [SessionPeer] {
        var followers: [SessionPeer] = []
        for (key, all) in claims {
            guard let owner = all.first, !owner.isValid, now - (owner.peer.goneAt ?? 0) >= Self.grace,
                let next = all.dropFirst().first(where: \.isValid)
            else { continue }
            claims[key] = all.filter(\.isValid)
            if !followers.contains(where: { $0 === next.peer }) { followers.append(next.peer) }
        }
        return followers
    }

    /// Removes claims on ended values, and claims of sessions that have been absent for ``grace``.
    ///
    /// - Parameters:
    ///   - keys: the keys of the imported values that exist.
    ///   - now: the time in microseconds.
    /// - Returns: the time at which the next absence reaches ``grace``, in microseconds; nil for none.
    mutating func clean(keeping keys: Set<NotificationKey>, now: Int64) -> Int64? {
        claims = claims.compactMapValues { all in
            let rest = all.filter { claim in claim.peer.goneAt.map { now - $0 < Self.grace } ?? true }
            return rest.isEmpty ? nil : rest
        }.filter { keys.contains($0.key) }
        return claims.values.lazy.flatMap { $0.compactMap(\.peer.goneAt) }.min().map { $0 + Self.grace }
    }
}
