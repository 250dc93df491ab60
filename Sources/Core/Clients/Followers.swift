// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The clients that follow wanted names (G4) or retained values (G5).
///
/// A client that has requested the list from its beginning is informed of the next change, once. It gets no further
/// signal before it has requested the list again. A change thus costs O(1) for each client and each of its requests.
package struct Followers: Equatable {
    /// The names of the followers, by client number.
    private var names: [Int: ClientName] = [:]
    /// The followers that know the present state.
    private var informed: Set<Int> = []
    /// The followers whose knowledge is outdated, and which are to be informed.
    private var outdated: Set<Int> = []

    package init() {}

    /// Releases memory that departed clients have left unused (E8).
    mutating func releaseMemory() {
        names.releaseMemory()
        informed.releaseMemory()
        outdated.releaseMemory()
    }

    package func contains(_ number: Int) -> Bool { names[number] != nil }

    /// Adds a follower.
    ///
    /// - Returns: whether the client did not follow before.
    package mutating func add(_ name: ClientName, number: Int) -> Bool {
        names.updateValue(name, forKey: number) == nil
    }

    /// Notes that a follower has requested the list from its beginning.
    package mutating func inform(_ number: Int) {
        invariant(names[number] != nil, "G4, G5: only who follows is told")
        informed.insert(number)
        outdated.remove(number)
    }

    /// Has a follower informed that may have missed a signal, unless it has requested the list since. An earlier
    /// process may not have sent the signal, or the bus may have refused it.
    package mutating func distrust(_ number: Int) {
        if contains(number), !informed.contains(number) { outdated.insert(number) }
    }

    /// Notes a change for one follower.
    package mutating func changed(for number: Int) {
        if informed.remove(number) != nil { outdated.insert(number) }
    }

    /// Notes a change for all followers, except for a client that knows it.
    ///
    /// - Parameter number: the number of that client; nil when no client knows the change.
    package mutating func changed(forAllBut number: Int?) {
        guard !informed.isEmpty else { return }
        let own = number.flatMap { informed.remove($0) }
        outdated.formUnion(informed)
        informed = own.map { [$0] } ?? []
    }

    /// Returns the followers to inform now, in the order of their numbers. They count as informed of the change.
    package mutating func takeOutdated() -> [ClientName] {
        guard !outdated.isEmpty else { return [] }
        defer { outdated = [] }
        return outdated.sorted().map { names[$0]! }
    }

    /// Removes a client that has left; its number may be reused.
    package mutating func remove(_ number: Int) {
        names[number] = nil
        informed.remove(number)
        outdated.remove(number)
    }

    /// - Parameter number: the number of the client of this name, if there is one.
    func checkInvariants(number: (ClientName) -> Int?) throws(BrokenInvariant) {
        for (own, name) in names {
            try require(number(name) == own, "G4, G5: \(name), which follows, is a client")
        }
        try require(informed.allSatisfy(contains), "G4, G5: who was told is a client that follows")
        try require(outdated.isEmpty, "G4, G5: who has to be told of a change is told at once")
    }
}
