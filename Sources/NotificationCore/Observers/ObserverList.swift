/// The observers of one delivery, in registration order. Most deliveries have one, which then costs no allocation.
public enum ObserverList: Equatable, Sendable {
    case one(ObserverID)
    case many([ObserverID])

    public var ids: [ObserverID] {
        switch self {
        case .one(let id): [id]
        case .many(let ids): ids
        }
    }
}

extension ObserverList {
    /// For observers that are at least one.
    init(_ ids: [ObserverID]) {
        self = ids.count == 1 ? .one(ids[0]) : .many(ids)
    }

    /// What is left without `removed`; nil when nothing is.
    func removing(_ removed: Set<ObserverID>) -> ObserverList? {
        switch self {
        case .one(let id): return removed.contains(id) ? nil : self
        case .many(let ids):
            let rest = ids.filter { !removed.contains($0) }
            return rest.isEmpty ? nil : ObserverList(rest)
        }
    }
}
