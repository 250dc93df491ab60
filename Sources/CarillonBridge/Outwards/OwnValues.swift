// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT

/// The values that this host keeps at the broker: as the bridge has published them, and as the broker shows them after
/// a connection. They differ if a broker has forgotten values or restored an older state, or if an earlier bridge was
/// killed. No input and output.
struct OwnValues {
    /// The maximum number of values.
    static let maxCount = 65_536
    /// The maximum length of the name and object of a compared value, in bytes: the standard limits of the service.
    private static let maxKeyBytes = 5_120

    /// The content that the broker has of a value, if it has not forgotten it.
    private enum Content {
        /// The version that was published last.
        case version(OutwardMessage.Version)
        /// An older content, or none, because the last version was lost before it was sent.
        case older
    }

    private var published: [ValueKind: Content] = [:]
    /// The values that the broker has shown since ``beginLooking()``; nil when no look is open.
    private var shown: [ValueKind: OutwardMessage.Version]?
    /// The values to publish again as soon as the service sends them.
    private var due: Set<ValueKind> = []
    /// The versions that the broker has refused, which are not published again by themselves.
    private var refused: [ValueKind: OutwardMessage.Version] = [:]
    /// The values that were published since the service was last asked for its values: its answer may lack them.
    private var recent: Set<ValueKind> = []
    /// Values that were published since ``beginLooking()``: the broker may have shown an older content of them.
    private var publishedMeanwhile: Set<ValueKind> = []
    /// Whether the service has to send values again, because some were lost before they were sent.
    private var isReplayDue = false
    /// The number of times that notifications of the service may be missing; `madeGood` counts those after which it has
    /// sent all values again.
    private(set) var misses: UInt64 = 0
    private var madeGood: UInt64 = 0

    // MARK: Publishing

