// SPDX-License-Identifier: Apache-2.0
/// The set of one client's observers that lost something, in the order of their numbers.
///
/// A client loses many notifications in a row, mostly for the same observers, perhaps for all that it has. A list that
/// equals the last one costs a comparison of bytes, and a short list a search for each observer.
public struct ObserverSet: Equatable, Sendable, ExpressibleByArrayLiteral {
    /// In ascending order.
    public private(set) var ids: [ObserverID] = []
    private var last: ObserverList?

    /// Creates an empty set.
    public init() {}

    /// - Parameter ids: in any order.
    public init(_ ids: some Sequence<ObserverID>) {
        formUnion(ids)
    }

    public init(arrayLiteral ids: ObserverID...) {
        self.init(ids)
    }

    /// The number of observers.
    public var count: Int { ids.count }

    /// Adds the observers of a loss.
    ///
    /// - Returns: the number of steps: cache lines or observers that were visited.
    mutating func formUnion(_ list: ObserverList) -> Int {
        switch list {
        case .one(let id): return insert(id)
        case .many(let added):
            if list == last { return added.count / 8 }
            if added.count > Self.shortList { last = list }
            guard added.count < ids.count / Self.longSearch else {
                formUnion(added)
                return added.count + ids.count
            }
            let missing = added.filter { !contains($0) }
            let steps = added.count * Self.longSearch / 8
            if missing.count <= Self.shortList { return missing.reduce(steps) { $0 + insert($1) } }
            formUnion(missing)
            return steps + ids.count
        }
    }

    /// The comparisons of a search in the longest lists; eight of them are a step. The observers of a list that is
    /// shorter than the set by this factor are searched for one by one.
    private static let longSearch = 16
    /// The maximum number of observers that are inserted one by one, each of which moves the observers behind it.
    private static let shortList = 8

    mutating func formUnion(_ added: some Sequence<ObserverID>) {
        var added = Array(added)
        // Observers in registration order are usually in the order of their numbers.
        if zip(added, added.dropFirst()).contains(where: { $0 > $1 }) { added.sort() }
        guard !ids.isEmpty else {
            ids = added
            return removeDoubles()
        }
        var (merged, place) = ([] as [ObserverID], 0)
        merged.reserveCapacity(ids.count + added.count)
        for id in added {
            while place < ids.count, ids[place] <= id {
                merged.append(ids[place])
                place += 1
            }
            if merged.last != id { merged.append(id) }
        }
        merged += ids[place...]
        ids = merged
    }

    /// Removes the observers that no longer exist.
    mutating func keep(where isThere: (ObserverID) -> Bool) {
        ids.removeAll { !isThere($0) }
        last = nil
    }

    private mutating func removeDoubles() {
        guard zip(ids, ids.dropFirst()).contains(where: ==) else { return }
        ids = ids.enumerated().filter { $0.offset == 0 || ids[$0.offset - 1] != $0.element }.map(\.element)
    }

    private func contains(_ id: ObserverID) -> Bool { ids.position(of: id) != nil }

    /// - Returns: the number of steps.
    private mutating func insert(_ id: ObserverID) -> Int {
        let place = ids.place(of: id)
        guard place == ids.count || ids[place] != id else { return 2 }
        ids.insert(id, at: place)
        return 2 + (ids.count - place) / 8
    }

    /// Whether both sets have the same observers.
    public static func == (left: ObserverSet, right: ObserverSet) -> Bool { left.ids == right.ids }
}
