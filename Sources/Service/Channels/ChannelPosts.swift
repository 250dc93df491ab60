// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The input of channels (F2): opens them, takes the posts of their clients, and ends them.
///
/// A post is checked, counted and posted like a post on the bus. Posts beyond a process's time share stay in the socket
/// until its queue is served, so the process itself waits (E4).
///
/// Threads: that of the context.
final class ChannelPosts {
    private enum Outcome {
        case accepted(ChannelPost, Receipt)
        case refused(ChannelPost, name: String, BusError)
    }

    /// The bytes of a post's options up to which the post is kept.
    private static let maxBytesOfOptions = 4 << 10
    /// The bytes that a name and an object take in a frame besides their own.
    private static let maxBytesBesideTexts = 16

    private unowned let driver: CenterDriver
    private unowned let turns: DeliveryTurns
    private unowned let callers: Callers
    private unowned let gate: PolicyGate
    private unowned let refusals: RejectionLog
    private unowned let configuration: ConfigurationKeeper
    private let machine: Machine
    /// The queue that decides when a channel is served; nil where nothing is read from a bus.
    weak var calls: CallQueue?
    private var faults = Log.Throttle<ClientName>()
    /// The answers to the calls that opened the current channels. They are not members of the channels, because kept
    /// answers refer to channels.
    private var openings: [UniqueName: MethodCall.Answer] = [:]

    init(
        driver: CenterDriver, turns: DeliveryTurns, callers: Callers, gate: PolicyGate, refusals: RejectionLog,
        configuration: ConfigurationKeeper, machine: Machine
    ) {
        self.driver = driver
        self.turns = turns
        self.callers = callers
        self.gate = gate
        self.refusals = refusals
        self.configuration = configuration
        self.machine = machine
    }

    private var channels: Channels { driver.effects.channels }

    // MARK: Opening

