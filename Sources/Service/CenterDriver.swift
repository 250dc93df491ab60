// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The driver of the core: passes events to it one at a time, and carries out its decisions at once, in their order.
///
/// Threads: that of the bus's context. Nothing here blocks.
final class CenterDriver {
    private(set) var center = DistributedCenter()
    let effects: EffectRunner
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var pendingReplies = PendingReplies()
    /// Whether pending replies are being sent; each reply is an event of its own.
    private var isAnswering = false
    private let memory: MemoryReturn
    private let machine: Machine
    let context: MainContext
    /// Whether the state has been handed over to the next connection or left to the next process. From then on no
    /// effects are carried out: numbers would be given twice, and accepted posts would not be persisted.
    private(set) var isOver = false
    /// Called in a quiet moment after a load, so that other tables release memory.
    var onRest: (() -> Void)?
    /// Called after each event while the core is under backpressure.
    var onBackpressure: (() -> Void)?
    /// An empty array whose memory is reused from event to event.
    private var spareEffects: [Effect] = []

    init(bus: any MessageBus, clients: ClientRegistry, barrier: BusBarrier, machine: Machine) {
        self.machine = machine
        center.clock = Clock(time: machine.time, uptime: machine.uptime)
        context = bus.context
        memory = MemoryReturn(context: bus.context, releasePages: machine.releasePages)
        effects = EffectRunner(bus: bus, clients: clients, barrier: barrier, machine: machine)
        memory.releaseMemory = { [unowned self] in releaseMemory() }
        effects.channels.meter = center.meter
        effects.answers.turn = { [unowned self] caller, byteCount in
            perform { effects in center.mayReply(to: caller, byteCount: byteCount, effects: &effects) }
        }
        effects.answers.onVoid = { [unowned self] caller, places in
            perform { effects in center.discardAnswers(of: caller, places, effects: &effects) }
        }
        effects.report = { [unowned self] event in
            perform { effects in
                switch event {
                case .answered(let client): center.clientAnswered(client, effects: &effects)
                case .repliesAnswered(let client): center.repliesAnswered(by: client, effects: &effects)
                case .replyBacklogProbed(let client, let hasRead):
                    center.replyBacklogProbed(of: client, hasRead: hasRead, effects: &effects)
                case .ofChannel(.gone(let client)): center.channelGone(of: client, effects: &effects)
                case .ofChannel(.answered(let client)): center.channelAnswered(client, effects: &effects)
                case .ofChannel(.answers(let client)): center.clientAnswers(client)
                case .ofChannel(.drained(let client)): center.channelDrained(client, effects: &effects)
                case .ofChannel(.backlogProbed(let client, let hasRead)):
                    center.backlogProbed(client, hasRead: hasRead, effects: &effects)
                case .ofChannel(.carried(let client)): center.channelCarried(to: client, effects: &effects)
                case .ofChannel(.controlUnread(let client, let revoked)):
                    center.channelEnded(of: client, revoked: revoked, effects: &effects)
                case .ofChannel(.endedUndelivered(let client)):
                    center.channelEndedUndelivered(of: client, effects: &effects)
                case .ofChannel(.cut(let client, let content, let last)):
                    center.channelCut(
                        client, atMost: content.notifications, losses: content.losses, last: last, effects: &effects)
                case .backlogProbed(let client, let hasRead):
                    center.backlogProbed(client, hasRead: hasRead, effects: &effects)
                case .deliveryRefused(let client, let content):
                    center.deliveryRefused(
                        client, notifications: content.notifications, losses: content.losses, effects: &effects)
                case .probeRefused(let client, let isCounted):
                    center.probeRefused(client, isCounted: isCounted, effects: &effects)
                case .inactivityTimerEnded(let client, let epoch):
                    center.inactivityTimerEnded(client, epoch: epoch, effects: &effects)
                case .intervalTimerEnded(let client): center.intervalTimerEnded(client, effects: &effects)
                }
            }
        }
    }

    /// Releases the unused memory of tables (E8).
    private func releaseMemory() {
        spareEffects = []
        center.releaseMemory()
        effects.releaseMemory()
        onRest?()
    }

