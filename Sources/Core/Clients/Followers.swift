// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// Clients that follow something: what others want (G4), or which values there are (G5).
///
/// One that has asked for all of it knows it. It is told once when that has changed, and then not again before it has asked
/// for all of it anew. So a change costs each client O(1) for each time that it asks.
package struct Followers: Equatable {
    /// Those that follow, by the numbers of the clients.
    private var names: [Int: ClientName] = [:]
    /// Those of them that know what holds.
    private var informed: Set<Int> = []
    /// Those that knew what held before, and are to be told.
    private var outdated: Set<Int> = []

    package init() {}

    /// Gives up what is kept of those that are gone (E8).
    mutating func releaseRoom() {
        names.releaseRoom()
        informed.releaseRoom()
        outdated.releaseRoom()
    }

    package func contains(_ number: Int) -> Bool { names[number] != nil }

    /// A client follows from now on.
    ///
    /// - Returns: whether it did not before.
    package mutating func add(_ name: ClientName, number: Int) -> Bool {
        names.updateValue(name, forKey: number) == nil
    }

    /// A client that follows has asked for all of it.
    package mutating func inform(_ number: Int) {
        invariant(names[number] != nil, "G4, G5: only who follows is told")
        informed.insert(number)
        outdated.remove(number)
    }

    /// A client may not have been told, by an earlier process or because the bus refused the signal: it is told, unless it
    /// has asked since.
    package mutating func distrust(_ number: Int) {
        if contains(number), !informed.contains(number) { outdated.insert(number) }
    }

    /// What a client follows is another way for it.
    package mutating func changed(for number: Int) {
        if informed.remove(number) != nil { outdated.insert(number) }
    }

    /// What clients follow is another way for all of them, except one that knows.
    ///
    /// - Parameter number: nil when that one is no client.
    package mutating func changed(forAllBut number: Int?) {
        guard !informed.isEmpty else { return }
        let own = number.flatMap { informed.remove($0) }
        outdated.formUnion(informed)
        informed = own.map { [$0] } ?? []
    }

    /// Those that are to be told now, in the order of their numbers. They are, and so know that they don't know.
    package mutating func takeOutdated() -> [ClientName] {
        guard !outdated.isEmpty else { return [] }
        defer { outdated = [] }
        return outdated.sorted().map { names[$0]! }
    }

    /// A client has left, and its number may become another's.
    package mutating func remove(_ number: Int) {
        names[number] = nil
        informed.remove(number)
        outdated.remove(number)
    }

    /// - Parameter number: that of the client of this name, if there is one.
    func checkInvariants(number: (ClientName) -> Int?) throws(BrokenInvariant) {
        for (own, name) in names {
            try require(number(name) == own, "G4, G5: \(name), which follows, is a client")
        }
        try require(informed.allSatisfy(contains), "G4, G5: who was told is a client that follows")
        try require(outdated.isEmpty, "G4, G5: who has to be told of a change is told at once")
    }
}
