// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// What a plain client has of channels.
struct ChannelState {
    fileprivate(set) var channel: PlainChannel?
    /// Whether posts stay on the bus although there is a channel: some were sent there that it would overtake.
    fileprivate var isForReading = false
    fileprivate var isAsking = false
    fileprivate var question = 0
    /// Posts that wait until it is known which way they go.
    fileprivate var held: [Int] = []
    fileprivate var isServingScheduled = false
    /// What a liar has to say when there is one.
    fileprivate var lies: [(PlainChannel) -> Void] = []

    /// Whether posts go by a channel, or wait for what becomes of one.
    var isInUse: Bool { isHolding || channel != nil && !isForReading }

    /// A post on the bus must not overtake those on a channel that ends.
    fileprivate var isHolding: Bool { isAsking || channel?.isClosing == true && !isForReading }
}

/// A program that goes by a channel where it can, and on by the bus where it can't (F2).
extension PlainClient {
    /// How long posts wait for the answer; then they go by the bus, and so do all that follow.
    private static let channelPatience: Int64 = 3_000_000
    private static let callsInTurn = 64

    // MARK: Beginning

    func openChannel() {
        whenNamed { [unowned self] _ in
            guard isThere, !channels.isAsking else { return }
            channels.isAsking = true
            channels.question += 1
            let question = channels.question
            // The answer may be what lies unread.
            if let witness { ledger.channelClients.insert(witness.client) }
            call(OpenChannel().message()) { [unowned self] result in channelAnswered(result, question) }
            world.after(Self.channelPatience) { [weak self] in
                guard let self, isThere, channels.isAsking, channels.question == question else { return }
                world.note("\(name) waits no longer for a channel")
                channels.isAsking = false
                // What it has still ends when the answer comes.
                channels.isForReading = true
                if let channel = channels.channel { channels.held = channel.takeUnsent() + channels.held }
                ledger.beginStretch(of: witness!.client)
                release()
            }
        }
    }

    private var name: String { witness?.client.rawValue ?? "?" }

    private func channelAnswered(_ result: Result<Message, BusError>, _ question: Int) {
        guard isThere else { return }
        // One that it had given up has something for it all the same.
        let isLatest = question == channels.question
        let isInTime = isLatest && channels.isAsking
        if isLatest { channels.isAsking = false }
        guard case .success(let reply) = result, let descriptor = try? OpenChannel.reply(in: reply),
            let stream = streams.take(descriptor), let service = reply.sender
        else {
            world.note("\(name) gets no channel: \(result.text)")
            return release()
        }
        // The one before has ended; what was not sent goes with what follows.
        if let before = channels.channel { readToEnd(before, behind: service) }
        let channel = PlainChannel(stream, of: service, grain: role.grain)
        world.note("\(name) has a channel")
        channels.channel = channel
        // A liar's posts are lost behind its lies.
        channels.isForReading = !isInTime || role.isLiar
        channel.end.onChange = { [weak self] in self?.scheduleChannel() }
        let lies = channels.lies
        channels.lies = []
        for lie in lies { lie(channel) }
        release()
        scheduleChannel()
    }

    // MARK: Out

    /// A post goes by the channel, or waits.
    func postBesideBus(_ number: Int) {
        guard !channels.isHolding, let channel = channels.channel, !channels.isForReading else {
            return channels.held.append(number)
        }
        let plan = ledger.posts[number].plan
        let body = ledger.pattern(for: plan).message(UInt64(number), serial: 1).marshalledBody
        channel.append(body, post: number, wantsOutcome: plan.wantsAnswer)
        scheduleChannel()
    }

    private func release() {
        guard !channels.isHolding else { return }
        let held = channels.held
        channels.held = []
        for number in held {
            ledger.postpone(number)
            if channels.isInUse { postBesideBus(number) } else { postOnBus(number) }
        }
    }

    // MARK: Turns

    func scheduleChannel() {
        guard let channel = channels.channel, !channels.isServingScheduled, !isStopped, isThere else { return }
        guard channel.isReadable || channel.isWaiting && (channel.end.isWritable || channel.end.room == nil) else {
            return
        }
        channels.isServingScheduled = true
        world.after(5 * slowness) { [weak self] in self?.serveChannel() }
    }

