// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// The state of a session's batches: whether the service supports several posts in one call (`PostMany`, F1), and the
/// timer of accumulating posts. An older service supports no batches.
struct Batching {
    /// The knowledge of whether the service supports `PostMany`.
    enum Knowledge {
        /// No call with a batch has been sent, or the last one was refused for overload.
        case unknown
        /// The first call with a batch is in flight. Later requests wait for its answer, so that the order is kept if
        /// the posts have to be sent again one by one.
        case trialInFlight
        /// The service supports batches.
        case there
        /// The service lacks the method, so posts are sent one by one.
        case unsupported
    }

    var knowledge = Knowledge.unknown
    /// Whether the service was asked to send notifications in batches.
    var isAsked = false
    /// The timer that limits the wait of accumulating posts; nil while none accumulate.
    var batch: AnyObject?

    /// The maximum time between two looks at accumulating posts, in milliseconds. If no request has left between two
    /// looks, the posts leave without an answer. They therefore wait for at most twice this time. A busy or stopped
    /// service is no reason to keep posts in a program that may end.
    static let patienceMilliseconds: UInt32 = 10

    /// The way in which posts may leave the outbox. The first batch goes out as the trial, so posts may also leave
    /// together while the support is unknown.
    var posting: Outbox<Request>.Posting {
        switch knowledge {
        case .unknown, .there: .together
        case .trialInFlight: .not
        case .unsupported: .oneByOne
        }
    }
}

/// Batches of posts and notifications (F1).
///
/// While posts in flight have no answer, further posts accumulate in the ``Outbox`` and leave in one call. Without
/// posts in flight no post waits: a post that is alone in the outbox leaves at once.
extension ServiceSession {
    /// Starts the timer that limits the waiting time of accumulating posts.
    func limitBatchDelay() {
        guard batching.batch == nil, let departures = outbox.departuresWhileAccumulating else { return }
        batching.batch = bus.once(milliseconds: Batching.patienceMilliseconds) { [weak self] in
            guard let self else { return }
            batching.batch = nil
            if outbox.departuresWhileAccumulating == departures { outbox.flushBatch() }
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

    /// Takes the answer to ``askForBatches()``. A service that knows this option also supports `PostMany`.
    func answeredBatches(_ result: Result<Message, BusError>) {
        guard case .unknown = batching.knowledge else { return }
        switch result {
        case .success: batching.knowledge = .there
        case .failure(let error): if error.meansAnotherProgram { batching.knowledge = .unsupported }
        }
    }

    /// Sends posts in one call (`PostMany`). If the call is the trial and is refused, the posts are sent one by one.
    ///
    /// - Parameter confirms: the requests that the answer confirms to the outbox; nil when no answer is wanted.
    func sendTogether(_ posts: [OutgoingPost], confirms: Confirmation?) {
        guard let connection else { return }
        channels.sentOnBus += 1
        let isTrial = batching.knowledge == .unknown
        let wantsAnswer = isTrial || confirms != nil
        // The message is nil if the batch exceeds the size of a D-Bus message.
        guard let message = PostMany.message(of: posts.map(\.message), wantsAnswer: wantsAnswer) else {
            return sendOneByOne(posts, confirms: confirms)
        }
        guard wantsAnswer else { return connection.send(message) }
        let confirms = confirms ?? outbox.asks(posts.count)
        if isTrial {
            batching.knowledge = .trialInFlight
            // A refused trial sends its posts again, so a stop has to wait for the answer.
            pendingAnswers += 1
        }
        let (receiver, number) = (receiver, question)
        connection.call(message) { [weak self, weak connection] result in
            guard let self else { return settle(posts, result, receiver) }
            let isStillThere = connection === self.connection && connection != nil
            if isTrial {
                pendingAnswers -= 1
                // The trial is over. Below, a success or a refusal decides the knowledge.
                if isStillThere, batching.knowledge == .trialInFlight { batching.knowledge = .unknown }
            }
            if case .failure(let error) = result, isStillThere, error.refusesManyPosts {
                // An overload passes, and the limit of posts in a call may change later.
                batching.knowledge = error.meansAnotherProgram ? .unsupported : .unknown
                // The service made none of these posts. During the trial no later request has left, so the posts can be
                // sent again in order. Without a trial, a repetition would break the order, so the posts fail.
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

    /// Sends posts in single calls, in order.
    private func sendOneByOne(_ posts: [OutgoingPost], confirms: Confirmation?) {
        channels.sentOnBus += 1
        var confirms = confirms
        // The posts without a completion now ask for no answer, except for the last post.
        if confirms != nil {
            outbox.makeSilent(posts.dropLast().count { $0.completion == nil }, of: &confirms!)
        }
        for (place, post) in posts.enumerated() {
            // Every post with a completion gets an answer; the last answer confirms all of them.
            let confirmed = place == posts.count - 1 ? confirms : post.completion.map { _ in .nothing }
            send(post, confirms: confirmed)
        }
    }
}

/// Passes each post of a batch its own outcome, or the error of the whole call.
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
