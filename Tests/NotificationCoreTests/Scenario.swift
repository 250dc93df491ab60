// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import Glibc
import Testing

/// A center under test and everything that it decided, with clients that read: what a client is asked, it answers at
/// once, unless it is ``stop(_:)``ped.
final class Scenario {
    /// A notification as a client got it.
    struct Received: Equatable {
        let name: String
        let object: String
        let observers: [ObserverID]
        let poster: ClientName
        let serial: UInt64
        let sequence: UInt64
        let tag: Int
        var origin: OutsideOrigin?
    }

    /// Something that happened to one client, in the order of all that happened to it.
    enum Happening: Equatable {
        case delivered(String, object: String = "", to: [ObserverID], sequence: UInt64)
        case dropped(UInt64, of: [ObserverID], DropReason)
        case suspensionChanged(Bool, SuspensionCause)
    }

    /// The userInfo of a test: a size, and something to recognise it by.
    final class Payload: UserInfo {
        let byteCount: Int
        let tag: Int

        init(byteCount: Int, tag: Int) {
            self.byteCount = byteCount
            self.tag = tag
        }
    }

    let center: DistributedCenter
    private var stopped: Set<ClientName> = []
    /// Probes that stopped clients did not answer.
    private(set) var unanswered: [ClientName: Int] = [:]
    private(set) var probes: [ClientName: Int] = [:]
    /// How often it was asked whether a client reads that never answered.
    private(set) var witnesses: [ClientName: Int] = [:]
    /// Answers that were kept for a connection and sent later.
    private(set) var sentAnswers: [ClientName: Int] = [:]
    /// What was asked, and sent later, of replies beside channels.
    private(set) var replyProbes: [ClientName: Int] = [:]
    private(set) var replyWitnesses: [ClientName: Int] = [:]
    private(set) var sentReplies: [ClientName: Int] = [:]
    /// The moments of inactivity that began for a client, with their epochs and lengths.
    private(set) var inactivityTimers: [ClientName: [(epoch: UInt64, milliseconds: Int)]] = [:]
    /// What each was told that it has no longer.
    private(set) var revoked: [ClientName: [ObserverID]] = [:]
    /// What other sessions are to get.
    private(set) var exported: [ExportedNotification] = []
    /// Values that other sessions were told to be none any more.
    private(set) var exportsEnded: [NotificationKey] = []
    /// Who was told that other names are wanted, each time.
    private(set) var interestChanges: [ClientName] = []
    private(set) var valueRemovals: [ClientName] = []
    private(set) var overflows: [ClientName: [DropReason]] = [:]
    private(set) var watched: [ClientName] = []
    private(set) var departuresWatched: [ClientName] = []
    private(set) var forgotten: [ClientName] = []
    private var received: [ClientName: [Received]] = [:]
    private var deliveries: [ClientName: [Delivery]] = [:]
    private var happened: [ClientName: [Happening]] = [:]
    /// How many of its last numbers a client may not have got, each time that this changed.
    private(set) var possibleLoss: [ClientName: [UInt64]] = [:]
    /// What was to be remembered.
    private(set) var changes: [Change] = []
    private var tags = 0
    /// That of the last post.
    var lastTag: Int { tags }
    /// Clients that read and were asked, and did not answer yet.
    private var asked: [ClientName] = []
    /// Whether an event is being carried out, of which this one is a part.
    private var isPerforming = false
    /// What of one event, and of what comes of it, is more than any test has: a center that goes round and round.
    private static let tooMany = 100_000

    /// What its clock shows, in seconds, and in milliseconds besides.
    var seconds: Int64 = 1000
    private var milliseconds: Int64 = 0
    /// When the timers of intervals end, in milliseconds of its clock.
    private(set) var intervalTimers: [ClientName: Int64] = [:]
    /// How many began.
    private(set) var intervalTimerCount = 0

    init(_ limits: [Limits.Key: UInt64] = [:]) {
        center = DistributedCenter()
        center.clock = Clock(time: { 0 }, uptime: { [unowned self] in now * 1000 })
        for (key, value) in limits { center.limits[key] = value }
    }

    private var now: Int64 { seconds * 1000 + milliseconds }

