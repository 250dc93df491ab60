// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonWire

/// Notifications to another session, held against the rules (G1).
extension OtherSession {
    /// A notification arrives.
    func judge(_ notification: SessionNotification, on link: Link) {
        guard let (number, isAltered) = Receipt.content(ofCommonBody: notification.userInfo.commonBody),
            number < ledger.posts.count
        else { return world.violate("G1", "the session of \(user) is sent what nobody posted") }
        world.note("the session of \(user) gets post \(number), number \(notification.options.number)")
        let post = ledger.posts[number]
        let plan = post.plan
        guard plan.options.goesToAllSessions, plan.user == nil, plan.nameText == notification.name,
            plan.objectText == notification.object, !isAltered
        else { return world.violate("G1", "post \(number) goes to other sessions, and was not to: \(plan)") }
        if !wants(notification.name) {
            world.violate("G1", "the session of \(user) is sent post \(number), and does not want its name: \(plan)")
        }
        if post.outcome == .refused || plan.flaw != nil || ledger.policy.verdict(ofPost: number) == .refused {
            world.violate("G1", "post \(number) is refused, and goes to the session of \(user): \(plan)")
        }
        judge(notification.options, of: number, plan)
        // One that is told again may have come, and newer ones, too.
        if !notification.options.isKept { judgeOrder(number, post, on: link) }
    }

    /// R8: the values of the service's session are here, and no others.
    func judgeValues(_ expected: [NotificationKey: Int]) {
        guard let link, understandsValues else { return }
        let expected = expected.filter { wants($0.key.name) }
        guard link.values != expected else { return }
        let differences = Set(expected.keys).union(link.values.keys).filter { expected[$0] != link.values[$0] }
            .map { kind in
                "\(kind.name) '\(kind.object)' is post \(link.values[kind].map(String.init) ?? "none") there, and "
                    + "\(expected[kind].map(String.init) ?? "none") here"
            }.sorted()
        world.violate("R8", "values of the session of \(user): " + differences.joined(separator: "; "))
    }

    private func judge(_ options: SessionNotification.Options, of number: Int, _ plan: PostPlan) {
        let isInTime =
            switch (options.expiresAfter, plan.options.expiresAfter) {
            case (nil, nil): true
            // The service rounds up to whole seconds.
            case (let left?, let whole?): left <= whole + 1
            default: false
            }
        // R6: what waited for its turn may come when there is no room for another value, or when its poster has left.
        let isKept = plan.options.retention != nil
        let hadRoom = ledger.values.surelyHadRoom(number)
        let endsWithPoster = plan.options.retention?.whileConnected == true && !ledger.posts[number].posterStayed
        let mayBeUnkept = plan.options.postingStyle != .now && (!hadRoom || endsWithPoster)
        // One of the first version would have it for ever.
        let mayBeAnother = mayBeUnkept || !understandsValues && plan.options.retention?.whileConnected == true
        guard options.isKept && options.isRetained || options.deliverImmediately == plan.options.deliverImmediately,
            options.isRetained == isKept || mayBeAnother && !options.isRetained, isInTime,
            understandsValues || !options.isKept && !options.whileConnected
        else {
            return world.violate("G1", "post \(number) goes to the session of \(user) with other options: \(options)")
        }
    }

    /// Each arrives once, and those of one poster in its order.
    private func judgeOrder(_ number: Int, _ post: Ledger.PostRecord, on link: Link) {
        if !link.received.insert(number).inserted {
            world.violate("G1", "the session of \(user) is sent post \(number) twice")
        }
        guard post.plan.options.postingStyle == .now else { return }
        if let last = link.lastOfPoster[post.poster], last.stretch == post.stretch, last.post > number {
            world.violate("G1", "the session of \(user) gets post \(number) behind \(last.post) of \(post.poster)")
        }
        link.lastOfPoster[post.poster] = (post.stretch, number)
    }

    /// G1: what was posted since the service knew this session arrived, or was reported as lost.
    ///
    /// - Parameters:
    ///   - marker: the first post that was made in the calm, none of which may be lost.
    ///   - isConfigured: whether the names that go out were the same all the time.
    func judge(from marker: Int, isConfigured: Bool) {
        guard let link, let since = link.knownSince else { return }
        let missing = ledger.posts.indices.filter { number in
            let post = ledger.posts[number]
            guard post.plan.options.goesToAllSessions, post.isSurelyExported, post.time >= since,
                wants(post.plan.nameText), !link.received.contains(number)
            else { return false }
            switch post.plan.options.postingStyle {
            case .now: return true
            case .asap, .whenIdle: return isConfigured && post.posterStayed && !ledger.mayHaveReplaced(number)
            case .atExit: return false
            }
        }
        if let last = missing.last, last >= marker {
            return world.violate("convergence", "the session of \(user) does not get post \(last), made in the calm")
        }
        guard UInt64(missing.count) > link.lost else { return }
        world.violate(
            "G1",
            "the session of \(user) misses \(missing.count) posts, and \(link.lost) were reported as lost: "
                + missing.prefix(10).map(String.init).joined(separator: ", "))
    }
}
