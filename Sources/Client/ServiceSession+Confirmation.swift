// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// Acknowledgment of posts that ask for no answer: whether the service has taken them (E10).
///
/// Some posts ask for an answer, which also confirms the posts before them (``Outbox``). If no such answer is in
/// flight, the session sends a Ping behind the last posts; its answer confirms them. If the service ends before that,
/// the posts are **unresolved**: they may or may not have reached it. The session then finds out, or reports them as
/// possibly lost.
extension ServiceSession {
    private enum Time {
        /// The time from the first unconfirmed post to the ping, in milliseconds. A program that posts continuously
        /// causes ten pings per second.
        static let confirmation: UInt32 = 100
    }

    /// The posts that were unconfirmed when their service ended or gave up its name.
    struct Unresolved {
        /// The unique name of that service.
        let service: UniqueName
        /// Whether the answer of this service to a Ping is still awaited. The answer follows all posts that reached it.
        var isAwaited = true
        /// Whether the bus can start the service. While the name has no owner, the bus then queues posts to the name
        /// for the service that it starts, so they are not lost.
        var isStartable = false
        /// The reason for reporting the posts as possibly lost; nil while a next service may have taken them. The
        /// report waits for the answer of the ended service, which may first announce posts that it refused.
        var loss: String?
    }

    // MARK: Present service

    /// Starts the timers for unconfirmed posts: for the Ping that confirms them, and for the report of a service
    /// without answers.
    func watchPosts() {
        watchSilence()
        guard confirmationTimer == nil, outbox.watch() else { return }
        confirmationTimer = bus.once(milliseconds: Time.confirmation) { [weak self] in
            guard let self else { return }
            confirmationTimer = nil
            // In another state, the next question to the service confirms them or finds another service.
            if case .ready = state { requestConfirmation() }
        }
    }

    /// Sends a Ping that confirms the posts in flight, unless another answer will confirm them.
    private func requestConfirmation() {
        // Nil means that no posts need a Ping, or that another answer is in flight. That answer starts the timer again.
        guard let confirms = outbox.requestConfirmation() else { return }
        sendPing(confirms: confirms) { _ in }
    }

    /// Sends a Ping behind all earlier messages. The call has no time limit, because the end of the service or of the
    /// connection ends it as well.
    ///
    /// - Parameters:
    ///   - confirms: the requests that the answer confirms to the outbox; nil for none.
    ///   - completion: receives whether the Ping succeeded.
    func sendPing(confirms: Confirmation?, _ completion: @escaping (Bool) -> Void) {
        let number = question
        connection?.call(Self.ping, timeout: .never) { [weak self] result in
            self?.confirm(confirms, of: number, result)
            if case .success = result { completion(true) } else { completion(false) }
        }
    }

    /// Applies the result of a request whose answer also confirms earlier requests.
    ///
    /// - Parameters:
    ///   - confirmation: the requests that the answer confirms; nil for none.
    ///   - number: ``question`` when the request was sent. A later question has settled all requests in flight before
    ///     it.
    func confirm(_ confirmation: Confirmation?, of number: Int, _ result: Result<Message, BusError>) {
        guard let confirmation, number == question else { return }
        if confirmsEarlier(result) {
            outbox.confirmed(confirmation)
            answered()
        } else {
            outbox.failed(confirmation)
        }
        if case .ready = state { watchPosts() }
    }

    /// Whether the result proves that the service has taken all earlier messages. Two results prove nothing:
    ///
    /// - A refusal for overload, which the service sends ahead of its waiting calls.
    /// - An answer of another sender, such as an error of the bus.
    private func confirmsEarlier(_ result: Result<Message, BusError>) -> Bool {
        switch result {
        case .success(let reply): reply.sender == owner
        case .failure(let error): error.isRefusal && error.centerError != .limitExceeded
        }
    }

    /// Starts the timer that reports a service without answers, because it is stopped or busy for long. The timer runs
    /// while posts are unconfirmed. An answer in the meantime restarts it.
    private func watchSilence() {
        guard silenceTimer == nil, !isSilent, outbox.unsentPosts.unconfirmed > 0 else { return }
        let answers = answerCount
        silenceTimer = bus.once(milliseconds: Self.patienceMilliseconds) { [weak self] in
            guard let self else { return }
            silenceTimer = nil
            guard case .ready = state else { return reportSilence() }
            guard answerCount == answers else { return watchSilence() }
            let number = question
            describeOwner { [weak self] owner in
                guard let self, case .ready = state, number == question, answerCount == answers else { return }
                isSilent = true
                let words = "is owned by \(owner ?? "another program"), which does not answer"
                receiver.stateChanged(.notAnswering("\(Wire.busName) \(words)"))
            }
        }
    }

    /// Records that the service has answered a request, and reports it as connected again if it was reported as silent.
    func answered() {
        guard case .ready = state else { return }
        answerCount += 1
        if outbox.unsentPosts.unconfirmed == 0 { silenceTimer = nil }
        guard isSilent else { return }
        isSilent = false
        receiver.stateChanged(.connected)
    }

    // MARK: Ended service

    /// Finds out the outcome of unconfirmed posts to a service that has given up its name or left the bus.
    ///
    /// The session pings the service's unique name. A service that ends in order still answers, after all posts that
    /// reached it. Posts that reached the name later are queued by the bus for the next service, if the bus can start
    /// it; ``resolveUnresolved()`` handles them.
    func resolvePosts(of former: UniqueName?) {
        guard let former else { return }
        // Earlier unresolved posts went to the service before that, or to the name while it had no owner.
        if unresolved != nil { announceUnresolved(because: "two services have ended") }
        guard outbox.unresolved > 0 else { return }
        // Without `startsService`, the session does not rely on a next service that the bus starts for the posts.
        guard let connection, startsService else { return announceUnresolved(because: "the service has ended") }
        unresolved = Unresolved(service: former)
        // Posts of a later service may have become unresolved meanwhile; the result then does not concern them.
        connection.call(Self.ping(to: former, startsService: false)) { [weak self] result in
            guard let self, unresolved?.service == former else { return }
            unresolved?.isAwaited = false
            if case .failure = result { return announceUnresolved(because: "the service has ended") }
            if let reason = unresolved?.loss { announceUnresolved(because: reason) }
        }
        connection.startableNames { [weak self] result in
            guard let self, unresolved?.service == former else { return }
            unresolved?.isStartable = (try? result.get())?.contains(Wire.busName) == true
        }
    }

    /// Resolves the posts after an answer of the next service. The posts count as taken if the former service answered
    /// and the bus could queue the others for the next one. Otherwise they are reported as possibly lost.
    func resolveUnresolved() {
        // Nil: any posts went to the name while it had no owner, so no former service can confirm them.
        guard let unresolved, !unresolved.isAwaited, unresolved.isStartable, unresolved.loss == nil else {
            return announceUnresolved(because: "another service has replaced the previous one")
        }
        self.unresolved = nil
        _ = outbox.resolve()
    }

    /// Gives up on a next service that could have taken the posts. If the answer of the former service is still
    /// awaited, the report waits for it, because that service may still announce refused posts.
    func giveUpUnresolved(because reason: String) {
        guard unresolved?.isAwaited == true else { return announceUnresolved(because: reason) }
        unresolved?.loss = reason
    }

    /// Reports the unresolved posts as possibly lost, because their outcome remains unknown.
    func announceUnresolved(because reason: String) {
        unresolved = nil
        let count = outbox.resolve()
        if count > 0 { receiver.mayHaveLostPosts(count, because: reason) }
    }
}
