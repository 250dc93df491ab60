/// The way of a notification from its post to the clients that it matches (D2 to D6, S1, S3).
extension DistributedCenter {
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
    ///   - deliverImmediately: treat every matching observer as if it had registered with
    ///     ``SuspensionBehavior/deliverImmediately`` (S3).
    /// - Returns: how many clients matched.
    /// - Throws: what ``checkPost(name:object:)`` throws.
    public func post(
        name: String, object: String, userInfo: any UserInfo, deliverImmediately: Bool = false,
        from poster: ClientName, effects: inout [Effect]
    ) throws(CenterError) -> Int {
        try checkPost(name: name, object: object)
        lastSerial += 1
        counters.posted += 1
        index.forEachMatch(name: ExactText(name), object: object.isEmpty ? nil : ExactText(object)) { observer in
            let client = observer.client
            if client.matched.isEmpty { matchedClients.append(client) }
            let registration = observer.registration
            client.matched.append(
                Client.Match(observer: registration.id, behavior: registration.options.suspensionBehavior))
        }
        guard !matchedClients.isEmpty else {
            counters.unmatched += 1
            return 0
        }
        defer { matchedClients.removeAll(keepingCapacity: true) }
        let notification = Notification(
            name: name, object: object, userInfo: userInfo, poster: poster, serial: lastSerial)
        for client in matchedClients {
            route(notification, to: client, deliverImmediately: deliverImmediately, effects: &effects)
            client.matched.removeAll(keepingCapacity: true)
        }
        return matchedClients.count
    }

    /// Decides what a client's state makes of a notification that it matches.
    private func route(
        _ notification: Notification, to client: Client, deliverImmediately: Bool, effects: inout [Effect]
    ) {
        guard client.isSuspended, !deliverImmediately else {
            return deliver(notification, to: client, observers: ObserverList(client.matched), effects: &effects)
        }
        let keeping = client.matched.filter { $0.behavior != .drop }
        guard !keeping.isEmpty else { return }
        // A notification arrives once per client (D6): with one observer that wants it now, all that want it at all
        // get it now, and none of them again on resume.
        if keeping.contains(where: { $0.behavior == .deliverImmediately }) {
            deliver(notification, to: client, observers: ObserverList(keeping), effects: &effects)
        } else {
            hold(notification, for: client, keeping, effects: &effects)
        }
    }
}

extension ObserverList {
    fileprivate init(_ matches: [Client.Match]) {
        self = matches.count == 1 ? .one(matches[0].observer) : .many(matches.map(\.observer))
    }
}