    /// Lets so many milliseconds pass, and timers of intervals end in their time.
    func wait(_ duration: Int64) {
        let end = now + duration
        for _ in 0..<Self.tooMany {
            guard let next = intervalTimers.min(by: { ($0.value, $0.key) < ($1.value, $1.key) }), next.value <= end
            else {
                milliseconds += end - now
                return
            }
            milliseconds += max(0, next.value - now)
            intervalTimers[next.key] = nil
            perform { effects in center.intervalTimerEnded(next.key, effects: &effects) }
        }
        Issue.record("there is always another interval")
    }

    // MARK: What clients do

    @discardableResult
    func observe(
        _ client: ClientName, _ name: String = "", _ object: String = "",
        _ behavior: SuspensionBehavior = .coalesce, mode: RunLoopMode = .default, automatic: Bool = true,
        retained: Bool = false, interval: UInt32 = 0
    ) throws -> ObserverID {
        try perform { effects throws(CenterError) in
            try center.addObserver(
                of: client, name: name, object: object,
                options: ObserverOptions(
                    suspensionBehavior: behavior, automaticSuspension: automatic, runLoopMode: mode,
                    wantsRetained: retained, minimumInterval: interval),
                effects: &effects)
        }
    }

    @discardableResult
    func monitor(_ client: ClientName, _ name: String = "") throws -> ObserverID {
        try perform { effects throws(CenterError) in
            try center.addObserver(
                of: client, name: name, object: "", options: ObserverOptions(isMonitor: true), effects: &effects)
        }
    }

    /// - Returns: how many clients matched.
    @discardableResult
    func post(
        _ name: String, _ object: String = "", bytes: Int = 0, immediately: Bool = false,
        style: PostingStyle = .now, coalescing: Set<CoalescingKey> = [], retention: Retention? = nil,
        expiresAfter: UInt32? = nil, origin: OutsideOrigin? = nil, allSessions: Bool = false,
        from poster: ClientName = ":1.0"
    ) throws -> Int {
        tags += 1
        let payload = Payload(byteCount: bytes, tag: tags)
        var options = PostOptions()
        options.deliverImmediately = immediately
        options.postingStyle = style
        options.coalescing = coalescing
        options.retention = retention
        options.expiresAfter = expiresAfter
        options.origin = origin
        options.goesToAllSessions = allSessions
        return try perform { effects throws(CenterError) in
            try center.post(
                name: name, object: object, userInfo: payload, options: options, from: poster, effects: &effects)
        }.receivers
    }

    /// Posts without userInfo: `name` with the objects "1", "2" … up to `count`, so that nothing coalesces.
    func post(_ count: Int, of name: String, bytes: Int = 0, immediately: Bool = false) throws {
        for number in 1...count { try post(name, "\(number)", bytes: bytes, immediately: immediately) }
    }

    /// Posts that nobody could serve.
    func lose(
        _ count: UInt64, _ name: String, _ object: String = "", immediately: Bool = false,
        from poster: ClientName = ":1.0"
    ) throws {
        try center.checkPost(name: name, object: object)
        let reach = center.reach(ofPost: name, object: object, deliverImmediately: immediately)!
        var lost = [LostPost(count, reaching: reach, from: poster)]
        perform { effects in center.losePosts(&lost, effects: &effects) }
    }

    /// A call waits to be served.
    func keepCall(_ byteCount: Int, of caller: ClientName) {
        perform { effects in center.callIsKept(of: caller, byteCount: byteCount, effects: &effects) }
    }

    func mayKeep(_ byteCount: Int, of caller: ClientName) -> Bool {
        center.mayKeepCall(of: caller, byteCount: byteCount, wantsAnswer: false)
    }

    /// The process behind a connection becomes known.
    func identify(_ client: ClientName, as process: UInt32, _ identity: Identity? = nil) {
        perform { effects in
            center.identify(client, as: .process(process), identity: identity, effects: &effects)
        }
    }

    func setOptions(_ change: ClientOptionsChange, of client: ClientName) throws {
        try perform { effects throws(CenterError) in try center.setOptions(change, of: client, effects: &effects) }
    }

    /// The values that are kept, as `name object`, with `@host` behind it where they are from elsewhere.
    func values(_ name: String = "", _ object: String = "") -> [String] {
        perform { effects in
            center.retainedValues(name: name, object: object, effects: &effects).map {
                $0.notification.name + ($0.notification.object.isEmpty ? "" : " \($0.notification.object)")
                    + ($0.notification.identity?.origin?.host.map { " @\($0)" } ?? "")
            }
        }
    }

