// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The sending of requests: from the outbox to the bus or the channel, and the handling of their answers.
extension ServiceSession {
    /// Sends the requests that may leave the outbox now, and then lets posting threads send directly. Direct sending
    /// ends first, so that the order of requests is kept.
    func sendRequests() {
        endDirectSending()
        channels.channel?.flush()
        while case .ready = state {
            if wish.value == .channel, outbox.isPostNext == true { lookForChannel() }
            if let channel = channels.channel {
                guard sendNext(besides: channel) else { break }
                continue
            }
            guard let (requests, confirms) = outbox.next(channels.isHoldingPosts ? .not : batching.posting) else {
                break
            }
            if requests.count == 1, let request = requests.first {
                sendOnBus(request, confirms: confirms)
            } else {
                isBusReadProbed = false
                sendTogether(requests.compactMap(\.post), confirms: confirms)
            }
        }
        limitBatchDelay()
        watchPosts()
        // A program with observers has incoming traffic for a channel even without posts.
        if !registrations.isEmpty { lookForChannel() }
        allowDirectSending()
    }

    /// Lets posting threads write to the socket of the bus or channel directly, without waking the session's thread.
    /// This requires that a post would leave at once and no other request must precede it.
    private func allowDirectSending() {
        guard case .ready = state, !channels.isHoldingPosts else { return }
        switch (wish.value, channels.phase) {
        case (.bus, .none):
            if batching.posting != .not, let line = connection?.directSender { outbox.lend(.bus(line)) }
        case (.channel, .there(let channel)):
            if channel.service == owner, channels.isBusSettled, channel.sender.hasRoom {
                outbox.lend(.channel(channel.sender))
            }
        default: break
        }
    }

    /// Ends direct sending: all requests leave through the session from now on. Posts that were sent directly before
    /// count as sent on the bus.
    func endDirectSending() {
        let count = outbox.endDirectSending()
        guard count > 0 else { return }
        isBusReadProbed = false
        channels.sentOnBus += count
    }

    /// Sends one request on the bus.
    ///
    /// - Parameter confirms: the requests that the answer confirms to the outbox; nil when no answer is wanted.
    func sendOnBus(_ request: Request, confirms: Confirmation?) {
        isBusReadProbed = false
        channels.sentOnBus += 1
        switch request {
        case .post(let post): send(post, confirms: confirms)
        case .register(let key):
            askForBatches()
            registrations.want(key)
            sendRegistration(of: key, confirms: confirms)
        case .unregister(let key): if let id = registrations.forget(key) { callUnawaited(.removal(id)) }
        case .suspend(let newValue):
            suspension = newValue
            isSuspensionWithdrawn = newValue == nil
            callUnawaited(.suspension)
        case .details(let newValue):
            details = newValue
            callUnawaited(.details)
        case .call(let call): send(call)
        case .barrier(let completion): sendBarrier(completion, confirms: confirms)
        }
    }

    typealias Confirmation = Outbox<Request>.Confirmation

    /// Completes the waiting requests without a service. Posts, calls and barriers fail. Changes of registrations,
    /// suspension and details are recorded here, and the next service receives them.
    func settleWithoutService(_ error: ServiceError) {
        // The requests were never sent, so the error must not say that their outcome is unknown.
        let error = error.ofUnsent
        channels.failedBarriers = 0
        var silentPosts = 0
        func announceLost() {
            if silentPosts > 0 { receiver.lostPosts(silentPosts, because: error) }
            silentPosts = 0
        }
        defer { announceLost() }
        for request in outbox.removeAll() {
            switch request {
            case .post(let post):
                if let completion = post.completion { completion(.failure(error)) } else { silentPosts += 1 }
            case .register(let key): registrations.want(key)
            case .unregister(let key): _ = registrations.forget(key)
            case .suspend(let newValue):
                suspension = newValue
                isSuspensionWithdrawn = newValue == nil
            case .details(let newValue): details = newValue
            case .call(let call): call.completion(.failure(error))
            case .barrier(let completion):
                // The answer to the barrier follows the failures of earlier posts.
                announceLost()
                completion(false)
            }
        }
    }

    /// Makes a call whose result the program does not await. If an overloaded service refuses it, the session repeats
    /// it later (E4).
    ///
    /// - Parameter isRepeated: whether the call is a repetition; the next refused call follows its success.
    func callUnawaited(_ call: UnawaitedCall, again isRepeated: Bool = false) {
        let number = question
        connection?.call(message(of: call)) { [weak self, weak connection] result in
            // A later question to the service repeats all these calls.
            guard let self, connection === self.connection, number == question else { return }
            if isRepeated { refusedCalls.isRepeating = false }
            if case .failure(let error) = result, error.centerError == .limitExceeded {
                refusedCalls.append(call)
                repeatLater()
            } else {
                answered(call, result)
                if isRepeated { repeatNext() }
            }
        }
    }

    /// Encodes a call, with the program's latest values.
    private func message(of call: UnawaitedCall) -> Message {
        switch call {
        case .suspension: suspension.map { SetSuspended($0).message() } ?? FollowActivity().message()
        case .removal(let id): RemoveObserver(id).message()
        case .details: SetClientOptions(ClientOptionsChange(details: details)).message()
        case .batches: SetClientOptions(ClientOptionsChange(batches: true)).message()
        }
    }

