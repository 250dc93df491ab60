// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The exchange of notifications with the other sessions of the machine, over the system bus (G1). `CenterObject` uses
/// it.
///
/// A session is all connections of one user to one session bus, with one service. Each service has one connection to
/// the system bus (``SystemBusSession``), if its configuration has names to export or to import (``SessionRules``).
/// Notifications that ask for it are exported: they are sent to the services that import their names. Imported
/// notifications are posted in this session with the user of the sender, which the system bus has verified. Retained
/// values are exchanged too, and end with the values of their session (``SessionValues``).
///
/// Without a connection to the system bus, the session works by itself, and the connection is tried again.
///
/// Threads: only that of the service's main loop. Nothing here blocks.
final class Sessions {
    /// A notification from another session that the rules import.
    struct Imported {
        let notification: SessionNotification
        let options: PostOptions
        /// The user of the other session, as the bus verified it. It contains no claims of the session about itself.
        let identity: Identity
    }

    /// The parts of this session's core that the exchange uses (``SessionsCenter``).
    protocol Center: AnyObject {
        /// The serial of the last post. Serials number the posts of the session in their order.
        var newestSerial: UInt64 { get }
        /// The retained values that were imported from other sessions, in no particular order.
        var valuesFromSessions: [DistributedCenter.Kept] { get }
        /// The size of the queues to other sessions, in bytes. It counts in the memory limit of the service.
        var bytesForSessions: Int { get set }
        /// Whether many bytes wait to be written to the session bus. Imported notifications would wait behind them, and
        /// delay others.
        var isWriting: Bool { get }

        /// As ``DistributedCenter/valueForSessions(after:through:)``.
        func valueForSessions(after: UInt64, through: UInt64) -> (value: ExportedNotification, serial: UInt64)?
        /// As ``DistributedCenter/value(of:)``.
        func value(of key: NotificationKey) -> DistributedCenter.Kept?
        /// Removes imported values that have ended.
        func remove(_ keys: ArraySlice<NotificationKey>)
        /// Reports the loss of notifications of other sessions to the observers that they would have reached.
        func lose(_ entries: [LostSignal.Entry])
    }

    /// The counters of the exchange since the start of the process.
    struct Counts {
        /// Notifications that were sent, counted per receiving session.
        var sent: UInt64 = 0
        /// Notifications that were received and posted here.
        var received: UInt64 = 0
        /// Notifications that were lost, in either direction.
        var lost: UInt64 = 0
        /// Notifications that were received and refused.
        var refused: UInt64 = 0
    }

    /// Posts an imported notification in this session, or throws the reason for its refusal. Nil while the service is
    /// on no session bus.
    var post: ((Imported) throws(BusError) -> Void)?
    /// The interface to the center; nil while the service is on no session bus.
    weak var center: (any Center)?
    /// Returns the limits in force.
    var limits: () -> Limits = { Limits() }
    /// The rules in force, from the configuration.
    private(set) var rules = SessionRules()
    var counts = Counts()

    let context: MainContext
    private let machine: Machine
    /// Whether ``begin()`` was called.
    private var hasBegun = false
    /// Whether reading is paused, also of a connection that starts later.
    private var isPaused = false
    /// The connection to the system bus; nil while there is none.
    private(set) var systemBusSession: SystemBusSession?
    /// The timer of the next attempt to connect.
    private var retry: EventSource?
    /// The source that releases a closed connection.
    private var release: EventSource?
    /// The number of failed attempts to connect since the last success.
    private var attempts = 0
    /// The identities of users from whom names are imported. They are cached, because each lookup of a user's name may
    /// read a file or ask a server.
    private var identities: [UInt32: Identity] = [:]
    /// The table of the sessions that have each imported value.
    private var values = SessionValues()
    /// The timer of the next check for ended values.
    private var checkTimer: EventSource?
    /// The time of the next check, in microseconds.
    private var checkTime: Int64 = 0
    /// The time from which all present sessions have had time to announce themselves, in microseconds.
    private var settled: Int64 = 0
    /// The number of refused messages for the log.
    private var refusals: UInt64 = 0
    /// The number of losses for the log.
    private var losses: UInt64 = 0

