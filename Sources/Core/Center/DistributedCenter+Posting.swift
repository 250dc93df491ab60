// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The path of a notification from its post to the clients that it matches (D2 to D6, S1, S3).
extension DistributedCenter {
    /// Checks the name and the object of a post before its userInfo is read.
    ///
    /// - Throws: ``CenterError/invalidName`` or ``CenterError/limitExceeded(_:value:)``.
    public func checkPost(name: String, object: String) throws(CenterError) {
        guard !name.isEmpty else { throw .invalidName }
        try limits.check(.nameLength, name.utf8.count)
        try limits.check(.objectLength, object.utf8.count)
    }

    /// Posts a notification, now or later from the poster's queue (Q7).
    ///
    /// - Parameters:
    ///   - object: the object; the empty string means no object.
    ///   - userInfo: the checked userInfo.
    ///   - identity: the identity of the poster, where that is not the identity of its connection.
    /// - Throws: the errors of ``checkPost(name:object:)``, and ``CenterError/limitExceeded(_:value:)`` or
    ///   ``CenterError/shareExceeded(_:value:)`` when a limit of queued posts, values or clients would be exceeded.
    public func post(
        name: String, object: String, userInfo: any UserInfo, options: PostOptions = PostOptions(),
        from poster: ClientName, as identity: Identity? = nil, effects: inout [Effect]
    ) throws(CenterError) -> Receipt {
        defer { eventEnded() }
        var post = pending(name, object, userInfo, options, from: poster, as: identity)
        do throws(CenterError) {
            try checkPosting(post, options, from: poster, effects: &effects)
        } catch {
            // A poster with frozen queues had its post checked by `makeWay`. A refusal now would lose the posts that it
            // replaces, so that it loses its retention instead.
            guard postingQueues.isFrozen(poster) else { throw error }
            if post.retention.take() != nil { counters.unretained += 1 }
        }
        // G1: the notification came already on another way. A value is kept for each way, and delivered once.
        if let sameAs = options.sameAs, let user = (identity?.origin ?? options.origin)?.user,
            !arrivals.note(sameAs, of: user)
        {
            guard post.retention != nil else { return Receipt(receivers: 0, mark: nil, matched: 0) }
            post.isTold = true
        }
        guard options.postingStyle == .now else {
            enqueue(post, from: poster, coalescing: options.coalescing, effects: &effects)
            return Receipt(receivers: 0, mark: nil, matched: 0)
        }
        guard !options.coalescing.isEmpty else { return send(post, from: poster, effects: &effects) }
        let coalesced = counters.coalesced
        post = replacingQueued(post, from: poster, coalescing: options.coalescing, effects: &effects)
        // The replaced posts were accepted before, and must not be lost with the new one.
        remembersStaged = counters.coalesced > coalesced
        defer { remembersStaged = false }
        return send(post, from: poster, effects: &effects)
    }

    /// Returns a pending post with these options.
    func pending(
        _ name: String, _ object: String, _ userInfo: any UserInfo, _ options: PostOptions, from poster: ClientName,
        as identity: Identity?
    ) -> PendingPost {
        var post = PendingPost(
            name: name, object: object, userInfo: userInfo, deliverImmediately: options.deliverImmediately,
            style: options.postingStyle, identity: identity ?? self.identity(of: poster, withOrigin: options.origin))
        post.goesToAllSessions = options.goesToAllSessions
        post.retention = options.retention
        post.retention?.goesToAllSessions = options.goesToAllSessions
        if let seconds = options.expiresAfter {
            if options.postingStyle == .atExit {
                post.secondsAfterExit = seconds
            } else {
                post.expiry = Clock.expiry(in: seconds, from: clock.uptime())
            }
        }
        return post
    }

    /// Checks whether a post may be made.
    ///
    /// - Throws: the errors of ``post(name:object:userInfo:options:from:as:effects:)``.
    func checkPosting(
        _ post: PendingPost, _ options: PostOptions, from poster: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        try checkPost(name: post.name, object: post.object)
        try checkRetaining(post, from: peers[poster], effects: &effects)
        if options.postingStyle != .now { try checkQueueing(post, from: poster, coalescing: options.coalescing) }
        // A client is watched, so that its end is noticed. This is the last check: a refused post makes its poster no
        // client.
        if options.dependsOnDeparture { _ = try client(poster, effects: &effects) }
    }

    private func identity(of poster: ClientName, withOrigin origin: OutsideOrigin?) -> Identity? {
        if let peer = peers[poster] { return peer.identity(withOrigin: origin) }
        return origin.map(Identity().withOrigin)
    }

    /// Posts a notification to every client with a matching observer, once to each (D6). The post is matched and gets
    /// its serial here.
    func send(_ post: PendingPost, from poster: ClientName, effects: inout [Effect]) -> Receipt {
        let receipt = stage(post, from: poster, effects: &effects)
        sendOverfull(effects: &effects)
        return receipt
    }