    @discardableResult
    func forget(_ name: String, _ object: String = "") -> Int {
        perform { effects in center.removeRetained(name: name, object: object, effects: &effects).count }
    }

    @discardableResult
    func forget(_ name: String, _ object: String = "", from origin: OutsideOrigin?) -> Bool {
        perform { effects in
            center.removeRetained(NotificationKey(name: name, object: object, origin: origin), effects: &effects)
        }
    }

    @discardableResult
    func withdraw(_ name: String = "", _ object: String = "", of poster: ClientName = ":1.0") -> Int {
        perform { effects in center.withdrawPosts(of: poster, name: name, object: object, effects: &effects).count }
    }

    /// Policy takes registrations away from a client.
    func revoke(_ ids: Set<ObserverID>, of client: ClientName) {
        perform { effects in center.revoke(ids, of: client, effects: &effects) }
    }

    /// What others want; asked from the beginning by default.
    func followInterest(
        _ client: ClientName, after: String = "", most: Int = 1000, room: Int = 1 << 20
    ) throws -> DistributedCenter.Wanted {
        try perform { effects throws(CenterError) in
            try center.followInterest(
                of: client, after: after, most: most, room: room, byteCount: { $0.utf8.count }, effects: &effects)
        }
    }

    /// Which values there are; asked from the beginning by default.
    func followValues(
        _ client: ClientName, after: UInt64 = 0, most: Int = 1000, room: Int = 1 << 20
    ) throws -> [Notification] {
        try perform { effects throws(CenterError) in
            try center.followValues(
                of: client, after: after, most: most, room: room, byteCount: { $0.byteCount }, effects: &effects)
        }
    }

    func suspend(_ client: ClientName) throws {
        try perform { effects throws(CenterError) in
            try center.setSuspended(true, of: client, effects: &effects)
        }
    }

    func resume(_ client: ClientName) throws {
        try perform { effects throws(CenterError) in
            try center.setSuspended(false, of: client, effects: &effects)
        }
    }

    /// Somebody else's word about a client.
    ///
    /// - Returns: whether it is known.
    func override(_ client: ClientName, _ isSuspended: Bool?) -> Bool {
        perform { effects in
            center.overrideSuspension(
                isSuspended.map { SuspensionOverride(isSuspended: $0) }, of: client, effects: &effects)
        }
    }

    func followActivity(_ client: ClientName) throws {
        try perform { effects throws(CenterError) in try center.followActivity(of: client, effects: &effects) }
    }

    func tell(_ activity: Activity, of client: ClientName) {
        perform { effects in center.setActivity(activity, of: client, effects: &effects) }
    }

    /// The moment of inactivity of this epoch is over; by default the one that began last.
    func endInactivityTimer(_ client: ClientName, epoch: UInt64? = nil) {
        guard let epoch = epoch ?? inactivityTimers[client]?.last?.epoch else { return }
        perform { effects in center.inactivityTimerEnded(client, epoch: epoch, effects: &effects) }
    }

    /// The application is inactive, and was so for long enough.
    func deactivate(_ client: ClientName) {
        tell(.inactive, of: client)
        endInactivityTimer(client)
    }

    func setAutomaticSuspension(_ isOn: Bool) {
        perform { effects in center.setAutomaticSuspension(isOn, effects: &effects) }
    }

    func remove(_ observer: ObserverID, of client: ClientName) throws {
        try perform { effects throws(CenterError) in
            try center.removeObserver(observer, of: client, effects: &effects)
        }
    }

    /// - Returns: how many.
    @discardableResult
    func removeAll(of client: ClientName, name: String = "", object: String = "") -> Int {
        perform { effects in center.removeObservers(of: client, name: name, object: object, effects: &effects) }
    }

    func disappear(_ client: ClientName) {
        perform { effects in center.clientDisappeared(client, effects: &effects) }
    }

    // MARK: The bus

    /// - Parameter losses: how many the signal told of; 0 for a notification.
    func refuseDelivery(to client: ClientName, losses: UInt64 = 0) {
        perform { effects in center.deliveryRefused(client, losses: losses, effects: &effects) }
    }

    func refuseProbe(of client: ClientName, isCounted: Bool = false) {
        perform { effects in center.probeRefused(client, isCounted: isCounted, effects: &effects) }
    }

    func cutDeliveries(to client: ClientName, atMost count: Int, losses: UInt64 = 0) {
        perform { effects in center.inFlightLost(client, atMost: count, losses: losses, effects: &effects) }
    }