    /// The first and the longest pause before the next attempt to connect, in milliseconds.
    private static let firstPause: UInt32 = 1000
    private static let longestPause: UInt32 = 300_000

    init(on machine: Machine, context: MainContext) {
        self.machine = machine
        self.context = context
    }

    /// Connects to the system bus, now or when the rules need it.
    func begin() {
        hasBegun = true
        adapt()
        settled = now + Self.timeToSettle
        checkValues(after: Self.timeToSettle)
    }

    /// The time that sessions have to announce themselves after this one has joined the system bus, in microseconds.
    private static let timeToSettle: Int64 = 10_000_000

    /// The time in microseconds since an arbitrary moment, without the time in which the machine was suspended.
    var now: Int64 {
        let time = (context.now - Self.start).components
        return time.seconds * 1_000_000 + time.attoseconds / 1_000_000_000_000
    }
    private static let start = SuspendingClock().now

    /// Pauses reading from the system bus while the service is on no session bus, or resumes it. Messages then wait in
    /// the system bus.
    func pause(_ isPaused: Bool) {
        self.isPaused = isPaused
        systemBusSession?.pause(isPaused)
    }

    /// Puts rules of the configuration into force.
    func use(_ rules: SessionRules) {
        guard rules != self.rules else { return }
        let before = self.rules
        self.rules = rules
        guard hasBegun else { return }
        adapt()
        // Values that are exported no more end in other sessions, and values that are exported now are sent.
        if rules.export != before.export { systemBusSession?.replayValuesToAll() }
        checkValues(after: 0)
    }

    /// Sends a notification to all sessions that want it.
    func export(_ notification: ExportedNotification) {
        // The rules may have changed since the post was accepted.
        guard rules.exports(notification.name), let systemBusSession else { return noteLoss(1, "to other sessions") }
        systemBusSession.export(notification)
    }

    /// Sends the end of a retained value to the sessions that may have it.
    func exportEnded(_ key: NotificationKey) {
        if rules.exports(key.name) { systemBusSession?.exportEnded(key) }
    }

    // MARK: Connection to the system bus

    /// Connects to the system bus or leaves it, as the rules require.
    private func adapt() {
        guard rules.areNeeded, machine.connectToSystemBus != nil else {
            if systemBusSession != nil { Log.notice("left the system bus: [Sessions] exports and imports nothing") }
            (retry, attempts) = (nil, 0)
            leave()
            return
        }
        if let systemBusSession { systemBusSession.rulesChanged() } else if retry?.isPending != true { join() }
    }

    /// Tries to connect to the system bus.
    private func join() {
        guard let connect = machine.connectToSystemBus, rules.areNeeded else { return }
        do throws(BusError) {
            // With the priority of deliveries, so that imported notifications do not precede those of this session.
            let connection = try connect(context, .of(.delivery))
            let systemBusSession = SystemBusSession(connection, of: self) { [unowned self] error in
                ended(because: error)
            }
            self.systemBusSession = systemBusSession
            systemBusSession.pause(isPaused)
            systemBusSession.start()
        } catch {
            ended(because: error)
        }
    }

    /// Called by the connection when it has joined the system bus.
    func joined() {
        if attempts > 0 { Log.notice("reconnected to the system bus") }
        attempts = 0
        settled = now + Self.timeToSettle
        checkValues(after: Self.timeToSettle)
    }

