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
    func removing(_ removed: Set<ObserverID>) -> ObserverList? {
        switch self {
        case .one(let id): return removed.contains(id) ? nil : self
        case .many(let ids):
            let rest =
                removed.count <= Self.fewRemoved
                ? Self.removing(few: removed, of: ids) : ids.filter { !removed.contains($0) }
            if rest.count == ids.count { return self }
            return rest.isEmpty ? nil : ObserverList(rest)
        }
    }

    /// Each is looked for: in the order of registration they are in that of their numbers.
    private static func removing(few removed: Set<ObserverID>, of ids: [ObserverID]) -> [ObserverID] {
        var rest = ids
        for id in removed {
            let place = rest.place(of: id)
            if place < rest.count, rest[place] == id { rest.remove(at: place) }
        }
        return rest
    }

    private static let fewRemoved = 8

    /// Takes observers out of one list after the other. A list that is shared is looked at once, and stays so.
    struct Removal {
        private let removed: Set<ObserverID>
        private let meter: StepMeter
        private var last: (before: ObserverList, after: ObserverList?)?

        init(_ removed: Set<ObserverID>, meter: StepMeter) {
            self.removed = removed
            self.meter = meter
        }

        mutating func callAsFunction(_ list: ObserverList) -> ObserverList? {
            if let last, last.before == list { return last.after }
            let rest = list.removing(removed)
            let isCopied = rest?.count != list.count
            // Eight that are copied lie in a cache line.
            meter.count(
                removed.count <= ObserverList.fewRemoved ? removed.count + (isCopied ? list.count / 8 : 0) : list.count)
            last = (list, rest)
            return rest
        }
    }
}
