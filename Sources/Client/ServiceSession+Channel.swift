// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The channel state of a session (F2).
struct Channels {
    enum Phase {
        /// There is no channel. ``mayAsk(at:)`` says whether one may be requested.
        case none
        case asking
        case there(ClientChannel)
    }

    var phase = Phase.none
    /// Whether posts wait while the first channel of a service is requested, for at most ``patienceMilliseconds``.
    /// Posts sent on the bus meanwhile would have to be settled there before the first post leaves over the channel.
    var isHoldingPosts = false
    var patience: AnyObject?
    /// The timer that forces the end of a channel that this side closed.
    var ending: AnyObject?
    /// The number of messages that the session sent on the bus, and the number of these that the service is known to
    /// take before any frame of the channel.
    var sentOnBus: UInt64 = 0
    var takenFromBus: UInt64 = 0
    var isSettlingBus = false
    /// The number of waiting barriers behind posts whose outcome is unknown.
    var doomedBarriers = 0
    /// Whether the program read everything that the service wrote to the last channel. Some of it may have been unread
    /// when the channel ended.
    var wasReadToEnd = false
    /// The losses that the service reported for the end of a channel while another channel was requested. They concern
    /// the previous channel, which was read to its end, or the requested one, if the bus did not deliver the answer.
    private var pendingLosses: DroppedSignal?
    private var isSettlingDoubt = false
    /// The service that answered last.
    private var service: UniqueName?
    private var attempts = 0
    private var question = 0
    private var notBefore: ContinuousClock.Instant?
    private var openedAt: ContinuousClock.Instant?
    private var isOutOfTheQuestion = false

    /// The time within which a service that is not busy answers.
    static let patienceMilliseconds: UInt32 = 1000
    /// The longest time between the close of a channel and its end. Frames that are unread by then are reported as
    /// possibly lost, so the time must suffice for a service that gets little processor time.
    static let endingMilliseconds: UInt32 = 30_000
    /// The number of attempts at one service that provides no lasting channel.
    static let maxAttempts = 16
    private static let firstPause = Duration.milliseconds(250)
    private static let longestPause = Duration.seconds(600)
    /// A channel that lasted for this time does not count as a failed attempt.
    private static let staying = Duration.seconds(60)

    var channel: ClientChannel? { if case .there(let channel) = phase { channel } else { nil } }

    var isFirstAttempt: Bool { attempts == 0 }
    var isBusSettled: Bool { sentOnBus == takenFromBus }

    /// Whether a channel may be requested. The clock is read only when the other conditions hold.
    func mayAsk(at now: () -> ContinuousClock.Instant) -> Bool {
        guard case .none = phase, !isOutOfTheQuestion, attempts < Self.maxAttempts else { return false }
        guard let notBefore else { return true }
        return now() >= notBefore
    }

    /// Keeps a `Dropped` signal until it is known which channel it concerns.
    ///
    /// - Returns: whether the caller must send the question that settles this.
    mutating func doubt(_ signal: DroppedSignal) -> Bool {
        defer { isSettlingDoubt = true }
        pendingLosses = DroppedSignal(
            count: signal.count + (pendingLosses?.count ?? 0),
            observers: signal.observers + (pendingLosses?.observers ?? []),
            reason: signal.reason)
        return !isSettlingDoubt
    }

    /// Notes that this question was answered or refused.
    mutating func doubtIsSettled() { isSettlingDoubt = false }

    mutating func takeDoubtful() -> DroppedSignal? { pendingLosses.take() }

    /// - Returns: the number of the request.
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

    /// Notes that no channel was opened, or that the channel has ended.
    mutating func failed(at now: ContinuousClock.Instant) {
        phase = .none
        ending = nil
        if let openedAt, now - openedAt >= Self.staying { attempts = 0 }
        openedAt = nil
        notBefore = now + min(Self.firstPause * (1 << min(attempts, 20)), Self.longestPause)
        attempts += 1
    }

    /// Notes that this service never provides a channel.
    mutating func unavailable() {
        phase = .none
        isOutOfTheQuestion = true
    }

    /// Notes the service that answered. A service other than the previous one may provide a channel.
    mutating func answered(_ service: UniqueName?) {
        guard service != self.service else { return }
        self.service = service
        // The change of the service is reported as a gap of its own.
        (wasReadToEnd, pendingLosses) = (false, nil)
        if case .asking = phase { phase = .none }
        (attempts, notBefore, isOutOfTheQuestion) = (0, nil, false)
    }
}

/// The channel: a transport beside the bus (F2). The session requests a channel when the program wishes one and has
/// traffic for it.
///
/// A channel keeps the order of requests: the service knows each request before the next one, over either transport.
/// Therefore posts wait until the service has taken all earlier messages on the bus, and other requests wait for the
/// outcomes of posts.
extension ServiceSession {
    /// The transport of posts and notifications at present.
    public var transport: Transport { channels.channel == nil ? .bus : .channel }

    // MARK: Channel request

