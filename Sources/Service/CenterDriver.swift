// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The driver of the core: it passes each event to the core and carries out the resulting effects at once, in their
/// order.
///
/// The core (``DistributedCenter``) is a state machine without input and output. Every change of its state goes through
/// ``perform(_:)``: method calls, acknowledgments of clients, timers and departures. The driver also holds the replies
/// to posts until the deliveries are sent, and restores and hands over the state.
///
/// Threads: that of the bus's context. Nothing here blocks, except writes to the recovery log.
final class CenterDriver {
    /// The core.
    private(set) var center = DistributedCenter()
    /// The executor of the effects.
    let effects: EffectRunner
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var pendingReplies = PendingReplies()
    /// Whether pending replies are being sent. Each reply is an event of its own, which must not begin this again.
    private var isAnswering = false
    private let memory: MemoryReturn
    private let machine: Machine
    /// The main-loop context of the bus.
    let context: MainContext
    /// Whether the state has been handed over to the next connection, or left to the next process. From then on no
    /// effects are carried out: sequence numbers would be assigned twice, and accepted posts would not be persisted.
    private(set) var isOver = false
    /// Called when memory is returned to the system (``MemoryReturn``), so that further tables free their unused
    /// capacity.
    var onMemoryReturn: (() -> Void)?
    /// Called after each event while the core is under backpressure.
    var onBackpressure: (() -> Void)?
    /// An empty array whose memory is reused from one event to the next.
    private var spareEffects: [Effect] = []

