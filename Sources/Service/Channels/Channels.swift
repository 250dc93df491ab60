// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Clients that have channels (F2): what the core decided for them goes there instead of to the bus.
///
/// What it decided is counted, and bounded, as what goes to the bus is (A4). A probe asks whether all that was given
/// before has been written: what is in the socket the client gets, also when the service dies. So a client that does not
/// read has the socket full and its windows used up, and waits in the core. Replies to its calls go by the bus, and have a
/// window of their own.
///
/// Threads: that of the context. Nothing here blocks.
final class Channels {
    /// A channel has something to write for so long at most, as long as more is due for somebody.
    private static let maxPostponed = 16
    private static let maxPostponedBytes = 16 << 10

    /// What comes of an effect later: the core's next event.
    enum Event {
        case answered(ClientName)
        /// It answered a Ping for which nothing waits any more.
        case answers(ClientName)
        case drained(ClientName)
        case witnessed(ClientName, hasRead: Bool)
        case cut(ClientName, SentSignals.Recent, last: UInt64?)
        /// The bus has carried its end of the channel to it.
        case carried(ClientName)
        /// The channel ended before that was known.
        case possibleLoss(ClientName)
        /// The channel ended with words about the client in it that it may never read, among them about these observers.
        case wordsUnread(ClientName, revoked: Set<ObserverID>)
        /// The channel ended, and its client goes on by the bus.
        case gone(ClientName)
    }

    /// Gets these events.
    var report: ((Event) -> Void)!
    /// Carries out on the bus what was not written.
    var sendOnBus: (([Effect]) -> Void)!
    /// Appends the outcomes that are kept for a channel.
    var releaseKept: ((Channel) -> Void)!
    /// Gets what a client got only if its channel was carried, ahead of what tells it that it may miss that.
    var onUncertain: ((ClientName, DeliveryReceipts.Sent) -> Void)!
    /// Called when something was written that had waited for room.
    var onWritten: (() -> Void)!
    /// Counts what is written, ended and looked through (E8): the one of the center whose effects are carried out.
    var meter = StepMeter()
    private let context: MainContext
    private let prober: ClientProber
    private let witness: SocketBacklogProbe
    private var channels: [ClientName: Channel] = [:]
    /// Those that have something that nobody tried to write.
    private var dirty: [Channel] = []
    /// Whether the event has left something to write or to confirm: asked at the end of each.
    private(set) var owesEvent = false
    private var postponed = 0
    /// What was written, of clients' notifications, and the store was not told.
    private var carried: [ClientName: DeliveryReceipts.Sent] = [:]
    /// Those of which a probe is answered.
    private var answered: [Channel] = []
    private var source: ReadySource!
    /// How much may lie on the bus for a client without being asked about when it gets a channel, in bytes.
    static let maxUnasked = 64 << 10

    init(on context: MainContext, prober: ClientProber, witness: SocketBacklogProbe) {
        self.context = context
        self.prober = prober
        self.witness = witness
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

    /// Gives up what is kept of channels that are gone (E8).
    func releaseRoom() {
        channels.releaseRoom()
        dirty.releaseRoom()
        carried.releaseRoom()
    }

    // MARK: Beginning and end

    /// From now on what is for the client goes to this channel.
    ///
    /// - Parameter before: what went to it on the bus. What was asked there is answered here.
    func add(_ channel: Channel, after before: DistributedCenter.SentBeforeChannel) {
        channel.onAppended = { [unowned self] in
            dirty.append($0)
            owesEvent = true
        }
        channel.onWritable = { [unowned self] channel in
            write(channel)
            onWritten()
        }
        channels[channel.client] = channel
        channel.probes = Array(
            repeating: Channel.Probe(position: 0, waitsForPing: before.needsAnswers), count: before.probes)
        channel.owesWitness = before.isBacklogProbed
        noteAnswer(channel)
    }

    /// The bus has carried the client's end to it: what was written is there for it now, whatever becomes of the service.
    func noteCarried(_ channel: Channel) {
        guard channels[channel.client] === channel else { return }
        channel.isCarried = true
        if channel.writtenBefore != DeliveryReceipts.Sent() {
            carried[channel.client, default: DeliveryReceipts.Sent()].add(channel.writtenBefore)
            owesEvent = true
            channel.writtenBefore = DeliveryReceipts.Sent()
        }
        report(.carried(channel.client))
    }

    /// The channel ends, and its client goes on by the bus.
    ///
    /// - Parameter mayBeUnread: whether what lies unread in the socket may never be read.
    func end(_ channel: Channel, mayBeUnread: Bool) {
        guard channels[channel.client] === channel else { return }
        releaseKept(channel)
        if !channel.socket.isBroken { write(channel) }
        // Whether it had the channel or not, it knows what it misses when what is sent now was carried.
        if channel.writtenBefore != DeliveryReceipts.Sent() { onUncertain(channel.client, channel.writtenBefore) }
        remove(channel)
        let effects = unwritten(of: channel)
        // The report and the sending that follow are events of their own.
        meter.endEvent("channelEnded")
        #if CARILLON_PLANTED
            let mayBeUnread = mayBeUnread && !PlantedFault.strikes(.silentCut)
        #endif
        if mayBeUnread, channel.unread != SentSignals.Recent() {
            let first = effects.lazy.compactMap(\.firstNumber).first
            report(.cut(channel.client, channel.unread, last: first.map { $0 - 1 }))
        }
        sendOnBus(effects)
        // Behind that: the core sends what holds now.
        if !channel.isCarried {
            report(.possibleLoss(channel.client))
        } else if mayBeUnread, let revoked = channel.unreadWords.revoked {
            meter.count(channel.unreadWords.count + revoked.count)
            report(.wordsUnread(channel.client, revoked: revoked))
        }
        report(.gone(channel.client))
        for probe in channel.probes where !probe.waitsForPing { prober.probe(channel.client) }
        if channel.owesWitness { witness.find(channel.client) }
    }

    /// What was to be written and was not, as the client gets it on the bus.
    private func unwritten(of channel: Channel) -> [Effect] {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.forgottenFrames) { return [] }
            if channel.isInFrame, PlantedFault.strikes(.halfFrame) { channel.frames.popFirst() }
        #endif
        return forBus(channel.frames, of: channel)
    }

