// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT

/// The values that this host keeps at the broker: the state that the bridge has published, and the state that the broker
/// shows after a connection. They differ where a broker has forgotten or restored an older state, and where an earlier bridge
/// was killed. No input and output.
struct OwnValues {
    /// The maximum of values.
    static let maxCount = 65_536
    /// The maximum of the name and object of a value that is looked at, in bytes: the standard limits of the service.
    private static let maxKeyBytes = 5_120

    /// What the broker has of a value, if it forgets nothing.
    private enum Content {
        /// The version that was published last.
        case version(OutwardMessage.Version)
        /// An older content, or none, as the last one was lost before it was sent.
        case older
    }

    private var published: [ValueKind: Content] = [:]
    /// The values that the broker has shown since ``beginLooking()``; nil while nobody looks.
    private var shown: [ValueKind: OutwardMessage.Version]?
    /// Values that are published again as soon as the service sends them.
    private var due: Set<ValueKind> = []
    /// The versions that the broker does not take, which are not published again by themselves.
    private var refused: [ValueKind: OutwardMessage.Version] = [:]
    /// Values that were published since the service was asked which there are: its answer may not have them yet.
    private var recent: Set<ValueKind> = []
    /// Values that were published since ``beginLooking()``: the broker may have shown an older content of them.
    private var publishedMeanwhile: Set<ValueKind> = []
    /// Whether the service has to send values again that were lost before they were sent.
    private var isReplayDue = false
    /// How often notifications may not have come from the service, and how many of these times it has sent all values again since.
    private(set) var misses: UInt64 = 0
    private var madeGood: UInt64 = 0

    // MARK: Publishing

    /// Decides whether a value of the session is to be published.
    ///
    /// - Parameter isReplayed: whether it is a value that was there before.
    /// - Returns: false when the broker has it.
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

    /// An earlier bridge has left this message to publish, in the order in which it was posted. Its value may be gone meanwhile,
    /// and the broker may show it later than it is looked at.
    mutating func restore(_ message: OutwardMessage) {
        guard message.isRetained else { return }
        let kind = ValueKind(message.name, message.object)
        guard message.isValue else { return published[kind] = nil }
        if published[kind] != nil || published.count < Self.maxCount { published[kind] = .version(message.version) }
    }

    /// The broker has refused a value. It is not published again by itself.
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

    /// A value was lost before it was sent. It is due again, if it was the last one.
    mutating func lost(_ message: OutwardMessage) {
        let kind = ValueKind(message.name, message.object)
        let version = message.version
        guard message.isValue, isPublished(kind, version), !isSame(refused[kind], version) else { return }
        published[kind] = .older
        due.insert(kind)
        isReplayDue = true
    }

    /// Whether the service has to send its values again, because some of them were lost. Call when nothing else waits.
    mutating func takeReplay() -> Bool {
        defer { isReplayDue = false }
        return isReplayDue
    }

    /// Notifications may not have come from the service: values may be among them, until it has sent all again.
    mutating func missedSome() { misses += 1 }

    /// Whether some may be among notifications that did not come.
    var hasMissedSome: Bool { misses != madeGood }

    /// The service has sent all values again.
    ///
    /// - Parameter misses: those of before it began. A change that was missed meanwhile may be newer than what it sent.
    mutating func replayed(behind misses: UInt64) { madeGood = max(madeGood, misses) }

    /// The service may not have sent all values again.
    mutating func replayWasCut() { isReplayDue = isReplayDue || !due.isEmpty }

    /// Another configuration may mend what made the broker refuse values.
    mutating func forgetRefused() { refused = [:] }

    /// The service is asked which values there are.
    mutating func willAsk() { recent = [] }

    // MARK: Looking

    mutating func beginLooking() { (shown, publishedMeanwhile) = ([:], []) }

    /// The broker has sent a message on a topic of this host.
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

    /// The connection has ended before all was shown.
    mutating func stopLooking() { (shown, publishedMeanwhile) = (nil, []) }

    /// The result of a comparison.
    struct Difference {
        /// The values to remove from the broker.
        var gone: [ValueKind]
        /// Whether the service has to send values again because the broker lacks them.
        var isReplayNeeded: Bool
        /// Whether the service has to be asked again: it does not have values that were published behind the question.
        var isUnsure: Bool
    }

    /// Compares with the values of the session.
    ///
    /// - Parameters:
    ///   - kept: the values of the session that are exported.
    ///   - hasLooked: whether the broker has shown all that it has.
    ///   - isOwn: whether a bridge of this host has published a value. Others that the broker shows may be those of another
    ///     program.
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
    /// Whether it sets a value; false for one that removes it, too.
    var isValue: Bool { isRetained && !payload.isEmpty }

    /// A value, as far as others notice.
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
