// SPDX-License-Identifier: Apache-2.0
import CarillonClient

/// The bridge's observers of the session, by what they observe: each time its values are to come again the service gets another
/// one, and the earlier ones go when all that was for them has arrived.
struct BridgeObservers {
    /// The filter and the options of an observer, without the number that tells it from those that were registered before.
    typealias Kind = RegistrationKey

    /// Earlier ones of a kind that may wait for their end: more than one, only where the service ended again and again.
    static let maxEarlier = 4

    private var current: [Kind: RegistrationKey] = [:]
    private var earlier: [(kind: Kind, registered: RegistrationKey)] = []
    private var lastNumber: UInt64 = 0

    var isEmpty: Bool { current.isEmpty }

    /// A number that none has had.
    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// - Returns: those that are to be unregistered, and then to be registered, so that these kinds are observed and no others.
    mutating func want(_ wanted: Set<Kind>) -> (ended: [RegistrationKey], begun: [RegistrationKey]) {
        let ended = current.filter { !wanted.contains($0.key) }
        for kind in ended.keys { current[kind] = nil }
        let begun = wanted.filter { current[$0] == nil }.map { begin($0) }
        let earlierEnded = earlier.filter { !wanted.contains($0.kind) }
        earlier.removeAll { !wanted.contains($0.kind) }
        return (ended.values + earlierEnded.map(\.registered), begun)
    }

    /// Begins a replay.
    ///
    /// - Returns: those that are to be unregistered and registered, and a mark for ``caughtUp(behind:)``.
    mutating func replay() -> (ended: [RegistrationKey], begun: [RegistrationKey], mark: UInt64) {
        let mark = lastNumber
        earlier += current.map { ($0.key, $0.value) }
        let begun = current.keys.map { begin($0) }
        var ended: [RegistrationKey] = []
        for kind in current.keys {
            let count = earlier.count { $0.kind == kind }
            guard count > Self.maxEarlier, let oldest = earlier.firstIndex(where: { $0.kind == kind }) else {
                continue
            }
            ended.append(earlier.remove(at: oldest).registered)
        }
        return (ended, begun, mark)
    }

    /// Everything has arrived that the service had when that replay began.
    ///
    /// - Returns: those that are to be unregistered. Those of a later replay have a mark of their own.
    mutating func caughtUp(behind mark: UInt64) -> [RegistrationKey] {
        let ended = earlier.filter { $0.registered.number <= mark }
        earlier.removeAll { $0.registered.number <= mark }
        return ended.map(\.registered)
    }

    /// Ends all.
    mutating func removeAll() -> [RegistrationKey] {
        defer { (current, earlier) = ([:], []) }
        return current.values + earlier.map(\.registered)
    }

    private mutating func begin(_ kind: Kind) -> RegistrationKey {
        let registered = RegistrationKey(
            name: kind.name, object: kind.object, options: kind.options, number: nextNumber())
        current[kind] = registered
        return registered
    }
}
