/// The rules of the distributed center (SPEC parts N, D, S, E) as a state machine.
///
/// Events come in as method calls, in the order in which the bus carried them; what shall be done comes out as
/// ``Effect`` values. There is no input or output here, no clock, and no thread: one caller at a time.
public final class DistributedCenter {
    public var limits: Limits
    private var index = ObserverIndex<String, String, Observer>()
    private var clients: [ClientName: Client] = [:]
    private var lastObserver: UInt64 = 0
    private var lastSerial: UInt64 = 0
    private var counters = Statistics()
    /// The clients that the post at hand matched, in the order of their first matching observer.
    private var matchedClients: [Client] = []

    public init(limits: Limits = Limits()) {
        self.limits = limits
    }

    // MARK: Observers (D2, D8)

    /// Registers an observer of `client`. The empty string means any name, or any object.
    ///
    /// - Throws: ``CenterError/limitExceeded(_:value:)``.
    public func addObserver(
        of clientName: ClientName, name: String, object: String, options: ObserverOptions, effects: inout [Effect]
    ) throws(CenterError) -> ObserverID {
        try limits.check(.nameLength, name.utf8.count)
        try limits.check(.objectLength, object.utf8.count)
        try limits.check(.observers, index.count + 1)
        try limits.check(.observersPerClient, (clients[clientName]?.observers.count ?? 0) + 1)
        let client = try client(clientName, effects: &effects)
        lastObserver += 1
        let id = ObserverID(rawValue: lastObserver)
        let registration = Registration(
            id: id, client: clientName, name: name.isEmpty ? nil : name, object: object.isEmpty ? nil : object,
            options: options)
        client.observers[id] = index.insert(
            Observer(registration: registration, client: client), name: registration.name, object: registration.object)
        return id
    }

    /// Removes one observer of `client`.
    ///
    /// - Throws: ``CenterError/unknownObserver(_:)`` when it has none with this number, also when another client has.
    public func removeObserver(_ id: ObserverID, of clientName: ClientName) throws(CenterError) {
        guard let client = clients[clientName], let position = client.observers.removeValue(forKey: id) else {
            throw .unknownObserver(id)
        }
        index.remove(at: position)
    }

    /// Removes those observers of `client` that were registered for `name` and `object`; the empty string means any.
    ///
    /// - Returns: how many.
    public func removeObservers(of clientName: ClientName, name: String, object: String) -> Int {
        guard let client = clients[clientName] else { return 0 }
        let positions = client.observers.filter { _, position in
            let registration = index[position].registration
            return (name.isEmpty || registration.name == name) && (object.isEmpty || registration.object == object)
        }
        for (id, position) in positions {
            client.observers[id] = nil
            index.remove(at: position)
        }
        return positions.count
    }

    /// The client left the bus: everything that it had goes (D8).
    public func clientDisappeared(_ name: ClientName, effects: inout [Effect]) {
        guard let client = clients.removeValue(forKey: name) else { return }
        for position in client.observers.values { index.remove(at: position) }
        effects.append(.forget(name))
    }

    private func client(_ name: ClientName, effects: inout [Effect]) throws(CenterError) -> Client {
        if let client = clients[name] { return client }
        try limits.check(.clients, clients.count + 1)
        let client = Client(name: name)
        clients[name] = client
        effects.append(.watch(name))
        return client
    }

    // MARK: Posting (D3 to D6)

    /// Checks a post before its userInfo is looked at.
    ///
    /// - Throws: ``CenterError/invalidName`` or ``CenterError/limitExceeded(_:value:)``.
    public func checkPost(name: String, object: String) throws(CenterError) {
        guard !name.isEmpty else { throw .invalidName }
        try limits.check(.nameLength, name.utf8.count)
        try limits.check(.objectLength, object.utf8.count)
    }

    /// Posts a notification to every client that has a matching observer, each once (D6).
    ///
    /// - Parameters:
    ///   - object: the empty string means no object.
    ///   - userInfo: checked already.
    /// - Returns: how many clients matched.
    /// - Throws: what ``checkPost(name:object:)`` throws.
    public func post(
        name: String, object: String, userInfo: any UserInfo, from poster: ClientName, effects: inout [Effect]
    ) throws(CenterError) -> Int {
        try checkPost(name: name, object: object)
        lastSerial += 1
        counters.posted += 1
        index.forEachMatch(name: name, object: object.isEmpty ? nil : object) { observer in
            let client = observer.client
            if client.matched.isEmpty { matchedClients.append(client) }
            client.matched.append(observer.registration.id)
        }
        guard !matchedClients.isEmpty else {
            counters.unmatched += 1
            return 0
        }
        defer { matchedClients.removeAll(keepingCapacity: true) }
        let notification = Notification(
            name: name, object: object, userInfo: userInfo, poster: poster, serial: lastSerial)
        for client in matchedClients {
            let observers = client.takeMatched()
            deliver(notification, to: client, observers: observers, effects: &effects)
        }
        return matchedClients.count
    }

    private func deliver(
        _ notification: Notification, to client: Client, observers: ObserverList, effects: inout [Effect]
    ) {
        client.sequence += 1
        client.delivered += 1
        counters.delivered += 1
        effects.append(
            .deliver(
                Delivery(
                    client: client.name, notification: notification, observers: observers, sequence: client.sequence)))
    }

    // MARK: Looking

    public var statistics: Statistics {
        var statistics = counters
        statistics.clients = UInt64(clients.count)
        statistics.observers = UInt64(index.count)
        return statistics
    }

    /// Every client, in no particular order.
    public var clientStatuses: [ClientStatus] {
        clients.values.map { client in
            ClientStatus(
                name: client.name, isSuspended: false, cause: .none, observers: client.observers.count, queued: 0,
                delivered: client.delivered, dropped: client.dropped)
        }
    }

    /// The registrations of `client`, in their order; nil when the center does not know it.
    public func registrations(of client: ClientName) -> [Registration]? {
        clients[client].map { client in
            client.observers.sorted { $0.key < $1.key }.map { index[$0.value].registration }
        }
    }
}

extension Client {
    fileprivate func takeMatched() -> ObserverList {
        defer { matched.removeAll(keepingCapacity: true) }
        return matched.count == 1 ? .one(matched[0]) : .many(matched)
    }
}
