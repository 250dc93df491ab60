// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// What is known of batches at the service that the session speaks to (F1). An older one has none.
struct Batching {
    enum Knowledge {
        case unknown
        /// A first call of many posts is on its way: what comes behind it waits for its answer, so that the order stays
        /// what it was if the posts have to be sent again, one by one.
        case onTrial
        case there
        case notThere
    }

    var knowledge = Knowledge.unknown
    /// Whether the service was asked to send notifications together.
    var isAsked = false
    /// Set while posts pile up.
    var pile: AnyObject?

    /// What has piled up goes after twice this at most, also when no answer comes: a service that is busy, or stopped, is
    /// no reason to keep posts in a program that may end.
    static let patienceMilliseconds: UInt32 = 10

    var posting: Outbox<Request>.Posting {
        switch knowledge {
        case .unknown, .there: .together
        case .onTrial: .not
        case .notThere: .oneByOne
        }
    }
}

/// Posts and notifications that go together: what piles up while the line is busy (F1). Nothing waits when it is idle:
/// a post that is alone in the outbox goes alone, at once.
extension ServiceSession {
    /// Sees to it that what piles up does not wait for long.
    func watchPile() {
        guard batching.pile == nil, let departures = outbox.departuresBeforePile else { return }
        batching.pile = bus.once(milliseconds: Batching.patienceMilliseconds) { [weak self] in
            guard let self else { return }
            batching.pile = nil
            if outbox.departuresBeforePile == departures { outbox.hurry() }
            pump()
        }
    }

    /// Asks the service, once, to send notifications together. One that does not know that goes on as ever.
    func askForBatches() {
        guard !batching.isAsked else { return }
        batching.isAsked = true
        callUnawaited(.batches)
    }

    func answeredBatches(_ result: Result<Message, BusError>) {
        guard case .unknown = batching.knowledge else { return }
        switch result {
        case .success: batching.knowledge = .there
        case .failure(let error): if error.meansAnotherProgram { batching.knowledge = .notThere }
        }
    }

    /// Sends posts in one call.
    ///
    /// - Parameter confirms: what the answer confirms to the outbox; nil when nobody wants one.
    func sendTogether(_ posts: [OutgoingPost], confirms: Confirmation?) {
        guard let connection else { return }
        channels.sentOnBus += 1
        let isTrial = batching.knowledge == .unknown
        let wantsAnswer = isTrial || confirms != nil
        guard let message = PostMany.message(of: posts.map(\.message), wantsAnswer: wantsAnswer) else {
            return sendOneByOne(posts, confirms: confirms)
        }
        guard wantsAnswer else { return connection.send(message) }
        let confirms = confirms ?? outbox.asks(posts.count)
        if isTrial {
            batching.knowledge = .onTrial
            // What has to be sent again must not be left behind.
            pendingAnswers += 1
        }
        let (receiver, number) = (receiver, question)
        connection.call(message) { [weak self, weak connection] result in
            guard let self else { return settle(posts, result, receiver) }
            let isStillThere = connection === self.connection && connection != nil
            if isTrial {
                pendingAnswers -= 1
                if isStillThere, batching.knowledge == .onTrial { batching.knowledge = .unknown }
            }
            if case .failure(let error) = result, isStillThere, error.refusesManyPosts {
                // An overload passes, and a limit of posts in a call may be another one later.
                batching.knowledge = error.meansAnotherProgram ? .notThere : .unknown
                // Nothing of it was posted, nor anything behind it. Without a trial that would come out of order.
                if isTrial {
                    sendOneByOne(posts, confirms: confirms)
                    return pump()
                }
            }
            if case .success = result, isStillThere, batching.knowledge == .unknown { batching.knowledge = .there }
            confirm(confirms, of: number, result)
            settle(posts, result, receiver)
            pump()
        }
    }

    private func sendOneByOne(_ posts: [OutgoingPost], confirms: Confirmation?) {
        channels.sentOnBus += 1
        var confirms = confirms
        if confirms != nil {
            outbox.leaveSilently(posts.dropLast().count { $0.completion == nil }, of: &confirms!)
        }
        for (place, post) in posts.enumerated() {
            // Who waits for an answer gets one; the last confirms them all.
            let confirmed = place == posts.count - 1 ? confirms : post.completion.map { _ in .nothing }
            send(post, confirms: confirmed)
        }
    }
}

/// Hands each post what became of it.
private func settle(
    _ posts: [OutgoingPost], _ result: Result<Message, BusError>, _ receiver: any ServiceReceiver
) {
    let outcomes = result.flatMap { reply in
        Result { () throws(BusError) in
            let outcomes = try PostMany.reply(in: reply)
            guard outcomes.count == posts.count else {
                throw .invalidArgs("\(outcomes.count) outcomes of \(posts.count) posts")
            }
            return outcomes
        }
    }
    for (place, post) in posts.enumerated() {
        post.settle(
            outcomes.flatMap { outcomes in
                outcomes[place].error.map { .failure($0) } ?? .success(outcomes[place].receivers)
            }, receiver)
    }
}

extension BusError {
    /// Whether a call of many posts posted none of them, which may be accepted one by one.
    fileprivate var refusesManyPosts: Bool { meansAnotherProgram || centerError == .limitExceeded }
}
