// SPDX-License-Identifier: Apache-2.0
import BusNames
import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// The other sessions of the machine (G1): what goes to them, and what comes from them.
///
/// They meet on the system bus, each by its service's own connection. It is there only while the configuration names
/// something to send or to take; without it, and without a system bus, the session goes on as ever. What the bus verifies
/// is the user of a connection, so that is what the rules speak of.
///
/// Threads: that of the context. Nothing here blocks.
final class Sessions {
    /// What came from another session, by the rules.
    struct Imported {
        let notification: SessionNotification
        let options: PostOptions
        /// The user of the other session, and nothing else that would be a word of its own.
        let identity: Identity
    }

    /// What went on so far.
    struct Counts {
        /// Notifications that left, to each session that got them.
        var sent: UInt64 = 0
        /// Those that came and were posted here.
        var received: UInt64 = 0
        /// Those that did not get through, in either direction.
        var lost: UInt64 = 0
        /// Those that came and were not to be taken.
        var refused: UInt64 = 0
    }

    /// Posts what came; the error says why not.
    var post: ((Imported) throws(BusError) -> Void)?
    /// Where limits are looked up.
    var limits: () -> Limits = { Limits() }
    private(set) var rules = SessionRules()
    var counts = Counts()

    let context: MainContext
    private let machine: Machine
    /// Whether it was asked to be there.
    private var hasBegun = false
    /// Whether nothing is to be taken, also of a stay that begins now.
    private var isPaused = false
    private var stay: SystemBusStay?
    private var retry: EventSource?
    private var release: EventSource?
    private var attempts = 0
    /// Of users of whom something is taken: their names are looked up once.
    private var identities: [UInt32: Identity] = [:]
    private var refusals: UInt64 = 0
    private var losses: UInt64 = 0

    private static let firstPause: UInt32 = 1000
    private static let longestPause: UInt32 = 300_000

    init(on machine: Machine, context: MainContext) {
        self.machine = machine
        self.context = context
    }

    /// Looks for the others from now on, where the rules want them.
    func begin() {
        hasBegun = true
        adapt()
    }

    /// The service is on no session bus for now, and what comes waits in the system bus.
    func pause(_ isPaused: Bool) {
        self.isPaused = isPaused
        stay?.pause(isPaused)
    }

    func use(_ rules: SessionRules) {
        guard rules != self.rules else { return }
        self.rules = rules
        if hasBegun { adapt() }
    }

    /// Sends a notification to all that want it.
    func export(_ notification: ExportedNotification) {
        // The rules may be others than when it was posted.
        guard rules.exports(notification.name), let stay else { return noteLoss(1, "to other sessions") }
        stay.export(notification)
    }

    // MARK: Being there

    private func adapt() {
        guard rules.areNeeded, machine.connectToSystemBus != nil else {
            if stay != nil { Log.notice("no longer among the sessions of the machine, by the configuration") }
            (retry, attempts) = (nil, 0)
            leave()
            return
        }
        if let stay { stay.rulesChanged() } else if retry?.isPending != true { join() }
    }

    private func join() {
        guard let connect = machine.connectToSystemBus, rules.areNeeded else { return }
        do throws(BusError) {
            // Beside deliveries, so that nothing from outside comes before what is of this session.
            let connection = try connect(context, .of(.delivery))
            let stay = SystemBusStay(connection, of: self) { [unowned self] error in ended(because: error) }
            self.stay = stay
            stay.pause(isPaused)
            stay.start()
        } catch {
            ended(because: error)
        }
    }

    /// It is on the bus.
    func joined() {
        if attempts > 0 { Log.notice("the system bus is there") }
        attempts = 0
    }