    /// Handles the answer to such a call, other than a refusal for overload.
    private func answered(_ call: UnawaitedCall, _ result: Result<Message, BusError>) {
        switch call {
        case .suspension, .removal: break
        case .details:
            // An older service does not know the details, and a service with a policy may refuse them.
            if case .failure(let error) = result, error.isRefusal {
                receiver.detailsRefused(because: ServiceError(error))
            }
        case .batches: answeredBatches(result)
        }
    }

    /// Starts the timer of the next repetition, unless it runs or a call is being repeated.
    private func repeatLater() {
        guard refusedCalls.attempt == nil, !refusedCalls.isRepeating else { return }
        refusedCalls.attempt = bus.once(milliseconds: refusedCalls.backOff.next()) { [weak self] in
            guard let self else { return }
            refusedCalls.attempt = nil
            // In another state, the next question to the service repeats all these calls.
            if case .ready = state { repeatNext() }
        }
    }

    /// Repeats the first of the refused calls. When none is left, the back-off delay starts again from its minimum.
    private func repeatNext() {
        guard let call = refusedCalls.popFirst() else {
            refusedCalls.backOff = BackOff()
            return
        }
        refusedCalls.isRepeating = true
        callUnawaited(call, again: true)
    }

    /// Sends a single post. Its answer confirms it and earlier posts.
    func send(_ post: OutgoingPost, confirms: Confirmation?) {
        guard let connection else { return }
        let message = post.message
        guard let confirms else { return connection.send(message) }
        message.expectsNoReply = false
        let (receiver, number) = (receiver, question)
        connection.call(message) { [weak self] result in
            self?.confirm(confirms, of: number, result)
            post.settle(
                result.flatMap { reply in Result { () throws(BusError) in try PostCall.reply(in: reply) } }, receiver)
            self?.pump()
        }
    }

    /// Sends a registration, and records its number from the answer.
    ///
    /// - Parameter confirms: the requests that the answer confirms to the outbox; nil for a registration that did not
    ///   come from the outbox, but is restored at a service.
    func sendRegistration(of key: RegistrationKey, confirms: Confirmation? = nil) {
        registrations.asked(key)
        let call = AddObserver(name: key.name?.text ?? "", object: key.object?.text ?? "", options: key.options)
        let (asked, number) = (owner, question)
        connection?.call(call.message()) { [weak self] result in
            guard let self else { return }
            defer {
                // Notifications for this observer may have waited in the channel for its number.
                channels.channel?.retryHeldFrame()
                if confirms != nil {
                    confirm(confirms, of: number, result)
                    pump()
                }
            }
            switch result {
            case .success(let reply):
                do throws(BusError) {
                    let id = try AddObserver.reply(in: reply)
                    // If the name moved to another service before the call arrived, that service has registered it.
                    let isWanted = registrations.added(key, id: id, byAnother: reply.sender != asked)
                    if !isWanted { callUnawaited(.removal(id)) }
                } catch {
                    registrationFailed(key, error, isForeign: true, asked: asked)
                }
            case .failure(let error):
                registrationFailed(key, error, isForeign: error.meansAnotherProgram, asked: asked)
            }
        }
        // The channel is requested behind the first registration and ahead of further ones. The service refuses a
        // channel to a client with queued replies, and the replies to many registrations may queue.
        if channels.isFirstAttempt { lookForChannel() }
    }

    /// Handles a failed registration.
    ///
    /// - Parameters:
    ///   - isForeign: whether the answer shows that the owner of the name is no notification center.
    ///   - asked: the owner of the name when the registration was sent.
    private func registrationFailed(_ key: RegistrationKey, _ error: BusError, isForeign: Bool, asked: UniqueName?) {
        // After a change of the owner, the comparison with the service's list covers this registration.
        guard asked == owner else { return }
        registrations.failed(key)
        if isForeign {
            if case .ready = state { handleForeignOwner(because: error) }
        } else if error.isRefusal {
            // A repetition would be refused again.
            receiver.registrationRefused(key, because: ServiceError(error))
        } else {
            requeryService()
        }
    }

    /// Sends a call whose answer the program awaits.
    private func send(_ call: OutgoingCall) {
        guard let connection else { return call.completion(.failure(.notConnected("the connection has ended"))) }
        pendingAnswers += 1
        connection.call(call.message) { [weak self] result in
            self?.pendingAnswers -= 1
            call.completion(result.mapError(ServiceError.init))
        }
    }

    /// Sends a barrier as a Ping. The service answers in order, so the answer proves that it has taken all earlier
    /// requests.
    ///
    /// - Parameters:
    ///   - completion: receives whether all earlier requests were taken.
    ///   - confirms: the requests that the answer confirms to the outbox.
    private func sendBarrier(_ completion: @escaping Request.Completion<Bool>, confirms: Confirmation?) {
        guard let connection else { return completion(false) }
        // A post before this barrier has an unknown outcome, because its channel ended.
        guard channels.failedBarriers == 0 else {
            channels.failedBarriers -= 1
            completion(false)
            // The answer to the barrier was to confirm other requests as well.
            return sendPing(confirms: confirms) { _ in }
        }
        let sent = channels.sentOnBus
        pendingAnswers += 1
        sendPing(confirms: confirms) { [weak self, weak connection] isAnswered in
            self?.pendingAnswers -= 1
            guard isAnswered else { return completion(false) }
            if let self, connection === self.connection {
                channels.takenFromBus = max(channels.takenFromBus, sent)
                // Everything that the service sent before its answer has arrived, over either transport.
                drainChannel()
            }
            completion(true)
        }
    }
}
