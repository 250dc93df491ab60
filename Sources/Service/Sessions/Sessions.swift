// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The exchange of notifications with the other sessions of the machine (G1).
///
/// The services of the sessions meet on the system bus, each with its own connection. The connection exists only while
/// the configuration names something to export or import. Without it, and without a system bus, the session works as
/// usual. The bus verifies the user of a connection, so the rules are per user.
///
/// Threads: that of the context. Nothing here blocks.
final class Sessions {
    /// A notification from another session that the rules let in.
    struct Imported {
        let notification: SessionNotification
        let options: PostOptions
        /// The user of the other session, without any information that the session claims about itself.
        let identity: Identity
    }

    /// The interface of this session's center for other sessions.
    protocol Center: AnyObject {
        /// The serial of the last post.
        var newestSerial: UInt64 { get }
        /// The values that came from other sessions, in no particular order.
        var valuesFromSessions: [DistributedCenter.Kept] { get }
        var bytesForSessions: Int { get set }
        /// Whether much is queued to be written on the session bus: imported notifications would wait behind it, and
        /// delay others.
        var isWriting: Bool { get }

        /// As ``DistributedCenter/valueForSessions(after:through:)``.
        func valueForSessions(after: UInt64, through: UInt64) -> (value: ExportedNotification, serial: UInt64)?
        /// As ``DistributedCenter/value(of:)``.
        func value(of kind: NotificationKey) -> DistributedCenter.Kept?
        /// Removes values.
        func remove(_ kinds: ArraySlice<NotificationKey>)
        /// Reports the loss of posts of these names on their way here.
        func lose(_ entries: [LostSignal.Entry])
    }

    /// The counters of the exchange.
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

    /// Posts an imported notification; the error is the reason for which it was refused.
    var post: ((Imported) throws(BusError) -> Void)?
    /// The interface to the center; nil while the service is on no session bus.
    weak var center: (any Center)?
    /// Returns the limits in force.
    var limits: () -> Limits = { Limits() }
    private(set) var rules = SessionRules()
    var counts = Counts()

    let context: MainContext
    private let machine: Machine
    /// Whether ``begin()`` was called.
    private var hasBegun = false
    /// Whether reading is paused, also of a connection that starts later.
    private var isPaused = false
    private(set) var stay: SystemBusSession?
    private var retry: EventSource?
    private var release: EventSource?
    private var attempts = 0
    /// The identities of users with import: their names are looked up once.
    private var identities: [UInt32: Identity] = [:]
    private var values = SessionValues()
    /// Set while values are to be checked.
    private var look: EventSource?
    /// The time of the next check, in microseconds.
    private var lookTime: Int64 = 0
    /// The time at which all present sessions have had time to announce themselves, in microseconds.
    private var settled: Int64 = 0
    private var refusals: UInt64 = 0
    private var losses: UInt64 = 0

    private static let firstPause: UInt32 = 1000
    private static let longestPause: UInt32 = 300_000

    init(on machine: Machine, context: MainContext) {
        self.machine = machine
        self.context = context
    }

    /// Joins the other sessions from now on, where the rules need it.
    func begin() {
        hasBegun = true
        adapt()
        settled = now + Self.timeToSettle
        lookThrough(after: Self.timeToSettle)
    }

    /// The time after joining in which all present sessions have announced themselves, in microseconds.
    private static let timeToSettle: Int64 = 10_000_000

    /// Microseconds since an arbitrary moment, without suspended time.
    var now: Int64 {
        let time = (context.now - Self.start).components
        return time.seconds * 1_000_000 + time.attoseconds / 1_000_000_000_000
    }
    private static let start = SuspendingClock().now

    /// Pauses reading while the service is on no session bus; messages wait in the system bus.
    func pause(_ isPaused: Bool) {
        self.isPaused = isPaused
        stay?.pause(isPaused)
    }

