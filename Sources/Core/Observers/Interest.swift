// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The wanted names: the names that observers are registered for, with the clients that have these observers (G4). A
/// bridge asks for them, to bring only wanted notifications into the session (`FollowInterest`). ``DistributedCenter``
/// has one value, and updates it with each registration. Monitors are not in it.
///
/// Clients are identified by their small numbers (``Client/number``). A client that asks gets the names that other
/// clients want, so each name has all of its clients.
///
/// An observer costs O(1) if its name has other observers, and O(log n) otherwise, as the names are sorted.
struct Interest: Equatable {
    /// The clients with observers of one name, and the number of observers of each.
    private enum Clients: Equatable {
        /// A single client, by its number.
        case one(Int, observers: Int)
        /// At least two clients: the number of observers by client number.
        case many([Int: Int])
    }

    /// The effect of a changed observer: the clients for which the names that others want have changed.
    enum Change {
        /// No client.
        case nobody
        /// All clients except for this one, whose observer is the first or was the last of the name.
        case everybody(but: Int)
        /// This client alone. It is the only client with observers of the name, besides the one whose observer changed.
        case one(Int)
    }

    private let meter: StepMeter
    private var names = SteadyDictionary<ExactText, Clients>()
    /// The clients with observers of any name; nil when there are none.
    private var any: Clients?
    /// The keys of ``names`` in the order of their bytes, so that a caller can read them page by page.
    private var order = SortedSet<ExactText>()

    init(meter: StepMeter) {
        self.meter = meter
    }

    /// Releases memory that removed names have left unused (E8).
    mutating func releaseMemory() {
        names.releaseMemory()
        order.releaseMemory()
    }

    /// Adds an observer of a client.
    ///
    /// - Parameter name: nil for any name.
    mutating func add(_ name: String?, of client: Int) -> Change {
        guard let name = name.map(ExactText.init) else { return Self.add(client, to: &any) }
        if names[name] == nil { order.insert(name) }
        return Self.add(client, to: &names[name])
    }

    /// Removes an observer that was added.
    ///
    /// - Parameter name: nil for any name.
    mutating func remove(_ name: String?, of client: Int) -> Change {
        guard let name = name.map(ExactText.init) else { return Self.remove(client, from: &any) }
        let change = Self.remove(client, from: &names[name])
        if names[name] == nil { order.remove(name) }
        return change
    }

    /// Counts one more observer of a client.
    private static func add(_ client: Int, to clients: inout Clients?) -> Change {
        switch clients {
        case nil:
            clients = .one(client, observers: 1)
            return .everybody(but: client)
        case .one(client, let count)?:
            clients = .one(client, observers: count + 1)
            return .nobody
        case .one(let other, let count)?:
            clients = .many([other: count, client: 1])
            return .one(other)
        case .many(var counts)?:
            clients = nil  // so that the dictionary is changed in place
            counts[client, default: 0] += 1
            clients = .many(counts)
            return .nobody
        }
    }

    /// Counts one observer of a client less.
    private static func remove(_ client: Int, from clients: inout Clients?) -> Change {
        switch clients {
        case .one(client, let count)? where count > 1:
            clients = .one(client, observers: count - 1)
            return .nobody
        case .one(client, _)?:
            clients = nil
            return .everybody(but: client)
        case .many(var counts)?:
            clients = nil
            guard let count = counts[client] else { preconditionFailure("the client has no observer of this name") }
            counts[client] = count > 1 ? count - 1 : nil
            guard counts.count == 1, let (last, observers) = counts.first else {
                clients = .many(counts)
                return .nobody
            }
            clients = .one(last, observers: observers)
            return .one(last)
        case .one?, nil: preconditionFailure("the client has no observer of this name")
        }
    }

    /// Whether a client other than this one observes any name.
    func isAnyWanted(besides client: Int) -> Bool { any.map { Self.isWanted($0, besides: client) } ?? false }

    /// Returns a page of the names that a client other than this one observes, in the order of their bytes.
    ///
    /// - Parameters:
    ///   - name: the last name of the page before; the empty string for the first page.
    ///   - most: the maximum number of names.
    ///   - room: the maximum sum of their sizes, in bytes. The first name is returned in any case.
    ///   - byteCount: returns the size of a name, in bytes.
    func names(
        after name: String, most: Int, besides client: Int, room: Int, byteCount: (String) -> Int
    ) -> [String] {
        var (found, room): ([String], Int) = ([], room)
        for next in order.all(from: ExactText(name)) where next != ExactText(name) {
            meter.count()
            guard Self.isWanted(names[next]!, besides: client) else { continue }
            room -= byteCount(next.text)
            guard found.count < most, found.isEmpty || room >= 0 else { break }
            found.append(next.text)
        }
        return found
    }

    /// Whether a client other than this one is among the clients of a name.
    private static func isWanted(_ clients: Clients, besides client: Int) -> Bool {
        if case .one(client, _) = clients { false } else { true }
    }

    /// Two indexes are equal when the same clients want the same names.
    static func == (left: Interest, right: Interest) -> Bool { left.names == right.names && left.any == right.any }
}
