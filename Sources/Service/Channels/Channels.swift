// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The output of all channels (F2): ``EffectRunner`` passes each effect to ``carryOut(_:)``, and effects for a client
/// with a channel are written to the channel instead of the bus. ``ChannelPosts`` opens channels and reads from them.
///
/// The core counts and bounds the frames like messages on the bus (A4). A probe of a channel is answered when all
/// earlier frames have been written to the socket, because the client can read these even if the service dies. The
/// socket of a slow consumer is full after some time. Then its windows stay unacknowledged, and further messages for it
/// wait in the core. Replies to the client's calls are sent on the bus, and have a window of their own.
///
/// When a channel ends, its client continues on the bus: unwritten frames are sent there, and frames that the client
/// may never read are reported to the core as a possible loss.
///
/// Threads: only that of the service's main loop. Nothing here blocks.
final class Channels {
    /// The maximum number of events for which writing is postponed while more effects are due, so that one write has
    /// the frames of several events.
    private static let maxPostponed = 16
    /// The bytes of frames of one channel from which writing is not postponed.
    private static let maxPostponedBytes = 16 << 10

    /// An event for the core, mostly a later result of an effect.
    enum Event {
        /// The client answered the Ping of a probe from before its channel.
        case answered(ClientName)
        /// The client answered a Ping that no probe waits for any more.
        case answers(ClientName)
        /// All frames ahead of the oldest probe were written.
        case drained(ClientName)
        /// The finding whether the client reads, which the core has requested.
        case backlogProbed(ClientName, hasRead: Bool)
        /// The channel ended with notifications and reported losses that the client may never read. `last` is the
        /// sequence number before the first unwritten notification; nil if there is none.
        case cut(ClientName, SentSignals.SignalContent, last: UInt64?)
        /// The bus has carried the client's end of the channel to it.
        case carried(ClientName)
        /// The channel ended before the bus was known to have carried it.
        case endedUndelivered(ClientName)
        /// The channel ended with control signals that the client may never read. Some of them announced the removal of
        /// the observers in `revoked`.
        case controlUnread(ClientName, revoked: Set<ObserverID>)
        /// The channel ended, and its client continues on the bus.
        case gone(ClientName)
    }

    /// Called with each event.
    var report: ((Event) -> Void)!
    /// Sends effects of unwritten frames on the bus.
    var sendOnBus: (([Effect]) -> Void)!
    /// Sends the outcomes that wait for the window of a channel's client on the channel (``ReplyQueue/release(for:)``).
    var releaseKept: ((Channel) -> Void)!
    /// Called with the notifications that were written to a channel that may never have reached its client. The signal
    /// about their possible loss follows.
    var onUncertain: ((ClientName, DeliveryReceipts.Sent) -> Void)!
    /// Called when bytes were written that had waited for space in a socket.
    var onWritten: (() -> Void)!
    /// Counts the steps of the work, to bound the cost of an event (E8). It is the meter of the core.
    var meter = StepMeter()
    private let context: MainContext
    private let prober: ClientProber
    private let backlogProbe: SocketBacklogProbe
    private var channels: [ClientName: Channel] = [:]
    /// The channels with frames that were appended since the last attempt to write.
    private var dirty: [Channel] = []
    /// Whether there are frames to write, or deliveries to confirm to the recovery store. The driver checks it at the
    /// end of each event, and then calls ``eventEnded(isMoreDue:confirming:)``.
    private(set) var needsEventEnd = false
    /// The number of events for which writing was postponed.
    private var postponed = 0
    /// The notifications that were written to clients and not yet confirmed to the recovery store.
    private var carried: [ClientName: DeliveryReceipts.Sent] = [:]
    /// The channels with an answered probe that was not reported.
    private var answered: [Channel] = []
    /// The source that reports answered probes.
    private var source: ReadySource!
    /// The unacknowledged bytes on the bus up to which a new channel sends at once, because a client that reads only
    /// the channel must be served too. With more bytes, the channel first waits for their acknowledgment. It is the
    /// size of a window.
    static let maxUnasked = 64 << 10

    init(on context: MainContext, prober: ClientProber, backlogProbe: SocketBacklogProbe) {
        self.context = context
        self.prober = prober
        self.backlogProbe = backlogProbe
        source = ReadySource(
            on: context, priority: .of(.control), isReady: { [unowned self] in !answered.isEmpty },
            run: { [unowned self] in reportAnswers() })
    }

