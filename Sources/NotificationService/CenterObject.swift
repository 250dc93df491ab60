import BusNames
import DBus
import DesktopActivity
import MainLoop
import NotificationCore
import NotificationWire

/// The object of the wire contract: what arrives goes to the table of methods, to the core, or to the desktop's part.
///
/// It runs on the thread of the bus's context, and nothing in it blocks.
package final class CenterObject {
    let prober: ClientProber
    private unowned let bus: any MessageBus
    private let processes: any ProcessTable = ProcFileSystem()
    private let clients: ClientRegistry
    private let driver: CenterDriver
    private let turns: DeliveryTurns
    private let refusals: Refusals
    private let configuration = ConfigurationKeeper()
    private var exporter: ObjectExporter!

    /// - Parameter bus: where effects go; the caller keeps it.
    package init(bus: any MessageBus) {
        self.bus = bus
        clients = ClientRegistry(bus: bus, table: processes)
        prober = ClientProber(bus: bus)
        driver = CenterDriver(bus: bus, clients: clients, prober: prober)
        turns = DeliveryTurns(of: driver, on: bus.context)
        refusals = Refusals(clients: clients)
        let handlers = CenterHandlers(
            driver: driver, turns: turns, clients: clients, refusals: refusals, configuration: configuration)
        exporter = ObjectExporter(path: Wire.path, interface: handlers.interface)
        exporter.onRefusal = { [unowned self] call, error in refusals.note(call, error) }
        try? configuration.read()  // a fault has been logged, and the standard values stay
        applyConfiguration()
        configuration.onRead = { [unowned self] before in
            applyConfiguration()
            announceChanges(since: before)
        }
    }

    // MARK: Its life

    /// Takes up what an earlier process left for this bus, and keeps state for a later one from now on. Call it before
    /// the first message is handled, until it succeeds; ``resume()`` follows when the service has its name.
    ///
    /// - Parameters:
    ///   - directory: private to the user.
    ///   - busID: of the bus that the object is on.
    ///   - takesLock: false for whoever knows that the process that has the state can't use it any more.
    /// - Returns: false while another process has the state.
    package func recover(directory: String, busID: String, takesLock: Bool = true) -> Bool {
        driver.recover(directory: directory, busID: busID, takesLock: takesLock)
    }

    /// Follows the activity of applications in the session from now on. Call once, before ``resume()``.
    ///
    /// - Parameter uniqueName: that of the bus connection, for desktops that report to it.
    func followActivity(uniqueName: UniqueName) {
        let driver = driver
        let monitor = ActivityMonitor(
            bus: bus, uniqueName: uniqueName, choice: configuration.current.activityChoice, processes: processes
        ) { [unowned driver] client, activity in
            Log.info("activity of \(client): \(activity.rawValue)", ["CARILLON_CLIENT": client.rawValue])
            driver.perform { effects in driver.center.setActivity(activity, of: client, effects: &effects) }
        }
        monitor.onChange = { [unowned self] in announce([.activitySource, .activityState]) }
        clients.onIdentified = { [unowned monitor] client, processID in
            monitor.clientIdentified(client, processID: processID)
        }
        driver.effects.activity = monitor
        monitor.start()
    }

    /// Watches the clients that came back, and delivers what waited for them.
    package func resume() {
        driver.perform { effects in driver.center.finishRestoring(effects: &effects) }
        if driver.center.hasQueuedPosts(.whenIdle) { turns.expectIdleness() }
    }

    /// The process is about to end; a later one will take up from here.
    package func finish() {
        driver.finish()
    }

    /// The bus is gone: nobody is left to take up the state for.
    package func busDisappeared() {
        driver.busDisappeared()
    }

    /// Reads the configuration files again. With a fault in one, which is logged, everything stays as it was.
    func reloadConfiguration() {
        try? configuration.read()
    }

    // MARK: What arrives

    /// Takes a message that arrived. Returns whether it was one for this object.
    package func handle(_ message: Message) -> Bool {
        turns.noteActivity()
        if message.kind == .methodCall, let sender = message.sender {
            driver.perform { effects in
                driver.center.clientShowedLife(sender, effects: &effects)
                if driver.center.isAnythingReady, isBarrier(message) {
                    driver.center.sendAllReady(effects: &effects)
                }
            }
        }
        let activity = driver.effects.activity
        if let change = OwnerChange(message) {
            if let client = change.departed {
                driver.perform { effects in driver.center.clientDisappeared(client, effects: &effects) }
            }
            activity?.ownerChanged(change)
            return true
        }
        if let error = message.error, error.name == BusError.limitsExceededName, message.isFromBus {
            refusals.noteRejection(error)
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

    // MARK: Changes

    private func applyConfiguration() {
        let configuration = configuration.current
        driver.center.limits = configuration.limits
        driver.perform { effects in
            driver.center.setAutomaticSuspension(configuration.suspendsAutomatically, effects: &effects)
        }
        driver.effects.activity?.choose(configuration.activityChoice)
    }

    private func announceChanges(since before: Configuration) {
        guard configuration.current != before else { return }
        Log.notice("configuration changed")
        if configuration.current.limits != before.limits { announce([.limits]) }
    }

    /// Tells everybody that these properties have new values.
    private func announce(_ properties: [CenterProperties.Name]) {
        bus.send(exporter.propertiesChanged(Set(properties.map(\.rawValue))))
    }
}
