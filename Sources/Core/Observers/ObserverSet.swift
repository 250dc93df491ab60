// SPDX-License-Identifier: Apache-2.0
/// The set of one client's observers that lost notifications, for the report of the loss (`Dropped`).
///
/// A client may lose many notifications in a row, mostly for the same observers. Therefore a list that equals the last
/// added one costs only a comparison. A list that is much shorter than the set costs a search for each of its
/// observers.
public struct ObserverSet: Equatable, Sendable, ExpressibleByArrayLiteral {
    /// In ascending order.
    public private(set) var ids: [ObserverID] = []
    /// The last added long list. All of its observers are in the set.
    private var last: ObserverList?

    public init() {}

    /// - Parameter ids: in any order.
    public init(_ ids: some Sequence<ObserverID>) {
        formUnion(ids)
    }

    public init(arrayLiteral ids: ObserverID...) {
        self.init(ids)
    }

    public var count: Int { ids.count }

    /// Adds the observers of a list.
    ///
    /// - Returns: the number of steps for ``StepMeter``: cache lines or observers that were visited.
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

    /// The number of comparisons of a binary search in the longest lists; eight of them count as a step. A list that is
    /// shorter than the set by this factor is searched for, and not merged.
    private static let longSearch = 16
    /// The maximum number of observers that are inserted one by one. Each insertion moves the observers behind it.
    private static let shortList = 8

    /// Adds observers in any order, by a merge of two sorted lists.
    mutating func formUnion(_ added: some Sequence<ObserverID>) {
        var added = Array(added)
        // Observers in registration order are usually sorted already.
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

    /// Keeps only the observers for which `isThere` is true. A client may register and remove observers without end,
    /// and the set would grow.
    mutating func keep(where isThere: (ObserverID) -> Bool) {
        ids.removeAll { !isThere($0) }
        last = nil
    }

    /// Removes repeated elements of the sorted list.
    private mutating func removeDoubles() {
        guard zip(ids, ids.dropFirst()).contains(where: ==) else { return }
        ids = ids.enumerated().filter { $0.offset == 0 || ids[$0.offset - 1] != $0.element }.map(\.element)
    }

    private func contains(_ id: ObserverID) -> Bool { ids.position(of: id) != nil }

    /// Inserts an observer unless the set has it.
    ///
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