    /// Requests a channel if one is wished and may be requested; closes a channel that is no longer wished.
    func lookForChannel() {
        guard wish.value == .channel else {
            // The close waits for the outcomes of all posts, so that no post has to be reported as lost.
            if let channel = channels.channel, channel.sender.unsettled == 0 {
                channel.close("the program no longer wants it")
            }
            return
        }
        guard case .ready = state, channels.mayAsk(at: { bus.now }), let connection else { return }
        guard connection.carriesDescriptors else {
            channels.unavailable()
            return receiver.transportChanged(to: .bus, because: "this bus does not pass file descriptors")
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
        // The call has no time limit: if nobody takes a channel, everything that the service has written to it is lost.
        connection.call(OpenChannel().message(), timeout: .never) { [weak self, weak connection] result in
            guard let self, connection === self.connection, channels.isAsking(number) else { return }
            stopHoldingPosts()
            // Later messages of the service do not concern an earlier channel.
            channels.wasReadToEnd = false
            let pendingLosses = channels.takeDoubtful()
            // A refused channel may have existed, for example where the bus does not carry descriptors.
            if case .failure = result, let pendingLosses { announce(pendingLosses) }
            do throws(BusError) {
                let reply = try result.get()
                guard let service = reply.sender else { throw .invalidArgs("the reply has no sender") }
                opened(ClientChannel(try bus.channelLine(in: reply), from: service), after: sent)
            } catch {
                refused(error)
            }
            pump()
        }
    }

    /// Keeps the signal until the answer to a ping. The service answers in order: if the answer to the channel request
    /// is missing by then, the bus did not deliver it.
    func doubt(_ signal: DroppedSignal) {
        guard channels.doubt(signal), let connection else { return }
        connection.call(Self.ping) { [weak self, weak connection] result in
            // The end of a connection is reported as a gap of its own.
            guard let self, connection === self.connection else { return }
            channels.doubtIsSettled()
            // A refusal may arrive out of order.
            guard case .success = result, let pendingLosses = channels.takeDoubtful() else { return }
            announce(pendingLosses)
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

    // MARK: Sending

    /// Sends the requests that may leave next; posts leave over the channel.
    ///
    /// - Returns: whether more requests may leave.
    func sendNext(besides channel: ClientChannel) -> Bool {
        guard wish.value == .channel else {
            lookForChannel()
            return false
        }
        guard let isPost = outbox.isPostNext else { return false }
        if isPost {
            // The channel may belong to a former service, but posts go to the present one.
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

    /// Sends a ping on the bus. The service answers in order, so the answer proves that it has taken all earlier
    /// messages on the bus.
    private func settleBus() {
        // A ping does not settle posts that may have to be sent again.
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
                requeryService()
            }
            pump()
        }
    }

    /// A call that the service answers after all earlier calls.
    static var ping: Message { ping(to: Wire.busName) }

    static func ping(to name: some BusName, startsService: Bool = true) -> Message {
        .methodCall(
            to: name, path: Wire.path, interface: "org.freedesktop.DBus.Peer", member: "Ping",
            startsService: startsService)
    }

    // MARK: Receiving

    /// Handles a frame of the channel.
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
            // Losses count for any observer, but an observer that is no longer allowed has to be known.
            if mayWait, signal.reason == DroppedSignal.notAllowed, mayComeToBeKnown(signal.observers) { return .notYet }
            take(signal)
            return .taken
        case .suspensionChanged:
            guard let signal = SuspensionChangedSignal(channelBody: frame.body) else { break }
            take(signal)
            return .taken
        case .post: break
        }
        return .malformed("a frame of the kind \(frame.kind.rawValue) and number \(frame.number) is not known")
    }

    /// Whether one of the observers is unknown and its number may still arrive on the bus.
    private func mayComeToBeKnown(_ observers: [ObserverID]) -> Bool {
        registrations.areAnyAsked && observers.contains { registrations.key(of: $0) == nil }
    }

    // MARK: End of the channel

    /// Reads everything that the service wrote to the channel before the current message on the bus.
    func drainChannel() {
        channels.channel?.drain()
    }

    /// Handles the end of the channel: all traffic uses the bus from now on.
    private func ended(_ channel: ClientChannel, because reason: String) {
        guard channels.channel === channel else { return }
        channels.failed(at: bus.now)
        channels.wasReadToEnd = channel.isReadToEnd
        // The service sends notifications again unless it knows that they were read.
        sequence.mayRepeat()
        let (unknown, unsent) = channel.sender.takeFlights()
        outbox.confirmed(unknown.count + unsent.count)
        outbox.putBack(unsent)
        if !unknown.isEmpty { channels.doomedBarriers = outbox.barriers }
        receiver.transportChanged(to: .bus, because: reason)
        // The service may have made these posts; sending them again could duplicate them.
        let error = BusError.disconnected("the channel ended before the answer came: \(reason)")
        for post in unknown { post.settle(.failure(error), receiver) }
    }

    /// Ends the channel after the loss of the connection or a change of the service. Frames written until now are still
    /// read.
    func endChannel(_ reason: String) {
        guard let channel = channels.channel else { return }
        channel.onEnd = { [unowned self, unowned channel] reason in ended(channel, because: reason) }
        channel.drain()
        channel.finish(reason)
    }
}
