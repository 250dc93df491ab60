// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The input of all channels (F2): opens them for calls of `OpenChannel`, reads the posts of their clients, and ends
/// them. ``Channels`` is the output.
///
/// A post is checked by policy, counted and posted like a post on the bus. A readable channel is served by the
/// ``CallQueue`` like a call of its account. Posts beyond the account's time share stay in the socket until then, so a
/// full socket makes the posting process wait (E4).
///
/// Threads: only that of the service's main loop.
final class ChannelPosts {
    /// The result of a post with a wanted outcome, or of a refused post.
    private enum Outcome {
        case accepted(ChannelPost, Receipt)
        case refused(ChannelPost, name: String, BusError)
    }

    /// The bytes for the options of a post in the longest frame that is kept. Longer frames are skipped, and their
    /// posts refused.
    private static let maxBytesOfOptions = 4 << 10
    /// The bytes that the lengths, ends and alignment of a name and an object take in a frame.
    private static let maxBytesBesideTexts = 16

    private unowned let driver: CenterDriver
    private unowned let deliverySources: DeliverySources
    private unowned let callers: Callers
    private unowned let gate: PolicyGate
    private unowned let refusals: RejectionLog
    private unowned let configuration: ConfigurationKeeper
    private let machine: Machine
    /// The queue that decides when a channel is served. Without one, as in some tests, each channel is served at once.
    weak var calls: CallQueue?
    /// The throttle of the log messages about malformed frames.
    private var faults = Log.Throttle<ClientName>()
    /// The replies to the `OpenChannel` calls of the current channels, for a later error. They are not stored in the
    /// channels, because a kept reply may refer to a channel and the references would be a cycle.
    private var openingReplies: [UniqueName: MethodCall.Answer] = [:]

    init(
        driver: CenterDriver, deliverySources: DeliverySources, callers: Callers, gate: PolicyGate,
        refusals: RejectionLog,
        configuration: ConfigurationKeeper, machine: Machine
    ) {
        self.driver = driver
        self.deliverySources = deliverySources
        self.callers = callers
        self.gate = gate
        self.refusals = refusals
        self.configuration = configuration
        self.machine = machine
    }

    private var channels: Channels { driver.effects.channels }

    // MARK: Opening

    /// Serves a call of ``OpenChannel``: opens a channel, and replies with the descriptor of the client's end.
    ///
    /// A client has one channel. If it has one already, it may never have got it. That channel then ends, its posts are
    /// taken, and the call is served again by ``finish(_:mayBeUnread:)``.
    ///
    /// - Throws: ``BusError`` if the caller wants no reply or does not read its replies, if the configuration allows no
    ///   channels, or if a limit is reached.
    func open(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        _ = try OpenChannel(from: &arguments)
        try call.expectNoDescriptors()
        guard call.answer.isWanted else {
            throw .invalidArgs("the reply carries the channel, and the call expects no reply")
        }
        guard configuration.current.allowsChannels else {
            throw BusError(.channelsDisabled, message: "the configuration of the service allows no channels")
        }
        let client = call.sender
        // Each unread reply would hold a descriptor of the service.
        guard !driver.effects.answers.keepsReplies(for: client) else {
            throw Self.unread
        }
        if let before = channels[client] {
            // A call that waits already is replaced by this one. The old channel's posts are taken ahead of the
            // client's next call, unless the bus has reported another account of the client meanwhile.
            before.next?.reply(
                with: BusError(.limitExceeded, message: "the caller has requested another channel since"))
            before.next = call
            end(before, .finishing(mayBeUnread: true), next: true)
            return
        }
        let account = callers[client]?.account ?? .connection(client)
        let most = driver.center.limits[.channelsPerProcess]
        guard channels.count(of: account) < most else {
            throw BusError(.limitExceeded(.channelsPerProcess, value: most))
        }
        guard let (own, other) = machine.makeStream() else {
            throw BusError(.limitExceeded, message: "the service has no file descriptors left")
        }
        let before = try mappingCenterErrors { () throws(CenterError) in
            try driver.perform { effects throws(CenterError) in
                try driver.center.channelOpened(
                    of: client, maxUnasked: Channels.maxUnasked, effects: &effects)
            }
        }
        let channel = Channel(of: client, account, own, context: driver.context)
        channel.isServed = { [unowned driver] in driver.center.isServed(client) }
        channel.onReadable = { [unowned self] channel in
            if let calls { calls.take(channel) } else { _ = take(from: channel) }
        }
        // The channel is added before the reply, because the reply may cause a probe.
        channels.add(channel, after: before)
        call.reply(to: OpenChannel.self, other)
        // The reply may wait for the client's window. The barrier that shows its delivery therefore follows when it was
        // sent.
        openingReplies[client] = call.answer
        driver.effects.answers.whenSent(to: client) { [weak channel, unowned self] in
            let isWanted = { [weak channel] in channel?.isOpen == true }
            driver.effects.whenCarried(while: isWanted) { [weak channel, unowned self] in
                guard let channel, !driver.isOver else { return }
                channel.refusalEnd = driver.context.now + Self.timeOfRefusal
                channels.noteCarried(channel)
                driver.effects.eventEnded(isMoreDue: false)
            }
        }
        Log.info("opened a channel for \(client)", ["CARILLON_CLIENT": client.rawValue])
    }

