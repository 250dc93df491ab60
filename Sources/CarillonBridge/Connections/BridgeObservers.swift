// SPDX-License-Identifier: Apache-2.0
import CarillonClient

/// The bridge's observers of the session, by filter and options. For each replay of its values the service gets a new
/// observer of each kind. The earlier observers are unregistered when all their notifications have arrived.
struct BridgeObservers {
    /// The filter and the options of an observer, without its registration number.
    typealias Kind = RegistrationKey

    /// The maximum number of earlier observers of one kind that wait for their end. More than one waits only if the
    /// service ended repeatedly.
    static let maxEarlier = 4

    private var current: [Kind: RegistrationKey] = [:]
    private var earlier: [(kind: Kind, registered: RegistrationKey)] = []
    private var lastNumber: UInt64 = 0

    var isEmpty: Bool { current.isEmpty }

    /// Returns a registration number that no observer has had.
    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// Sets the kinds of observers that the bridge needs.
    ///
    /// - Returns: the observers to unregister first, and the observers to register then.
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
    /// - Returns: the observers to unregister and to register, and a mark for ``caughtUp(behind:)``.
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

    /// Ends the earlier observers of a replay, because all notifications have arrived that the service had at its
    /// beginning.
    ///
    /// - Returns: the observers to unregister. Observers of a later replay have a mark of their own.
    mutating func caughtUp(behind mark: UInt64) -> [RegistrationKey] {
        let ended = earlier.filter { $0.registered.number <= mark }
        earlier.removeAll { $0.registered.number <= mark }
        return ended.map(\.registered)
    }

    /// Removes all observers.
    ///
    /// - Returns: the observers to unregister.
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
