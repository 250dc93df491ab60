// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The clients that follow a list of the center: the wanted names (G4) or the retained values (G5). The center has one
/// value of this type for each of the two lists, and sends a control signal to the clients that it returns.
///
/// A client that requests the list from its beginning is informed. The next change makes it outdated, and the client
/// gets one signal. It gets no further signal before it requests the list again. Therefore many changes in a row cost
/// one signal for each client.
///
/// Clients are identified by their small numbers (``Client/number``).
package struct Followers: Equatable {
    /// All followers: their bus names by client number.
    private var names: [Int: ClientName] = [:]
    /// The followers that have requested the list since its last change.
    private var informed: Set<Int> = []
    /// The followers for which the list has changed and whose signal is to be sent. It is empty between two events.
    private var outdated: Set<Int> = []

    package init() {}

    /// Releases memory that departed clients have left unused (E8).
    mutating func releaseMemory() {
        names.releaseMemory()
        informed.releaseMemory()
        outdated.releaseMemory()
    }

    /// Whether the client with this number is a follower.
    package func contains(_ number: Int) -> Bool { names[number] != nil }

    /// Adds a follower.
    ///
    /// - Returns: whether the client did not follow before.
    package mutating func add(_ name: ClientName, number: Int) -> Bool {
        names.updateValue(name, forKey: number) == nil
    }

    /// Notes that a follower has requested the list from its beginning.
    package mutating func inform(_ number: Int) {
        invariant(names[number] != nil, "G4, G5: only a follower is informed")
        informed.insert(number)
        outdated.remove(number)
    }

    /// Marks a follower as outdated if it may have missed a signal. A follower that has requested the list since its
    /// last change needs no signal. An earlier process may not have sent the signal, or the bus may have refused it.
    package mutating func notifyAgain(_ number: Int) {
        if contains(number), !informed.contains(number) { outdated.insert(number) }
    }

    /// Notes a change of the list for one follower. A follower that is not informed has had its signal, and is not
    /// marked again.
    package mutating func changed(for number: Int) {
        if informed.remove(number) != nil { outdated.insert(number) }
    }

    /// Notes a change of the list for all followers.
    ///
    /// - Parameter number: the client that caused the change and knows it; nil when there is none.
    package mutating func changed(forAllBut number: Int?) {
        guard !informed.isEmpty else { return }
        let own = number.flatMap { informed.remove($0) }
        outdated.formUnion(informed)
        informed = own.map { [$0] } ?? []
    }

    /// Returns the followers that get a signal now, in the order of their numbers, and ends their mark as outdated.
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

    /// Checks all conditions that hold between two events, in debug builds and the simulation.
    ///
    /// - Parameter number: returns the number of the client with this name; nil when there is none.
    func checkInvariants(number: (ClientName) -> Int?) throws(BrokenInvariant) {
        for (own, name) in names {
            try require(number(name) == own, "G4, G5: the follower \(name) is a client")
        }
        try require(informed.allSatisfy(contains), "G4, G5: an informed client is a follower")
        try require(outdated.isEmpty, "G4, G5: no follower is outdated between events")
    }
}