    /// All that an earlier process left has been restored.
    func finishRestoring() {
        perform { effects in center.finishRestoring(effects: &effects) }
    }

    /// The loop has nothing else to do, or the end of an iteration has come.
    /// - Parameter limit: nil for all, in as many events as that takes.
    func postQueued(_ style: PostingStyle, limit: Int? = nil) {
        repeat {
            perform { effects in center.postQueued(style, limit: limit ?? .max, effects: &effects) }
        } while limit == nil && center.hasQueuedPosts(style)
    }

    // MARK: Turns

    /// Lets what is ready wait, as if more came at once than can be sent.
    var isBusy = false

    /// Has what is ready in a lane, and in more urgent ones, sent; without a limit also what answers make ready.
    func send(upTo lane: DeliveryLane = .standard, limit: Int = .max) {
        for _ in 0..<Self.tooMany {
            perform { effects in center.sendReady(upTo: lane, limit: limit, effects: &effects) }
            guard limit == .max, DeliveryLane.allCases.contains(where: { $0 <= lane && center.isReady($0) }) else {
                return
            }
        }
        Issue.record("there is always more that is ready")
    }

    // MARK: Reading and not reading

    /// From now on the client answers nothing. What it is asked when it registers comes before: stop it after that
    /// for a client that has shown that it can answer.
    func stop(_ client: ClientName) {
        stopped.insert(client)
    }

    /// The stopped client answers one probe, whether or not there is one.
    func answer(_ client: ClientName) {
        if let count = unanswered[client], count > 0 { unanswered[client] = count - 1 }
        perform { effects in center.clientAnswered(client, effects: &effects) }
    }

    /// The client answers all that it did not, and goes on reading.
    func goOn(_ client: ClientName) {
        stopped.remove(client)
        let count = unanswered.removeValue(forKey: client) ?? 0
        for _ in 0..<count { answer(client) }
    }

    /// It was found out that the client has read all, or that nothing tells.
    func backlogProbe(_ client: ClientName, hasRead: Bool) {
        perform { effects in center.backlogProbed(client, hasRead: hasRead, effects: &effects) }
    }

    /// The service has an answer for a connection. Returns whether it goes out now.
    func answer(to caller: ClientName, bytes: Int = 100) -> Bool {
        perform { effects in center.mayAnswer(caller, byteCount: bytes, effects: &effects) }
    }

    // MARK: Channels

    func openChannel(of client: ClientName) throws {
        _ = try perform { effects throws(CenterError) in try center.channelOpened(of: client, effects: &effects) }
    }

    func channelGone(of client: ClientName) {
        perform { effects in center.channelGone(of: client, effects: &effects) }
    }

    /// The service has a reply for a connection.
    func reply(to caller: ClientName, bytes: Int = 100) -> DistributedCenter.ReplyTurn {
        perform { effects in center.mayReply(to: caller, byteCount: bytes, effects: &effects) }
    }

    /// A client with a channel answers one probe on the bus.
    func answerOnBus(_ client: ClientName) {
        perform { effects in center.repliesAnswered(by: client, effects: &effects) }
    }

    func probeReplyBacklog(_ client: ClientName, hasRead: Bool) {
        perform { effects in center.replyBacklogProbed(of: client, hasRead: hasRead, effects: &effects) }
    }

    // MARK: What came of it

    /// All that the client received.
    func received(_ client: ClientName) -> [Received] {
        received[client] ?? []
    }

    /// The same as the center had it sent.
    func deliveries(_ client: ClientName) -> [Delivery] {
        deliveries[client] ?? []
    }

    /// The names of all notifications that the client received.
    func names(_ client: ClientName) -> [String] {
        received(client).map(\.name)
    }

    /// The objects of all notifications that the client received.
    func objects(_ client: ClientName) -> [String] {
        received(client).map(\.object)
    }

    /// The sequence numbers of all notifications that the client received.
    func sequences(_ client: ClientName) -> [UInt64] {
        received(client).map(\.sequence)
    }

    /// All that happened to the client.
    func happened(_ client: ClientName) -> [Happening] {
        happened[client] ?? []
    }

    /// The notices of loss that the client got: how many each.
    func losses(_ client: ClientName) -> [UInt64] {
        happened(client).compactMap { if case .dropped(let count, _, _) = $0 { count } else { nil } }
    }

