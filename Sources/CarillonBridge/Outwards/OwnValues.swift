// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT

/// The retained values of this host at the broker: as the bridge has published them, and as the broker shows them after
/// a connection. ``Exporter`` uses it; it does no input and output.
///
/// The two may differ: the broker may have forgotten values or restored an older state, or an earlier bridge process
/// was killed. A comparison of both with the session's values decides which values the bridge removes and which it
/// publishes again. The bridge does not store contents. To publish a value again it needs a *replay*: the notification
/// service sends all its retained values again.
struct OwnValues {
    /// The maximum number of remembered values.
    static let maxCount = 65_536
    /// The maximum length of the name and object of a shown value, in bytes: the sum of the service's default limits.
    /// Longer ones can't be of this session.
    private static let maxKeyBytes = 5_120

    /// The content that the broker should have of a value.
    private enum Content {
        /// The version that was published last.
        case version(OutwardMessage.Version)
        /// An older content, or none, because the last version was dropped before it was sent.
        case older
    }

    /// The values that the bridge has published.
    private var published: [ValueKey: Content] = [:]
    /// The values that the broker has shown since ``beginLooking()``; nil while the broker is not asked.
    private var shown: [ValueKey: OutwardMessage.Version]?
    /// The values that are published as soon as the service replays them.
    private var due: Set<ValueKey> = []
    /// The versions that the broker has refused. They are not published again, unless an application posts the value
    /// again.
    private var refused: [ValueKey: OutwardMessage.Version] = [:]
    /// The values that were published since the service was last asked for its list of values, which may lack them.
    private var recent: Set<ValueKey> = []
    /// The values that were published since ``beginLooking()``. The broker may have shown an older content of them.
    private var publishedMeanwhile: Set<ValueKey> = []
    /// Whether the service has to replay its values, because some were dropped before they were sent.
    private var isReplayDue = false
    /// The number of times that notifications of the service were missed.
    private(set) var misses: UInt64 = 0
    /// The value of `misses` at the beginning of the last complete replay.
    private var missesReplayed: UInt64 = 0

    // MARK: Publishing

    /// Notes a value of the session, and decides whether to publish it.
    ///
    /// - Parameter isReplayed: whether the service has replayed the value, which existed before.
    /// - Returns: false if it is a replayed value that the broker has, or has refused.
    mutating func publish(_ message: OutwardMessage, isReplayed: Bool) -> Bool {
        let kind = ValueKey(message.name, message.object)
        let version = message.version
        if isReplayed, isSame(refused[kind], version) || isPublished(kind, version) && !due.contains(kind) {
            return false
        }
        due.remove(kind)
        refused[kind] = nil
        recent.insert(kind)
        if shown != nil { publishedMeanwhile.insert(kind) }
        if published[kind] != nil || published.count < Self.maxCount { published[kind] = .version(version) }
        return true
    }

    /// Notes a message that an earlier bridge has left to publish. Call it in the order of the messages.
    mutating func restore(_ message: OutwardMessage) {
        guard message.isRetained else { return }
        let kind = ValueKey(message.name, message.object)
        guard message.isValue else { return published[kind] = nil }
        if published[kind] != nil || published.count < Self.maxCount { published[kind] = .version(message.version) }
    }

    /// Notes that the broker has refused a value.
    mutating func refused(_ message: OutwardMessage) {
        guard message.isValue else { return }
        refused[ValueKey(message.name, message.object)] = message.version
    }

    /// Whether this version was published last.
    private func isPublished(_ kind: ValueKey, _ version: OutwardMessage.Version) -> Bool {
        if case .version(let published)? = published[kind] { published.isSame(as: version) } else { false }
    }

    private func isSame(_ one: OutwardMessage.Version?, _ other: OutwardMessage.Version) -> Bool {
        one?.isSame(as: other) == true
    }

    /// Notes that a value was dropped before it was sent. If it was the last version, a replay is due.
    mutating func lost(_ message: OutwardMessage) {
        let kind = ValueKey(message.name, message.object)
        let version = message.version
        guard message.isValue, isPublished(kind, version), !isSame(refused[kind], version) else { return }
        published[kind] = .older
        due.insert(kind)
        isReplayDue = true
    }

    /// Returns whether a replay is due because of dropped values, and resets that. Call it when no message is queued.
    mutating func takeReplay() -> Bool {
        defer { isReplayDue = false }
        return isReplayDue
    }

    /// Notes that notifications of the service were missed. Values may be among them until the service has replayed all
    /// values.
    mutating func noteMissed() { misses += 1 }

    /// Whether values may be among missed notifications, so that a replay is due.
    var mayLackValues: Bool { misses != missesReplayed }

    /// Notes that the service has replayed all values.
    ///
    /// - Parameter misses: the number of misses when the replay began. A notification that was missed during the replay
    ///   may be newer than the replayed value.
    mutating func replayed(behind misses: UInt64) { missesReplayed = max(missesReplayed, misses) }

