// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The channels of all clients (F2). Effects for a client with a channel are carried out here instead of on the bus.
///
/// Frames are counted and bounded by the core like messages on the bus (A4). A probe is answered when all earlier
/// frames have been written: bytes in the socket reach the client even if the service dies. Therefore a slow consumer
/// fills its socket, uses up its windows, and further messages for it wait in the core. Replies to its calls are sent
/// on the bus, and have a window of their own.
///
/// Threads: that of the context. Nothing here blocks.
final class Channels {
    /// The number of events for which writing may be postponed while more effects are due. A channel with
    /// ``maxPostponedBytes`` of frames ends that earlier.
    private static let maxPostponed = 16
    private static let maxPostponedBytes = 16 << 10

    /// A later result of an effect, which the core takes as its next event.
    enum Event {
        case answered(ClientName)
        /// The client answered a Ping that nothing waits for any more.
        case answers(ClientName)
        case drained(ClientName)
        case backlogProbed(ClientName, hasRead: Bool)
        case cut(ClientName, SentSignals.Recent, last: UInt64?)
        /// The bus has carried the client's end of the channel to it.
        case carried(ClientName)
        /// The channel ended before the bus was known to have carried it.
        case endedUndelivered(ClientName)
        /// The channel ended with control signals about the client that it may never read, among them signals about
        /// these observers.
        case controlUnread(ClientName, revoked: Set<ObserverID>)
        /// The channel ended, and its client continues on the bus.
        case gone(ClientName)
    }

    /// Called with each event.
    var report: ((Event) -> Void)!
    /// Sends the unwritten effects on the bus.
    var sendOnBus: (([Effect]) -> Void)!
    /// Appends the outcomes that are kept for a channel.
    var releaseKept: ((Channel) -> Void)!
    /// Called with the notifications that a client got only if its channel was carried, before the signal that it may
    /// miss them.
    var onUncertain: ((ClientName, DeliveryReceipts.Sent) -> Void)!
    /// Called when bytes were written that had waited for space in a socket.
    var onWritten: (() -> Void)!
    /// Counts the steps of writing, ending and searching (E8). It is the meter of the center whose effects are carried
    /// out.
    var meter = StepMeter()
    private let context: MainContext
    private let prober: ClientProber
    private let backlogProbe: SocketBacklogProbe
    private var channels: [ClientName: Channel] = [:]
    /// The channels with frames that nobody has tried to write.
    private var dirty: [Channel] = []
    /// Whether the event has frames to write, or deliveries to confirm to the store. The driver asks at the end of each
    /// event.
    private(set) var needsEventEnd = false
    private var postponed = 0
    /// The notifications that were written to clients and not yet confirmed to the store.
    private var carried: [ClientName: DeliveryReceipts.Sent] = [:]
    /// The channels with an answered probe.
    private var answered: [Channel] = []
    private var source: ReadySource!
    /// The bytes on the bus for a client, up to which its new channel does not wait for an acknowledgment of them.
    static let maxUnasked = 64 << 10

    init(on context: MainContext, prober: ClientProber, backlogProbe: SocketBacklogProbe) {
        self.context = context
        self.prober = prober
        self.backlogProbe = backlogProbe
        source = ReadySource(
            on: context, priority: .of(.control), isReady: { [unowned self] in !answered.isEmpty },
            run: { [unowned self] in reportAnswers() })
    }

    var isEmpty: Bool { channels.isEmpty && carried.isEmpty }
    var count: Int { channels.count }

    subscript(client: ClientName) -> Channel? { channels[client] }

    var all: [Channel] { channels.values.sorted { $0.client < $1.client } }

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

    /// Adds a channel. From now on messages for its client are sent on it.
    ///
    /// - Parameter before: the state of the messages that the client was sent on the bus. Pending probes of the bus
    ///   become probes of the channel.
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

    /// Records that the bus has carried the client's end to it. Written frames now reach the client, even if the
    /// service ends.
    func noteCarried(_ channel: Channel) {
        guard channels[channel.client] === channel else { return }
        channel.isCarried = true
        if channel.writtenBefore != DeliveryReceipts.Sent() {
            carried[channel.client, default: DeliveryReceipts.Sent()].add(channel.writtenBefore)
            needsEventEnd = true
            channel.writtenBefore = DeliveryReceipts.Sent()
        }
        report(.carried(channel.client))
    }

    /// Ends a channel. Its client continues on the bus.
    ///
    /// - Parameter mayBeUnread: whether the client may never read the unread bytes in the socket.
    func end(_ channel: Channel, mayBeUnread: Bool) {
        guard channels[channel.client] === channel else { return }
        releaseKept(channel)
        if !channel.socket.isBroken { write(channel) }
        // Whether the client had the channel or not: it learns of its losses if the bus carries the messages that are
        // sent now.
        if channel.writtenBefore != DeliveryReceipts.Sent() { onUncertain(channel.client, channel.writtenBefore) }
        remove(channel)
        let effects = unwritten(of: channel)
        // The report and the messages that follow are events of their own.
        meter.endEvent("channelEnded")
        #if CARILLON_PLANTED
            let mayBeUnread = mayBeUnread && !PlantedFault.strikes(.silentCut)
        #endif
        if mayBeUnread, channel.unread != SentSignals.Recent() {
            let first = effects.lazy.compactMap(\.firstNumber).first
            report(.cut(channel.client, channel.unread, last: first.map { $0 - 1 }))
        }
        sendOnBus(effects)
        // After the unwritten effects, because the core then sends the current state.
        if !channel.isCarried {
            report(.endedUndelivered(channel.client))
        } else if mayBeUnread, let revoked = channel.unreadControl.revoked {
            meter.count(channel.unreadControl.count + revoked.count)
            report(.controlUnread(channel.client, revoked: revoked))
        }
        report(.gone(channel.client))
        for probe in channel.probes where !probe.waitsForPing { prober.probe(channel.client) }
        if channel.awaitsBacklogProbe { backlogProbe.find(channel.client) }
    }