    /// Answers a call of ``OpenChannel``. An earlier channel of the caller ends first, because the caller may never
    /// have got it. Its posts are taken before the answer.
    ///
    /// - Throws: ``BusError`` if the caller wants no answer or does not read its answers, if the configuration allows
    ///   no channels, or if a limit is reached.
    func open(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        _ = try OpenChannel(from: &arguments)
        try call.expectNoDescriptors()
        guard call.answer.isWanted else { throw .invalidArgs("a channel is in the reply, and the call expects none") }
        guard configuration.current.allowsChannels else {
            throw BusError(.channelsDisabled, message: "the configuration of the service allows no channels")
        }
        let client = call.sender
        // Each unread answer would hold a descriptor.
        guard !driver.effects.answers.keepsReplies(for: client) else {
            throw Self.unread
        }
        if let before = channels[client] {
            // The client's next call is served after the channel's posts, unless the bus has reported another account
            // of the client meanwhile.
            before.next?.reply(with: BusError(.limitExceeded, message: "the caller has requested another one since"))
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
        // The channel is added before the answer, because a probe may be due with the answer.
        channels.add(channel, after: before)
        call.reply(to: OpenChannel.self, other)
        // The answer may have to wait for the client's window.
        openings[client] = call.answer
        driver.effects.answers.whenSent(to: client) { [weak channel, unowned self] in
            let isWanted = { [weak channel] in channel?.isOpen == true }
            driver.effects.whenCarried(while: isWanted) { [weak channel, unowned self] in
                guard let channel, !driver.isOver else { return }
                channel.refusalEnd = driver.context.now + Self.timeOfRefusal
                channels.noteCarried(channel)
                driver.effects.eventEnded(isMoreDue: false)
            }
        }
        Log.info("\(client) has a channel", ["CARILLON_CLIENT": client.rawValue])
    }

    /// The time after the answer in which a closed end means that the bus refused the descriptor. The closed end shows
    /// when the channel is served next.
    private static let timeOfRefusal = Duration.seconds(10)
    static let unread = BusError(.limitExceeded, message: "the caller does not read its replies")
    private static let refused = BusError(
        name: BusError.notSupportedName,
        message: "the channel's descriptor was not delivered: the caller accepts none, or the system is at a limit")

    // MARK: Taking

    /// Takes the next posts of a channel.
    ///
    /// - Returns: the number of posts, and whether more of them may follow at once.
    func take(from channel: Channel) -> (count: Int, isMore: Bool) {
        let count = take(
            from: channel, WorkSlice(isUnderBackpressure: driver.center.isUnderBackpressure, at: driver.context.now))
        let isMore =
            channel.end == nil
            ? channel.waiting != nil || channel.reader.hasNext && channel.readsOutcomes : !channel.isExhausted
        return (count, isMore && channel.isOpen && !driver.isOver)
    }

    /// Returns the number of posts that were taken.
    private func take(from channel: Channel, _ piece: WorkSlice) -> Int {
        guard channel.isOpen, !driver.isOver else { return 0 }
        let limits = driver.center.limits
        let maxOfTexts = Int(limits[.nameLength] + limits[.objectLength])
        channel.beginSlice(
            maxKept: maxOfTexts + Int(limits[.userInfoBytes]) + Self.maxBytesOfOptions,
            maxHead: maxOfTexts + Self.maxBytesBesideTexts)
        var piece = piece
        var results: [Outcome] = []
        var waitsForIdleness = false
        driver.perform { effects in
            while piece.hasRoom(at: driver.context.now), let next = next(of: channel, limits, &effects) {
                piece.take()
                if let result = take(next, of: channel, &waitsForIdleness, &effects) { results.append(result) }
                guard channel.waiting == nil else { break }
            }
            channel.endSlice()
            if !hold(channel.bytesToHold, of: channel, isWhole: !channel.mayGiveUpPart, &effects) {
                channel.giveUpPart()
                _ = hold(channel.bytesToHold, of: channel, isWhole: true, &effects)
            }
        }
        for _ in 0..<(piece.count + 7) / 8 { turns.noteActivity() }
        let answers = results.compactMap { result -> ChannelAnswer? in
            switch result {
            case .accepted(let post, let receipt): return driver.answer(to: post, with: receipt)
            case .refused(let post, let name, let error):
                refusals.note(post, error, name: name)
                return post.answered(ChannelOutcome(error))
            }
        }
        driver.send(answers)
        if waitsForIdleness { turns.expectIdleness() }
        endIfOver(channel)
        return piece.count
    }

    /// Returns the next post of a channel; nil when there is none now, or the stream is malformed.
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

    /// Charges a channel's client for the held bytes of the channel. Processes that hold more give up some of theirs.
    ///
    /// - Parameter isWhole: whether the held bytes can't be given up, so that they are charged even beyond the quota.
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

    private func read(
        _ frame: ChannelFrame, of channel: Channel, _ limits: Limits
    ) throws(ChannelFrame.Fault) -> ReadPost {
        let answer = ChannelPost(channel: channel, number: frame.number)
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
            // A missing name is reported by the check of the post itself.
            #if CARILLON_PLANTED
                let isPoliced = !name.isEmpty && !PlantedFault.strikes(.channelUnpoliced)
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

    /// Posts a post, or refuses it.
    ///
    /// - Returns: nil for an accepted post without outcome, for a lost post, and for a post that is continued in a
    ///   later work slice.
    private func take(
        _ read: ReadPost, of channel: Channel, _ waitsForIdleness: inout Bool, _ effects: inout [Effect]
    ) -> Outcome? {
        let client = channel.client
        do throws(BusError) {
            guard let post = try read.post?.get() else { return nil }
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

    /// Ends a channel when all posts that its client has written have been taken, in the order of the queue.
    ///
    /// - Parameters:
    ///   - end: the reason for the end.
    ///   - isNext: whether the posts are taken before other entries of the account.
    private func end(_ channel: Channel, _ end: Channel.End, next isNext: Bool = false) {
        channel.end = end
        driver.effects.answers.release(for: channel)
        // The client can't write any more, so its posts come to an end.
        channel.socket.stopReceiving()
        if let calls { calls.keep(channel, first: isNext) } else { takeRest(of: channel) }
    }

    private func endIfOver(_ channel: Channel) {
        switch channel.end {
        case .finishing(let mayBeUnread)?:
            if channel.isOpen, channel.isExhausted { finish(channel, mayBeUnread: mayBeUnread) }
            return
        case .left?: return
        case nil: break
        }
        guard channel.isOpen, channel.isExhausted else { return }
        if channel.fault == nil {
            // The client may have closed its writing side only. It then reads the outcomes of its posts up to the end.
            if channel.outcomesDue > 0 { driver.perform { effects in driver.center.sendAllReady(effects: &effects) } }
            driver.effects.answers.release(for: channel)
            driver.effects.eventEnded(isMoreDue: false)
            guard channel.isOpen, !channel.owesOutcomes else { return }
        }
        if let fault = channel.fault {
            if let count = faults.note(channel.client) {
                Log.warning(
                    "the channel of \(channel.client) ended: it sent \(fault) (\(count) such ends so far)",
                    ["CARILLON_CLIENT": channel.client.rawValue, "CARILLON_REASON": "malformed-frame"])
            }
            channels.end(channel, mayBeUnread: channel.socket.wasReset)
        } else {
            if channel.mayBeRefused(at: driver.context.now) {
                openings[channel.client]?.reply(with: Self.refused)
            }
            let isCut = !channel.reader.isBetweenFrames
            Log.info(
                "the channel of \(channel.client) ended\(isCut ? " in the middle of a frame" : "")",
                ["CARILLON_CLIENT": channel.client.rawValue])
            channels.end(channel, mayBeUnread: channel.socket.wasReset || channel.socket.isAnythingUnread)
        }
        openings[channel.client] = nil
        driver.effects.eventEnded(isMoreDue: false)
    }

    /// Ends a channel after all its posts were taken, and opens the next channel if the client has requested one.
    private func finish(_ channel: Channel, mayBeUnread: Bool) {
        // Outcomes are written behind the notifications of their posts.
        driver.perform { effects in driver.center.sendAllReady(effects: &effects) }
        // A channel whose descriptor the bus has not carried may never be read, either.
        let isUnread = (mayBeUnread || !channel.isCarried) && channel.socket.isAnythingUnread
        channels.end(channel, mayBeUnread: channel.socket.wasReset || isUnread)
        openings[channel.client] = nil
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

    /// Takes the remaining posts at once, without waiting for the queue.
    private func takeRest(of channel: Channel) {
        for _ in 0..<Self.maxPiecesAtEnd {
            guard channel.isOpen, !channel.isExhausted, !driver.isOver else { break }
            _ = take(from: channel, WorkSlice(most: Self.pieceAtEnd))
        }
        endIfOver(channel)
    }

    private static let pieceAtEnd = 256
    /// The maximum number of work slices in which the rest is taken. No socket holds more posts.
    private static let maxPiecesAtEnd = 1 << 16

    /// Ends all channels. Their clients continue on the bus.
    ///
    /// - Parameter isLast: whether the process ends, so that the remaining posts are taken at once.
    func endAll(isLast: Bool = false) {
        for channel in channels.all {
            if channel.end == nil { end(channel, .finishing(mayBeUnread: false)) }
            if isLast { takeRest(of: channel) }
        }
    }

    /// Takes the rest of the posts that were begun, because the queue is served no more.
    func finishBegun() {
        for channel in channels.all {
            while channel.isOpen, channel.waiting != nil, !driver.isOver { _ = take(from: channel, WorkSlice(most: 1)) }
        }
    }

    /// Ends the channel of a client that has left the bus. The client's end is served after its earlier posts.
    func isLeaving(_ client: UniqueName) {
        guard let channel = channels[client] else { return }
        end(channel, .left)
    }

    /// Takes the remaining posts of a client that has left the bus, and removes its channel.
    func left(_ client: UniqueName) {
        openings[client] = nil
        guard let channel = channels[client] else { return }
        takeRest(of: channel)
        channels.forget(client)
    }
}
