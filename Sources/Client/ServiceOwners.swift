// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// The set of connections whose signals a session trusts as the service's (E6): the present owner of the service's
/// name, and former owners that may still be sending.
///
/// A service that ends in order first gives up its name and then sends its remaining messages. Therefore a former owner
/// stays trusted. Its successor receives the handover state after that end, and answers a question only then. Therefore
/// an answer of the present owner ends the trust in all former ones.
///
/// There can be several former owners before such an answer. Causes are a service that ends while it waits for the
/// handover state, and a client that reads late.
struct ServiceOwners {
    /// The present owner, as far as the bus has announced it.
    private(set) var present: UniqueName?
    /// Whether the present owner is known to be no notification center, so that it is not trusted after its end.
    private var isOtherProgram = false
    /// The former owners, the latest last.
    private var former: [UniqueName] = []

    /// The limit of former owners. More than these end without an answer only in an attack on this memory.
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

    /// Records that this owner answered as a notification center. Former owners are no longer trusted.
    mutating func answered(_ owner: UniqueName?) {
        present = owner
        isOtherProgram = false
        former = []
    }

    /// Records that the present owner is no notification center.
    mutating func markForeign() {
        isOtherProgram = true
    }

    /// Forgets all owners after a change of the bus connection.
    mutating func reset() {
        self = ServiceOwners()
    }

    /// Whether signals of this sender are trusted.
    func trusts(_ sender: UniqueName) -> Bool {
        sender == present || former.contains(sender)
    }
}