    /// Forgets what came until now, so that a test can look at what comes next.
    func clear() {
        received = [:]
        deliveries = [:]
        happened = [:]
    }

    func status(_ client: ClientName) -> ClientStatus? {
        center.clientStatuses.first { $0.name == client }
    }

    var statistics: Statistics { center.statistics }

    // MARK: Carrying out

    @discardableResult
    func perform<Result, Failure: Error>(
        _ event: (inout [Effect]) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        guard !isPerforming else { return try carryOut(event) }
        isPerforming = true
        defer { isPerforming = false }
        let result = try carryOut(event)
        // Answers are events of their own: they come when all of this one is carried out.
        for _ in 0..<Self.tooMany {
            if let client = asked.first {
                asked.removeFirst()
                answer(client)
            } else if !isBusy, center.isAnythingReady {
                // More of what clients are owed, in further turns.
                carryOut { _ in }
            } else {
                return result
            }
        }
        Issue.record("each answer is asked for another one")
        asked = []
        return result
    }

    private func carryOut<Result, Failure: Error>(
        _ event: (inout [Effect]) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var effects: [Effect] = []
        let result = try event(&effects)
        if !isBusy { center.sendAllReady(effects: &effects) }
        for effect in effects { carryOut(effect) }
        return result
    }

    private func carryOut(_ effect: Effect) {
        switch effect {
        case .deliver(let delivery): record(delivery)
        case .deliverTogether(_, let batch):
            #expect(!batch.isEmpty, "somebody is sent nothing")
            batch.forEach(record)
        case .dropped(let client, let count, let observers, let reason, _):
            happened[client, default: []].append(.dropped(count, of: observers, reason))
        case .suspensionChanged(let client, let isSuspended, let cause):
            happened[client, default: []].append(.suspensionChanged(isSuspended, cause))
        case .export(let notification): exported.append(notification)
        case .exportEnded(let kind): exportsEnded.append(kind)
        case .interestChanged(let client): interestChanges.append(client)
        case .valuesRemoved(let client): valueRemovals.append(client)
        case .revoked(let client, let observers): revoked[client, default: []] += observers
        case .probe(let client):
            probes[client, default: 0] += 1
            unanswered[client, default: 0] += 1
            if !stopped.contains(client) { asked.append(client) }
        case .backlogProbe(let client): witnesses[client, default: 0] += 1
        case .sendAnswer(let client): sentAnswers[client, default: 0] += 1
        case .probeReplies(let client): replyProbes[client, default: 0] += 1
        case .probeReplyBacklog(let client): replyWitnesses[client, default: 0] += 1
        case .sendReply(let client): sentReplies[client, default: 0] += 1
        case .startInactivityTimer(let client, let epoch, let milliseconds):
            inactivityTimers[client, default: []].append((epoch, milliseconds))
        case .startIntervalTimer(let client, let milliseconds):
            intervalTimers[client] = now + Int64(milliseconds)
            intervalTimerCount += 1
        case .overflowed(let client, let reason): overflows[client, default: []].append(reason)
        case .possibleLoss(let client, let count): possibleLoss[client, default: []].append(count)
        case .remember(let change): changes.append(change)
        case .watch(let client): watched.append(client)
        case .watchDeparture(let connection): departuresWatched.append(connection)
        case .forget(let client): forgotten.append(client)
        }
    }

    private func record(_ delivery: Delivery) {
        deliveries[delivery.client, default: []].append(delivery)
        let notification = delivery.notification
        let observers = delivery.observers.ids
        received[delivery.client, default: []].append(
            Received(
                name: notification.name, object: notification.object, observers: observers,
                poster: notification.poster, serial: notification.serial, sequence: delivery.sequence,
                tag: (notification.userInfo as? Payload)?.tag ?? 0, origin: notification.identity?.origin))
        happened[delivery.client, default: []].append(
            .delivered(
                notification.name, object: notification.object, to: observers, sequence: delivery.sequence))
    }
}

/// Whether what takes long does a small part of it: for the loop of an edit and its tests (`tools/test-only --quick`).
let isQuick = getenv("CARILLON_QUICK") != nil

/// Clients of the tests; the poster is another one, ":1.0".
let one: ClientName = ":1.1"
let two: ClientName = ":1.2"
let three: ClientName = ":1.3"

/// The client with a number of the tests' own.
func client(_ number: Int) -> ClientName {
    ClientName(rawValue: ":1.\(number)")!
}