    func use(_ rules: SessionRules) {
        guard rules != self.rules else { return }
        let before = self.rules
        self.rules = rules
        guard hasBegun else { return }
        adapt()
        // Values that may no longer be exported end in other sessions, and newly exported ones are announced.
        if rules.export != before.export { stay?.tellValuesAgain() }
        lookThrough(after: 0)
    }

    /// Sends a notification to all sessions that want it.
    func export(_ notification: ExportedNotification) {
        // The rules may have changed since it was posted.
        guard rules.exports(notification.name), let stay else { return noteLoss(1, "to other sessions") }
        stay.export(notification)
    }

    /// Announces the end of a value that is exported.
    func exportEnded(_ kind: NotificationKey) {
        if rules.exports(kind.name) { stay?.exportEnded(kind) }
    }

    // MARK: Connection to the system bus

    private func adapt() {
        guard rules.areNeeded, machine.connectToSystemBus != nil else {
            if stay != nil { Log.notice("left the system bus: [Sessions] exports and imports nothing") }
            (retry, attempts) = (nil, 0)
            leave()
            return
        }
        if let stay { stay.rulesChanged() } else if retry?.isPending != true { join() }
    }

    private func join() {
        guard let connect = machine.connectToSystemBus, rules.areNeeded else { return }
        do throws(BusError) {
            // At the priority of deliveries, so that imported notifications do not precede those of this session.
            let connection = try connect(context, .of(.delivery))
            let stay = SystemBusSession(connection, of: self) { [unowned self] error in ended(because: error) }
            self.stay = stay
            stay.pause(isPaused)
            stay.start()
        } catch {
            ended(because: error)
        }
    }

    /// Notes that the connection has joined the bus.
    func joined() {
        if attempts > 0 { Log.notice("reconnected to the system bus") }
        attempts = 0
        settled = now + Self.timeToSettle
        lookThrough(after: Self.timeToSettle)
    }