    /// Makes one call into the core, and carries out its decisions, also when it throws: a refused event may have found
    /// before that a value has expired.
    func perform<Value, Failure: Error>(
        _ event: (inout [Effect]) throws(Failure) -> Value
    ) throws(Failure) -> Value {
        var decided = spareEffects
        spareEffects = []
        let result: Result<Value, Failure>
        do throws(Failure) {
            result = .success(try event(&decided))
        } catch {
            result = .failure(error)
        }
        if center.isOverMemory { center.giveWay(effects: &decided) }
        let store = effects.store
        store?.reserveNumbers(of: center)
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.wrongOrder, oneOf: 8) { decided.reverse() }
        #endif
        if isOver || decided.isEmpty {
            // Numbers are persisted before any answer. Effects are persisted together with them, before they are
            // carried out.
            store?.flush()
        } else {
            effects.carryOut(decided)
        }
        if !decided.isEmpty { decided.removeAll(keepingCapacity: true) }
        spareEffects = decided
        if !pendingReplies.isEmpty, !isAnswering { answerPassed() }
        store?.tidy(from: center)
        effects.eventEnded(isMoreDue: center.isAnythingReady)
        memory.noteEvent(held: center.heldBytes)
        if center.isUnderBackpressure { onBackpressure?() }
        return try result.get()
    }

    /// Removes some of the queued posts that this post replaces by coalescing, where they are too many for one event.
    ///
    /// - Returns: whether the post may be made now; otherwise call this again, with no other event of the poster
    ///   between.
    func removeCoalesced(
        for post: Post<WireUserInfo>, from poster: ClientName, effects: inout [Effect]
    ) throws(BusError) -> Bool {
        guard !post.options.coalescing.isEmpty else { return true }
        return try mappingCenterErrors { () throws(CenterError) in
            try center.removeCoalesced(
                name: post.name, object: post.object, userInfo: post.userInfo, options: post.options, from: poster,
                effects: &effects)
        }
    }

    /// Notes that a call is served.
    func noteServing() {
        machine.noteServing()
        memory.noteServing()
    }

    /// Answers an accepted post, behind its deliveries.
    func answer(_ post: MethodCall, with receipt: Receipt) {
        guard post.answer.isWanted, let mark = mark(for: receipt, to: post.sender) else {
            return post.answer.reply(toPost: receipt.receivers)
        }
        pendingReplies.append(post, receivers: receipt.receivers, behind: mark)
    }

    /// Returns the answer to an accepted post on a channel; nil where the answer waits for the deliveries, and is sent
    /// after them.
    func answer(to post: ChannelPost, with receipt: Receipt) -> ChannelAnswer? {
        guard let mark = mark(for: receipt, to: post.channel.client) else {
            return post.answered(ChannelOutcome(receivers: receipt.receivers))
        }
        pendingReplies.append(post, receivers: receipt.receivers, behind: mark)
        return nil
    }

    /// The watermark that an answer to `poster` waits for; nil when it may be sent now.
    private func mark(for receipt: Receipt, to poster: ClientName) -> Watermark? {
        if let mark = receipt.mark, !center.hasPassed(mark) { return mark }
        return pendingReplies.lastMark(of: poster)
    }

    /// Answers posts on channels, as far as their posters read the answers (A4). All go together, as one event.
    func send(_ answers: [ChannelAnswer]) {
        guard !answers.isEmpty, !isOver else { return }
        perform { decided in
            for answer in answers {
                effects.answers.send(answer) { client, byteCount in
                    center.mayAnswer(client, byteCount: byteCount, effects: &decided)
                }
            }
        }
    }

    private func answerPassed() {
        isAnswering = true
        defer { isAnswering = false }
        var answers: [ChannelAnswer] = []
        while true {
            while let waiting = pendingReplies.popPassed(hasPassed: center.hasPassed) {
                if waiting.isCall, !answers.isEmpty {
                    // The order is kept: answering a call is an event as well.
                    send(answers)
                    answers = []
                }
                if let answer = waiting.send() { answers.append(answer) }
            }
            guard !answers.isEmpty else { return }
            send(answers)
            answers = []
        }
    }

    /// Answers a call of many posts, behind the deliveries of all of them.
    ///
    /// - Parameter marks: the watermark of the last post in each lane.
    func answer(_ call: MethodCall, with outcomes: [PostOutcome], behind marks: [Watermark]) {
        var marks = marks.filter { !center.hasPassed($0) }
        if marks.isEmpty, let last = pendingReplies.lastMark(of: call.sender) { marks = [last] }
        guard !marks.isEmpty, call.answer.isWanted else { return call.answer.reply(toPosts: outcomes) }
        pendingReplies.append(call, outcomes: outcomes, behind: marks)
    }

    // MARK: Process restart (E3)

    /// Restores the state that an earlier process left for this bus, and persists state from now on. Call it before the
    /// first event, until it succeeds.
    ///
    /// - Parameters:
    ///   - directory: a directory private to the user.
    ///   - busID: the ID of the bus.
    ///   - address: the address of the bus.
    ///   - takesLock: see ``RecoveryLog``.
    /// - Returns: false while another process holds the state.
    func recover(directory: String, busID: String, address: String, takesLock: Bool) -> Bool {
        do throws(FileError) {
            let store = try RecoveryStore(
                directory: directory, in: machine.files, busID: busID, address: address, limits: center.limits,
                takesLock: takesLock, now: { [context, start = context.now] in context.now - start })
            let count = store.restore(into: center)
            if count > 0 {
                Log.notice("restored the registrations of \(count) clients from an earlier process")
                memory.noteReading()
            }
            center.remembersChanges = true
            effects.store = store
            return true
        } catch {
            return false
        }
    }

    /// Sends the scheduled messages before the process ends; no more calls arrive. Queued posts are left to a later
    /// process, as a loop that is about to quit is not idle (Q2).
    ///
    /// - Parameter completion: called when the bus has carried all of them, or is gone. Then call ``finish()``.
    func settle(_ completion: @escaping () -> Void) {
        perform { effects in center.sendAllReady(effects: &effects) }
        beginEnding()
        effects.settle(completion)
    }

    private func beginEnding() {
        effects.store?.tryAgain(from: center)
        let isKept = effects.store?.isWhole == true
        perform { effects in
            // Queues that can't be persisted are sent instead.
            if isKept {
                center.beginEnding(effects: &effects)
            } else {
                center.cancelEnding(effects: &effects)
                center.sendAllReady(isLast: true, effects: &effects)
            }
        }
    }

    /// Ends where no time is left: nothing more is sent.
    ///
    /// - Parameter completion: called when the bus has carried all messages sent before.
    func settleAtOnce(_ completion: @escaping () -> Void) {
        beginEnding()
        effects.settle(hearsRefusals: false, completion)
    }

    /// Writes the final state; the process ends now.
    func finish() {
        beginEnding()
        effects.store?.finish(from: center)
        isOver = true
    }

    // MARK: Connection handover (E5)

    /// Gives up the center and the store in order, when the bus has closed the connection, for ``inherit(_:_:)``.
    func handOver() -> (center: DistributedCenter, store: RecoveryStore?, largest: Int) {
        var (counts, largest) = effects.recentDeliveries()
        let lost = effects.channels.closeAll()
        for (client, one) in lost { counts[client, default: SentSignals.Recent()].add(one.unwritten) }
        perform { effects in
            for (client, recent) in counts.sorted(by: { $0.key < $1.key }) {
                let channel = lost[client]
                // If the bus may not have carried the channel's descriptor, it may not have carried earlier messages
                // either, but the channel's window counts those as acknowledged.
                var unreachable: SentSignals.Recent?
                if let channel, !channel.isCarried {
                    unreachable = channel.unread
                    unreachable?.add(recent)
                }
                center.inFlightLost(
                    client, atMost: recent.notifications, losses: recent.losses,
                    unreachable: unreachable.map { ($0.notifications, $0.losses) }, effects: &effects)
                #if CARILLON_PLANTED
                    if PlantedFault.strikes(.resetForgotten) { continue }
                #endif
                // The same holds for a client that closed its channel with messages unread.
                if let channel, channel.isCarried, channel.isReset {
                    center.inFlightLost(
                        client, atMost: 0, losses: 0,
                        unreachable: (channel.unread.notifications, channel.unread.losses), effects: &effects)
                }
            }
            for (client, channel) in lost.sorted(by: { $0.key < $1.key }) {
                guard let revoked = channel.unreadControl else { continue }
                center.controlSignalsLost(client, revoked: revoked, effects: &effects)
            }
            center.connectionEnded(effects: &effects)
        }
        defer {
            effects.store = nil
            isOver = true
            // Answers that still arrive on the other connection are dropped: they would acknowledge messages that the
            // client has not received.
            center = DistributedCenter()
        }
        return (center, effects.store, largest)
    }

    /// Takes over the state of the driver whose connection the bus closed. Call once, before the first event.
    func inherit(_ before: DistributedCenter, _ store: RecoveryStore?) {
        center.takeOver(before)
        center.remembersChanges = store != nil
        effects.store = store
    }
}
