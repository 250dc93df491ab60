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
    /// - Returns: besides, the steps that it took.
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
            let (rest, steps) = list.removing(removed)
            meter.count(steps)
            last = (list, rest)
            return rest
        }
    }
}
