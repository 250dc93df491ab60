// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The state of a session's channel: a private socket to the service beside the bus (F2). It decides when the session
/// may request one, and keeps the order between requests on the bus and posts over the channel.
struct Channels {
    /// The life of the channel.
    enum Phase {
        /// There is no channel. ``mayAsk(at:)`` says whether one may be requested.
        case none
        /// A channel has been requested from the service.
        case asking
        /// The channel is in use, or is being closed.
        case there(ClientChannel)
    }

    var phase = Phase.none
    /// Whether posts wait while the first channel of a service is requested, for at most ``patienceMilliseconds``. The
    /// service would otherwise have to take posts on the bus before the first post may leave over the channel.
    var isHoldingPosts = false
    /// The timer that ends this wait.
    var patience: AnyObject?
    /// The timer that forces the end of a channel that this side closed.
    var ending: AnyObject?
    /// A counter that rises when requests leave on the bus. Requests that leave together may count once.
    var sentOnBus: UInt64 = 0
    /// The value of this counter up to which the service has taken the requests. When both values are equal, a post
    /// over the channel can't overtake a request on the bus.
    var takenFromBus: UInt64 = 0
    /// Whether the Ping that settles the messages on the bus is in flight.
    var isSettlingBus = false
    /// The number of waiting barriers that must report failure, because the outcome of a post before them is unknown.
    var failedBarriers = 0
    /// Whether the program read everything that the service wrote to the last channel. The service can't know this, and
    /// reports the frames that may have been unread as possible losses.
    var wasReadToEnd = false
    /// The losses of an ended channel, as the service reported them while another channel was requested. It is not
    /// known yet which of two channels they concern:
    ///
    /// - The previous channel. It was read to its end, so nothing is lost.
    /// - The requested channel, if the bus did not deliver the answer with its socket. Then the losses are real.
    private var pendingLosses: DroppedSignal?
    /// Whether the Ping that decides this is in flight.
    private var isLossProbeInFlight = false
    /// The service that answered last.
    private var service: UniqueName?
    /// The number of attempts at the present service that provided no lasting channel.
    private var attempts = 0
    /// The number of the latest request for a channel.
    private var question = 0
    /// The earliest time of the next attempt; nil for any time.
    private var nextAttempt: ContinuousClock.Instant?
    /// The time at which the present channel was opened.
    private var openedAt: ContinuousClock.Instant?
    /// Whether the present service can't provide a channel at all.
    private var isUnsupported = false

    /// The time within which a service that is not busy answers, in milliseconds.
    static let patienceMilliseconds: UInt32 = 1000
    /// The longest time between the close of a channel by this side and its end, in milliseconds. Frames that are
    /// unread by then are reported as possibly lost, so the time must suffice for a service that gets little processor
    /// time.
    static let endingMilliseconds: UInt32 = 30_000
    /// The limit of attempts at one service that provides no lasting channel. With the pauses between them, the
    /// attempts take at least 47 minutes.
    static let maxAttempts = 16
    /// The pause after the first failed attempt; it doubles with each further one.
    private static let firstPause = Duration.milliseconds(250)
    /// The limit of the doubling.
    private static let longestPause = Duration.seconds(600)
    /// A channel that lasted for this time does not count as a failed attempt.
    private static let staying = Duration.seconds(60)

    /// The channel; nil while there is none.
    var channel: ClientChannel? { if case .there(let channel) = phase { channel } else { nil } }

    /// Whether no attempt at the present service has failed.
    var isFirstAttempt: Bool { attempts == 0 }
    /// Whether the service has taken all messages that were sent on the bus.
    var isBusSettled: Bool { sentOnBus == takenFromBus }

    /// Whether a channel may be requested. The clock is read only when the other conditions hold.
    func mayAsk(at now: () -> ContinuousClock.Instant) -> Bool {
        guard case .none = phase, !isUnsupported, attempts < Self.maxAttempts else { return false }
        guard let nextAttempt else { return true }
        return now() >= nextAttempt
    }

    /// Keeps the losses of an ended channel until it is known which channel they concern.
    ///
    /// - Returns: whether the caller must send the Ping that decides this; false if it is in flight.
    mutating func deferLosses(_ signal: DroppedSignal) -> Bool {
        defer { isLossProbeInFlight = true }
        pendingLosses = DroppedSignal(
            count: signal.count + (pendingLosses?.count ?? 0),
            observers: signal.observers + (pendingLosses?.observers ?? []),
            reason: signal.reason)
        return !isLossProbeInFlight
    }

    /// Records that this Ping was answered or refused.
    mutating func lossProbeAnswered() { isLossProbeInFlight = false }

    /// Returns the kept losses and forgets them.
    mutating func takePendingLosses() -> DroppedSignal? { pendingLosses.take() }

    /// Records a request for a channel.
    ///
    /// - Returns: the number of the request.
    mutating func asked() -> Int {
        phase = .asking
        question += 1
        return question
    }

