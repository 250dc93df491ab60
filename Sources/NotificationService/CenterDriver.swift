import DBus
import DesktopActivity
import MainLoop
import NotificationCore
import NotificationWire

/// The core, driven: events go in one at a time, and what it decides is carried out at once, in its order.
///
/// Threads: that of the bus's context. Nothing here blocks.
final class CenterDriver {
    let center = DistributedCenter()
    let effects: EffectRunner
    private var waitingPosters = WaitingPosters()
    /// An empty array whose memory is used again from event to event.
    private var spareEffects: [Effect] = []

    init(bus: any MessageBus, clients: ClientRegistry, prober: ClientProber) {
        effects = EffectRunner(bus: bus, clients: clients, prober: prober)
        effects.report = { [unowned self] event in
            perform { effects in
                switch event {
                case .answered(let client): center.clientAnswered(client, effects: &effects)
                case .probeTimedOut(let client): center.probeTimedOut(client, effects: &effects)
                case .inactivityTimerEnded(let client, let epoch):
                    center.inactivityTimerEnded(client, epoch: epoch, effects: &effects)
                case .disappeared(let client): center.clientDisappeared(client, effects: &effects)
                }
            }
        }
    }

    /// Makes one call into the core, and carries out what it decided.
    func perform<Result, Failure: Error>(
        _ event: (inout [Effect]) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var decided = spareEffects
        spareEffects = []
        let result = try event(&decided)
        effects.store?.reserveNumbers(of: center)
        for effect in decided { effects.carryOut(effect) }
        decided.removeAll(keepingCapacity: true)
        spareEffects = decided
        // Before any answer: what was accepted is safe.
        effects.store?.flush()
        waitingPosters.answer { center.hasPassed($0) }
        effects.store?.tidy(from: center)
        return result
    }

    /// Answers a post that was accepted, behind its deliveries.
    func answer(_ post: MethodCall, with receipt: Receipt) {
        guard let mark = receipt.mark, !post.message.expectsNoReply, !center.hasPassed(mark) else {
            return post.reply(to: PostCall.self, receipt.receivers)
        }
        waitingPosters.append(post, receivers: receipt.receivers, behind: mark)
    }

    // MARK: From one process to the next (E3)

    /// Takes up what an earlier process left for this bus, and keeps state for a later one from now on. Call it before
    /// the first event, until it succeeds.
    ///
    /// - Parameters:
    ///   - directory: private to the user.
    ///   - busID: of the bus.
    ///   - takesLock: see ``RecoveryLog``.
    /// - Returns: false while another process has the state.
    func recover(directory: String, busID: String, takesLock: Bool) -> Bool {
        do throws(FileError) {
            let store = try RecoveryStore(
                directory: directory, busID: busID, limits: center.limits, takesLock: takesLock)
            let count = store.restore(into: center)
            if count > 0 { Log.notice("took up the registrations of \(count) clients from an earlier process") }
            center.remembersChanges = true
            effects.store = store
            return true
        } catch {
            return false
        }
    }

    /// The process is about to end; a later one will take up from here. What is on its way goes out; what is queued is
    /// left to the later one, as a loop that is about to quit is not idle (Q2).
    func finish() {
        perform { effects in center.sendAllReady(effects: &effects) }
        effects.store?.finish(from: center)
    }

    /// The bus is gone: nobody is left to take up the state for.
    func busDisappeared() {
        effects.store?.remove()
    }
}