    /// Returns the observers that a post matches, in the memory that ``giveBack(_:)`` has released.
    func takeMatches(name: String, object: String) -> Matches {
        var matches = Matches()
        swap(&matches, &spareMatches)
        index.forEachMatch(name: ExactText(name), object: object.isEmpty ? nil : ExactText(object)) {
            meter.count()
            // D8: a client that is leaving gets nothing, although its observers are removed in slices.
            if $0.client.presence == .here { matches.append($0) }
        }
        return matches
    }

    func giveBack(_ matches: inout Matches) {
        matches.removeAll()
        swap(&matches, &spareMatches)
    }

    /// Matches and schedules a post like `send`, without sending the excess of the schedule.
    ///
    /// - Parameter payer: the owner of the posting queue; nil for a new post.
    func stage(
        _ post: PendingPost, from poster: ClientName, payer: Peer? = nil, effects: inout [Effect]
    ) -> Receipt {
        var post = post
        // R1: the poster has left while the post was queued.
        if post.retention?.whileConnected == true, clients[poster] == nil { post.retention = nil }
        lastSerial += 1
        counters.posted += 1
        peers[poster]?.posted += 1
        var matches = post.isTold ? Matches() : takeMatches(name: post.name, object: post.object)
        defer { giveBack(&matches) }
        if matches.countedReceivers == 0, !post.isTold { counters.unmatched += 1 }
        let time = post.goesToAllSessions ? clock.time() : nil
        if let time {
            effects.append(
                .export(
                    ExportedNotification(
                        name: post.name, object: post.object, userInfo: post.userInfo,
                        deliverImmediately: post.deliverImmediately, retention: post.retention,
                        expiry: post.expiry, serial: lastSerial, time: time)))
        }
        guard !matches.receivers.isEmpty || post.retention != nil else {
            return Receipt(receivers: 0, mark: nil, matched: 0)
        }
        let notification = Notification(
            name: post.name, object: post.object, userInfo: post.userInfo, poster: poster,
            identity: post.identity, time: time ?? clock.time(), expiry: post.expiry, retention: post.retention,
            goesToAllSessions: post.goesToAllSessions, serial: lastSerial)
        if let retention = post.retention {
            retain(notification, retention, from: payer ?? peer(poster), effects: &effects)
        }
        var leastUrgent: DeliveryLane?
        for receiver in matches.receivers {
            // The steps for the client's queue and its list of observers.
            meter.count(1 + receiver.count)
            let staged = route(
                notification, to: receiver, of: matches, deliverImmediately: post.deliverImmediately, effects: &effects)
            // A poster does not wait for monitors.
            if let staged, receiver.isCounted { leastUrgent = max(leastUrgent ?? staged, staged) }
        }
        return Receipt(
            receivers: matches.countedReceivers, mark: leastUrgent.map(schedule.mark), matched: matches.count)
    }

    /// Routes a notification to a matching client by the client's state.
    ///
    /// A client gets a notification once (D6), in the most urgent lane of the observers that get it.
    ///
    /// - Returns: the lane in which it is scheduled; nil when it is not.
    private func route(
        _ notification: Notification, to receiver: Matches.Receiver, of matches: Matches, deliverImmediately: Bool,
        effects: inout [Effect]
    ) -> DeliveryLane? {
        let client = receiver.client
        guard client.isSuspended else {
            let lane = deliverImmediately ? .immediate : matches.lane(of: receiver)
            guard
                let observers = observersNow(
                    of: receiver, of: matches, for: notification, effects: &effects)
            else { return nil }
            return deliver(notification, to: client, observers: observers, in: lane, effects: &effects)
        }
        func deliverNow(_ observers: ObserverList) -> DeliveryLane? {
            // R5: a delivery to a suspended client does not wait for intervals.
            beginIntervals(of: client, for: observers, with: notification, effects: &effects)
            return deliver(notification, to: client, observers: observers, in: .immediate, effects: &effects)
        }
        if deliverImmediately { return matches.observers(of: receiver).flatMap(deliverNow) }
        let immediate = observersNow(
            of: receiver, of: matches, for: notification, where: { $0 == .deliverImmediately },
            effects: &effects)
        let others = matches.observers(of: receiver, where: { $0 == .coalesce || $0 == .hold })
        // When one observer gets it now, all others that keep it get it now as well, and none of them again on resume.
        if let immediate {
            if let others { beginIntervals(of: client, for: others, with: notification, effects: &effects) }
            let observers = others.map { ObserverList(($0.ids + immediate.ids).sorted()) } ?? immediate
            return deliver(notification, to: client, observers: observers, in: .immediate, effects: &effects)
        }
        guard let keeping = others else { return nil }
        let coalescing = matches.observers(of: receiver, where: { $0 == .coalesce })
        hold(notification, for: client, observers: keeping, coalescing: coalescing, effects: &effects)
        return nil
    }
}

/// The result of an accepted post.
public struct Receipt: Sendable {
    /// The number of matching clients, without clients that only monitor; 0 for a queued post.
    public let receivers: Int
    /// The watermark behind the last scheduled delivery; nil when none is scheduled.
    public let mark: Watermark?
    /// The number of observers that the post matched.
    let matched: Int
}
