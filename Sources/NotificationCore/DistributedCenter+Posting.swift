import Collections

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

    /// Posts a notification: now, or later from the poster's queue (Q7).
    ///
    /// - Parameters:
    ///   - object: the empty string means no object.
    ///   - userInfo: checked already.
    /// - Throws: what ``checkPost(name:object:)`` throws, and ``CenterError/limitExceeded(_:value:)`` when the poster's
    ///   queue is full.
    public func post(
        name: String, object: String, userInfo: any UserInfo, options: PostOptions = PostOptions(),
        from poster: ClientName, effects: inout [Effect]
    ) throws(CenterError) -> Receipt {
        defer { eventEnded() }
        try checkPost(name: name, object: object)
        let post = PendingPost(
            name: name, object: object, userInfo: userInfo, deliverImmediately: options.deliverImmediately,
            style: options.postingStyle)
        guard options.postingStyle == .now else {
            try enqueue(post, from: poster, coalescing: options.coalescing, effects: &effects)
            return Receipt(receivers: 0, mark: nil)
        }
        guard !options.coalescing.isEmpty else { return send(post, from: poster, effects: &effects) }
        return send(
            replacingQueued(post, from: poster, coalescing: options.coalescing, effects: &effects), from: poster,
            effects: &effects)
    }

    /// Posts a notification to every client that has a matching observer, each once (D6). It is matched and gets its
    /// serial here.
    func send(_ post: PendingPost, from poster: ClientName, effects: inout [Effect]) -> Receipt {
        lastSerial += 1
        counters.posted += 1
        let object = post.object.isEmpty ? nil : ExactText(post.object)
        index.forEachMatch(name: ExactText(post.name), object: object) { observer in
            let client = observer.client
            if client.matched.isEmpty { matchedClients.append(client) }
            let registration = observer.registration
            client.matched.append(
                Client.Match(
                    observer: registration.id, behavior: registration.options.suspensionBehavior,
                    lane: DeliveryLane(registration.options.runLoopMode)))
        }
        guard !matchedClients.isEmpty else {
            counters.unmatched += 1
            return Receipt(receivers: 0, mark: nil)
        }
        defer { matchedClients.removeAll(keepingCapacity: true) }
        let notification = Notification(
            name: post.name, object: post.object, userInfo: post.userInfo, poster: poster, serial: lastSerial)
        lastStaged = nil
        for client in matchedClients {
            route(notification, to: client, deliverImmediately: post.deliverImmediately, effects: &effects)
            client.matched.removeAll(keepingCapacity: true)
        }
        let mark = lastStaged.map(turns.mark)
        sendOverfull(effects: &effects)
        return Receipt(receivers: matchedClients.count, mark: mark)
    }

    /// Decides what a client's state makes of a notification that it matches.
    ///
    /// A notification arrives once per client (D6), so the most urgent mode of the observers that get it carries it.
    private func route(
        _ notification: Notification, to client: Client, deliverImmediately: Bool, effects: inout [Effect]
    ) {
        guard client.isSuspended, !deliverImmediately else {
            let lane = deliverImmediately ? .immediate : client.matched.reduce(.standard) { min($0, $1.lane) }
            return deliver(
                notification, to: client, observers: ObserverList(client.matched), in: lane, effects: &effects)
        }
        let keeping = client.matched.filter { $0.behavior != .drop }
        guard !keeping.isEmpty else { return }
        // With one observer that wants it now, all that want it at all get it now, and none of them again on resume.
        if keeping.contains(where: { $0.behavior == .deliverImmediately }) {
            deliver(notification, to: client, observers: ObserverList(keeping), in: .immediate, effects: &effects)
        } else {
            hold(notification, for: client, keeping, effects: &effects)
        }
    }
}

/// What became of a post that was accepted.
public struct Receipt: Sendable {
    /// How many clients matched; 0 for a post that is queued.
    public let receivers: Int
    /// Where the last of its deliveries that wait for their turns stands; nil when none does.
    public let mark: SendingMark?
}

extension ObserverList {
    fileprivate init(_ matches: [Client.Match]) {
        self = matches.count == 1 ? .one(matches[0].observer) : .many(matches.map(\.observer))
    }
}