    /// Whether there are no channels and nothing to confirm.
    var isEmpty: Bool { channels.isEmpty && carried.isEmpty }
    var count: Int { channels.count }

    subscript(client: ClientName) -> Channel? { channels[client] }

    /// All channels, sorted by client, so that the same events have the same results in every process.
    var all: [Channel] { channels.values.sorted { $0.client < $1.client } }

    /// Returns the number of an account's channels.
    func count(of account: AccountID) -> Int {
        meter.count(channels.count)
        return channels.values.count { $0.account == account }
    }

    /// Releases the memory of channels that are gone (E8).
    func releaseMemory() {
        channels.releaseMemory()
        dirty.releaseMemory()
        carried.releaseMemory()
    }

    // MARK: Beginning and end

    /// Adds a channel that was opened. From now on messages for its client are sent on it.
    ///
    /// - Parameter before: the messages on the bus that the client has not acknowledged. The channel has one probe for
    ///   each probe of them that may still be answered.
    func add(_ channel: Channel, after before: DistributedCenter.SentBeforeChannel) {
        channel.onAppended = { [unowned self] in
            dirty.append($0)
            needsEventEnd = true
        }
        channel.onWritable = { [unowned self] channel in
            write(channel)
            onWritten()
        }
        channels[channel.client] = channel
        channel.probes = Array(
            repeating: Channel.Probe(position: 0, waitsForPing: before.needsAnswers), count: before.probes)
        channel.awaitsBacklogProbe = before.isBacklogProbed
        noteAnswer(channel)
    }

    /// Notes that the bus has carried the client's end to it. From now on written frames count as delivered, because
    /// they reach the client even if the service ends.
    func noteCarried(_ channel: Channel) {
        guard channels[channel.client] === channel else { return }
        channel.isCarried = true
        if channel.writtenBeforeCarried != DeliveryReceipts.Sent() {
            carried[channel.client, default: DeliveryReceipts.Sent()].add(channel.writtenBeforeCarried)
            needsEventEnd = true
            channel.writtenBeforeCarried = DeliveryReceipts.Sent()
        }
        report(.carried(channel.client))
    }

    /// Ends a channel. Its client continues on the bus: kept outcomes are written, the possible loss is reported, and
    /// then unwritten frames, control signals and probes continue there.
    ///
    /// - Parameter mayBeUnread: whether the client may never read the unread bytes in the socket.
    func end(_ channel: Channel, mayBeUnread: Bool) {
        guard channels[channel.client] === channel else { return }
        releaseKept(channel)
        if !channel.socket.isBroken { write(channel) }
        // The client may never have got the channel. The next messages on the bus report the possible loss.
        if channel.writtenBeforeCarried != DeliveryReceipts.Sent() {
            onUncertain(channel.client, channel.writtenBeforeCarried)
        }
        remove(channel)
        let effects = unwritten(of: channel)
        // The reports that follow are events of their own, with meters that start at 0.
        meter.endEvent("channelEnded")
        #if CARILLON_PLANTED
            let mayBeUnread = mayBeUnread && !PlantedFault.strikes(.unreportedChannelLoss)
        #endif
        if mayBeUnread, channel.unread != SentSignals.SignalContent() {
            let first = effects.lazy.compactMap(\.firstNumber).first
            report(.cut(channel.client, channel.unread, last: first.map { $0 - 1 }))
        }
        sendOnBus(effects)
        // Reported after the unwritten effects are sent, because the core then sends newer control signals.
        if !channel.isCarried {
            report(.endedUndelivered(channel.client))
        } else if mayBeUnread, let revoked = channel.unreadControl.revoked {
            meter.count(channel.unreadControl.count + revoked.count)
            report(.controlUnread(channel.client, revoked: revoked))
        }
        report(.gone(channel.client))
        // The probes of unwritten frames continue on the bus. A probe that waits for a Ping has its Ping there already.
        for probe in channel.probes where !probe.waitsForPing { prober.probe(channel.client) }
        if channel.awaitsBacklogProbe { backlogProbe.find(channel.client) }
    }