    /// The client has left the bus.
    func forget(_ client: ClientName) {
        if let channel = channels[client] {
            remove(channel)
            meter.endEvent("channelForgotten")
        }
        carried[client] = nil
    }

    /// What of a client's channel it may never get.
    struct Lost {
        var unwritten = SentSignals.Recent()
        /// What was written and not read.
        var unread: SentSignals.Recent
        /// Whether the bus is known to have carried the channel to it.
        let isCarried: Bool
        /// Whether it has closed the channel and left that.
        let isReset: Bool
        /// The observers that the words about itself are about that it has left unread, and is taken to have; nil where
        /// there are no such words. The core itself also resends what was told in a channel that was not carried.
        let unreadWords: Set<ObserverID>?
    }

    /// Ends all at once: there is no bus to go on by.
    func closeAll() -> [ClientName: Lost] {
        var lost: [ClientName: Lost] = [:]
        defer { meter.endEvent("allChannelsEnded") }
        meter.countSort(of: channels.count)
        // Otherwise each would be looked for among them.
        (dirty, answered) = ([], [])
        for channel in all {
            meter.count(channel.frames.count)
            releaseKept(channel)
            write(channel)
            let isReset = channel.socket.wasReset
            remove(channel)
            var one = Lost(
                unread: channel.unread, isCarried: channel.isCarried, isReset: isReset,
                unreadWords: isReset ? channel.unreadWords.revoked : nil)
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

    /// What frames carry out, as the client gets it on the bus. What went together goes together there, within the same
    /// bounds, as windows count messages.
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

    /// Carries out what concerns a client that has a channel.
    ///
    /// - Returns: false for what is to be carried out on the bus, too.
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
                "\(client) is told that it lost \(count) notifications (\(reason.rawValue))",
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
                "\(client) lost \(observers.count) observers, which policy no longer allows",
                ["CARILLON_CLIENT": client.rawValue, "CARILLON_REASON": DroppedSignal.notAllowed])
            channel.append(effect) {
                $0.append(DroppedSignal(count: 0, observers: observers, reason: DroppedSignal.notAllowed))
            }
        case .probe(let client):
            guard let channel = channels[client] else { return false }
            probe(channel)
        case .witness(let client):
            guard let channel = channels[client] else { return false }
            channel.owesWitness = true
            if channel.probes.first?.waitsForPing == true { witness.find(client) }
        case .forget(let client):
            forget(client)
            return false
        case .export, .exportEnded, .interestChanged, .valuesRemoved, .sendAnswer, .probeReplies, .witnessReplies,
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

    // MARK: Answers of probes

    /// The client answered a Ping.
    ///
    /// - Returns: false when it has no channel.
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

    /// It was found out whether the client has read what it was sent on the bus.
    ///
    /// - Returns: false when it has no channel.
    func witnessed(_ client: ClientName, hasRead: Bool) -> Bool {
        guard let channel = channels[client] else { return false }
        // One that tells nothing lets a window of those pass that asked.
        guard hasRead || channel.owesWitness else { return true }
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

    /// Not before the next turn, so that what comes of one answer is written before the next.
    private func reportAnswers() {
        let channels = answered
        answered = []
        for channel in channels {
            channel.isAnswerNoted = false
            var left = channel.probes.count
            // Each is taken from before the others.
            meter.count(left)
            meter.endEvent("channelAnswersReported")
            while left > 0, channel.isOpen, channel.isAnswered {
                left -= 1
                let probe = channel.probes.removeFirst()
                if channel.owesWitness, !probe.isOfPeer {
                    // Only the oldest, which is the one that the next word is about.
                    channel.owesWitness = false
                    report(.witnessed(channel.client, hasRead: false))
                }
                report(probe.isOfPeer ? .answered(channel.client) : .drained(channel.client))
            }
            if channel.isOpen { noteAnswer(channel) }
        }
    }

    // MARK: Writing

    /// Writes what one event decided, with what others did, as long as more is due.
    ///
    /// - Parameters:
    ///   - isMoreDue: whether more goes out next, perhaps for the same clients.
    ///   - store: told what was written.
    /// - Returns: whether the store was told something.
    func eventEnded(isMoreDue: Bool, confirming store: RecoveryStore?) -> Bool {
        defer { meter.endEvent("channelsWritten") }
        if !dirty.isEmpty {
            postponed += 1
            // A look at the bytes of each, by the lot.
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
        owesEvent = !dirty.isEmpty
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
                owesEvent = true
            } else {
                channel.writtenBefore.add(sent)
            }
        }
        // One writes, one asks what lies unread.
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
    /// The client's number that it brings, or tells of; nil for others.
    fileprivate var lastNumber: UInt64? {
        switch self {
        case .deliver(let delivery): delivery.sequence
        case .dropped(_, _, _, _, let sequence): sequence
        default: nil
        }
    }

    /// The number of a notification; nil for others.
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
    /// The observers that these words to one client are about; nil where there are no words.
    fileprivate var revoked: Set<ObserverID>? {
        if isEmpty { return nil }
        return Set(
            flatMap { word -> [ObserverID] in if case .revoked(_, let observers) = word { observers } else { [] } })
    }
}