    /// Whether this request is the latest one and still has no result.
    func isAsking(_ number: Int) -> Bool { if case .asking = phase { number == question } else { false } }

    mutating func opened(_ channel: ClientChannel, at now: ContinuousClock.Instant) {
        phase = .there(channel)
        openedAt = now
        wasReadToEnd = false
    }

    /// Records that no channel was opened, or that the channel has ended. The next attempt waits for a pause.
    mutating func failed(at now: ContinuousClock.Instant) {
        phase = .none
        ending = nil
        if let openedAt, now - openedAt >= Self.staying { attempts = 0 }
        openedAt = nil
        // The shift is limited only against an overflow; the longest pause is reached before.
        nextAttempt = now + min(Self.firstPause * (1 << min(attempts, 20)), Self.longestPause)
        attempts += 1
    }

    /// Records that this service never provides a channel.
    mutating func unavailable() {
        phase = .none
        isUnsupported = true
    }

    /// Records the service that answered. Another service than before may provide a channel, so the attempts start
    /// again.
    mutating func answered(_ service: UniqueName?) {
        guard service != self.service else { return }
        self.service = service
        // The change of the service is reported as a gap of its own, so the losses need no report.
        (wasReadToEnd, pendingLosses) = (false, nil)
        if case .asking = phase { phase = .none }
        (attempts, nextAttempt, isUnsupported) = (0, nil, false)
    }
}

/// The channel: a private socket to the service for posts and notifications, beside the bus (F2). The session requests
/// a channel when the program asks for this transport and has traffic for it.
///
/// The service must receive requests in the program's order, although they use two transports. Two rules ensure this:
///
/// - A post leaves over the channel only after the service has taken all earlier messages on the bus.
/// - Any other request leaves on the bus only after all earlier posts have an outcome.
extension ServiceSession {
    /// The transport of posts and notifications at present.
    public var transport: Transport { channels.channel == nil ? .bus : .channel }

    // MARK: Channel request