    /// Notes that a replay has ended early, so that values may be missing from it.
    mutating func replayWasCut() { isReplayDue = isReplayDue || !due.isEmpty }

    /// Forgets refused values, because another configuration may avoid the refusal.
    mutating func forgetRefused() { refused = [:] }

    /// Notes that the service is about to be asked for its list of values.
    mutating func willAsk() { recent = [] }

    // MARK: Comparing

    /// Notes that the broker is about to show its values of this host.
    mutating func beginLooking() { (shown, publishedMeanwhile) = ([:], []) }

    /// Notes a message that the broker shows on a topic of this host.
    ///
    /// - Parameter now: microseconds since 1970.
    mutating func show(_ name: String, _ object: String, _ publication: Publication, now: Int64) {
        guard shown != nil, publication.isRetained else { return }
        let kind = ValueKey(name, object)
        guard !publication.payload.isEmpty else { return shown![kind] = nil }
        if shown![kind] != nil || shown!.count < Self.maxCount, name.utf8.count + object.utf8.count <= Self.maxKeyBytes
        {
            let boundTo = publication.userProperties.first { $0.name == MessageProperties.Key.whileRun.rawValue }?.value
            shown![kind] = .init(
                publication.payload, publication.contentType, boundTo,
                expiry: publication.expiry.map { now + Int64($0) * 1_000_000 })
        }
    }

    /// Forgets the shown values, for example because the connection has ended.
    mutating func stopLooking() { (shown, publishedMeanwhile) = (nil, []) }

    /// The result of a comparison.
    struct Difference {
        /// The values to remove from the broker.
        var gone: [ValueKey]
        /// Whether the service has to replay its values, because the broker lacks some.
        var isReplayNeeded: Bool
        /// Whether the service has to be asked again for its list, which lacks values that were published after the
        /// question.
        var mustAskAgain: Bool
    }

    /// Compares the published and the shown values with those of the session:
    /// - A published value, or a shown value of a bridge of this host, is gone if the session lacks it. Exception: it
    ///   was published after the question to the service.
    /// - A value of the session becomes due for a replay if the broker has neither shown nor refused its last version.
    ///   Exception: it was published during the query.
    ///
    /// - Parameters:
    ///   - kept: the values of the session that are exported.
    ///   - hasLooked: whether the broker has shown all that it has. Otherwise only the published values are compared.
    ///   - isOwn: returns whether a bridge of this host may have published a value. Other values on this host's topics
    ///     may belong to another program, and are not removed.
    mutating func compare(
        with kept: Set<ValueKey>, hasLooked: Bool = true, isOwn: (ValueKey) -> Bool
    ) -> Difference {
        var gone = Set(published.keys).subtracting(kept)
        let shown = hasLooked ? shown : nil
        if let shown {
            gone.formUnion(shown.keys.filter { !kept.contains($0) && isOwn($0) })
        }
        let mustAskAgain = !gone.isDisjoint(with: recent)
        gone.subtract(recent)
        for kind in gone {
            published[kind] = nil
            refused[kind] = nil
        }
        due.subtract(gone)
        var difference = Difference(gone: gone.sorted(), isReplayNeeded: false, mustAskAgain: mustAskAgain)
        guard let shown else { return difference }
        // A value is right if the broker has shown, or has refused, the version that was published last.
        for kind in kept.subtracting(publishedMeanwhile) {
            let isRight = [shown[kind], refused[kind]].contains { $0.map { isPublished(kind, $0) } ?? false }
            if !isRight { due.insert(kind) }
        }
        stopLooking()
        // A fault of test builds (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.valuesNotRepublished) { return difference }
        #endif
        difference.isReplayNeeded = !due.isEmpty
        return difference
    }
}

extension OutwardMessage {
    /// Whether it sets a value; false for a removal.
    var isValue: Bool { isRetained && !payload.isEmpty }

    /// The identity of a value's content and lifetime: a hash of all that receivers notice, and the expiry time.
    struct Version {
        /// The hash of payload, content type and run. It is valid in one process only.
        private let digest: Int
        private let expiry: Int64?

        init(_ payload: [UInt8], _ contentType: String?, _ boundTo: String?, expiry: Int64?) {
            var hasher = Hasher()
            payload.withUnsafeBytes { hasher.combine(bytes: $0) }
            hasher.combine(contentType)
            hasher.combine(boundTo)
            digest = hasher.finalize()
            self.expiry = expiry
        }

        /// Whether both are the same content with about the same expiry time.
        func isSame(as other: Version) -> Bool {
            digest == other.digest && Lifetime.isSame(expiry, other.expiry)
        }
    }

    /// The version that this message sets.
    var version: Version { Version(payload, contentType, properties.boundTo, expiry: expiry) }
}