    /// The time after the reply in which an unused channel with a closed end means that the bus or the client has
    /// refused the descriptor. It is long, because the end shows only when the channel is served.
    private static let timeOfRefusal = Duration.seconds(10)
    /// The error for callers that do not read their replies, for all methods of the service.
    static let unread = BusError(.limitExceeded, message: "the caller does not read its replies")
    /// The error for a client that did not get its end of the channel.
    private static let refused = BusError(
        name: BusError.notSupportedName,
        message: "the channel's descriptor was not delivered: the caller accepts none, or the system is at a limit")

    // MARK: Taking

    /// Reads and posts the next posts of a channel, for one work slice.
    ///
    /// - Returns: the number of posts, and whether the channel has more work at once.
    func take(from channel: Channel) -> (count: Int, isMore: Bool) {
        let count = take(
            from: channel, WorkSlice(isUnderBackpressure: driver.center.isUnderBackpressure, at: driver.context.now))
        // The posts of a channel that is ending are taken even if the client leaves their outcomes unread.
        let isMore =
            channel.end == nil
            ? channel.waiting != nil || channel.reader.hasNext && channel.readsOutcomes : !channel.isExhausted
        return (count, isMore && channel.isOpen && !driver.isOver)
    }

    /// Reads and posts the next posts of a channel within a work slice, as one event of the core. Returns their number.
    private func take(from channel: Channel, _ slice: WorkSlice) -> Int {
        guard channel.isOpen, !driver.isOver else { return 0 }
        let limits = driver.center.limits
        let maxOfTexts = Int(limits[.nameLength] + limits[.objectLength])
        channel.beginSlice(
            maxKept: maxOfTexts + Int(limits[.userInfoBytes]) + Self.maxBytesOfOptions,
            maxHead: maxOfTexts + Self.maxBytesBesideTexts)
        var slice = slice
        var results: [Outcome] = []
        var waitsForIdleness = false
        driver.perform { effects in
            while slice.hasRoom(at: driver.context.now), let next = next(of: channel, limits, &effects) {
                slice.take()
                if let result = take(next, of: channel, &waitsForIdleness, &effects) { results.append(result) }
                guard channel.waiting == nil else { break }
            }
            channel.endSlice()
            // If the quota has no space for the memory that is still held, an incomplete post is discarded.
            if !hold(channel.bytesToHold, of: channel, isWhole: !channel.mayGiveUpPart, &effects) {
                channel.giveUpPart()
                _ = hold(channel.bytesToHold, of: channel, isWhole: true, &effects)
            }
        }
        // Eight posts count as one message that was read from the bus. The delivery sources bound such messages between
        // two deliveries.
        for _ in 0..<(slice.count + 7) / 8 { deliverySources.noteActivity() }
        let answers = results.compactMap { result -> ChannelAnswer? in
            switch result {
            case .accepted(let post, let receipt): return driver.answer(to: post, with: receipt)
            case .refused(let post, let name, let error):
                refusals.note(post, error, name: name)
                return post.answered(ChannelOutcome(error))
            }
        }
        driver.send(answers)
        if waitsForIdleness { deliverySources.expectIdleness() }
        endIfOver(channel)
        return slice.count
    }

    /// Returns the next post of a channel: a post to continue, or a new one. Returns nil when there is none now, or the
    /// stream is malformed.
    private func next(of channel: Channel, _ limits: Limits, _ effects: inout [Effect]) -> ReadPost? {
        if let waiting = channel.waiting.take() { return waiting }
        guard let frame = channel.nextFrame(hold: { hold($0, of: channel, &effects) }) else { return nil }
        driver.noteServing()
        do throws(ChannelFrame.Fault) {
            return try read(frame, of: channel, limits)
        } catch {
            channel.fail(error)
            return nil
        }
    }