    init(bus: any MessageBus, clients: ClientRegistry, barrier: BusBarrier, machine: Machine) {
        self.machine = machine
        center.clock = Clock(time: machine.time, uptime: machine.uptime)
        context = bus.context
        memory = MemoryReturn(context: bus.context, releasePages: machine.releasePages)
        effects = EffectRunner(bus: bus, clients: clients, barrier: barrier, machine: machine)
        memory.releaseMemory = { [unowned self] in releaseMemory() }
        effects.channels.meter = center.meter
        // The core decides when a reply is sent.
        effects.answers.turn = { [unowned self] caller, byteCount in
            perform { effects in center.mayReply(to: caller, byteCount: byteCount, effects: &effects) }
        }
        // An ending channel gets its kept outcomes at once. Their places in the core's queue stay, with size 0.
        effects.answers.onTombstones = { [unowned self] caller, places in
            perform { effects in center.discardAnswers(of: caller, places, effects: &effects) }
        }
        // The later results of effects are events for the core. `answered` means that a client has acknowledged the
        // oldest probe, and `answers` that it has answered a Ping without a probe. `revoked` has the observers whose
        // removal by policy the lost control signals announced. ``EffectRunner/Event`` and ``Channels/Event`` have all.
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

    /// Frees the unused capacity of tables (E8).
    private func releaseMemory() {
        spareEffects = []
        center.releaseMemory()
        effects.releaseMemory()
        onMemoryReturn?()
    }

    /// Passes one event to the core, and carries out its effects. It does so even if the core refuses the event: the
    /// core may have removed an expired value before the refusal.
    ///
    /// The order of the steps matters. Changes and reserved numbers are written to the recovery log before an effect
    /// leaves the process. Replies to posts follow the deliveries. The log is rewritten last. While the core
    /// exceeds its memory limit, each event also discards some reclaimable state.
    ///
    /// - Parameter event: calls one method of the core, which appends its effects.
    /// - Returns: the result of `event`.
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
        if center.isOverMemory { center.reclaimMemory(effects: &decided) }
        let store = effects.store
        store?.reserveNumbers(of: center)
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.wrongOrder, oneOf: 8) { decided.reverse() }
        #endif
        if isOver || decided.isEmpty {
            // The reserved numbers are written before any reply. Otherwise the executor writes them together with the
            // effects.
            store?.flush()
        } else {
            effects.carryOut(decided)
        }
        if !decided.isEmpty { decided.removeAll(keepingCapacity: true) }
        spareEffects = decided
        if !pendingReplies.isEmpty, !isAnswering { sendPassedReplies() }
        store?.tidy(from: center)
        effects.eventEnded(isMoreDue: center.isAnythingReady)
        memory.noteEvent(held: center.heldBytes)
        if center.isUnderBackpressure { onBackpressure?() }
        return try result.get()
    }

    /// Removes a slice of the queued posts that a coalescing post replaces, if they are too many for one event.
    ///
    /// - Returns: whether the post may be made now. After false, call this again before any other event of the poster.
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

    /// Notes that a method call is served. The first one shows that the start is over, so its memory can be released.
    func noteServing() {
        machine.noteServing()
        memory.noteServing()
    }

    /// Replies to a call with one accepted post, after its deliveries are sent.
    func answer(_ post: MethodCall, with receipt: Receipt) {
        guard post.answer.isWanted, let mark = mark(for: receipt, to: post.sender) else {
            return post.answer.reply(toPost: receipt.receivers)
        }
        pendingReplies.append(post, receivers: receipt.receivers, behind: mark)
    }

    /// Returns the answer to an accepted post on a channel; nil if deliveries are due first, and the driver sends it
    /// after them.
    func answer(to post: ChannelPost, with receipt: Receipt) -> ChannelAnswer? {
        guard let mark = mark(for: receipt, to: post.channel.client) else {
            return post.answered(ChannelOutcome(receivers: receipt.receivers))
        }
        pendingReplies.append(post, receivers: receipt.receivers, behind: mark)
        return nil
    }

    /// Returns the watermark that the reply to a post waits for: that of its own deliveries, or else that of the
    /// poster's last pending reply, so that replies to one poster keep their order. Nil if the reply may be sent now.
    private func mark(for receipt: Receipt, to poster: ClientName) -> Watermark? {
        if let mark = receipt.mark, !center.hasPassed(mark) { return mark }
        return pendingReplies.lastMark(of: poster)
    }

    /// Sends the answers to posts on channels, in one event. The answer to a poster that does not read is kept in the
    /// reply queue (A4).
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

    /// Sends the pending replies whose deliveries have been sent.
    private func sendPassedReplies() {
        isAnswering = true
        defer { isAnswering = false }
        var answers: [ChannelAnswer] = []
        while true {
            // Answers on channels are collected for one event. The reply to a call is an event of its own, so the
            // collected answers go first.
            while let waiting = pendingReplies.popPassed(hasPassed: center.hasPassed) {
                if waiting.isCall, !answers.isEmpty {
                    send(answers)
                    answers = []
                }
                if let answer = waiting.send() { answers.append(answer) }
            }
            guard !answers.isEmpty else { return }
            // This event may let further replies pass, so the loop continues.
            send(answers)
            answers = []
        }
    }

    /// Replies to a call with many posts, after the deliveries of all of them are sent.
    ///
    /// - Parameter marks: for each lane with deliveries, the watermark of the last one.
    func answer(_ call: MethodCall, with outcomes: [PostOutcome], behind marks: [Watermark]) {
        var marks = marks.filter { !center.hasPassed($0) }
        if marks.isEmpty, let last = pendingReplies.lastMark(of: call.sender) { marks = [last] }
        guard !marks.isEmpty, call.answer.isWanted else { return call.answer.reply(toPosts: outcomes) }
        pendingReplies.append(call, outcomes: outcomes, behind: marks)
    }

    // MARK: Process restart (E3)

    /// Restores the state that an earlier process left for this bus, and persists all changes from now on. Call it
    /// before the first event, again and again until it returns true.
    ///
    /// - Parameters:
    ///   - directory: a directory private to the user.
    ///   - busID: the ID of the bus.
    ///   - address: the address of the bus.
    ///   - takesLock: whether to lock the recovery log against other processes (``RecoveryLog``).
    /// - Returns: false while another process has the lock.
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

    /// Sends all due messages before the process ends; no more calls arrive. Queued posts are left to the next process:
    /// they wait for an idle service, and a service that ends is not idle (Q2).
    ///
    /// - Parameter completion: called when the bus has carried all messages, or is gone. Then call ``finish()``.
    func settle(_ completion: @escaping () -> Void) {
        perform { effects in center.sendAllReady(effects: &effects) }
        beginEnding()
        effects.settle(completion)
    }

    /// Stops sending, and leaves all queues to the next process. It is repeated at ``finish()`` for changes since then.
    private func beginEnding() {
        // A store that has stopped writing after errors gets a last attempt.
        effects.store?.tryAgain(from: center)
        let isKept = effects.store?.isWhole == true
        perform { effects in
            // If the store can't persist the queues, their due messages are sent instead.
            if isKept {
                center.beginEnding(effects: &effects)
            } else {
                center.cancelEnding(effects: &effects)
                center.sendAllReady(isLast: true, effects: &effects)
            }
        }
    }

    /// Stops sending at once, because no time is left.
    ///
    /// - Parameter completion: called when the bus has carried all messages that were sent before, or is gone.
    func settleAtOnce(_ completion: @escaping () -> Void) {
        beginEnding()
        effects.settle(waitsForRefusals: false, completion)
    }

    /// Writes the final state for the next process. After that this process ends.
    func finish() {
        beginEnding()
        effects.store?.finish(from: center)
        isOver = true
    }

    // MARK: Connection handover (E5)

    /// Ends this driver when the bus has closed the connection, and returns the core and the store for the driver of
    /// the next connection (``inherit(_:_:)``).
    ///
    /// Messages in flight may be lost with the connection. The core records them as possible losses, which it reports
    /// to the clients on the next connection.
    ///
    /// - Returns: `largest` is the size of the largest notification in flight, in bytes.
    func handOver() -> (center: DistributedCenter, store: RecoveryStore?, largest: Int) {
        // The possible losses of each client: signals of the last seconds on the bus, and unwritten frames of its
        // channel.
        var (counts, largest) = effects.recentDeliveries()
        let lost = effects.channels.closeAll()
        for (client, one) in lost { counts[client, default: SentSignals.SignalContent()].add(one.unwritten) }
        perform { effects in
            for (client, recent) in counts.sorted(by: { $0.key < $1.key }) {
                let channel = lost[client]
                // The bus may not have carried the channel's descriptor to the client. Then all frames in the channel
                // are unreachable, and earlier messages on the bus may be lost too. The window can't bound this number,
                // because it counts written frames as acknowledged.
                var unreachable: SentSignals.SignalContent?
                if let channel, !channel.isCarried {
                    unreachable = channel.unread
                    unreachable?.add(recent)
                }
                center.inFlightLost(
                    client, atMost: recent.notifications, losses: recent.losses,
                    unreachable: unreachable.map { ($0.notifications, $0.losses) }, effects: &effects)
                #if CARILLON_PLANTED
                    if PlantedFault.strikes(.resetCountsAsRead) { continue }
                #endif
                // A client that closed its channel has also lost the frames that it left unread there.
                if let channel, channel.isCarried, channel.isReset {
                    center.inFlightLost(
                        client, atMost: 0, losses: 0,
                        unreachable: (channel.unread.notifications, channel.unread.losses), effects: &effects)
                }
            }
            // Unread control signals are sent again, and with them the removal of the observers in `revoked` by policy.
            for (client, channel) in lost.sorted(by: { $0.key < $1.key }) {
                guard let revoked = channel.unreadControl else { continue }
                center.controlSignalsLost(client, revoked: revoked, effects: &effects)
            }
            center.connectionEnded(effects: &effects)
        }
        defer {
            effects.store = nil
            isOver = true
            // An empty core ignores acknowledgments that still arrive on the control connection. They would acknowledge
            // messages that the client has not received.
            center = DistributedCenter()
        }
        return (center, effects.store, largest)
    }

    /// Restores the state from the core and the store of the previous driver (``handOver()``). Call once, before the
    /// first event.
    func inherit(_ before: DistributedCenter, _ store: RecoveryStore?) {
        center.takeOver(before)
        center.remembersChanges = store != nil
        effects.store = store
    }
}