    /// Requests a channel if one is wished and may be requested; closes a channel that is no longer wished.
    func lookForChannel() {
        guard wish.value == .channel else {
            // The close waits for the outcomes of all posts, so that no post has to be reported as lost.
            if let channel = channels.channel, channel.sender.postsInFlight == 0 {
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
        // The call has no time limit: after a timeout no code would take the channel from a late answer, and everything
        // that the service has written to it would be lost.
        connection.call(OpenChannel().message(), timeout: .never) { [weak self, weak connection] result in
            guard let self, connection === self.connection, channels.isAsking(number) else { return }
            stopHoldingPosts()
            // The service answers in order: its later reports do not concern an earlier channel.
            channels.wasReadToEnd = false
            let pendingLosses = channels.takePendingLosses()
            // A refusal does not mean that there was no channel: the bus may have refused to deliver the answer with
            // the channel's descriptor. The losses may then concern that channel.
            if case .failure = result, let pendingLosses { announce(pendingLosses) }
            do throws(BusError) {
                let reply = try result.get()
                guard let service = reply.sender else { throw .invalidArgs("the reply has no sender") }
                opened(ClientChannel(try bus.channelStream(in: reply), from: service), after: sent)
            } catch {
                refused(error)
            }
            pump()
        }
    }

    /// Keeps the losses until it is known which channel they concern, and sends a Ping that decides this. The service
    /// answers in order. If the answer to the request for a channel is still missing when the Ping is answered, the bus
    /// did not deliver it. The losses then concern the undelivered channel.
    func deferLosses(_ signal: DroppedSignal) {
        guard channels.deferLosses(signal), let connection else { return }
        connection.call(Self.ping) { [weak self, weak connection] result in
            // The end of a connection is reported as a gap of its own.
            guard let self, connection === self.connection else { return }
            channels.lossProbeAnswered()
            // A refusal may arrive out of order.
            guard case .success = result, let pendingLosses = channels.takePendingLosses() else { return }
            announce(pendingLosses)
        }
    }

    /// Ends the wait of posts for the first channel.
    private func stopHoldingPosts() {
        channels.isHoldingPosts = false
        channels.patience = nil
    }

    /// Records a refused request for a channel, and reports the reason.
    private func refused(_ error: BusError) {
        if error.meansAnotherProgram { channels.unavailable() } else { channels.failed(at: bus.now) }
        receiver.transportChanged(to: .bus, because: "\(error)")
    }

    /// Begins to use a channel.
    ///
    /// - Parameter sent: ``Channels/sentOnBus`` when the channel was requested. The answer proves that the service has
    ///   taken the requests before.
    private func opened(_ channel: ClientChannel, after sent: UInt64) {
        channels.opened(channel, at: bus.now)
        channels.takenFromBus = max(channels.takenFromBus, sent)
        channel.onFrame = { [unowned self] frame, mayWait in take(frame, mayWait: mayWait) }
        channel.onTurn = { [unowned self] in pump() }
        channel.onClosing = { [unowned self, unowned channel] reason, discardsFrames in
            // Frames that can't be understood are discarded, and may contain notifications.
            if discardsFrames { receiver.mayHaveMissed(.undecodable(reason)) }
            channels.ending = bus.once(milliseconds: Channels.endingMilliseconds) { [unowned channel] in
                channel.finish("the service did not end it in time")
            }
        }
        channel.onEnd = { [unowned self, unowned channel] reason in
            ended(channel, because: reason)
            pump()
        }
        receiver.transportChanged(to: .channel, because: nil)
    }

    // MARK: Sending

    /// Sends the request, or the posts, at the head of the outbox: posts over the channel, other requests on the bus.
    ///
    /// - Returns: whether more requests may leave.
    func sendNext(besides channel: ClientChannel) -> Bool {
        guard wish.value == .channel else {
            lookForChannel()
            return false
        }
        guard let isPost = outbox.isPostNext else { return false }
        if isPost {
            // A channel to a former service takes no posts, because posts go to the present service.
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
        guard channel.sender.postsInFlight == 0, let (requests, confirms) = outbox.next(.not),
            let request = requests.first
        else { return false }
        sendOnBus(request, confirms: confirms)
        return true
    }

    /// Sends a Ping on the bus. The service answers in order, so the answer proves that it has taken all earlier
    /// messages on the bus. After that, posts may leave over the channel.
    private func settleBus() {
        // While the first batch is on trial, its posts may have to be sent again on the bus; a Ping does not cover
        // that.
        guard !channels.isSettlingBus, batching.knowledge != .trialInFlight, let connection else { return }
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

    /// A call of `Peer.Ping` to the service, which it answers after all earlier calls.
    static var ping: Message { ping(to: Wire.busName) }

    /// A call of `Peer.Ping` to a name.
    static func ping(to name: some BusName, startsService: Bool = true) -> Message {
        .methodCall(
            to: name, path: Wire.path, interface: "org.freedesktop.DBus.Peer", member: "Ping",
            startsService: startsService)
    }

    // MARK: Receiving

    /// Handles a frame of the channel: a notification, the outcome of a post, or a control signal.
    ///
    /// - Parameter mayWait: whether the frame may wait for the number of a registration, which arrives on the bus. It
    ///   may not when the channel is read to its end.
    private func take(_ frame: ClientChannel.Frame, mayWait: Bool) -> ClientChannel.FrameResult {
        switch frame.kind {
        case .notification:
            guard let notification = ArrivedNotification(channelBody: frame.body, like: &recent),
                notification.sequence == frame.number
            else { break }
            if mayWait, mayBecomeKnown(notification.observers) { return .notYet }
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
            // A loss needs no observer. A revoked permission concerns certain observers, whose numbers must be known.
            if mayWait, signal.reason == DroppedSignal.notAllowed, mayBecomeKnown(signal.observers) { return .notYet }
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

    /// Whether one of the observers has an unknown number that may still arrive on the bus, in the answer to a
    /// registration.
    private func mayBecomeKnown(_ observers: [ObserverID]) -> Bool {
        registrations.hasPendingRequests && observers.contains { registrations.key(of: $0) == nil }
    }

    // MARK: End of the channel

    /// Handles all frames that the service wrote to the channel before the current message on the bus. The order of
    /// both transports is kept this way.
    func drainChannel() {
        channels.channel?.drain()
    }

    /// Handles the end of the channel: all traffic uses the bus from now on. Posts that were not sent completely return
    /// to the outbox. Sent posts without an outcome fail, because the service may have made them.
    private func ended(_ channel: ClientChannel, because reason: String) {
        guard channels.channel === channel else { return }
        channels.failed(at: bus.now)
        channels.wasReadToEnd = channel.isReadToEnd
        // The service sends notifications again unless it knows that they were read, so duplicates may follow.
        sequence.mayRepeat()
        let (unknown, unsent) = channel.sender.takeFlights()
        outbox.confirmed(unknown.count + unsent.count)
        outbox.putBack(unsent)
        if !unknown.isEmpty { channels.failedBarriers = outbox.barriers }
        receiver.transportChanged(to: .bus, because: reason)
        // These posts are not sent again, because the service may have made them already.
        let error = BusError.disconnected("the channel ended before the answer came: \(reason)")
        for post in unknown { post.settle(.failure(error), receiver) }
    }

    /// Ends the channel at once, after the loss of the connection or a change of the service. Frames written until now
    /// are still read.
    func endChannel(_ reason: String) {
        guard let channel = channels.channel else { return }
        // Unlike the previous handler, this one does not send requests, because the session is about to change its
        // state.
        channel.onEnd = { [unowned self, unowned channel] reason in ended(channel, because: reason) }
        channel.drain()
        channel.finish(reason)
    }
}