    private func ended(because error: BusError) {
        if attempts == 0 {
            Log.warning(
                "other sessions can't be reached without the system bus; retrying: \(error)",
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

    /// Leaves the system bus at the end of the process.
    func end() {
        (retry, hasBegun) = (nil, false)
        leave()
    }

    private func leave() {
        guard let left = stay else { return }
        stay = nil
        let count = left.close()
        if count > 0 { noteLoss(count, "to other sessions") }
        lookThrough(after: SessionValues.grace)
        // The connection's callbacks may be running.
        release = .once(milliseconds: 0, on: context) { [unowned self] in
            withExtendedLifetime(left) {}
            release = nil
        }
    }

    /// As ``Clock/uptime``.
    var uptime: Int64 { machine.uptime() }

    /// Posts a notification of a session of this user. A replayed value is not posted again where it is present
    /// already.
    ///
    /// - Throws: the reason for which it was refused.
    func take(_ notification: SessionNotification, of userID: UInt32, from peer: SessionPeer) throws(BusError) {
        guard let post, let center else { throw .failed("the service is on no session bus") }
        var options = PostOptions()
        options.deliverImmediately = notification.options.deliverImmediately
        options.expiresAfter = notification.options.expiresAfter
        if let serial = notification.options.serial, let time = notification.options.time {
            options.sameAs = SessionIdentity.text(userID: userID, serial: serial, time: time)
        }
        if notification.options.isRetained, rules.keeps(notification.name, of: userID) {
            options.retention = Retention(
                isFromSession: true, endsWithSession: notification.options.whileConnected)
        } else if notification.options.isKept {
            return
        }
        #if CARILLON_PLANTED
            if notification.options.isRetained, PlantedFault.strikes(.importKept) { options.retention = Retention() }
            if PlantedFault.strikes(.importGoesOut) { options.goesToAllSessions = true }
        #endif
        let identity = try identity(of: userID)
        let kind = NotificationKey(name: notification.name, object: notification.object, origin: identity.origin)
        let isKept = notification.options.isKept
        let isWanted = options.retention == nil || values.claim(kind, for: peer, isTold: isKept)
        if !isKept || isWanted && !isSame(center.value(of: kind), notification, options) {
            try post(Imported(notification: notification, options: options, identity: identity))
            counts.received += 1
        }
        guard options.retention != nil else { return }
        // Bounds the claims of values with ever new names that have ended again.
        if values.count > 2 * maxValues { lookThrough(after: 0) }
    }

    private func isSame(
        _ value: DistributedCenter.Kept?, _ notification: SessionNotification, _ options: PostOptions
    ) -> Bool {
        guard let value, value.retention == options.retention,
            (value.notification.userInfo as? WireUserInfo)?.commonBody == notification.userInfo.commonBody
        else { return false }
        guard let seconds = options.expiresAfter else { return value.notification.expiry == nil }
        // Both have been rounded to whole seconds.
        return value.notification.expiry.map { abs($0 - uptime - Int64(seconds) * 1_000_000) <= 2_000_000 } ?? false
    }

    // MARK: Values of other sessions (R8)

    /// Handles the end of a session's value.
    func removed(name: String, object: String, of userID: UInt32, by peer: SessionPeer) throws(BusError) {
        guard let center else { throw .failed("the service is on no session bus") }
        let kind = NotificationKey(name: name, object: object, origin: try identity(of: userID).origin)
        switch values.release(kind, by: peer) {
        case .stays: break
        case .follows(let other): stay?.askForValues(other)
        // A program here may have posted another value for the same user since.
        case .ends: if center.value(of: kind)?.retention.isFromSession == true { center.remove([kind]) }
        }
    }

    /// Schedules a check for ended values of other sessions.
    ///
    /// - Parameter time: the delay in microseconds.
    func lookThrough(after time: Int64) {
        let due = now + max(time, Self.leastPause)
        guard look == nil || due < lookTime else { return }
        lookTime = due
        look = .once(milliseconds: UInt32((due - now + 999) / 1000), on: context) { [unowned self] in
            look = nil
            lookThrough()
        }
    }

    /// The minimum time between two checks, however often sessions report changes, in microseconds.
    private static let leastPause: Int64 = 250_000
    private static let maxRemovedAtOnce = 256

    private func lookThrough() {
        guard let center else { return }
        let (now, kept) = (now, center.valuesFromSessions)
        maxValues = max(Self.leastValues, kept.count)
        for peer in values.takeFollowers(now: now) { stay?.askForValues(peer) }
        let next = values.clean(keeping: Set(kept.map(\.notification.kind)), now: now)
        var users: [String: (id: UInt32, presence: SessionValues.Presence)] = [:]
        for userID in rules.imports.keys {
            guard let user = (try? identity(of: userID))?.origin?.user else { continue }
            users[user] = (userID, stay?.presence(of: userID) ?? SessionValues.Presence())
        }
        let over = kept.map { ($0.notification.kind, $0.retention) }.filter { kind, retention in
            guard let user = kind.origin?.user.flatMap({ users[$0] }), rules.keeps(kind.name, of: user.id) else {
                return true
            }
            return values.isOver(kind, retention, user.presence, isSettled: now >= settled, now: now)
        }.map(\.0)
        center.remove(over.prefix(Self.maxRemovedAtOnce))
        if over.count > Self.maxRemovedAtOnce { lookThrough(after: 0) }
        if let next { lookThrough(after: next - now) }
        if now < settled { lookThrough(after: settled - now) }
    }

    /// The number of values of other sessions at the last check, at least 1,024.
    private var maxValues = Sessions.leastValues
    private static let leastValues = 1024

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

    func noteLoss(_ count: UInt64, _ where: String) {
        // The count may come from another session, and can have any value.
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
                "refused a message from \(session) of user \(user.map(String.init) ?? "unknown") on the system bus "
                    + "(\(total) so far): \(reason)", ["CARILLON_REASON": "sessions-refused"])
        }
    }

    /// The numbers of table entries per session, for tests.
    var kept: [(what: String, count: Int)] { stay?.kept ?? [] }

    /// The property `Sessions`.
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
