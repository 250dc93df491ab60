// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// What goes to the service.
extension ServiceSession {
    /// Sends what the outbox lets out.
    func sendRequests() {
        takeLineBack()
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
                isBusAsked = false
                sendTogether(requests.compactMap(\.post), confirms: confirms)
            }
        }
        watchPile()
        watchPosts()
        if !registrations.isEmpty { lookForChannel() }
        lendLine()
    }

    /// Lets posts that would leave at once do so from their threads, where nothing is to be said before them.
    private func lendLine() {
        guard case .ready = state, !channels.isHoldingPosts else { return }
        switch (wish.value, channels.phase) {
        case (.bus, .none):
            if batching.posting != .not, let line = connection?.directLine { outbox.lend(.bus(line)) }
        case (.channel, .there(let channel)):
            if channel.service == owner, channels.isBusSettled, channel.sender.hasRoom {
                outbox.lend(.channel(channel.sender))
            }
        default: break
        }
    }

    /// From now on all leaves from here, behind what has left.
    func takeLineBack() {
        let count = outbox.takeLineBack()
        guard count > 0 else { return }
        isBusAsked = false
        channels.sentOnBus += count
    }

    func sendOnBus(_ request: Request, confirms: Confirmation?) {
        isBusAsked = false
        channels.sentOnBus += 1
        switch request {
        case .post(let post): send(post, confirms: confirms)
        case .register(let key):
            askForBatches()
            registrations.want(key)
            sendRegistration(of: key, confirms: confirms)
        case .unregister(let key): if let id = registrations.forget(key) { callUnawaited(.removal(id)) }
        case .suspend(let word):
            suspension = word
            isSuspensionTakenBack = word == nil
            callUnawaited(.suspension)
        case .details(let word):
            details = word
            callUnawaited(.details)
        case .call(let call): send(call)
        case .barrier(let completion): sendBarrier(completion, confirms: confirms)
        }
    }

    typealias Confirmation = Outbox<Request>.Confirmation

    /// Without a service posts fail, as there is nobody to take them; what the program wants to receive is kept for
    /// the service that comes.
    func settleWithoutService(_ error: ServiceError) {
        let error = error.ofUnsent
        channels.doomedBarriers = 0
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
            case .suspend(let word):
                suspension = word
                isSuspensionTakenBack = word == nil
            case .details(let word): details = word
            case .call(let call): call.completion(.failure(error))
            case .barrier(let completion):
                // Behind what it is asked about.
                announceLost()
                completion(false)
            }
        }
    }

    /// Makes a call whose result the program does not wait for. Calls that an overloaded service refuses are repeated
    /// until it accepts them, one at a time (E4).
    func callUnawaited(_ call: UnawaitedCall, again isRepeated: Bool = false) {
        let number = question
        connection?.call(message(of: call)) { [weak self, weak connection] result in
            // Another question to the service leads to all these calls again.
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

    private func message(of call: UnawaitedCall) -> Message {
        switch call {
        case .suspension: suspension.map { SetSuspended($0).message() } ?? FollowActivity().message()
        case .removal(let id): RemoveObserver(id).message()
        case .details: SetClientOptions(ClientOptionsChange(details: details)).message()
        case .batches: SetClientOptions(ClientOptionsChange(batches: true)).message()
        }
    }

    private func answered(_ call: UnawaitedCall, _ result: Result<Message, BusError>) {
        switch call {
        case .suspension, .removal: break
        case .details:
            // An older service does not know them, and one that has a policy may refuse.
            if case .failure(let error) = result, error.isRefusal {
                receiver.detailsRefused(because: ServiceError(error))
            }
        case .batches: answeredBatches(result)
        }
    }

    private func repeatLater() {
        guard refusedCalls.attempt == nil, !refusedCalls.isRepeating else { return }
        refusedCalls.attempt = bus.once(milliseconds: refusedCalls.backOff.next()) { [weak self] in
            guard let self else { return }
            refusedCalls.attempt = nil
            // Otherwise the service is asked what it has, and all of them follow from that.
            if case .ready = state { repeatNext() }
        }
    }

    private func repeatNext() {
        guard let call = refusedCalls.popFirst() else {
            refusedCalls.backOff = BackOff()
            return
        }
        refusedCalls.isRepeating = true
        callUnawaited(call, again: true)
    }

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

    /// - Parameter confirms: what the answer confirms to the outbox, for a request that came out of it.
    func sendRegistration(of key: RegistrationKey, confirms: Confirmation? = nil) {
        registrations.asked(key)
        let call = AddObserver(name: key.name?.text ?? "", object: key.object?.text ?? "", options: key.options)
        let (asked, number) = (owner, question)
        connection?.call(call.message()) { [weak self] result in
            guard let self else { return }
            defer {
                // What the channel has of it had to wait for its number.
                channels.channel?.goOn()
                if confirms != nil {
                    confirm(confirms, of: number, result)
                    pump()
                }
            }
            switch result {
            case .success(let reply):
                do throws(BusError) {
                    let id = try AddObserver.reply(in: reply)
                    // The name may have gone to another service before the call came there.
                    let isWanted = registrations.added(key, id: id, byAnother: reply.sender != asked)
                    if !isWanted { callUnawaited(.removal(id)) }
                } catch {
                    registrationFailed(key, error, isForeign: true, asked: asked)
                }
            case .failure(let error):
                registrationFailed(key, error, isForeign: error.meansAnotherProgram, asked: asked)
            }
        }
        // Ahead of many more, whose answers pile up: the service gives no channel to whom it keeps many for.
        if channels.isFirstAttempt { lookForChannel() }
    }

    private func registrationFailed(_ key: RegistrationKey, _ error: BusError, isForeign: Bool, asked: UniqueName?) {
        // After a change of the owner the comparison takes care of it.
        guard asked == owner else { return }
        registrations.failed(key)
        if isForeign {
            if case .ready = state { notACenter(because: error) }
        } else if error.isRefusal {
            receiver.registrationRefused(key, because: ServiceError(error))
        } else {
            doubtService()
        }
    }

    private func send(_ call: OutgoingCall) {
        guard let connection else { return call.completion(.failure(.notConnected("it has ended"))) }
        pendingAnswers += 1
        connection.call(call.message) { [weak self] result in
            self?.pendingAnswers -= 1
            call.completion(result.mapError(ServiceError.init))
        }
    }

    /// The service answers in order: when this is answered, it has taken everything before.
    private func sendBarrier(_ completion: @escaping Request.Completion<Bool>, confirms: Confirmation?) {
        guard let connection else { return completion(false) }
        guard channels.doomedBarriers == 0 else {
            channels.doomedBarriers -= 1
            completion(false)
            // It was to confirm others as well.
            return sendPing(confirms: confirms) { _ in }
        }
        let sent = channels.sentOnBus
        pendingAnswers += 1
        sendPing(confirms: confirms) { [weak self, weak connection] isAnswered in
            self?.pendingAnswers -= 1
            guard isAnswered else { return completion(false) }
            if let self, connection === self.connection {
                channels.takenFromBus = max(channels.takenFromBus, sent)
                // What the service sent before it answered is there, whichever way it came.
                drainChannel()
            }
            completion(true)
        }
    }
}
