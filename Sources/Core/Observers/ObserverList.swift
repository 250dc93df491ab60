// SPDX-License-Identifier: Apache-2.0
/// The observers of one delivery, in registration order. Most deliveries have a single observer, which costs no
/// allocation.
public enum ObserverList: Equatable, Sendable {
    case one(ObserverID)
    case many([ObserverID])

    /// Creates a list of at least one observer.
    ///
    /// - Precondition: `ids` is in ascending order.
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

    /// The size besides the list's own place, in bytes. Each of several lists that share memory counts in full, since
    /// on the bus and in the state on disk they share nothing.
    var byteCount: Int {
        switch self {
        case .one: 0
        case .many(let ids): 8 * ids.count
        }
    }

    /// Returns the same list, in the memory of `other` where that is equal. Notifications that wait for the same
    /// observers thus share one list.
    func shared(with other: ObserverList?) -> ObserverList {
        if let other, other == self { other } else { self }
    }

    /// Returns the list without `removed`, in the same memory if it has none of them.
    ///
    /// - Parameter removed: in ascending order, like the list.
    /// - Returns: the rest, nil when no observer is left, and the number of steps.
    func removing(_ removed: [ObserverID]) -> (rest: ObserverList?, steps: Int) {
        switch self {
        case .one(let id): return (removed.position(of: id) == nil ? self : nil, 1)
        case .many(let ids):
            let (places, steps) = removed.places(in: ids) { $0 }
            guard !places.isEmpty else { return (self, steps) }
            guard places.count < ids.count else { return (nil, steps) }
            var rest = ids
            rest.remove(at: places)
            return (ObserverList(rest), steps + ids.count / 8)
        }
    }

    /// Removes observers from one list after the other. A list that is shared is searched once, and stays shared.
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
            let (rest, steps) = list.removing(removed)
            meter.count(steps)
            last = (list, rest)
            return rest
        }
    }
}