    private func serveChannel() {
        channels.isServingScheduled = false
        guard isThere, !isStopped, let channel = channels.channel else { return }
        channel.write(calls: Self.callsInTurn)
        take(channel.read(calls: Self.callsInTurn), from: channel)
        guard channels.channel === channel else { return }
        if channel.isAtEnd || channel.fault != nil { ended(channel) }
        scheduleChannel()
    }

    private func take(_ frames: [PlainChannel.Frame], from channel: PlainChannel) {
        guard let witness else { return }
        for frame in frames {
            switch frame {
            case .notification(let receipt): witness.received(receipt)
            case .dropped(_, let observers, DroppedSignal.notAllowed): revoked(observers)
            case .dropped(let count, _, let reason):
                witness.dropped(DroppedSignal(count: count, observers: [], reason: reason))
            case .suspensionChanged(let isSuspended, let cause): witness.told(isSuspended: isSuspended, cause: cause)
            case .outcome(let number, let receivers, let error):
                guard let post = channel.settle(number) else {
                    if !role.isLiar { world.violate("F2", "\(name) gets an outcome of \(number), which it never sent") }
                    continue
                }
                if let error = PostOutcome(receivers: receivers, errorName: error).error {
                    ledger.refuse(post, because: error)
                } else {
                    ledger.settle(post, .accepted(receivers: receivers, at: world.now))
                }
            }
        }
        if let fault = channel.fault { world.violate("F2", "\(name): \(fault)") }
    }

    // MARK: Ending

    /// Something came on the bus that comes there only to who has no channel: what is in the channel comes before that.
    func channelHasEnded(telling service: UniqueName) {
        guard let channel = channels.channel else { return }
        readToEnd(channel, behind: service)
        ended(channel)
    }

    /// - Parameter service: who sent what came on the bus. One that was replaced may be stopped, so that its channels have
    ///   no end.
    private func readToEnd(_ channel: PlainChannel, behind service: UniqueName) {
        take(channel.read(calls: 1 << 12, grain: 64 << 10), from: channel)
        if !channel.isAtEnd, channel.service == service {
            world.violate("F2", "\(name) gets notifications on the bus, and its channel has not ended")
        }
        channels.held = channel.takeUnsent() + channels.held
    }

    private func ended(_ channel: PlainChannel) {
        world.note("\(name) has no channel any more")
        channels.held = channel.takeUnsent() + channels.held
        forget(channel)
        release()
    }

    private func forget(_ channel: PlainChannel) {
        channel.end.close()
        channels.channel = nil
        channels.isForReading = false
    }

    /// - Parameter abruptly: whether what lies unread is lost, and what it posts next need not come behind what it has
    ///   posted there.
    func closeChannel(abruptly: Bool) {
        guard let channel = channels.channel, witness != nil else { return }
        guard abruptly else {
            channel.closeInOrder()
            return scheduleChannel()
        }
        // Of one that the service has ended nobody hears what is left there.
        if channel.end.isHungUp { take(channel.read(calls: 1 << 12, grain: 64 << 10), from: channel) }
        guard channels.channel === channel else { return }
        ledger.beginStretch(of: witness!.client)
        witness?.discards()
        ended(channel)
    }

    /// It leaves the bus, with its channel or ahead of that.
    func leaveChannel(abruptly: Bool) {
        defer { channels = ChannelState() }
        guard let channel = channels.channel else { return }
        channel.end.onChange = nil
        guard !abruptly, peer.number % 3 > 0 else { return channel.end.close() }
        if peer.number % 3 == 1 { channel.closeInOrder() }
        world.after(Int64(peer.number % 7) * 20_000) { channel.end.close() }
    }

    // MARK: Lies

    /// Tells it on the channel, or on the next one.
    func lieOnChannel(_ lie: ChannelLie, _ random: inout Random) {
        var own = random
        let tell = { [unowned self] (channel: PlainChannel) in
            lie.tell(on: channel, &own)
            scheduleChannel()
            guard case .cut = lie else { return }
            world.after(2000) { [weak self] in
                guard let self, isThere, channels.channel === channel else { return }
                closeChannel(abruptly: true)
            }
        }
        if let channel = channels.channel, !channel.isClosing { return tell(channel) }
        channels.lies.append(tell)
        openChannel()
    }
}

extension Result where Success == Message, Failure == BusError {
    fileprivate var text: String {
        switch self {
        case .success: "without a descriptor"
        case .failure(let error): "\(error)"
        }
    }
}