    private func ended(because error: BusError) {
        if attempts == 0 {
            Log.warning(
                "other sessions can't be reached, as the system bus can't; it is tried again: \(error)",
                ["CARILLON_REASON": "no-system-bus"])
        }
        leave()
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.systemBusGivenUp) { return }
        #endif
        let pause = min(Self.firstPause << UInt32(min(attempts, 16)), Self.longestPause)
        attempts += 1
        retry = .once(milliseconds: pause, on: context) { [unowned self] in
            retry = nil
            join()
        }
    }

    private func leave() {
        guard let left = stay else { return }
        stay = nil
        let count = left.close()
        if count > 0 { noteLoss(count, "to other sessions") }
        // Its callbacks may be running.
        release = .once(milliseconds: 0, on: context) { [unowned self] in
            withExtendedLifetime(left) {}
            release = nil
        }
    }

    /// As ``Clock/uptime``.
    var uptime: Int64 { machine.uptime() }

    /// Posts what came from a session of this user.
    ///
    /// - Throws: why it is not.
    func take(_ notification: SessionNotification, of userID: UInt32) throws(BusError) {
        guard let post else { throw .failed("the service is on no session bus") }
        var options = PostOptions()
        options.deliverImmediately = notification.options.deliverImmediately
        options.expiresAfter = notification.options.expiresAfter
        if notification.options.isRetained, rules.keeps(notification.name, of: userID) {
            options.retention = Retention()
        }
        #if CARILLON_PLANTED
            if notification.options.isRetained, PlantedFault.strikes(.importKept) { options.retention = Retention() }
            if PlantedFault.strikes(.importGoesOut) { options.goesToAllSessions = true }
        #endif
        let identity = try identity(of: userID)
        try post(Imported(notification: notification, options: options, identity: identity))
        counts.received += 1
    }

    private func identity(of userID: UInt32) throws(BusError) -> Identity {
        if let known = identities[userID] { return known }
        let origin = try mappingCenterErrors { () throws(CenterError) in
            try OutsideOrigin(host: nil, user: UserNames.name(of: userID))
        }
        let identity = Identity(userID: userID, origin: origin)
        identities[userID] = identity
        return identity
    }

    // MARK: What happened

    func noteLoss(_ count: UInt64, _ where: String) {
        // A number that somebody else tells may be any.
        counts.lost = UInt64(clamping: UInt128(counts.lost) + UInt128(count))
        if let total = Log.throttle(&losses, times: min(count, 1 << 32)) {
            Log.warning(
                "notifications \(`where`) are lost (\(total) so far)", ["CARILLON_REASON": "sessions-lost"])
        }
    }

    func noteRefusal(of session: UniqueName, _ user: UInt32?, _ reason: String) {
        counts.refused += 1
        if let total = Log.throttle(&refusals) {
            Log.warning(
                "refused what \(session) of user \(user.map(String.init) ?? "unknown") sent on the system bus "
                    + "(\(total) so far): \(reason)", ["CARILLON_REASON": "sessions-refused"])
        }
    }

    /// The entries that are kept for each session, to look at.
    var kept: [(what: String, count: Int)] { stay?.kept ?? [] }

    /// To look at: the property `Sessions`.
    var shown: [String: PropertyList] {
        let state = stay.map { $0.isThere ? "joined" : "joining" } ?? (rules.areNeeded && hasBegun ? "waiting" : "off")
        func list(_ patterns: [NamePattern]) -> PropertyList { .array(patterns.map { .string($0.description) }) }
        var shown: [String: PropertyList] = [
            "state": .string(state), "sent": .uint64(counts.sent), "received": .uint64(counts.received),
            "lost": .uint64(counts.lost), "refused": .uint64(counts.refused),
            "peers": .array((stay?.shown ?? []).map { .dictionary($0) }),
        ]
        if !rules.export.isEmpty { shown["export"] = list(rules.export) }
        if !rules.imports.isEmpty {
            shown["import"] = .dictionary(
                Dictionary(uniqueKeysWithValues: rules.imports.map { ("\($0.key)", list($0.value)) }))
        }
        return shown
    }
}