    /// Returns the effects of unwritten frames, as the client gets them on the bus.
    private func unwritten(of channel: Channel) -> [Effect] {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.forgottenFrames) { return [] }
            if channel.isInFrame, PlantedFault.strikes(.halfFrame) { channel.frames.popFirst() }
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

    /// The content of a client's channel that the client may never get.
    struct Lost {
        var unwritten = SentSignals.Recent()
        /// The frames that were written and not read.
        var unread: SentSignals.Recent
        /// Whether the bus is known to have carried the channel to the client.
        let isCarried: Bool
        /// Whether the client has closed the channel with unread bytes.
        let isReset: Bool
        /// The observers of the unread control signals; nil where there are no such signals, or the client did not
        /// close the channel. The core itself resends control signals of a channel that was not carried.
        let unreadControl: Set<ObserverID>?
    }

    /// Ends all channels at once, because the connection to the bus has ended. Returns the possible losses.
    func closeAll() -> [ClientName: Lost] {
        var lost: [ClientName: Lost] = [:]
        defer { meter.endEvent("allChannelsEnded") }
        meter.countSort(of: channels.count)
        // Emptied first, so that ``remove(_:)`` does not search the lists for each channel.
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

    private func remove(_ channel: Channel) {
        channels[channel.client] = nil
        channel.close()
        meter.count(dirty.count + answered.count)
        meter.countSystemCalls(2)
        dirty.removeAll { $0 === channel }
        answered.removeAll { $0 === channel }
    }

    /// Returns the effects of frames, as the client gets them on the bus. Consecutive notifications become batches
    /// within the same bounds, because windows count messages.
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

    /// Carries out an effect for a client with a channel.
    ///
    /// - Returns: false for an effect that is to be carried out on the bus, also in addition.
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
            if channel.probes.first?.waitsForPing == true { backlogProbe.find(client) }
        case .forget(let client):
            forget(client)
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

    private func append(_ delivery: Delivery, to channel: Channel) {
        guard let userInfo = delivery.notification.userInfo as? WireUserInfo else {
            preconditionFailure("every post of this service carries a WireUserInfo")
        }
        channel.append(.deliver(delivery)) { $0.append(delivery, userInfo: userInfo) }
    }

    private func probe(_ channel: Channel) {
        channel.probes.append(Channel.Probe(position: channel.writer.position, waitsForPing: false))
        noteAnswer(channel)
    }

    // MARK: Answers to probes

    /// Takes a client's answer to a Ping.
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
        // A finding without evidence lets a window pass only for a client whose finding the core waits for.
        guard hasRead || channel.awaitsBacklogProbe else { return true }
        for index in channel.probes.indices where channel.probes[index].waitsForPing {
            channel.setAnswered(at: index, byPeer: false)
            if !hasRead { break }
        }
        noteAnswer(channel)
        return true
    }

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
            // The cost: removing the first probe moves all others.
            meter.count(left)
            meter.endEvent("channelAnswersReported")
            while left > 0, channel.isOpen, channel.isAnswered {
                left -= 1
                let probe = channel.probes.removeFirst()
                if channel.awaitsBacklogProbe, !probe.isOfPeer {
                    // Only for the oldest probe, which the next report is about.
                    channel.awaitsBacklogProbe = false
                    report(.backlogProbed(channel.client, hasRead: false))
                }
                report(probe.isOfPeer ? .answered(channel.client) : .drained(channel.client))
            }
            if channel.isOpen { noteAnswer(channel) }
        }
    }

    // MARK: Writing

    /// Ends an event: writes its frames, and those of earlier events. Writing may be postponed while more effects are
    /// due.
    ///
    /// - Parameters:
    ///   - isMoreDue: whether more effects follow next, perhaps for the same clients.
    ///   - store: the store to which written notifications are confirmed.
    /// - Returns: whether notifications were confirmed to the store.
    func eventEnded(isMoreDue: Bool, confirming store: RecoveryStore?) -> Bool {
        defer { meter.endEvent("channelsWritten") }
        if !dirty.isEmpty {
            postponed += 1
            // Each channel's size is compared once, which is cheap.
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
                channel.writtenBefore.add(sent)
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

    fileprivate var content: SentSignals.Recent {
        switch self {
        case .deliver: SentSignals.Recent(notifications: 1)
        case .dropped(_, let count, _, _, _): SentSignals.Recent(losses: count)
        default: SentSignals.Recent()
        }
    }
}

extension [Effect] {
    /// The observers of these control signals for one client; nil where there are no signals.
    fileprivate var revoked: Set<ObserverID>? {
        if isEmpty { return nil }
        return Set(
            flatMap { word -> [ObserverID] in if case .revoked(_, let observers) = word { observers } else { [] } })
    }
}
