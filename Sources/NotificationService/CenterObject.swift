import DBus
import DesktopActivity
import MainLoop
import NotificationCore
import NotificationWire

/// The object of the wire contract: the shell around ``DistributedCenter``.
///
/// It decodes what comes in, makes one call into the core, and carries the effects out. It runs on the thread of the
/// bus's context, and nothing in it blocks.
package final class CenterObject {
    let center = DistributedCenter()
    unowned let bus: any MessageBus
    /// The kernel's word on the processes of clients.
    let processes: any ProcessTable = ProcFileSystem()
    let clients: ClientRegistry
    let prober: ClientProber
    /// Calls that were refused, also those whose sender wanted no answer.
    private(set) var refused: UInt64 = 0
    /// Signals that the bus did not carry for want of room.
    private(set) var rejected: UInt64 = 0
    private var exporter: ObjectExporter!
    /// When what is ready goes out.
    private(set) var turns: DeliveryTurns!
    private var waitingPosters = WaitingPosters()
    /// An empty array whose memory is used again from event to event.
    private var spareEffects: [Effect] = []
    /// The message serial of the last notification. They are counted in the upper half of the numbers, where libdbus,
    /// which numbers all other messages, does not come.
    var lastSignal = firstSignal
    static let firstSignal: UInt32 = 1 << 31
    /// What survives the process; nil where nothing does.
    private(set) var store: RecoveryStore?
    /// How often the queue of a client began to overflow.
    var overflows: [ClientName: UInt64] = [:]
    /// For clients that never answered a probe; also those that are over.
    var probeTimers: [ClientName: EventSource] = [:]
    /// For clients whose application became inactive; also those that are over.
    var inactivityTimers: [ClientName: EventSource] = [:]
    /// Where the activity of applications comes from; nil until ``followActivity(uniqueName:)``.
    var activity: ActivityMonitor?
    /// What the files said last.
    private(set) var configuration = Configuration.standard

    /// - Parameter bus: where effects go; the caller keeps it.
    package init(bus: any MessageBus) {
        self.bus = bus
        clients = ClientRegistry(bus: bus, table: processes)
        prober = ClientProber(bus: bus)
        exporter = ObjectExporter(path: Wire.path, interface: centerInterface(of: self))
        turns = DeliveryTurns(of: self)
        prober.onAnswer = { [unowned self] client in
            perform { effects in center.clientAnswered(client, effects: &effects) }
        }
        exporter.onRefusal = { [unowned self] call, error in noteRefusal(of: call, error) }
        try? applyConfiguration()  // a fault has been logged, and the standard values stay
    }

    /// Takes up what an earlier process left for this bus, and keeps state for a later one from now on. Call once,
    /// before the first message can come; ``resume()`` follows when the service has its name.
    ///
    /// - Parameters:
    ///   - directory: private to the user.
    ///   - busID: of the bus that ``bus`` is connected to.
    package func recover(directory: String, busID: String) {
        do throws(RecoveryLog.Failure) {
            let store = try RecoveryStore(directory: directory, busID: busID)
            let count = store.restore(into: center)
            if count > 0 { Log.notice("took up the registrations of \(count) clients from an earlier process") }
            center.remembersChanges = true
            self.store = store
        } catch {
            Log.warning(
                "state can't be kept, so that a crash of the service would lose registrations: \(error)",
                ["CARILLON_REASON": error.description])
        }
    }

    /// Watches the clients that came back, and delivers what waited for them.
    package func resume() {
        perform { effects in center.finishRestoring(effects: &effects) }
        if center.hasQueuedPosts(.whenIdle) { turns.expectIdleness() }
    }

    /// The process is about to end; a later one will take up from here. What is on its way goes out; what is queued is
    /// left to the later one, as a loop that is about to quit is not idle (Q2).
    package func finish() {
        perform { effects in center.sendAllReady(effects: &effects) }
        store?.finish(from: center)
    }

    /// The bus is gone: nobody is left to take up the state for.
    package func busDisappeared() {
        store?.remove()
    }

    /// Takes a message that arrived. Returns whether it was one for this object.
    package func handle(_ message: Message) -> Bool {
        turns.noteActivity()
        if message.kind == .methodCall, let sender = message.sender {
            perform { effects in
                center.clientShowedLife(sender, effects: &effects)
                if center.isAnythingReady, isBarrier(message) { center.sendAllReady(effects: &effects) }
            }
        }
        if let change = OwnerChange(message) {
            if let client = change.departed {
                perform { effects in center.clientDisappeared(client, effects: &effects) }
            }
            activity?.ownerChanged(change)
            return true
        }
        if let error = message.error, error.name == BusError.limitsExceededName, message.isFromBus {
            noteRejection(error)
            return true
        }
        return activity?.handle(message) == true || exporter.handle(message, from: bus)
    }

    /// Whether what was accepted before has to be sent before this call is answered, so that a client that waits for
    /// the answer knows that all is on its way. Posts wait for their own turns, and suspension comes before everything
    /// that waits for its turn (M6).
    private func isBarrier(_ message: Message) -> Bool {
        !Self.withoutBarrier.contains(where: message.hasMember)
    }

    private static let withoutBarrier = [PostCall.member, SetSuspended.member, FollowActivity.member]

    /// Answers a post that was accepted, behind its deliveries.
    func answer(_ post: MethodCall, with receipt: Receipt) {
        guard let mark = receipt.mark, !post.message.expectsNoReply, !center.hasPassed(mark) else {
            return post.reply(to: PostCall.self, receipt.receivers)
        }
        waitingPosters.append(post, receivers: receipt.receivers, behind: mark)
    }

    /// Reads the configuration, applies it and announces what changed. With a fault in it, everything stays as it was.
    ///
    /// - Throws: the fault, with file and line. It has been logged.
    func reloadConfiguration() throws(KeyFile.Fault) {
        let before = configuration
        try applyConfiguration()
        guard configuration != before else { return }
        Log.notice("configuration changed")
        if configuration.limits != before.limits { announce(["Limits"]) }
    }

    /// Tells everybody that these properties have new values.
    func announce(_ properties: Set<String>) {
        bus.send(exporter.propertiesChanged(properties))
    }

    private func applyConfiguration() throws(KeyFile.Fault) {
        do throws(KeyFile.Fault) {
            configuration = try Configuration()
            center.limits = configuration.limits
            perform { effects in
                center.setAutomaticSuspension(configuration.suspendsAutomatically, effects: &effects)
            }
            activity?.choose(configuration.activityChoice)
        } catch {
            Log.warning("configuration refused, the old one stays: \(error)", ["CARILLON_REASON": error.reason])
            throw error
        }
    }

    /// Makes one call into the core, and carries out what it decided.
    func perform<Result, Failure: Error>(
        _ event: (inout [Effect]) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var effects = spareEffects
        spareEffects = []
        let result = try event(&effects)
        for effect in effects { carryOut(effect) }
        effects.removeAll(keepingCapacity: true)
        spareEffects = effects
        waitingPosters.answer { center.hasPassed($0) }
        store?.tidy(from: center)
        return result
    }

    /// The bus refused a signal of ours: its limits are narrower than a window and the largest userInfo.
    private func noteRejection(_ error: BusError) {
        guard let count = Log.throttle(&rejected) else { return }
        Log.warning("the bus did not carry \(count) signals so far: \(error)", ["CARILLON_REASON": "bus-limits"])
    }

    /// An error whose sender wanted no answer is lost silently nowhere (D3): it is counted, and logged with the sender.
    private func noteRefusal(of call: MethodCall, _ error: BusError) {
        refused += 1
        let sender = call.sender
        guard call.message.expectsNoReply else {
            return Log.debug("refused a call of \(sender): \(error.name)", fields(of: call, error))
        }
        guard let count = clients.countRefusal(of: sender) else { return }
        // The error's message may name keys of a userInfo, which is nobody's business but the poster's.
        Log.warning(
            "refused a call of \(sender), who wants no answer (\(count) so far): \(error.name)", fields(of: call, error)
        )
    }

    /// The name is a notification's where the first argument is one; never more of a message than that.
    private func fields(of call: MethodCall, _ error: BusError) -> Log.Fields {
        var arguments = call.arguments
        let name = (try? arguments.readString()) ?? ""
        return [
            "CARILLON_CLIENT": call.sender.rawValue, "CARILLON_NAME": String(name.prefix(256)),
            "CARILLON_REASON": error.name.rawValue,
        ]
    }
}
