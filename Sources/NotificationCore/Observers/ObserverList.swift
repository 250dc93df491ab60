// SPDX-License-Identifier: Apache-2.0
/// The observers of one delivery, in registration order. Most deliveries have one, which then costs no allocation.
public enum ObserverList: Equatable, Sendable {
    case one(ObserverID)
    case many([ObserverID])

    /// For observers that are at least one.
    ///
    /// - Precondition: they are in the order of their numbers.
    init(_ ids: [ObserverID]) {
        self = ids.count == 1 ? .one(ids[0]) : .many(ids)
    }

    public var ids: [ObserverID] {
        switch self {
        case .one(let id): [id]
        case .many(let ids): ids
        }
    }

    public var count: Int {
        switch self {
        case .one: 1
        case .many(let ids): ids.count
        }
    }

    /// What it takes besides the place in which it lies, in bytes. The same on the bus and in the state on disk, which
    /// share nothing.
    var byteCount: Int {
        switch self {
        case .one: 0
        case .many(let ids): 8 * ids.count
        }
    }

    /// The same list, in the memory of `other` where that is equal: what waits for many observers has the list of them
    /// once, and not with each notification.
    func shared(with other: ObserverList?) -> ObserverList {
        if let other, other == self { other } else { self }
    }

    /// The list without `removed`, in the same memory where it has none of them; nil when nobody is left.
    ///
    /// - Parameter removed: by their numbers, which is the order of the list as well.
    func removing(_ removed: [ObserverID]) -> ObserverList? {
        switch self {
        case .one(let id): return removed.position(of: id) == nil ? self : nil
        case .many(let ids):
            let places = Self.places(of: removed, in: ids)
            guard let first = places.first else { return self }
            guard places.count < ids.count else { return nil }
            var rest = Array(ids[..<first])
            rest.reserveCapacity(ids.count - places.count)
            for (place, next) in zip(places, places.dropFirst() + [ids.count]) { rest += ids[(place + 1)..<next] }
            return ObserverList(rest)
        }
    }

    /// Where those of `removed` are that are among `ids`. A few are looked for one by one, and many by walking both.
    private static func places(of removed: [ObserverID], in ids: [ObserverID]) -> [Int] {
        guard let first = removed.first, let last = removed.last, let highest = ids.last, first <= highest,
            last >= ids[0]
        else { return [] }
        if removed.count < ids.count / stepsOfSearch { return removed.compactMap { ids.position(of: $0) } }
        var places: [Int] = []
        var next = removed.place(of: ids[0])
        for place in ids.indices {
            while next < removed.count, removed[next] < ids[place] { next += 1 }
            guard next < removed.count else { break }
            if removed[next] == ids[place] { places.append(place) }
        }
        return places
    }

    /// Of looking for one in a long list, about.
    private static let stepsOfSearch = 16

    /// Takes observers out of one list after the other. A list that is shared is looked at once, and stays so.
    struct Removal {
        private let removed: [ObserverID]
        private let meter: StepMeter
        private var last: (before: ObserverList, after: ObserverList?)?

        init(_ removed: Set<ObserverID>, meter: StepMeter) {
            self.removed = removed.sorted()
            self.meter = meter
            meter.countSort(of: removed.count)
        }

        mutating func callAsFunction(_ list: ObserverList) -> ObserverList? {
            if let last, last.before == list { return last.after }
            let rest = list.removing(removed)
            // Eight that are walked or copied lie in a cache line.
            meter.count(min(removed.count, list.count / 8) + (rest?.count != list.count ? list.count / 8 : 0))
            last = (list, rest)
            return rest
        }
    }
}