    /// Returns the effects of a channel's unwritten frames, for the bus.
    private func unwritten(of channel: Channel) -> [Effect] {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.discardedFrames) { return [] }
            if channel.isInFrame, PlantedFault.strikes(.partialFrame) { channel.frames.popFirst() }
        #endif
        return forBus(channel.frames, of: channel)
    }

    /// Removes the channel of a client that has left the bus.
    func forget(_ client: ClientName) {
        if let channel = channels[client] {
            remove(channel)
            meter.endEvent("channelForgotten")
        }
        carried[client] = nil
    }

    /// The content of an ended channel that its client may never get.
    struct Lost {
        /// The content of the frames that were not written.
        var unwritten = SentSignals.SignalContent()
        /// The content of the frames that were written and may be unread.
        var unread: SentSignals.SignalContent
        /// Whether the bus is known to have carried the channel to the client.
        let isCarried: Bool
        /// Whether the client has closed the channel with unread bytes.
        let isReset: Bool
        /// The observers that unread control signals announced as removed. Nil if there are no unread control signals,
        /// or the client did not close the channel and can still read them. The core itself resends the control signals
        /// of a channel that was not carried.
        let unreadControl: Set<ObserverID>?
    }

    /// Ends all channels at once, because the connection to the bus has ended. Returns the possible losses of each
    /// client.
    func closeAll() -> [ClientName: Lost] {
        var lost: [ClientName: Lost] = [:]
        defer { meter.endEvent("allChannelsEnded") }
        meter.countSort(of: channels.count)
        // Emptied first, so that ``remove(_:)`` does not search these lists again for each channel.
        (dirty, answered) = ([], [])
        for channel in all {
            meter.count(channel.frames.count)
            releaseKept(channel)
            write(channel)
            let isReset = channel.socket.wasReset
            remove(channel)
            var one = Lost(
                unread: channel.unread, isCarried: channel.isCarried, isReset: isReset,
                unreadControl: isReset ? channel.unreadControl.revoked : nil)
            for case let effect? in channel.frames.map(\.effect) { one.unwritten.add(effect.content) }
            lost[channel.client] = one
        }
        return lost
    }

    /// Closes a channel, and removes it from all lists.
    private func remove(_ channel: Channel) {
        channels[channel.client] = nil
        channel.close()
        meter.count(dirty.count + answered.count)
        meter.countSystemCalls(2)
        dirty.removeAll { $0 === channel }
        answered.removeAll { $0 === channel }
    }

    /// Returns the effects of frames for the bus. If the client wants batches, consecutive notifications become batches
    /// within the core's bounds. On the bus a batch is one message, and windows count messages.
    private func forBus(_ frames: some Sequence<Channel.Frame>, of channel: Channel) -> [Effect] {
        meter.count(channel.frames.count)
        guard channel.wantsBatches else { return frames.compactMap(\.effect) }
        var effects: [Effect] = []
        var (batch, byteCount): ([Delivery], Int) = ([], 0)
        func endBatch() {
            if !batch.isEmpty { effects.append(.deliverTogether(channel.client, batch)) }
            (batch, byteCount) = ([], 0)
        }
        for frame in frames {
            guard let effect = frame.effect else { continue }
            guard case .deliver(let delivery) = effect else {
                endBatch()
                effects.append(effect)
                continue
            }
            let most = DistributedCenter.maxTogether
            if batch.count == most.count || byteCount + frame.byteCount > most.byteCount { endBatch() }
            batch.append(delivery)
            byteCount += frame.byteCount
        }
        endBatch()
        return effects
    }

    // MARK: Effects

    /// Carries out an effect on a channel, if its client has one and the effect is a message or a probe.
    ///
    /// - Returns: false if the effect still has to be carried out on the bus.
    func carryOut(_ effect: Effect) -> Bool {
        let isCarriedOut = carryOutHere(effect)
        if isCarriedOut { meter.count() }
        return isCarriedOut
    }

    private func carryOutHere(_ effect: Effect) -> Bool {
        switch effect {
        case .deliver(let delivery):
            guard let channel = channels[delivery.client] else { return false }
            channel.wantsBatches = false
            append(delivery, to: channel)
        case .deliverTogether(let client, let batch):
            guard let channel = channels[client] else { return false }
            channel.wantsBatches = true
            meter.count(batch.count)
            for delivery in batch { append(delivery, to: channel) }
        case .dropped(let client, let count, let observers, let reason, _):
            guard let channel = channels[client] else { return false }
            Log.info(
                "reported \(count) lost notifications to \(client) (\(reason.rawValue))",
                ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": reason.rawValue])
            channel.append(effect) {
                $0.append(DroppedSignal(count: count, observers: observers, reason: reason.rawValue))
            }
        case .suspensionChanged(let client, let isSuspended, let cause):
            guard let channel = channels[client] else { return false }
            channel.append(effect) {
                $0.append(SuspensionChangedSignal(isSuspended: isSuspended, cause: cause.rawValue))
            }
        case .revoked(let client, let observers):
            guard let channel = channels[client] else { return false }
            Log.notice(
                "revoked \(observers.count) observers of \(client), which policy no longer allows",
                ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": DroppedSignal.notAllowed])
            channel.append(effect) {
                $0.append(DroppedSignal(count: 0, observers: observers, reason: DroppedSignal.notAllowed))
            }
        case .probe(let client):
            guard let channel = channels[client] else { return false }
            probe(channel)
        case .backlogProbe(let client):
            guard let channel = channels[client] else { return false }
            channel.awaitsBacklogProbe = true
            // The socket of the bus is examined only for messages from before the channel. For frames on the channel,
            // the next answered probe is the finding (``reportAnswers()``).
            if channel.probes.first?.waitsForPing == true { backlogProbe.find(client) }
        case .forget(let client):
            forget(client)
            // Other parts of the service forget the client as well.
            return false
        case .export, .exportEnded, .interestChanged, .valuesRemoved, .sendAnswer, .probeReplies, .probeReplyBacklog,
            .sendReply,
            .startInactivityTimer, .startIntervalTimer,
            .overflowed,
            .possibleLoss, .remember, .watch, .watchDeparture:
            return false
        }
        return true
    }

    /// Appends a notification.
    private func append(_ delivery: Delivery, to channel: Channel) {
        guard let userInfo = delivery.notification.userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        channel.append(.deliver(delivery)) { $0.append(delivery, userInfo: userInfo) }
    }

    /// Adds a probe behind the frames that were appended so far.
    private func probe(_ channel: Channel) {
        channel.probes.append(Channel.Probe(position: channel.writer.position, waitsForPing: false))
        noteAnswer(channel)
    }

    // MARK: Answers to probes

    /// Takes a client's answer to a Ping on the bus.
    ///
    /// - Returns: false when the client has no channel.
    func answered(_ client: ClientName) -> Bool {
        guard let channel = channels[client] else { return false }
        guard let index = channel.probes.firstIndex(where: \.waitsForPing) else {
            report(.answers(client))
            return true
        }
        channel.setAnswered(at: index, byPeer: true)
        noteAnswer(channel)
        return true
    }

    /// Takes the finding whether a client has read its messages on the bus.
    ///
    /// - Returns: false when the client has no channel.
    func backlogProbed(_ client: ClientName, hasRead: Bool) -> Bool {
        guard let channel = channels[client] else { return false }
        // A finding without evidence lets one window pass, and only if the core has requested it.
        guard hasRead || channel.awaitsBacklogProbe else { return true }
        for index in channel.probes.indices where channel.probes[index].waitsForPing {
            channel.setAnswered(at: index, byPeer: false)
            if !hasRead { break }
        }
        noteAnswer(channel)
        return true
    }

    /// Schedules the report of a channel's oldest probe, if it is answered.
    private func noteAnswer(_ channel: Channel) {
        guard channel.isAnswered, !channel.isAnswerNoted else { return }
        channel.isAnswerNoted = true
        answered.append(channel)
    }

    /// Reports answered probes to the core in the next iteration of the loop, so that the messages that one answer
    /// allows are written before the next answer.
    private func reportAnswers() {
        let channels = answered
        answered = []
        for channel in channels {
            channel.isAnswerNoted = false
            var left = channel.probes.count
            // Removing the first probe moves all others, so the number of probes is counted as the cost.
            meter.count(left)
            meter.endEvent("channelAnswersReported")
            while left > 0, channel.isOpen, channel.isAnswered {
                left -= 1
                let probe = channel.probes.removeFirst()
                if channel.awaitsBacklogProbe, !probe.isOfPeer {
                    // The core also waits for a finding. This one passes the oldest window, and the report below then
                    // counts as the late answer for the same window.
                    channel.awaitsBacklogProbe = false
                    report(.backlogProbed(channel.client, hasRead: false))
                }
                report(probe.isOfPeer ? .answered(channel.client) : .drained(channel.client))
            }
            if channel.isOpen { noteAnswer(channel) }
        }
    }

    // MARK: Writing

    /// Writes the frames of the event that ends, and of earlier events. While more effects are due, writing may be
    /// postponed (``maxPostponed``).
    ///
    /// - Parameters:
    ///   - isMoreDue: whether more effects follow next, perhaps for the same clients.
    ///   - store: the recovery store to which written notifications are confirmed as delivered; nil where there is
    ///     none.
    /// - Returns: whether notifications were confirmed to the store.
    func eventEnded(isMoreDue: Bool, confirming store: RecoveryStore?) -> Bool {
        defer { meter.endEvent("channelsWritten") }
        if !dirty.isEmpty {
            postponed += 1
            // Eight comparisons of sizes count as one step.
            meter.count(dirty.count / 8)
            let mayWait =
                isMoreDue && postponed < Self.maxPostponed
                && !dirty.contains { $0.writer.byteCount >= Self.maxPostponedBytes }
            guard !mayWait else { return false }
            postponed = 0
            let channels = dirty
            dirty.removeAll(keepingCapacity: true)
            for channel in channels { write(channel) }
        }
        needsEventEnd = !dirty.isEmpty
        guard !carried.isEmpty else { return false }
        meter.count(carried.count)
        defer { carried.removeAll(keepingCapacity: true) }
        guard let store else { return false }
        for (client, sent) in carried { store.confirm(sent, of: client) }
        return true
    }

    /// Writes a channel's frames as far as its socket takes them, and records the written ones.
    private func write(_ channel: Channel) {
        let before = channel.writer.written
        channel.write { frame in
            meter.count()
            guard let effect = frame.effect else { return }
            let content = effect.content
            channel.unread.add(content)
            guard let number = effect.lastNumber else { return }
            let sent = DeliveryReceipts.Sent(
                sequence: number, delivered: UInt64(content.notifications), dropped: content.losses)
            if channel.isCarried {
                carried[channel.client, default: DeliveryReceipts.Sent()].add(sent)
                needsEventEnd = true
            } else {
                channel.writtenBeforeCarried.add(sent)
            }
        }
        // One call writes, and one asks for unread bytes.
        meter.countSystemCalls(2)
        meter.countCopy(of: Int(channel.writer.written - before))
        noteAnswer(channel)
    }
}

extension Channel {
    #if CARILLON_PLANTED
        /// Whether a part of the first frame was written.
        fileprivate var isInFrame: Bool {
            frames.first.map { writer.written > $0.end - min($0.end, UInt64($0.byteCount)) } ?? false
        }
    #endif

    /// Ends the wait of a probe for its Ping.
    ///
    /// - Parameter byPeer: whether the client has answered the Ping; false if a finding about its socket replaces the
    ///   answer.
    fileprivate func setAnswered(at index: Int, byPeer: Bool) {
        var probe = probes[index]
        probe.waitsForPing = false
        probe.isOfPeer = byPeer
        probes[index] = probe
    }
}

extension Effect {
    /// The last sequence number that the effect carries or reports; nil for others.
    fileprivate var lastNumber: UInt64? {
        switch self {
        case .deliver(let delivery): delivery.sequence
        case .dropped(_, _, _, _, let sequence): sequence
        default: nil
        }
    }

    /// The first sequence number of the effect's notifications; nil for others.
    fileprivate var firstNumber: UInt64? {
        switch self {
        case .deliver(let delivery): delivery.sequence
        case .deliverTogether(_, let batch): batch.first?.sequence
        default: nil
        }
    }

    /// The number of notifications and reported losses in the effect's frame.
    fileprivate var content: SentSignals.SignalContent {
        switch self {
        case .deliver: SentSignals.SignalContent(notifications: 1)
        case .dropped(_, let count, _, _, _): SentSignals.SignalContent(losses: count)
        default: SentSignals.SignalContent()
        }
    }
}

extension [Effect] {
    /// The observers that these control signals to one client announced as removed; nil where there are no signals.
    fileprivate var revoked: Set<ObserverID>? {
        if isEmpty { return nil }
        return Set(
            flatMap { signal -> [ObserverID] in if case .revoked(_, let observers) = signal { observers } else { [] } })
    }
}