    /// Charges a channel's client for the memory that the channel holds for incomplete and waiting posts. If the quota
    /// has no space, incomplete posts of processes that hold more are discarded.
    ///
    /// - Parameters:
    ///   - byteCount: the held bytes.
    ///   - isWhole: whether they can't be given up, so that they are charged even beyond the quota.
    /// - Returns: false if the quota does not allow it; nothing has changed then.
    private func hold(
        _ byteCount: Int, of channel: Channel, isWhole: Bool = false, _ effects: inout [Effect]
    ) -> Bool {
        guard byteCount != channel.heldBytes else { return true }
        let (center, client) = (driver.center, channel.client)
        if !center.holdParts(of: client, byteCount: byteCount, isWhole: isWhole, effects: &effects) {
            let others = center.partsToGiveUp(for: client, byteCount: byteCount) { channels[$0]?.mayGiveUpPart == true }
            guard !others.isEmpty else { return false }
            for other in others.compactMap({ channels[$0] }) {
                other.giveUpPart()
                _ = hold(other.bytesToHold, of: other, &effects)
            }
            guard center.holdParts(of: client, byteCount: byteCount, effects: &effects) else { return false }
        }
        channel.heldBytes = byteCount
        return true
    }

    /// Decodes the post of a frame, and checks name and object against policy and limits.
    ///
    /// - Throws: a fault of the frame, with which the channel ends. An error of the post is in the result.
    private func read(
        _ frame: ChannelFrame, of channel: Channel, _ limits: Limits
    ) throws(ChannelFrame.Fault) -> ReadPost {
        let answer = ChannelPost(channel: channel, number: frame.number)
        // The quota had no space for the body. A post without outcome is then lost, as on the bus.
        if frame.cut == .room, frame.number == 0, let outline = PostOutline(channelHead: frame.body),
            calls?.lose(outline, ofChannelOf: channel.client) == true
        {
            return ReadPost(answer: answer, name: outline.name, post: nil)
        }
        if let cut = frame.cut {
            let key = cut == .length ? Limits.Key.userInfoBytes : .waitingCallBytes
            let error = BusError(.limitExceeded(key, value: limits[key]))
            return ReadPost(answer: answer, name: "", post: .failure(error))
        }
        let client = channel.client
        let (name, post) = try Post<WireUserInfo>.read(channelBody: frame.body, limits: limits) {
            [gate, driver] name, object throws(BusError) in
            // An empty name is refused by the check of the core below.
            #if CARILLON_PLANTED
                let isPoliced = !name.isEmpty && !PlantedFault.strikes(.channelWithoutPolicy)
            #else
                let isPoliced = !name.isEmpty
            #endif
            if isPoliced { try gate.check(client) { .post(name: name) } }
            try mappingCenterErrors { () throws(CenterError) in
                try driver.center.checkPost(name: name, object: object)
            }
        }
        return ReadPost(answer: answer, name: name, post: post)
    }

    /// Passes a post to the core, or refuses it.
    ///
    /// - Returns: nil for an accepted post without outcome, for a lost post, and for a post that is continued in a
    ///   later work slice.
    private func take(
        _ read: ReadPost, of channel: Channel, _ waitsForIdleness: inout Bool, _ effects: inout [Effect]
    ) -> Outcome? {
        let client = channel.client
        do throws(BusError) {
            guard let post = try read.post?.get() else { return nil }
            // `isOfMany` matters only for fault injection.
            if !read.isChecked { try gate.check(post.options, ofPost: post.name, client, isOfMany: true) }
            guard try driver.removeCoalesced(for: post, from: client, effects: &effects) else {
                channel.waiting = read
                channel.waiting?.isChecked = true
                return nil
            }
            let receipt = try mappingCenterErrors { () throws(CenterError) in
                try driver.center.post(
                    name: post.name, object: post.object, userInfo: post.userInfo, options: post.options,
                    from: client, effects: &effects)
            }
            if post.options.postingStyle == .whenIdle { waitsForIdleness = true }
            return read.answer.number == 0 ? nil : .accepted(read.answer, receipt)
        } catch {
            return .refused(read.answer, name: read.name, error)
        }
    }

    // MARK: Ending

    /// Begins the end of a channel: the client can write no more, and the posts that it has written are taken through
    /// the queue. ``endIfOver(_:)`` ends it after them.
    ///
    /// - Parameters:
    ///   - end: the reason for the end.
    ///   - isNext: whether the posts are taken before other entries of the account.
    private func end(_ channel: Channel, _ end: Channel.End, next isNext: Bool = false) {
        channel.end = end
        driver.effects.answers.release(for: channel)
        // Without this, the client could write further posts without end.
        channel.socket.stopReceiving()
        if let calls { calls.keep(channel, first: isNext) } else { takeRemaining(of: channel) }
    }