    /// Takes the end of the connection or a failed attempt, and schedules the next attempt.
    private func ended(because error: BusError) {
        if attempts == 0 {
            Log.warning(
                "other sessions can't be reached without the system bus; retrying: \(error)",
                ["CARILLON_REASON": "no-system-bus"])
        }
        leave()
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.systemBusNotReconnected) { return }
        #endif
        let pause = min(Self.firstPause << UInt32(min(attempts, 16)), Self.longestPause)
        attempts += 1
        retry = .once(milliseconds: pause, on: context) { [unowned self] in
            retry = nil
            join()
        }
    }

    /// Leaves the system bus at the end of the process.
    func end() {
        (retry, hasBegun) = (nil, false)
        leave()
    }

    /// Closes the connection to the system bus.
    private func leave() {
        guard let left = systemBusSession else { return }
        systemBusSession = nil
        let count = left.close()
        if count > 0 { noteLoss(count, "to other sessions") }
        checkValues(after: SessionValues.grace)
        // This may run inside a callback of the connection, which is therefore released in the next iteration of the
        // loop.
        release = .once(milliseconds: 0, on: context) { [unowned self] in
            withExtendedLifetime(left) {}
            release = nil
        }
    }

    /// The time in microseconds on the clock of expiry times (``Clock/uptime``).
    var uptime: Int64 { machine.uptime() }

    /// Posts a notification from a session of this user. A value from a replay is not posted if this session has it
    /// already, so that observers do not get it again.
    ///
    /// - Throws: the reason for a refusal.
    func take(_ notification: SessionNotification, of userID: UInt32, from peer: SessionPeer) throws(BusError) {
        guard let post, let center else { throw .failed("the service is on no session bus") }
        var options = PostOptions()
        options.deliverImmediately = notification.options.deliverImmediately
        options.expiresAfter = notification.options.expiresAfter
        if let serial = notification.options.serial, let time = notification.options.time {
            options.deduplicationID = SessionIdentity.text(userID: userID, serial: serial, time: time)
        }
        if notification.options.isRetained, rules.keeps(notification.name, of: userID) {
            options.retention = Retention(
                isFromSession: true, endsWithSession: notification.options.whileConnected)
        } else if notification.options.isKept {
            // A value from a replay is no new post, and this session does not retain it.
            return
        }
        #if CARILLON_PLANTED
            if notification.options.isRetained, PlantedFault.strikes(.forbiddenImportRetained) {
                options.retention = Retention()
            }
            if PlantedFault.strikes(.importExported) { options.goesToAllSessions = true }
        #endif
        let identity = try identity(of: userID)
        let key = NotificationKey(name: notification.name, object: notification.object, origin: identity.origin)
        let isKept = notification.options.isKept
        let isWanted = options.retention == nil || values.claim(key, for: peer, isReplayed: isKept)
        if !isKept || isWanted && !isSame(center.value(of: key), notification, options) {
            try post(Imported(notification: notification, options: options, identity: identity))
            counts.received += 1
        }
        guard options.retention != nil else { return }
        // Claims on values that have ended are removed at a check. An early check bounds their number.
        if values.count > 2 * maxValues { checkValues(after: 0) }
    }

    /// Whether a retained value is equal to a notification from a replay.
    private func isSame(
        _ value: DistributedCenter.Kept?, _ notification: SessionNotification, _ options: PostOptions
    ) -> Bool {
        guard let value, value.retention == options.retention,
            (value.notification.userInfo as? WireUserInfo)?.commonBody == notification.userInfo.commonBody
        else { return false }
        guard let seconds = options.expiresAfter else { return value.notification.expiry == nil }
        // Each transfer rounds the remaining time up to seconds, so equal values may differ by up to 2 s.
        return value.notification.expiry.map { abs($0 - uptime - Int64(seconds) * 1_000_000) <= 2_000_000 } ?? false
    }

    // MARK: Values of other sessions (R8)

    /// Takes the end of a session's value. Another session of the user may have a value with the same key, which
    /// follows.
    func removed(name: String, object: String, of userID: UInt32, by peer: SessionPeer) throws(BusError) {
        guard let center else { throw .failed("the service is on no session bus") }
        let key = NotificationKey(name: name, object: object, origin: try identity(of: userID).origin)
        switch values.release(key, by: peer) {
        case .stays: break
        case .follows(let other): systemBusSession?.askForValues(other)
        // The value of this key may no longer be the imported one, if a program here has posted another one since.
        case .ends: if center.value(of: key)?.retention.isFromSession == true { center.remove([key]) }
        }
    }

    /// Schedules a check for imported values that have ended.
    ///
    /// - Parameter time: the delay in microseconds; at least ``leastPause``.
    func checkValues(after time: Int64) {
        let due = now + max(time, Self.leastPause)
        guard checkTimer == nil || due < checkTime else { return }
        checkTime = due
        checkTimer = .once(milliseconds: UInt32((due - now + 999) / 1000), on: context) { [unowned self] in
            checkTimer = nil
            checkValues()
        }
    }

    /// The minimum time between two checks, however often sessions report changes, in microseconds.
    private static let leastPause: Int64 = 250_000
    /// The maximum number of values that one check removes, so that its event is short.
    private static let maxRemovedAtOnce = 256

    /// Removes imported values that have ended, and schedules the next check.
    private func checkValues() {
        guard let center else { return }
        let (now, kept) = (now, center.valuesFromSessions)
        maxValues = max(Self.leastValues, kept.count)
        for peer in values.takeFollowers(now: now) { systemBusSession?.askForValues(peer) }
        let next = values.clean(keeping: Set(kept.map(\.notification.key)), now: now)
        var users: [String: (id: UInt32, presence: SessionValues.Presence)] = [:]
        for userID in rules.imports.keys {
            guard let user = (try? identity(of: userID))?.origin?.user else { continue }
            users[user] = (userID, systemBusSession?.presence(of: userID) ?? SessionValues.Presence())
        }
        let over = kept.map { ($0.notification.key, $0.retention) }.filter { key, retention in
            guard let user = key.origin?.user.flatMap({ users[$0] }), rules.keeps(key.name, of: user.id) else {
                return true
            }
            return values.isOver(key, retention, user.presence, isSettled: now >= settled, now: now)
        }.map(\.0)
        center.remove(over.prefix(Self.maxRemovedAtOnce))
        if over.count > Self.maxRemovedAtOnce { checkValues(after: 0) }
        if let next { checkValues(after: next - now) }
        if now < settled { checkValues(after: settled - now) }
    }

    /// The number of imported values at the last check, but at least ``leastValues``. Twice as many claims cause a
    /// check.
    private var maxValues = Sessions.leastValues
    private static let leastValues = 1024

    /// Returns the identity for imports from a user.
    private func identity(of userID: UInt32) throws(BusError) -> Identity {
        if let known = identities[userID] { return known }
        let origin = try mappingCenterErrors { () throws(CenterError) in
            try OutsideOrigin(host: nil, user: UserNames.name(of: userID))
        }
        let identity = Identity(userID: userID, origin: origin)
        identities[userID] = identity
        return identity
    }

    // MARK: Counters and log

    /// Counts and logs losses.
    ///
    /// - Parameter where: the place of the loss for the log, in the middle of its sentence.
    func noteLoss(_ count: UInt64, _ where: String) {
        // The count may come from another session, and can have any value.
        counts.lost = UInt64(clamping: UInt128(counts.lost) + UInt128(count))
        if let total = Log.throttle(&losses, times: min(count, 1 << 32)) {
            Log.warning(
                "notifications \(`where`) are lost (\(total) so far)", ["CARILLON_REASON": "sessions-lost"])
        }
    }

    /// Counts and logs a refused message.
    func noteRefusal(of session: UniqueName, _ user: UInt32?, _ reason: String) {
        counts.refused += 1
        if let total = Log.throttle(&refusals) {
            Log.warning(
                "refused a message from \(session) of user \(user.map(String.init) ?? "unknown") on the system bus "
                    + "(\(total) so far): \(reason)", ["CARILLON_REASON": "sessions-refused"])
        }
    }

    /// The numbers of entries in the connection's tables, for tests of leaks.
    var kept: [(what: String, count: Int)] { systemBusSession?.kept ?? [] }

    /// The value of the property `Sessions` on the session bus.
    var shown: [String: PropertyList] {
        let state =
            systemBusSession.map { $0.hasJoined ? "joined" : "joining" }
            ?? (rules.areNeeded && hasBegun ? "waiting" : "off")
        func list(_ patterns: [NamePattern]) -> PropertyList { .array(patterns.map { .string($0.description) }) }
        var shown: [String: PropertyList] = [
            "state": .string(state), "sent": .uint64(counts.sent), "received": .uint64(counts.received),
            "lost": .uint64(counts.lost), "refused": .uint64(counts.refused),
            "peers": .array((systemBusSession?.shown ?? []).map { .dictionary($0) }),
        ]
        if !rules.export.isEmpty { shown["export"] = list(rules.export) }
        if !rules.imports.isEmpty {
            shown["import"] = .dictionary(
                Dictionary(uniqueKeysWithValues: rules.imports.map { ("\($0.key)", list($0.value)) }))
        }
        return shown
    }
}
