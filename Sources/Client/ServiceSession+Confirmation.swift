// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// Confirmation of posts that ask for no answer: whether the service has taken them (E10).
///
/// One post of many asks for an answer, which confirms the posts before it (``Outbox``). After the last posts, when no
/// other answer is on its way, the session sends a ping that confirms them. If the service ends with unconfirmed posts,
/// these are **unresolved** until their outcome is known.
extension ServiceSession {
    private enum Time {
        /// The time from the first unconfirmed post to the ping, in milliseconds. A program that posts continuously
        /// causes ten pings per second.
        static let confirmation: UInt32 = 100
    }

    /// The unresolved posts of a service that has ended or has given up its name.
    struct Unresolved {
        /// The service that owned the name when the posts left.
        let service: UniqueName
        /// Whether the answer of this service, which follows all posts that reached it, is still awaited.
        var isAwaited = true
        /// Whether the bus can start the service. The bus then keeps posts that reached the name while it had no owner
        /// for the service that it starts.
        var isStartable = false
        /// The reason for which the posts may be lost, even if the service answers. Before its answer it may announce
        /// posts that it has refused.
        var loss: String?
    }

    // MARK: Present service

    /// Schedules the confirmation of posts in flight, and the report of a service that takes none.
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

    private func requestConfirmation() {
        // Nil also means that another answer is on its way; the next ping follows it.
        guard let confirms = outbox.requestConfirmation() else { return }
        sendPing(confirms: confirms) { _ in }
    }

    /// Sends a ping behind all earlier messages. The call has no time limit, because the end of the service or of the
    /// connection ends it as well.
    func sendPing(confirms: Confirmation?, _ completion: @escaping (Bool) -> Void) {
        let number = question
        connection?.call(Self.ping, timeout: .never) { [weak self] result in
            self?.confirm(confirms, of: number, result)
            if case .success = result { completion(true) } else { completion(false) }
        }
    }

    /// Applies the result of a request whose answer confirms others.
    ///
    /// - Parameter number: ``question`` when the request was sent. A later question has settled all requests in flight
    ///   before it.
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

    /// Whether the result proves that the service has taken all earlier messages. An overloaded service refuses at
    /// once, ahead of waiting calls. An answer of another sender, such as an error of the bus, proves nothing.
    private func confirmsEarlier(_ result: Result<Message, BusError>) -> Bool {
        switch result {
        case .success(let reply): reply.sender == owner
        case .failure(let error): error.isRefusal && error.centerError != .limitExceeded
        }
    }

    /// Reports a service that is stopped, or busy for long, while posts wait for its answer.
    private func watchSilence() {
        guard silence == nil, !isSilent, outbox.unsentPosts.unconfirmed > 0 else { return }
        let answers = answerCount
        silence = bus.once(milliseconds: Self.patienceMilliseconds) { [weak self] in
            guard let self else { return }
            silence = nil
            guard case .ready = state else { return announceSilence() }
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

    /// Notes that the service has answered a request.
    func answered() {
        guard case .ready = state else { return }
        answerCount += 1
        if outbox.unsentPosts.unconfirmed == 0 { silence = nil }
        guard isSilent else { return }
        isSilent = false
        receiver.stateChanged(.connected)
    }

    // MARK: Ended service

    /// Resolves the posts of a service that has given up its name or left the bus. A service that ends in order answers
    /// a ping to its unique name after all messages that reached it before. Messages that reached the well-known name
    /// later wait for the next service, if the bus starts it.
    func resolvePosts(of former: UniqueName?) {
        guard let former else { return }
        // Earlier unresolved posts went to the service before that, or to the name while it had no owner.
        if unresolved != nil { announceUnresolved(because: "two services have ended") }
        guard outbox.unresolved > 0 else { return }
        guard let connection, startsService else { return announceUnresolved(because: "the service has ended") }
        unresolved = Unresolved(service: former)
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

    /// Resolves the posts after an answer of the next service, which follows all posts that reached the name before.
    func resolveUnresolved() {
        guard let unresolved, !unresolved.isAwaited, unresolved.isStartable, unresolved.loss == nil else {
            return announceUnresolved(because: "another service has replaced the previous one")
        }
        self.unresolved = nil
        _ = outbox.resolve()
    }

    /// Stops waiting for a next service that could have taken the posts. The former service may still announce posts
    /// that it has refused.
    func giveUpUnresolved(because reason: String) {
        guard unresolved?.isAwaited == true else { return announceUnresolved(because: reason) }
        unresolved?.loss = reason
    }

    /// Reports the unresolved posts as possibly lost, since their outcome remains unknown.
    func announceUnresolved(because reason: String) {
        unresolved = nil
        let count = outbox.resolve()
        if count > 0 { receiver.mayHaveLostPosts(count, because: reason) }
    }
}
