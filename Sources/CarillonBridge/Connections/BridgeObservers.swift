// SPDX-License-Identifier: Apache-2.0
import CarillonClient

/// The table of the bridge's registrations as an observer of its session. ``CenterLink`` uses it.
///
/// The service sends its retained values to a new observer only. To have them sent again (a replay), the bridge
/// registers a further observer with the same filter and options. The earlier observer is unregistered when all
/// notifications queued for it have arrived, so that none is missed.
struct BridgeObservers {
    /// The filter and the options that the observers of one kind share, without a registration number.
    typealias Kind = RegistrationKey

    /// The maximum number of earlier observers of one kind that are not unregistered yet. There is more than one only
    /// if the service has ended repeatedly.
    static let maxEarlier = 4

    /// The present observer of each kind.
    private var current: [Kind: RegistrationKey] = [:]
    /// The observers of earlier replays.
    private var earlier: [(kind: Kind, registered: RegistrationKey)] = []
    /// The last registration number.
    private var lastNumber: UInt64 = 0

    /// Whether the bridge has no present observer.
    var isEmpty: Bool { current.isEmpty }

    /// Returns a registration number that no observer has had.
    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// Sets the kinds of observers that the bridge needs.
    ///
    /// - Returns: the observers to unregister first, and then the observers to register.
    mutating func want(_ wanted: Set<Kind>) -> (ended: [RegistrationKey], begun: [RegistrationKey]) {
        let ended = current.filter { !wanted.contains($0.key) }
        for kind in ended.keys { current[kind] = nil }
        let begun = wanted.filter { current[$0] == nil }.map { begin($0) }
        let earlierEnded = earlier.filter { !wanted.contains($0.kind) }
        earlier.removeAll { !wanted.contains($0.kind) }
        return (ended.values + earlierEnded.map(\.registered), begun)
    }

    /// Replaces each observer with a new one, for a replay.
    ///
    /// - Returns: the observers to unregister and to register, and the last registration number before the replay
    ///   (`lastEarlierNumber`), for ``caughtUp(behind:)``.
    mutating func replay() -> (ended: [RegistrationKey], begun: [RegistrationKey], lastEarlierNumber: UInt64) {
        let lastEarlierNumber = lastNumber
        earlier += current.map { ($0.key, $0.value) }
        let begun = current.keys.map { begin($0) }
        var ended: [RegistrationKey] = []
        // Normally `caughtUp(behind:)` ends earlier observers. Beyond the limit the oldest one ends now.
        for kind in current.keys {
            let count = earlier.count { $0.kind == kind }
            guard count > Self.maxEarlier, let oldest = earlier.firstIndex(where: { $0.kind == kind }) else {
                continue
            }
            ended.append(earlier.remove(at: oldest).registered)
        }
        return (ended, begun, lastEarlierNumber)
    }

    /// Forgets the observers from before a replay, because all notifications that the service had at its beginning have
    /// arrived.
    ///
    /// - Parameter mark: the number that ``replay()`` returned.
    /// - Returns: the observers to unregister. Those of later replays have higher numbers, and stay.
    mutating func caughtUp(behind lastEarlierNumber: UInt64) -> [RegistrationKey] {
        let ended = earlier.filter { $0.registered.number <= lastEarlierNumber }
        earlier.removeAll { $0.registered.number <= lastEarlierNumber }
        return ended.map(\.registered)
    }

    /// Forgets all observers.
    ///
    /// - Returns: the observers to unregister.
    mutating func removeAll() -> [RegistrationKey] {
        defer { (current, earlier) = ([:], []) }
        return current.values + earlier.map(\.registered)
    }

    /// Creates an observer of a kind.
    private mutating func begin(_ kind: Kind) -> RegistrationKey {
        let registered = RegistrationKey(
            name: kind.name, object: kind.object, options: kind.options, number: nextNumber())
        current[kind] = registered
        return registered
    }
}
