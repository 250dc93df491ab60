// SPDX-License-Identifier: Apache-2.0
/// The observers of one client that are to get one notification, in registration order, which is the order of their
/// IDs. It is never empty. Most deliveries have a single observer, and then the list needs no allocation.
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

    /// The size by which the list counts against limits, in bytes, without the list's own value. Lists that share
    /// memory count in full each, because on the bus and on disk they share nothing.
    var byteCount: Int {
        switch self {
        case .one: 0
        case .many(let ids): 8 * ids.count
        }
    }

    /// Returns the same list, in the memory of `other` if both are equal. Notifications that wait for the same
    /// observers thus share one list.
    func shared(with other: ObserverList?) -> ObserverList {
        if let other, other == self { other } else { self }
    }

    /// Returns the list without some observers. It shares the memory of this list if it has none of them.
    ///
    /// - Parameter removed: the observers, in ascending order.
    /// - Returns: `rest`, the remaining list; nil when no observer is left. `steps`, the number of steps for
    ///   ``StepMeter``.
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

    /// A removal of the same observers from many lists, one after the other. Equal lists in a row are computed once,
    /// and share memory afterwards.
    struct Removal {
        /// In ascending order.
        private let removed: [ObserverID]
        private let meter: StepMeter
        /// The list of the last call, and its result.
        private var last: (before: ObserverList, after: ObserverList?)?

        init(_ removed: Set<ObserverID>, meter: StepMeter) {
            self.removed = removed.sorted()
            self.meter = meter
            meter.countSort(of: removed.count)
        }

        /// Returns a list without the observers; nil when none is left.
        mutating func callAsFunction(_ list: ObserverList) -> ObserverList? {
            if let last, last.before == list { return last.after }
            let (rest, steps) = list.removing(removed)
            meter.count(steps)
            last = (list, rest)
            return rest
        }
    }
}
