// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The core, driven: events go in one at a time, and what it decides is carried out at once, in its order.
///
/// Threads: that of the bus's context. Nothing here blocks.
final class CenterDriver {
    private(set) var center = DistributedCenter()
    let effects: EffectRunner
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var waitingPosters = PendingReplies()
    /// Whether some of those are being answered, which is an event for each.
    private var isAnswering = false
    private let memory: MemoryReturn
    private let machine: Machine
    let context: MainContext
    /// Whether all that there was has been given to the next connection, or left to the next process. From then on
    /// nothing is carried out: numbers would be given twice, and what was accepted would not be kept.
    private(set) var isOver = false
    /// Called in a quiet moment behind a load, for tables that are kept elsewhere.
    var onRest: (() -> Void)?
    /// Called after each event while posts are to be read slowly.
    var onCrowded: (() -> Void)?
    /// An empty array whose memory is used again from event to event.
    private var spareEffects: [Effect] = []

    init(bus: any MessageBus, clients: ClientRegistry, barrier: BusBarrier, machine: Machine) {
        self.machine = machine
        center.clock = Clock(time: machine.time, uptime: machine.uptime)
        context = bus.context
        memory = MemoryReturn(context: bus.context, letGoOfPages: machine.letGoOfPages)
        effects = EffectRunner(bus: bus, clients: clients, barrier: barrier, machine: machine)
        memory.releaseRoom = { [unowned self] in releaseRoom() }
        effects.channels.meter = center.meter
        effects.answers.turn = { [unowned self] caller, byteCount in
            perform { effects in center.mayReply(to: caller, byteCount: byteCount, effects: &effects) }
        }
        effects.answers.onVoid = { [unowned self] caller, places in
            perform { effects in center.answersAreVoid(of: caller, places, effects: &effects) }
        }
        effects.report = { [unowned self] event in
            perform { effects in
                switch event {
                case .answered(let client): center.clientAnswered(client, effects: &effects)
                case .repliesAnswered(let client): center.repliesAnswered(by: client, effects: &effects)
                case .repliesWitnessed(let client, let hasRead):
                    center.repliesWitnessed(of: client, hasRead: hasRead, effects: &effects)
                case .ofChannel(.gone(let client)): center.channelGone(of: client, effects: &effects)
                case .ofChannel(.answered(let client)): center.channelAnswered(client, effects: &effects)
                case .ofChannel(.answers(let client)): center.clientAnswers(client)
                case .ofChannel(.drained(let client)): center.channelDrained(client, effects: &effects)
                case .ofChannel(.witnessed(let client, let hasRead)):
                    center.clientWitnessed(client, hasRead: hasRead, effects: &effects)
                case .ofChannel(.carried(let client)): center.channelCarried(to: client, effects: &effects)
                case .ofChannel(.wordsUnread(let client, let revoked)):
                    center.channelEnded(of: client, revoked: revoked, effects: &effects)
                case .ofChannel(.possibleLoss(let client)): center.channelEndedUncarried(of: client, effects: &effects)
                case .ofChannel(.cut(let client, let content, let last)):
                    center.channelCut(
                        client, atMost: content.notifications, losses: content.losses, last: last, effects: &effects)
                case .witnessed(let client, let hasRead):
                    center.clientWitnessed(client, hasRead: hasRead, effects: &effects)
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

    /// Tables give up what they keep of what is gone (E8).
    private func releaseRoom() {
        spareEffects = []
        center.releaseRoom()
        effects.releaseRoom()
        onRest?()
    }

    /// Makes one call into the core, and carries out what it decided, also where it throws: an event that is refused may have
    /// found before that the time of a value is over.
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
            // The numbers, before any answer. What is carried out is kept with them, and then.
            store?.flush()
        } else {
            effects.carryOut(decided)
        }
        if !decided.isEmpty { decided.removeAll(keepingCapacity: true) }
        spareEffects = decided
        if !waitingPosters.isEmpty, !isAnswering { answerPassed() }
        store?.tidy(from: center)
        effects.eventEnded(isMoreDue: center.isAnythingReady)
        memory.noteEvent(held: center.heldBytes)
        if center.isUnderBackpressure { onCrowded?() }
        return try result.get()
    }

    /// Takes out a part of what a post takes the place of, where that is much.
    ///
    /// - Returns: whether it may be posted now; otherwise this is to be called again, and nothing else done for its poster.
    func makeWay(
        for post: Post<WireUserInfo>, from poster: ClientName, effects: inout [Effect]
    ) throws(BusError) -> Bool {
        guard !post.options.coalescing.isEmpty else { return true }
        return try mappingCenterErrors { () throws(CenterError) in
            try center.makeWay(
                name: post.name, object: post.object, userInfo: post.userInfo, options: post.options, from: poster,
                effects: &effects)
        }
    }

    /// A call is served.
    func noteServing() {
        machine.noteServing()
        memory.noteServing()
    }

    /// Answers a post that was accepted, behind its deliveries.
    func answer(_ post: MethodCall, with receipt: Receipt) {
        guard post.answer.isWanted, let mark = mark(for: receipt, to: post.sender) else {
            return post.answer.reply(toPost: receipt.receivers)
        }
        waitingPosters.append(post, receivers: receipt.receivers, behind: mark)
    }

    /// What a post that came on a channel and was accepted is answered with now; nil where the answer waits for its
    /// deliveries, and comes behind them.
    func answer(to post: ChannelPost, with receipt: Receipt) -> ChannelAnswer? {
        guard let mark = mark(for: receipt, to: post.channel.client) else {
            return post.answered(ChannelOutcome(receivers: receipt.receivers))
        }
        waitingPosters.append(post, receivers: receipt.receivers, behind: mark)
        return nil
    }

    /// What an answer to `poster` waits behind.
    private func mark(for receipt: Receipt, to poster: ClientName) -> Watermark? {
        if let mark = receipt.mark, !center.hasPassed(mark) { return mark }
        return waitingPosters.lastMark(of: poster)
    }

    /// Answers posts that came on channels, as far as their posters read that (A4): as one event, so that all go together.
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
            while let waiting = waitingPosters.popPassed(hasPassed: center.hasPassed) {
                if waiting.isCall, !answers.isEmpty {
                    // In their order: answering a call is an event as well.
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

    /// Answers a call that brought many posts, behind the deliveries of all of them.
    ///
    /// - Parameter marks: behind the last of them in each lane.
    func answer(_ call: MethodCall, with outcomes: [PostOutcome], behind marks: [Watermark]) {
        var marks = marks.filter { !center.hasPassed($0) }
        if marks.isEmpty, let last = waitingPosters.lastMark(of: call.sender) { marks = [last] }
        guard !marks.isEmpty, call.answer.isWanted else { return call.answer.reply(toPosts: outcomes) }
        waitingPosters.append(call, outcomes: outcomes, behind: marks)
    }

    // MARK: From one process to the next (E3)

    /// Takes up what an earlier process left for this bus, and keeps state for a later one from now on. Call it before
    /// the first event, until it succeeds.
    ///
    /// - Parameters:
    ///   - directory: private to the user.
    ///   - busID: of the bus.
    ///   - address: of the bus.
    ///   - takesLock: see ``RecoveryLog``.
    /// - Returns: false while another process has the state.
    func recover(directory: String, busID: String, address: String, takesLock: Bool) -> Bool {
        do throws(FileError) {
            let store = try RecoveryStore(
                directory: directory, in: machine.files, busID: busID, address: address, limits: center.limits,
                takesLock: takesLock, now: { [context, start = context.now] in context.now - start })
            let count = store.restore(into: center)
            if count > 0 {
                Log.notice("took up the registrations of \(count) clients from an earlier process")
                memory.noteReading()
            }
            center.remembersChanges = true
            effects.store = store
            return true
        } catch {
            return false
        }
    }

    /// The process is about to end, and gets no more calls; a later one will take up from here. What is on its way goes
    /// out; what is queued is left to the later one, as a loop that is about to quit is not idle (Q2).
    ///
    /// - Parameter completion: called when the bus has carried all of it, or is gone. Then ``finish()``.
    func settle(_ completion: @escaping () -> Void) {
        perform { effects in center.sendAllReady(effects: &effects) }
        beginEnding()
        effects.settle(completion)
    }

    private func beginEnding() {
        effects.store?.tryAgain(from: center)
        let isKept = effects.store?.isWhole == true
        perform { effects in
            // If it can't be kept, it is better sent.
            if isKept {
                center.beginEnding(effects: &effects)
            } else {
                center.endNotYet(effects: &effects)
                center.sendAllReady(isLast: true, effects: &effects)
            }
        }
    }

    /// The same where there is no time left: nothing more goes out.
    ///
    /// - Parameter completion: called when the bus has carried what was sent before.
    func settleAtOnce(_ completion: @escaping () -> Void) {
        beginEnding()
        effects.settle(hearsRefusals: false, completion)
    }

    /// The process ends now.
    func finish() {
        beginEnding()
        effects.store?.finish(from: center)
        isOver = true
    }

    // MARK: From one connection to the next (E5)

    /// The bus closed the connection: gives away what there is, in order, for ``inherit(_:_:)``.
    func handOver() -> (center: DistributedCenter, store: RecoveryStore?, largest: Int) {
        var (counts, largest) = effects.recentDeliveries()
        let lost = effects.channels.closeAll()
        for (client, one) in lost { counts[client, default: SentSignals.Recent()].add(one.unwritten) }
        perform { effects in
            for (client, recent) in counts.sorted(by: { $0.key < $1.key }) {
                let channel = lost[client]
                // Before a channel that was not carried, nothing was either; but to the channel's windows it is confirmed.
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
                // So it is to who has left it unread.
                if let channel, channel.isCarried, channel.isReset {
                    center.inFlightLost(
                        client, atMost: 0, losses: 0,
                        unreachable: (channel.unread.notifications, channel.unread.losses), effects: &effects)
                }
            }
            for (client, channel) in lost.sorted(by: { $0.key < $1.key }) {
                guard let revoked = channel.unreadWords else { continue }
                center.controlSignalsLost(client, revoked: revoked, effects: &effects)
            }
            center.connectionEnded(effects: &effects)
        }
        defer {
            effects.store = nil
            isOver = true
            // What comes now, as an answer on the other connection, is for nobody: it would have the center believe that
            // the client was told what it was not.
            center = DistributedCenter()
        }
        return (center, effects.store, largest)
    }

    /// Takes up what the driver had whose connection the bus closed. Call once, before the first event.
    func inherit(_ before: DistributedCenter, _ store: RecoveryStore?) {
        center.takeOver(before)
        center.remembersChanges = store != nil
        effects.store = store
    }
}
