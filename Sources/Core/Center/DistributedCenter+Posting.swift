// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The path of a post from the call to the queues of matching clients (D2 to D6, S1, S3).
extension DistributedCenter {
    /// Checks the name and the object of a post before its userInfo is read.
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
    ///   - object: the object; the empty string means no object.
    ///   - userInfo: the userInfo, which the caller has checked.
    ///   - identity: the identity of the poster if it differs from that of its connection, as for a post from another
    ///     session.
    /// - Returns: the number of receivers, and the watermark for the answer.
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
            // If the posts that this one replaces were removed in slices, the poster's queues are frozen and
            // `removeCoalesced` has checked this post before. A refusal now would lose the removed posts. Therefore the
            // post is made, but not retained.
            guard postingQueues.isFrozen(poster) else { throw error }
            if post.retention.take() != nil { counters.unretained += 1 }
        }
        // G1: a copy of the notification has already arrived on another way: from the other session, or through the
        // broker. It is not delivered again. But its value is kept, because each way keeps a value of its own.
        if let deduplicationID = options.deduplicationID, let user = (identity?.origin ?? options.origin)?.user,
            !arrivals.note(deduplicationID, of: user)
        {
            guard post.retention != nil else { return Receipt(receivers: 0, mark: nil, matched: 0) }
            post.isDuplicate = true
        }
        guard options.postingStyle == .now else {
            enqueue(post, from: poster, coalescing: options.coalescing, effects: &effects)
            return Receipt(receivers: 0, mark: nil, matched: 0)
        }
        guard !options.coalescing.isEmpty else { return send(post, from: poster, effects: &effects) }
        let coalesced = counters.coalesced
        post = replacingQueued(post, from: poster, coalescing: options.coalescing, effects: &effects)
        // The replaced posts were accepted before and are in the log. The new one is logged too until it is sent, so
        // that a crash does not lose both.
        remembersScheduled = counters.coalesced > coalesced
        defer { remembersScheduled = false }
        return send(post, from: poster, effects: &effects)
    }

    /// Returns a pending post with these properties and options, as the queues of posters keep it.
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

    /// Checks all limits of a post. Makes its poster a client if the post depends on the poster's departure.
    ///
    /// - Throws: the errors of ``post(name:object:userInfo:options:from:as:effects:)``.
    func checkPosting(
        _ post: PendingPost, _ options: PostOptions, from poster: ClientName, effects: inout [Effect]
    ) throws(CenterError) {
        try checkPost(name: post.name, object: post.object)
        try checkRetaining(post, from: peers[poster], effects: &effects)
        if options.postingStyle != .now { try checkQueueing(post, from: poster, coalescing: options.coalescing) }
        // Clients are watched, so the departure will be reported. This is the last check, so that a refused post makes
        // its poster no client.
        if options.dependsOnDeparture { _ = try client(poster, effects: &effects) }
    }

    /// The identity of a poster with the origin that it states for a post; nil when both are unknown.
    private func identity(of poster: ClientName, withOrigin origin: OutsideOrigin?) -> Identity? {
        if let peer = peers[poster] { return peer.identity(withOrigin: origin) }
        return origin.map(Identity().withOrigin)
    }

    /// Delivers a post now to every client with a matching observer, once to each (D6). The post gets its serial here.
    ///
    /// Notifications beyond the maximum size of the send schedule are sent at once.
    func send(_ post: PendingPost, from poster: ClientName, effects: inout [Effect]) -> Receipt {
        let receipt = matchAndQueue(post, from: poster, effects: &effects)
        sendOverfull(effects: &effects)
        return receipt
    }

    /// Returns the observers that a post matches. They use the memory of ``spareMatches`` until ``giveBack(_:)``.
    func takeMatches(name: String, object: String) -> Matches {
        var matches = Matches()
        swap(&matches, &spareMatches)
        index.forEachMatch(name: ExactText(name), object: object.isEmpty ? nil : ExactText(object)) {
            meter.count()
            // D8: a client that has left gets nothing, although its observers are removed slice by slice.
            if $0.client.presence == .here { matches.append($0) }
        }
        return matches
    }

    /// Keeps the memory of matches for the next post.
    func giveBack(_ matches: inout Matches) {
        matches.removeAll()
        swap(&matches, &spareMatches)
    }

    /// Matches a post, gives it its serial, retains it if asked, and queues it for each client. The same as
    /// ``send(_:from:effects:)``, but the send schedule may exceed its maximum size.
    ///
    /// - Parameter payer: the peer that is charged for the post in a posting queue; nil for a new post.
    func matchAndQueue(
        _ post: PendingPost, from poster: ClientName, payer: Peer? = nil, effects: inout [Effect]
    ) -> Receipt {
        var post = post
        // R1: the poster has left while the post was queued, so a value that ends with the poster's connection has
        // ended.
        if post.retention?.whileConnected == true, clients[poster] == nil { post.retention = nil }
        lastSerial += 1
        counters.posted += 1
        peers[poster]?.posted += 1
        var matches = post.isDuplicate ? Matches() : takeMatches(name: post.name, object: post.object)
        defer { giveBack(&matches) }
        if matches.countedReceivers == 0, !post.isDuplicate { counters.unmatched += 1 }
        // The copy for other sessions and the notification here have the same time.
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
            // The steps of the meter: for the client's queue and its list of observers.
            meter.count(1 + receiver.count)
            let scheduledLane = route(
                notification, to: receiver, of: matches, deliverImmediately: post.deliverImmediately, effects: &effects)
            // The watermark is in the least urgent lane, which is sent last. A poster does not wait for monitors.
            if let scheduledLane, receiver.isCounted { leastUrgent = max(leastUrgent ?? scheduledLane, scheduledLane) }
        }
        return Receipt(
            receivers: matches.countedReceivers, mark: leastUrgent.map(schedule.mark), matched: matches.count)
    }

    /// Routes a notification to a matching client: due at once, held, throttled or dropped, by the client's suspension
    /// and its observers.
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
        // Delivers to the suspended client at once (S3).
        func deliverNow(_ observers: ObserverList) -> DeliveryLane? {
            // R5: a post with `deliver-immediately` to a suspended client does not wait for intervals.
            beginIntervals(of: client, for: observers, with: notification, effects: &effects)
            return deliver(notification, to: client, observers: observers, in: .immediate, effects: &effects)
        }
        if deliverImmediately { return matches.observers(of: receiver).flatMap(deliverNow) }
        endThrottling(of: client, for: notification, matched: receiver, in: matches, effects: &effects)
        let immediate = observersNow(
            of: receiver, of: matches, for: notification, where: { $0 == .deliverImmediately },
            effects: &effects)
        let others = matches.observers(of: receiver, where: { $0 == .coalesce || $0 == .hold })
        // S3: if one observer gets it now, all others that would keep it get it now as well. None of them gets it again
        // on resume.
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

/// The outcome of an accepted post, for the answer to the poster.
public struct Receipt: Sendable {
    /// The number of matching clients, without clients that only monitor; 0 for a queued post.
    public let receivers: Int
    /// The watermark behind the last scheduled delivery: the poster gets its answer when the send schedule has passed
    /// it. Nil when no delivery is scheduled.
    public let mark: Watermark?
    /// The number of observers that the post matched.
    let matched: Int
}
