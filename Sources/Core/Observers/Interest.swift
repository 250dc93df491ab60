// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The index of the names that observers want (G4), for programs that bring notifications from elsewhere.
///
/// A client that asks for wanted names gets those of other clients, so each name has its clients, by their numbers. An
/// observer that is added or removed costs O(1) while others of its name stay, and O(log n) otherwise, since the names
/// are sorted.
struct Interest: Equatable {
    /// The clients with observers of a name, and the number of their observers.
    private enum Clients: Equatable {
        case one(Int, observers: Int)
        /// At least two clients.
        case many([Int: Int])
    }

    /// The clients for which the names that others want have changed.
    enum Change {
        case nobody
        case everybody(but: Int)
        case one(Int)
    }

    private let meter: StepMeter
    private var names = SteadyDictionary<ExactText, Clients>()
    private var any: Clients?
    private var order = SortedSet<ExactText>()

    init(meter: StepMeter) {
        self.meter = meter
    }

    mutating func releaseMemory() {
        names.releaseMemory()
        order.releaseMemory()
    }

    /// - Parameter name: nil for any name.
    mutating func add(_ name: String?, of client: Int) -> Change {
        guard let name = name.map(ExactText.init) else { return Self.add(client, to: &any) }
        if names[name] == nil { order.insert(name) }
        return Self.add(client, to: &names[name])
    }

    /// - Parameter name: nil for any name.
    mutating func remove(_ name: String?, of client: Int) -> Change {
        guard let name = name.map(ExactText.init) else { return Self.remove(client, from: &any) }
        let change = Self.remove(client, from: &names[name])
        if names[name] == nil { order.remove(name) }
        return change
    }

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
            guard let count = counts[client] else { preconditionFailure("it has been added") }
            counts[client] = count > 1 ? count - 1 : nil
            guard counts.count == 1, let (last, observers) = counts.first else {
                clients = .many(counts)
                return .nobody
            }
            clients = .one(last, observers: observers)
            return .one(last)
        case .one?, nil: preconditionFailure("it has been added")
        }
    }

    /// Whether a client other than this one observes any name.
    func isAnyWanted(besides client: Int) -> Bool { any.map { Self.isWanted($0, besides: client) } ?? false }

    /// Returns the names behind `name` that a client other than this one observes, in the order of their bytes.
    ///
    /// - Parameters:
    ///   - most: the maximum number of names.
    ///   - room: the maximum sum of their sizes, in bytes. The first name is returned in any case.
    ///   - byteCount: the size of a name, in bytes.
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

    private static func isWanted(_ clients: Clients, besides client: Int) -> Bool {
        if case .one(client, _) = clients { false } else { true }
    }

    /// Two indexes are equal when the same clients want the same names.
    static func == (left: Interest, right: Interest) -> Bool { left.names == right.names && left.any == right.any }
}
