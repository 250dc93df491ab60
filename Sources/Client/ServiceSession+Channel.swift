// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// What a session has of channels (F2).
struct Channels {
    enum Phase {
        /// There is none. Whether one is asked for is another question: ``mayAsk(at:)``.
        case none
        case asking
        case there(ClientChannel)
    }

    var phase = Phase.none
    /// While the first answer of a service is awaited posts wait, but not for long: those behind it would have to be
    /// settled on the bus before the first one leaves over the channel.
    var isHoldingPosts = false
    var patience: AnyObject?
    /// Forces the end of a channel that was closed from here.
    var ending: AnyObject?
    /// What the session sent on the bus, and how much of that the service is known to have taken before it takes
    /// anything from the channel.
    var sentOnBus: UInt64 = 0
    var takenFromBus: UInt64 = 0
    var isSettlingBus = false
    /// Barriers that wait behind posts of which nobody knows whether they were made.
    var doomedBarriers = 0
    /// Whether all was heard that the service wrote to the last channel. It may have lain unread as that ended.
    var wasReadToEnd = false
    /// Words of the service on the end of a channel while another one was asked for: about the one before, all of which was
    /// heard, or about that one, where the bus did not carry the answer.
    private var doubtful: DroppedSignal?
    private var isSettlingDoubt = false
    /// Who answered last as the service does.
    private var service: UniqueName?
    private var attempts = 0
    private var question = 0
    private var notBefore: ContinuousClock.Instant?
    private var openedAt: ContinuousClock.Instant?
    private var isOutOfTheQuestion = false

    /// In this time a service that is not busy has answered.
    static let patienceMilliseconds: UInt32 = 1000
    /// The longest time between the close of a channel and its end. Frames that are unread by then are reported as possibly
    /// lost, so that the time has to be long enough for a service that gets little of a processor.
    static let endingMilliseconds: UInt32 = 30_000
    /// So often a service is asked that gives no channel which stays.
    static let maxAttempts = 16
    private static let firstPause = Duration.milliseconds(250)
    private static let longestPause = Duration.seconds(600)
    /// A channel that stayed so long is no failed attempt.
    private static let staying = Duration.seconds(60)

    var channel: ClientChannel? { if case .there(let channel) = phase { channel } else { nil } }

    var isFirstAttempt: Bool { attempts == 0 }
    var isBusSettled: Bool { sentOnBus == takenFromBus }

    /// There is no need to look at the clock where the answer is no.
    func mayAsk(at now: () -> ContinuousClock.Instant) -> Bool {
        guard case .none = phase, !isOutOfTheQuestion, attempts < Self.maxAttempts else { return false }
        guard let notBefore else { return true }
        return now() >= notBefore
    }

    /// Keeps a word until it is known what it was about.
    ///
    /// - Returns: whether a question is due that settles it.
    mutating func doubt(_ signal: DroppedSignal) -> Bool {
        defer { isSettlingDoubt = true }
        doubtful = DroppedSignal(
            count: signal.count + (doubtful?.count ?? 0), observers: signal.observers + (doubtful?.observers ?? []),
            reason: signal.reason)
        return !isSettlingDoubt
    }

    /// That question was answered, or refused.
    mutating func doubtIsSettled() { isSettlingDoubt = false }

    mutating func takeDoubtful() -> DroppedSignal? { doubtful.take() }

    /// - Returns: the number of the question.
    mutating func asked() -> Int {
        phase = .asking
        question += 1
        return question
    }

    func isAsking(_ number: Int) -> Bool { if case .asking = phase { number == question } else { false } }

    mutating func opened(_ channel: ClientChannel, at now: ContinuousClock.Instant) {
        phase = .there(channel)
        openedAt = now
        wasReadToEnd = false
    }

    /// There is none, or none any more.
    mutating func failed(at now: ContinuousClock.Instant) {
        phase = .none
        ending = nil
        if let openedAt, now - openedAt >= Self.staying { attempts = 0 }
        openedAt = nil
        notBefore = now + min(Self.firstPause * (1 << min(attempts, 20)), Self.longestPause)
        attempts += 1
    }

    /// This service never gives one.
    mutating func unavailable() {
        phase = .none
        isOutOfTheQuestion = true
    }

    /// A service answered; another one than before may give one.
    mutating func answered(_ service: UniqueName?) {
        guard service != self.service else { return }
        self.service = service
        // That there is another one is told as a gap.
        (wasReadToEnd, doubtful) = (false, nil)
        if case .asking = phase { phase = .none }
        (attempts, notBefore, isOutOfTheQuestion) = (0, nil, false)
    }
}

