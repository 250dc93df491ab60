// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// The owners of the service's name whose signals are trusted (E6): the present owner, and former owners that may not
/// have ended yet.
///
/// A service that ends in order first gives up its name and then sends its remaining messages. Its successor answers
/// only with the complete state, which it receives after the end of the former service. Therefore an answer follows all
/// messages of earlier services.
///
/// Before that answer, several services may have owned the name for a moment. Causes are a service that is ended while
/// it waits for the state, and a client that reads late.
struct ServiceOwners {
    /// The present owner, as far as the bus has announced it.
    private(set) var present: UniqueName?
    /// Whether the present owner is known to be another program.
    private var isOtherProgram = false
    /// The former owners, the latest last.
    private var former: [UniqueName] = []

    /// The limit of former owners. More services end before one of them answers only in an attack on this memory.
    static let maxFormer = 16

    /// Applies an announcement of the bus that the name has another owner.
    ///
    /// - Returns: whether the owner has changed.
    mutating func change(to owner: UniqueName?) -> Bool {
        guard owner != present else { return false }
        former.removeAll { $0 == owner }
        if let present, !isOtherProgram { former.append(present) }
        if former.count > Self.maxFormer { former.removeFirst() }
        present = owner
        isOtherProgram = false
        return true
    }

    /// Notes that the owner answered as the service does.
    mutating func answered(_ owner: UniqueName?) {
        present = owner
        isOtherProgram = false
        former = []
    }

    /// Notes that the present owner is no notification center.
    mutating func isNoCenter() {
        isOtherProgram = true
    }

    /// Forgets all owners after a change of the bus connection.
    mutating func reset() {
        self = ServiceOwners()
    }

    func believes(_ sender: UniqueName) -> Bool {
        sender == present || former.contains(sender)
    }
}
