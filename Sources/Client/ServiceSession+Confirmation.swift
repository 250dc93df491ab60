// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// Posts that ask for no answer: whether the service has taken them (E10).
///
/// One of many asks for an answer, which confirms those before it (``Outbox``). Behind the last ones, as soon as the line is
/// quiet, the service is asked something for them. When it ends with posts unconfirmed they are **unresolved** until it is known
/// what became of them.
extension ServiceSession {
    private enum Time {
        /// From the first unconfirmed post to the question, in milliseconds. A poster that goes on costs ten questions a second.
        static let confirmation: UInt32 = 100
    }

    /// Posts of a service that has ended, or has given up its name.
    struct Unresolved {
        /// The service that had the name when they left.
        let service: UniqueName
        /// Whether it is still to answer, behind all of them that came to it.
        var isAwaited = true
        /// The bus keeps those that came to the name when nobody had it for the service that it starts.
        var isStartable = false
        /// The reason for which they may be lost, whatever it answers. It may first announce some that it has refused.
        var loss: String?
    }

    // MARK: A service that is there

    /// Sees to it that posts on their way are confirmed, and that a service that takes none is noticed.
    func watchPosts() {
        watchSilence()
        guard confirmationTimer == nil, outbox.watch() else { return }
        confirmationTimer = bus.once(milliseconds: Time.confirmation) { [weak self] in
            guard let self else { return }
            confirmationTimer = nil
            // Another question to the service confirms them, or finds another one.
            if case .ready = state { askForConfirmation() }
        }
    }

    private func askForConfirmation() {
        // Otherwise an answer is on its way, and the next question is behind it.
        guard let confirms = outbox.askForConfirmation() else { return }
        sendPing(confirms: confirms) { _ in }
    }

    /// Asks something of which the answer says only that it has come, behind all that was sent before. There is no limit of time:
    /// with the service or the connection it ends as well.
    func sendPing(confirms: Confirmation?, _ completion: @escaping (Bool) -> Void) {
        let number = question
        connection?.call(Self.ping, timeout: .never) { [weak self] result in
            self?.confirm(confirms, of: number, result)
            if case .success = result { completion(true) } else { completion(false) }
        }
    }

    /// An answer has come to something that was asked at a time, or will not come.
    ///
    /// - Parameter number: ``question`` at that time: what was on its way before another one is settled.
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

    /// Whether the service has taken all that was sent before this is answered. An overloaded one refuses at once, ahead of calls
    /// that wait; of another's answer, such as the bus's error, nobody knows.
    private func confirmsEarlier(_ result: Result<Message, BusError>) -> Bool {
        switch result {
        case .success(let reply): reply.sender == owner
        case .failure(let error): error.isRefusal && error.centerError != .limitExceeded
        }
    }

    /// A service that is stopped, or busy for long, is announced while posts wait for it.
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

    /// The service has answered something.
    func answered() {
        guard case .ready = state else { return }
        answerCount += 1
        if outbox.unsentPosts.unconfirmed == 0 { silence = nil }
        guard isSilent else { return }
        isSilent = false
        receiver.stateChanged(.connected)
    }

    // MARK: A service that has ended

    /// The service has given up its name, or left the bus. One that ends in order answers a question by its own name behind
    /// everything that came to it before; what came to the service's name later waits for the next one, where the bus starts it.
    func resolvePosts(of former: UniqueName?) {
        guard let former else { return }
        // Those of before went to the service before that, or to the name when nobody had it.
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

    /// The next service answers: also behind all posts that came to the name before.
    func resolveUnresolved() {
        guard let unresolved, !unresolved.isAwaited, unresolved.isStartable, unresolved.loss == nil else {
            return announceUnresolved(because: "another service has taken the place of the one before")
        }
        self.unresolved = nil
        _ = outbox.resolve()
    }

    /// There is no next service that could have taken them. The former one may still announce some that it has refused.
    func giveUpUnresolved(because reason: String) {
        guard unresolved?.isAwaited == true else { return announceUnresolved(because: reason) }
        unresolved?.loss = reason
    }

    /// Nobody will know what became of them.
    func announceUnresolved(because reason: String) {
        unresolved = nil
        let count = outbox.resolve()
        if count > 0 { receiver.mayHaveLostPosts(count, because: reason) }
    }
}
