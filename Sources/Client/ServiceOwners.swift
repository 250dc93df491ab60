// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames

/// Who has the service's name, and whose signals are believed (E6): the owner's, and those of earlier ones that may not
/// have ended yet.
///
/// A service that ends in order gives its name up first, and then sends what is on its way. The next one answers only
/// when it has the state, which it gets when the one before has ended; so an answer is behind all that earlier ones sent.
/// Until there is one several may have had the name, each of them for a moment: one that is ended while it waits for the
/// state, or a client that reads late.
struct ServiceOwners {
    /// As far as the bus told.
    private(set) var present: UniqueName?
    /// Whether that one is known to be another program.
    private var isStranger = false
    /// The latest last.
    private var former: [UniqueName] = []

    /// Nobody ends so many in the time in which one does not answer, but who wants this to grow.
    static let maxFormer = 16

    /// The bus says that the name has another owner.
    ///
    /// - Returns: whether that is news.
    mutating func change(to owner: UniqueName?) -> Bool {
        guard owner != present else { return false }
        former.removeAll { $0 == owner }
        if let present, !isStranger { former.append(present) }
        if former.count > Self.maxFormer { former.removeFirst() }
        present = owner
        isStranger = false
        return true
    }

    /// It answered as the service does.
    mutating func answered(_ owner: UniqueName?) {
        present = owner
        isStranger = false
        former = []
    }

    /// The present owner is no notification center.
    mutating func isNoCenter() {
        isStranger = true
    }

    /// The connection to the bus is another.
    mutating func reset() {
        self = ServiceOwners()
    }

    func believes(_ sender: UniqueName) -> Bool {
        sender == present || former.contains(sender)
    }
}