    /// Decides whether a value of the session is to be published.
    ///
    /// - Parameter isReplayed: whether it is a value that existed before.
    /// - Returns: false if the broker has the value, or has refused it.
    mutating func publish(_ message: OutwardMessage, isReplayed: Bool) -> Bool {
        let kind = ValueKind(message.name, message.object)
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

    /// Restores a message that an earlier bridge has left to publish, in the order of the posts. Its value may be gone
    /// meanwhile, and the broker may show it only after the look.
    mutating func restore(_ message: OutwardMessage) {
        guard message.isRetained else { return }
        let kind = ValueKind(message.name, message.object)
        guard message.isValue else { return published[kind] = nil }
        if published[kind] != nil || published.count < Self.maxCount { published[kind] = .version(message.version) }
    }

    /// Notes that the broker has refused a value, which is not published again by itself.
    mutating func refused(_ message: OutwardMessage) {
        guard message.isValue else { return }
        refused[ValueKind(message.name, message.object)] = message.version
    }

    private func isPublished(_ kind: ValueKind, _ version: OutwardMessage.Version) -> Bool {
        if case .version(let published)? = published[kind] { published.isSame(as: version) } else { false }
    }

    private func isSame(_ one: OutwardMessage.Version?, _ other: OutwardMessage.Version) -> Bool {
        one?.isSame(as: other) == true
    }

    /// Notes that a value was lost before it was sent. It is published again if it was the last version.
    mutating func lost(_ message: OutwardMessage) {
        let kind = ValueKind(message.name, message.object)
        let version = message.version
        guard message.isValue, isPublished(kind, version), !isSame(refused[kind], version) else { return }
        published[kind] = .older
        due.insert(kind)
        isReplayDue = true
    }

    /// Takes whether the service has to send its values again, because some were lost. Call it when no message waits.
    mutating func takeReplay() -> Bool {
        defer { isReplayDue = false }
        return isReplayDue
    }

    /// Notes that notifications of the service may be missing. Values may be among them until the service has sent all
    /// again.
    mutating func missedSome() { misses += 1 }

    /// Whether values may be among missed notifications.
    var hasMissedSome: Bool { misses != madeGood }

    /// Notes that the service has sent all values again.
    ///
    /// - Parameter misses: the number of misses before the replay began. A change that was missed meanwhile may be
    ///   newer than the replayed value.
    mutating func replayed(behind misses: UInt64) { madeGood = max(madeGood, misses) }

    /// Notes that a replay was cut off, so that the service may not have sent all values again.
    mutating func replayWasCut() { isReplayDue = isReplayDue || !due.isEmpty }

    /// Forgets refused values: another configuration may remove the cause.
    mutating func forgetRefused() { refused = [:] }

    /// Prepares for a question to the service for its values.
    mutating func willAsk() { recent = [] }

    // MARK: Looking

    mutating func beginLooking() { (shown, publishedMeanwhile) = ([:], []) }

    /// Handles a message of the broker on a topic of this host.
    ///
    /// - Parameter now: microseconds since 1970.
    mutating func show(_ name: String, _ object: String, _ publication: Publication, now: Int64) {
        guard shown != nil, publication.isRetained else { return }
        let kind = ValueKind(name, object)
        guard !publication.payload.isEmpty else { return shown![kind] = nil }
        if shown![kind] != nil || shown!.count < Self.maxCount, name.utf8.count + object.utf8.count <= Self.maxKeyBytes
        {
            let boundTo = publication.userProperties.first { $0.name == MessageProperties.Key.whileRun.rawValue }?.value
            shown![kind] = .init(
                publication.payload, publication.contentType, boundTo,
                expiry: publication.expiry.map { now + Int64($0) * 1_000_000 })
        }
    }

    /// Ends the look, for example because the connection has ended.
    mutating func stopLooking() { (shown, publishedMeanwhile) = (nil, []) }

    /// The result of a comparison.
    struct Difference {
        /// The values to remove from the broker.
        var gone: [ValueKind]
        /// Whether the service has to send values again because the broker lacks them.
        var isReplayNeeded: Bool
        /// Whether the service has to be asked again: its answer lacks values that were published after the question.
        var isUnsure: Bool
    }

    /// Compares with the values of the session.
    ///
    /// - Parameters:
    ///   - kept: the values of the session that are exported.
    ///   - hasLooked: whether the broker has shown everything that it has.
    ///   - isOwn: returns whether a bridge of this host has published a value. Other values that the broker shows may
    ///     belong to another program.
    mutating func compare(
        with kept: Set<ValueKind>, hasLooked: Bool = true, isOwn: (ValueKind) -> Bool
    ) -> Difference {
        var gone = Set(published.keys).subtracting(kept)
        let shown = hasLooked ? shown : nil
        if let shown {
            gone.formUnion(shown.keys.filter { !kept.contains($0) && isOwn($0) })
        }
        let isUnsure = !gone.isDisjoint(with: recent)
        gone.subtract(recent)
        for kind in gone {
            published[kind] = nil
            refused[kind] = nil
        }
        due.subtract(gone)
        var difference = Difference(gone: gone.sorted(), isReplayNeeded: false, isUnsure: isUnsure)
        guard let shown else { return difference }
        for kind in kept.subtracting(publishedMeanwhile) {
            let isRight = [shown[kind], refused[kind]].contains { $0.map { isPublished(kind, $0) } ?? false }
            if !isRight { due.insert(kind) }
        }
        stopLooking()
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.valuesNotGivenAgain) { return difference }
        #endif
        difference.isReplayNeeded = !due.isEmpty
        return difference
    }
}

extension OutwardMessage {
    /// Whether it sets a value; false also for a removal.
    var isValue: Bool { isRetained && !payload.isEmpty }

    /// The identity of a value's content and lifetime, as far as receivers notice it.
    struct Version {
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

        func isSame(as other: Version) -> Bool {
            digest == other.digest && Lifetime.isSame(expiry, other.expiry)
        }
    }

    var version: Version { Version(payload, contentType, properties.boundTo, expiry: expiry) }
}
