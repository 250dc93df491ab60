// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// The session's knowledge of the support for batches at its service (F1). An older service has none.
struct Batching {
    enum Knowledge {
        case unknown
        /// The first call with a batch is in flight. Later requests wait for its answer, so that the order is kept if
        /// the posts have to be sent again one by one.
        case onTrial
        case there
        case notThere
    }

    var knowledge = Knowledge.unknown
    /// Whether the service was asked to send notifications in batches.
    var isAsked = false
    /// The timer that limits the wait of accumulating posts; nil while none accumulate.
    var batch: AnyObject?

    /// Accumulated posts leave after at most twice this time, even without an answer. A busy or stopped service is no
    /// reason to keep posts in a program that may end.
    static let patienceMilliseconds: UInt32 = 10

    var posting: Outbox<Request>.Posting {
        switch knowledge {
        case .unknown, .there: .together
        case .onTrial: .not
        case .notThere: .oneByOne
        }
    }
}

/// Batches of posts and notifications: posts accumulate while the line is busy (F1). On an idle line no post waits: a
/// post that is alone in the outbox leaves alone, at once.
extension ServiceSession {
    /// Limits the time for which posts accumulate.
    func watchPile() {
        guard batching.batch == nil, let departures = outbox.departuresBeforePile else { return }
        batching.batch = bus.once(milliseconds: Batching.patienceMilliseconds) { [weak self] in
            guard let self else { return }
            batching.batch = nil
            if outbox.departuresBeforePile == departures { outbox.hurry() }
            pump()
        }
    }

    /// Asks the service, once, to send notifications in batches. A service that does not support this continues to send
    /// single notifications.
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
    /// - Parameter confirms: the requests that the answer confirms to the outbox; nil when no answer is wanted.
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
            // Posts that may have to be sent again must not be left behind by a stop.
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
                // An overload passes, and the limit of posts in a call may change later.
                batching.knowledge = error.meansAnotherProgram ? .notThere : .unknown
                // The service made none of these posts, nor any later request. Without a trial, a repetition would
                // break the order.
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
            // Every post with a completion gets an answer; the last answer confirms all of them.
            let confirmed = place == posts.count - 1 ? confirms : post.completion.map { _ in .nothing }
            send(post, confirms: confirmed)
        }
    }
}

/// Passes each post its outcome.
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
    /// Whether the service refused a batch as a whole, although it may accept its posts one by one.
    fileprivate var refusesManyPosts: Bool { meansAnotherProgram || centerError == .limitExceeded }
}