/// The way beside the bus (F2). It is asked for where it is wished for and there is something for it to carry, and does
/// without a word what the bus does: what one request says is known to the service before the next one, whichever way
/// they go. So posts wait for what was sent on the bus before, and the rest waits for the outcome of posts.
extension ServiceSession {
    /// The way that posts and notifications take now.
    public var transport: Transport { channels.channel == nil ? .bus : .channel }

    // MARK: Asking

    /// Asks for a channel, if that is to be done.
    func lookForChannel() {
        guard wish.value == .channel else {
            // Behind the outcomes of all posts, so that none has to be told as lost.
            if let channel = channels.channel, channel.sender.unsettled == 0 {
                channel.close("it is no longer wished for")
            }
            return
        }
        guard case .ready = state, channels.mayAsk(at: { bus.now }), let connection else { return }
        guard connection.carriesDescriptors else {
            channels.unavailable()
            return receiver.transportChanged(to: .bus, because: "this bus carries no descriptors")
        }
        let number = channels.asked()
        if channels.isFirstAttempt {
            channels.isHoldingPosts = true
            channels.patience = bus.once(milliseconds: Channels.patienceMilliseconds) { [weak self] in
                self?.stopHoldingPosts()
                self?.pump()
            }
        }
        let sent = channels.sentOnBus
        // Without a limit of time: a channel that nobody takes is lost with all that the service has written to it.
        connection.call(OpenChannel().message(), timeout: .never) { [weak self, weak connection] result in
            guard let self, connection === self.connection, channels.isAsking(number) else { return }
            stopHoldingPosts()
            // What the service says from here on is not about an earlier channel.
            channels.wasReadToEnd = false
            let doubtful = channels.takeDoubtful()
            // One that is refused may have been there, as where the bus carries no descriptor.
            if case .failure = result, let doubtful { announce(doubtful) }
            do throws(BusError) {
                let reply = try result.get()
                guard let service = reply.sender else { throw .invalidArgs("the answer has no sender") }
                opened(ClientChannel(try bus.channelLine(in: reply), from: service), after: sent)
            } catch {
                refused(error)
            }
            pump()
        }
    }

    /// The service answers in order: an answer that is not there before that of the next call was not carried.
    func doubt(_ signal: DroppedSignal) {
        guard channels.doubt(signal), let connection else { return }
        connection.call(Self.ping) { [weak self, weak connection] result in
            // The end of a connection is told as a gap of its own.
            guard let self, connection === self.connection else { return }
            channels.doubtIsSettled()
            // A refusal comes out of the order.
            guard case .success = result, let doubtful = channels.takeDoubtful() else { return }
            announce(doubtful)
        }
    }

    private func stopHoldingPosts() {
        channels.isHoldingPosts = false
        channels.patience = nil
    }

    private func refused(_ error: BusError) {
        if error.meansAnotherProgram { channels.unavailable() } else { channels.failed(at: bus.now) }
        receiver.transportChanged(to: .bus, because: "\(error)")
    }

    private func opened(_ channel: ClientChannel, after sent: UInt64) {
        channels.opened(channel, at: bus.now)
        channels.takenFromBus = max(channels.takenFromBus, sent)
        channel.onFrame = { [unowned self] frame, mayWait in take(frame, mayWait: mayWait) }
        channel.onTurn = { [unowned self] in pump() }
        channel.onClosing = { [unowned self, unowned channel] reason, passesOver in
            if passesOver { receiver.mayHaveMissed(.undecodable(reason)) }
            channels.ending = bus.once(milliseconds: Channels.endingMilliseconds) { [unowned channel] in
                channel.finish("it does not end")
            }
        }
        channel.onEnd = { [unowned self, unowned channel] reason in
            ended(channel, because: reason)
            pump()
        }
        receiver.transportChanged(to: .channel, because: nil)
    }

    // MARK: Out

    /// Sends what may leave next, posts over the channel.
    ///
    /// - Returns: whether there may be more.
    func sendNext(besides channel: ClientChannel) -> Bool {
        guard wish.value == .channel else {
            lookForChannel()
            return false
        }
        guard let isPost = outbox.isPostNext else { return false }
        if isPost {
            // A former service's: what is posted is for the present one.
            guard channel.service == owner, channel.sender.hasRoom else { return false }
            guard channels.isBusSettled else {
                settleBus()
                return false
            }
            let posts = outbox.nextPosts()
            guard !posts.isEmpty else { return false }
            channel.send(posts)
            return true
        }
        guard channel.sender.unsettled == 0, let (requests, confirms) = outbox.next(.not), let request = requests.first
        else { return false }
        sendOnBus(request, confirms: confirms)
        return true
    }

