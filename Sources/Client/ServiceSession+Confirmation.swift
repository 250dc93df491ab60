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
        /// It has answered behind all of them that came to it.
        var hasAnswered = false
        /// The bus keeps those that came to the name when nobody had it for the service that it starts.
        var isStartable = false
    }

    // MARK: A service that is there

    /// Sees to it that posts on their way are confirmed.
    func watchPosts() {
        guard confirmationTimer == nil, outbox.watch() else { return }
        confirmationTimer = bus.once(milliseconds: Time.confirmation) { [weak self] in
            guard let self else { return }
            confirmationTimer = nil
            askForConfirmation()
        }
    }

    private func askForConfirmation() {
        // Another question to the service confirms them, or finds another one.
        guard case .ready = state, let connection else { return }
        watchSilence()
        // Otherwise an answer is on its way, and the next question is behind it.
        guard let confirms = outbox.askForConfirmation() else {
            if channels.channel != nil { watchPosts() }
            return
        }
        let number = question
        connection.call(Self.ping) { [weak self] result in self?.confirm(confirms, of: number, result) }
    }

    /// An answer has come to something that was asked at a time, or will not come.
    ///
    /// - Parameter number: ``question`` at that time: what was on its way before another one is settled.
    func confirm(_ confirmation: Confirmation?, of number: Int, _ result: Result<Message, BusError>) {
        guard let confirmation, number == question else { return }
        // Of another's error, such as the bus's, nobody knows what the service has taken.
        if case .failure(let error) = result, !error.isRefusal {
            outbox.failed(confirmation)
        } else {
            outbox.confirmed(confirmation)
            answered()
        }
        if case .ready = state { watchPosts() }
    }

    /// A service that is stopped, or busy for long, is announced while something waits for it.
    private func watchSilence() {
        guard silence == nil, outbox.unsentPosts.unconfirmed > 0 else { return }
        let confirmations = outbox.confirmations
        silence = bus.once(milliseconds: Self.patienceMilliseconds) { [weak self] in
            guard let self else { return }
            silence = nil
            guard case .ready = state else { return announceSilence() }
            guard outbox.confirmations == confirmations else { return watchSilence() }
            let number = question
            describeOwner { [weak self] owner in
                guard let self, case .ready = state, number == question, outbox.confirmations == confirmations else {
                    return
                }
                isSilent = true
                let words = "is owned by \(owner ?? "another program"), which does not answer"
                receiver.stateChanged(.notAnswering("\(Wire.busName) \(words)"))
            }
        }
    }

    private func answered() {
        guard case .ready = state else { return }
        silence = nil
        guard isSilent else { return }
        isSilent = false
        receiver.stateChanged(.connected)
    }

    // MARK: A service that has ended

    /// The service has given up its name, or left the bus. One that ends in order answers everything that came to it before it
    /// leaves; what came to its name later waits for the next one, where the bus can start it.
    func resolvePosts(of former: UniqueName?) {
        // They were on their way to the one before that, or to its name.
        if unresolved != nil, former != nil { announceUnresolved(because: "two services have ended") }
        guard outbox.unresolved > 0, unresolved == nil else { return }
        guard let former, let connection, startsService else {
            return announceUnresolved(because: "the service has ended")
        }
        unresolved = Unresolved(service: former)
        let ping = Message.methodCall(
            to: former, path: Wire.path, interface: "org.freedesktop.DBus.Peer", member: "Ping", startsService: false)
        connection.call(ping) { [weak self] result in
            guard let self, unresolved?.service == former else { return }
            guard case .success = result else { return announceUnresolved(because: "the service has ended") }
            unresolved?.hasAnswered = true
        }
        connection.startableNames { [weak self] result in
            guard let self, unresolved?.service == former else { return }
            unresolved?.isStartable = (try? result.get())?.contains(Wire.busName) == true
        }
    }

    /// The next service answers: also behind all posts that came to the name before.
    func resolveUnresolved() {
        guard let unresolved, unresolved.hasAnswered, unresolved.isStartable else {
            return announceUnresolved(because: "another service has taken the place of the one before")
        }
        self.unresolved = nil
        _ = outbox.resolve()
    }

    /// Nobody will know what became of them.
    func announceUnresolved(because reason: String) {
        unresolved = nil
        let count = outbox.resolve()
        if count > 0 { receiver.mayHaveLostPosts(count, because: reason) }
    }
}