    /// Ends a channel whose posts were all taken. The reason is that the service ends it, or that the client has closed
    /// its writing side or sent a malformed frame.
    private func endIfOver(_ channel: Channel) {
        switch channel.end {
        case .finishing(let mayBeUnread)?:
            if channel.isOpen, channel.isExhausted { finish(channel, mayBeUnread: mayBeUnread) }
            return
        // The end of the connection, which is queued behind the posts, removes the channel.
        case .left?: return
        case nil: break
        }
        guard channel.isOpen, channel.isExhausted else { return }
        if channel.fault == nil {
            // The client may have closed its writing side only, and may still read the outcomes of its posts. The
            // channel ends when they are written.
            if channel.outcomesDue > 0 { driver.perform { effects in driver.center.sendAllReady(effects: &effects) } }
            driver.effects.answers.release(for: channel)
            driver.effects.eventEnded(isMoreDue: false)
            guard channel.isOpen, !channel.hasPendingOutcomes else { return }
        }
        if let fault = channel.fault {
            if let count = faults.note(channel.client) {
                Log.warning(
                    "the channel of \(channel.client) ended: it sent \(fault) (\(count) such ends so far)",
                    ["CARILLON_CLIENT": channel.client.rawValue, "CARILLON_REASON": "malformed-frame"])
            }
            // The client's end is still open, so the client can read the unread bytes. Only a reset shows that it did
            // not.
            channels.end(channel, mayBeUnread: channel.socket.wasReset)
        } else {
            // The reply with the descriptor may not have arrived. An error reply then ends the client's wait for it.
            if channel.mayBeRefused(at: driver.context.now) {
                openingReplies[channel.client]?.reply(with: Self.refused)
            }
            let isCut = !channel.reader.isBetweenFrames
            Log.info(
                "the channel of \(channel.client) ended\(isCut ? " in the middle of a frame" : "")",
                ["CARILLON_CLIENT": channel.client.rawValue])
            channels.end(channel, mayBeUnread: channel.socket.wasReset || channel.socket.isAnythingUnread)
        }
        openingReplies[channel.client] = nil
        driver.effects.eventEnded(isMoreDue: false)
    }

    /// Ends a channel whose posts were all taken after ``end(_:_:next:)``, and opens the next one if the client has
    /// requested it.
    private func finish(_ channel: Channel, mayBeUnread: Bool) {
        // Scheduled notifications are sent first, because the outcomes of posts wait for them.
        driver.perform { effects in driver.center.sendAllReady(effects: &effects) }
        // The client may never read a channel whose descriptor the bus has not carried.
        let isUnread = (mayBeUnread || !channel.isCarried) && channel.socket.isAnythingUnread
        channels.end(channel, mayBeUnread: channel.socket.wasReset || isUnread)
        openingReplies[channel.client] = nil
        driver.effects.eventEnded(isMoreDue: false)
        guard let call = channel.next else { return }
        channel.next = nil
        do throws(BusError) {
            try open(call)
        } catch {
            refusals.note(call, error)
            call.reply(with: error)
        }
    }

    /// Takes the remaining posts of a channel at once, without waiting for the queue.
    private func takeRemaining(of channel: Channel) {
        for _ in 0..<Self.maxSlicesAtEnd {
            guard channel.isOpen, !channel.isExhausted, !driver.isOver else { break }
            _ = take(from: channel, WorkSlice(most: Self.postsPerSliceAtEnd))
        }
        endIfOver(channel)
    }

    /// The number of posts in a work slice of ``takeRemaining(of:)``.
    private static let postsPerSliceAtEnd = 256
    /// The maximum number of these work slices. No socket holds more posts.
    private static let maxSlicesAtEnd = 1 << 16

    /// Ends all channels. Their clients continue on the bus.
    ///
    /// - Parameter isLast: whether the process ends, so that the remaining posts are taken at once.
    func endAll(isLast: Bool = false) {
        for channel in channels.all {
            if channel.end == nil { end(channel, .finishing(mayBeUnread: false)) }
            if isLast { takeRemaining(of: channel) }
        }
    }

    /// Completes the posts that were posted in part, because the queue is served no more.
    func finishBegun() {
        for channel in channels.all {
            while channel.isOpen, channel.waiting != nil, !driver.isOver { _ = take(from: channel, WorkSlice(most: 1)) }
        }
    }

    /// Begins the end of the channel of a client that has left the bus. ``left(_:)`` follows when the queue reaches the
    /// end of the connection, behind the client's posts.
    func beginLeaving(_ client: UniqueName) {
        guard let channel = channels[client] else { return }
        end(channel, .left)
    }

    /// Takes the remaining posts of a client that has left the bus, and removes its channel. ``beginLeaving(_:)`` was
    /// called before.
    func left(_ client: UniqueName) {
        openingReplies[client] = nil
        guard let channel = channels[client] else { return }
        takeRemaining(of: channel)
        channels.forget(client)
    }
}