    /// The service answers in order: with the answer it has taken all that was sent on the bus.
    private func settleBus() {
        // Posts that may have to be sent again are not behind us.
        guard !channels.isSettlingBus, batching.knowledge != .onTrial, let connection else { return }
        channels.isSettlingBus = true
        let sent = channels.sentOnBus
        pendingAnswers += 1
        connection.call(Self.ping) { [weak self, weak connection] result in
            guard let self else { return }
            pendingAnswers -= 1
            guard connection === self.connection else { return }
            channels.isSettlingBus = false
            switch result {
            case .success: channels.takenFromBus = max(channels.takenFromBus, sent)
            case .failure:
                channels.channel?.close("the service does not answer on the bus")
                doubtService()
            }
            pump()
        }
    }

    /// A call that is answered behind all others.
    static var ping: Message { ping(to: Wire.busName) }

    static func ping(to name: some BusName, startsService: Bool = true) -> Message {
        .methodCall(
            to: name, path: Wire.path, interface: "org.freedesktop.DBus.Peer", member: "Ping",
            startsService: startsService)
    }

    // MARK: In

    /// A frame of the channel.
    private func take(_ frame: ClientChannel.Frame, mayWait: Bool) -> ClientChannel.Taking {
        switch frame.kind {
        case .notification:
            guard let notification = ArrivedNotification(channelBody: frame.body, like: &recent),
                notification.sequence == frame.number
            else { break }
            if mayWait, mayComeToBeKnown(notification.observers) { return .notYet }
            received(notification)
            return .taken
        case .outcome:
            guard let outcome = ChannelOutcome(channelBody: frame.body),
                let (post, count) = channels.channel?.sender.settle(frame.number)
            else { break }
            outbox.confirmed(count)
            answered()
            watchPosts()
            post.settle(outcome.error.map { .failure($0) } ?? .success(outcome.receivers), receiver)
            return .taken
        case .dropped:
            guard let signal = DroppedSignal(channelBody: frame.body) else { break }
            // Losses count for any observer, but the one that is no longer allowed has to be known.
            if mayWait, signal.reason == DroppedSignal.notAllowed, mayComeToBeKnown(signal.observers) { return .notYet }
            take(signal)
            return .taken
        case .suspensionChanged:
            guard let signal = SuspensionChangedSignal(channelBody: frame.body) else { break }
            take(signal)
            return .taken
        case .post: break
        }
        return .malformed("a frame of the kind \(frame.kind.rawValue) and number \(frame.number) is none")
    }

    /// Whether one of the observers is unknown, and its number may be on its way on the bus.
    private func mayComeToBeKnown(_ observers: [ObserverID]) -> Bool {
        registrations.areAnyAsked && observers.contains { registrations.key(of: $0) == nil }
    }

    // MARK: Ending

    /// What the service wrote to the channel before what comes on the bus now is behind us from here on.
    func drainChannel() {
        channels.channel?.drain()
    }

    /// There is no channel any more: all goes by the bus.
    private func ended(_ channel: ClientChannel, because reason: String) {
        guard channels.channel === channel else { return }
        channels.failed(at: bus.now)
        channels.wasReadToEnd = channel.isReadToEnd
        // What the service can't know to have been read it sends again.
        sequence.mayRepeat()
        let (unknown, unsent) = channel.sender.takeFlights()
        outbox.confirmed(unknown.count + unsent.count)
        outbox.putBack(unsent)
        if !unknown.isEmpty { channels.doomedBarriers = outbox.barriers }
        receiver.transportChanged(to: .bus, because: reason)
        // They may have been made: sent again they might come twice.
        let error = BusError.disconnected("the channel ended before the answer came: \(reason)")
        for post in unknown { post.settle(.failure(error), receiver) }
    }

    /// The connection to the bus is gone, or the service is another one: it ends with what was written to it until now.
    func endChannel(_ reason: String) {
        guard let channel = channels.channel else { return }
        channel.onEnd = { [unowned self, unowned channel] reason in ended(channel, because: reason) }
        channel.drain()
        channel.finish(reason)
    }
}
