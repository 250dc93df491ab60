// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The queue of method calls that the service has read from the bus and not served, fair to all callers (E4, A4).
///
/// `CenterObject` passes each arriving call to ``take(_:of:_:serve:)``. The call is served at once if its account (a
/// process, a sandboxed application, a user or a connection) is within its time share. Otherwise the call waits in the
/// queue of its account, and the queues of all accounts are served in rotation (``FairQueue``). Thus a call of an
/// occasional caller does not wait behind the calls of a busy one. Waiting calls are served every ``interval``, and
/// whenever there is nothing to read.
///
/// Three conditions limit the serving of waiting calls:
/// - Reading is behind, because the bus still holds messages for the service (``InboxWatch``). Serving then gets a
///   part of the time that reading takes.
/// - More than ``maxUnwritten`` bytes wait to be written to the bus. Serving would add signals in front of other
///   callers' replies.
/// - The core is under backpressure: an observer that reads has a full queue. Calls are then served at the pace of that
///   observer (``credit``).
///
/// The service reads on while calls wait here, because a message that stays in the bus delays the messages of all other
/// senders behind it. The quota `waiting-call-bytes` bounds all waiting calls, and each account may use a share of it.
/// A call beyond that share does not wait: a post without reply is lost, and reported to the observers that it would
/// have reached (``LostPosts``). Any other call gets an error reply.
///
/// Threads: only that of the service's main loop.
final class CallQueue {
    typealias Instant = SuspendingClock.Instant

    /// The bytes that the connection may read ahead of serving, in addition to the calls that wait here.
    static let readAhead = 1 << 20
    /// The pause between two work slices for waiting calls, in milliseconds. Its timer precedes reading, so a flood of
    /// messages does not delay it.
    private static let interval: UInt32 = 10
    /// The work slice for waiting calls in an interval without the limits below.
    private static let timeInInterval = Duration.milliseconds(4)
    /// The longest work slice while reading is behind or much is unwritten. It is short, because all other callers then
    /// wait for reading or writing.
    private static let shortTimeInInterval = Duration.milliseconds(1)
    /// While reading is behind, serving may use the time for reading in the interval, divided by this number. Reading
    /// thus keeps most of the time. The length of the interval is no measure of the time for reading, because a busy
    /// machine runs this process for only a part of it.
    private static let partOfReading = 4
    /// The estimated time for reading a message: a fixed time, and a microsecond for each 250 bytes.
    private static let timePerMessage = Duration.microseconds(5)
    private static let bytesPerMicrosecond = 250
    /// The maximum of ``overdrawn``.
    private static let maxOverdrawn = Duration.milliseconds(10)
    /// The work slice for waiting calls when there is nothing to read.
    private static let timeAtRest = Duration.milliseconds(2)
    /// The minimum of calls in each interval under backpressure: 3,200 in a second, even if observers read slower.
    private static let leastInInterval = 32
    /// The calls of one account that are served at once under backpressure, in a slot of the fair queue (20 ms).
    private static let maxAtOnceUnderBackpressure = 8
    /// The size of unreported lost posts, in bytes, above which the connection stops reading.
    private static let maxUnreported = 4 << 20
    /// The time for reporting lost posts to observers in each interval.
    private static let timeOfLosses = Duration.milliseconds(2)
    /// The unwritten bytes above which fewer calls are served at once, and waiting calls only in short work slices.
    /// Signals that these calls cause would be written ahead of the replies to other callers.
    private static let maxUnwritten = 256 << 10
    /// The unwritten bytes above which no call is served, except at the end of the process.
    private static let maxUnwrittenAtAll = 1 << 20

    /// An entry of an account's queue. It is one of these:
    /// - a single message: a call that has been served in part, a call that a row can't store, or the bus's signal that
    ///   a connection has ended;
    /// - a row: consecutive calls of one connection, stored as bytes to save memory;
    /// - a channel with readable posts.
    private final class QueueEntry {
        /// The single message; nil for a row and for a channel.
        let message: Message?
        let caller: UniqueName
        /// The account in whose queue the entry is.
        let account: AccountID
        /// The size of the single message in bytes; 0 for a row and for a channel.
        let byteCount: Int
        /// The bytes that the core charges for the entry while it waits.
        var charged = 0
        /// The channel, whose posts stay in its socket until the entry is served; nil for other entries.
        let channel: Channel?
        /// The calls of a row; empty for other entries.
        var row = EncodedCallQueue()

        init(_ message: Message?, of caller: UniqueName, _ account: AccountID) {
            self.message = message
            self.caller = caller
            self.account = account
            byteCount = message?.byteCount ?? 0
            channel = nil
        }

        init(_ channel: Channel, _ account: AccountID) {
            message = nil
            caller = channel.client
            self.account = account
            byteCount = 0
            self.channel = channel
        }

        /// Returns the approximate memory of a call in a row, in bytes: its bytes, its part of the row's spare
        /// capacity, and 64 bytes for the row's record of it.
        static func cost(inRow byteCount: Int) -> Int { byteCount + min(byteCount / 4, maxBytesOfRow / 4) + 64 }
        /// The memory of an entry in addition to the cost of its calls, in bytes.
        static let overhead = 512
        /// The size of a row, in bytes, at which no further call is appended to it.
        static let maxBytesOfRow = 64 << 10
    }

    private unowned let driver: CenterDriver
    private unowned let connection: Connection
    // Properties that every call uses are without Swift's run-time check of overlapping accesses in release builds.
    /// The measurement of whether the bus holds messages for the connection.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var inbox = InboxWatch()
    /// The queues of all accounts.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var accountQueues = FairQueue<AccountID, QueueEntry>()
    /// The rows at the ends of their queues, the oldest first. The next calls of the same connections are appended to
    /// them.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var openRows: [QueueEntry] = []
    private static let maxOpenRows = 8
    /// The account in whose queue the calls of each connection wait.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var queueAccounts: [UniqueName: AccountID] = [:]
    /// The size of the waiting single messages, in bytes, and its last value in the connection's read limit
    /// (``updateReadLimit()``). Rows do not count, because they are copies and not memory of the connection.
    private var byteCount = 0
    private var byteCountInLimit = 0
    /// The size of the messages, in bytes, that wait in ``Callers`` until their callers are identified.
    var bytesInCallers = 0 {
        didSet { updateReadLimit() }
    }
    /// The number of waiting calls that may still be served in this interval. Under backpressure it is the number of
    /// notifications that the slowest congested observer was sent in the last interval; otherwise it is unlimited.
    private var credit = Int.max
    /// The estimated time for reading the calls that arrived since the last interval and were not served at once.
    private var readingTime = Duration.zero
    /// The time that serving has used beyond its share while reading was behind. Later work slices are skipped until
    /// their shares have paid for it. A single call may take long, for example when the recovery log is rewritten.
    private var overdrawn = Duration.zero
    /// The lost posts that have not been reported to observers.
    private var lost = LostPosts()
    /// The timer of the intervals; nil while no call waits, no loss is unreported, and there is no backpressure.
    private var timer: EventSource?
    /// The source that serves waiting calls when there is nothing to read.
    private var source: ReadySource!

    /// The `PostMany` call that waits between two of its parts although the quota has no space for it; one at a time.
    ///
    /// Without this exception a small quota would refuse every large call. The waiting calls exceed the quota by one
    /// message at most. The call is charged only with the bytes that are free outside the reserve for small backlogs,
    /// so calls of other processes can still be kept.
    private var oversized: Message?
    /// The calls that are served in parts, with their unserved remainders.
    private let parts: SlicedCalls
    /// Serves a message that has waited.
    var serve: ((Message) -> Void)!
    /// Takes some posts from a channel. Returns their number, and whether there are more.
    var serveChannel: ((Channel) -> (count: Int, isMore: Bool))!
    /// Refuses a call that exceeds the quota of waiting calls.
    var refuse: ((Message) -> Void)!
    /// Called for each lost `PostMany` call in which some posts were invalid or not allowed by policy, with the poster
    /// and the number of these posts.
    var onRefusedPosts: ((UniqueName, Int) -> Void)!
    /// Called with the poster and the number of lost posts, before the losses are reported to observers.
    var onLostPosts: (UniqueName, Int) -> Void = { _, _ in }
    /// Whether ``takeUndecoded(_:)`` may be used: the service is running, and no earlier message waits in ``Callers``.
    var mayTakeUndecoded: (() -> Bool)!
    /// Called for each call that ``takeUndecoded(_:)`` queued or lost.
    var onUndecodedCall: (() -> Void)!
    /// Called after each part of a call with the number of posts in it; the delivery sources may then send
    /// notifications. Returns whether they have sent any.
    var onPart: ((Int) -> Bool)!
    /// Returns a check of whether policy allows a connection to post a name; nil where the connection may post any
    /// name.
    var mayPost: ((UniqueName) -> ((String) -> Bool)?)!

    /// - Parameters:
    ///   - driver: the driver that performs the effects of the calls.
    ///   - parts: the calls that are served in parts.
    ///   - connection: the connection that receives the calls; the caller keeps it.
    init(of driver: CenterDriver, _ parts: SlicedCalls, on connection: Connection) {
        self.driver = driver
        self.parts = parts
        // From now on a long call is served in parts, which this queue continues.
        parts.isContinued = true
        self.connection = connection
        source = ReadySource(
            on: connection.context, priority: .of(.waitingCalls),
            isReady: { [unowned self] in
                !isStopped && !accountQueues.isEmpty && credit > 0 && !isWriting
                    && !inbox.isBehind(at: connection.context.now)
            },
            run: { [unowned self] in serve(for: Self.timeAtRest) })
        driver.onBackpressure = { [unowned self] in start() }
    }

    /// Serves a call at once, queues it, or loses it.
    ///
    /// - Parameters:
    ///   - account: the account that is charged for the call.
    ///   - serve: serves the call; runs only if the call is served at once.
    /// - Returns: the result of `serve`; true if the call was queued or lost.
    func take(
        _ call: Message, of caller: UniqueName, _ account: AccountID, serve: () -> Bool
    ) -> Bool {
        // A call with descriptors is refused in any case. Refused at once, it keeps no descriptors open in the queue.
        guard !call.hasDescriptors else { return serve() }
        #if CARILLON_PLANTED
            let account = queueAccount(
                of: caller, paidBy: PlantedFault.strikes(.unfairQueue) ? AccountID.user(0) : account)
        #else
            let account = queueAccount(of: caller, paidBy: account)
        #endif
        let start = connection.context.now
        let most = driver.center.isUnderBackpressure ? Self.maxAtOnceUnderBackpressure : nil
        guard !isStopped,
            mayServe(account, at: start, most: most),
            // The remainder of a large `PostMany` call may have to wait, and only one oversized call may.
            oversized == nil || !call.hasMember(PostMany.member) || fitsQuota(for: call, of: caller)
        else {
            keep(call, of: caller, account)
            return true
        }
        defer {
            let posts = parts.takePostCount()
            accountQueues.note(connection.context.now - start, of: account, more: posts)
            // The call was served in part: its remainder waits like a new call.
            if parts.hasBegun(call) {
                if oversized == nil, !fitsQuota(for: call, of: caller) { oversized = call }
                append(QueueEntry(call, of: caller, account))
                _ = onPart(posts)
            }
        }
        return serve()
    }

    /// Whether the quota has space for a call.
    private func fitsQuota(for call: Message, of caller: UniqueName) -> Bool {
        driver.center.mayKeepCall(
            of: caller, byteCount: QueueEntry.cost(inRow: call.byteCount) + QueueEntry.overhead,
            wantsAnswer: !call.expectsNoReply)
    }

    /// Queues or loses a call directly from the receive buffer, without decoding it. This is possible if calls of the
    /// same connection wait already, as for most calls of a flood.
    ///
    /// - Returns: false if the call must be decoded and passed to ``take(_:of:_:serve:)``.
    func takeUndecoded(_ call: ArrivingCall) -> Bool {
        guard !isStopped, let row = openRows.first(where: { call.isFrom($0.caller) }), mayTakeUndecoded() else {
            return false
        }
        let cost = QueueEntry.cost(inRow: call.byteCount)
        guard driver.center.mayKeepCall(of: row.caller, byteCount: cost, wantsAnswer: !call.expectsNoReply) else {
            guard lose(call, of: row.caller) else { return false }
            onUndecodedCall()
            return true
        }
        guard row.row.byteCount < QueueEntry.maxBytesOfRow else { return false }
        noteReading(call.byteCount)
        row.row.append(call)
        row.charged += cost
        _ = driver.center.callIsKeptBehindOthers(of: row.caller, byteCount: cost)
        onUndecodedCall()
        return true
    }

    /// Takes some posts from a readable channel at once, or queues the channel behind earlier calls of its account. The
    /// bytes that wait to be written to the bus do not matter, because the outcomes of the posts leave by the channel.
    func take(_ channel: Channel) {
        let start = connection.context.now
        let most = driver.center.isUnderBackpressure ? Self.maxAtOnceUnderBackpressure : nil
        let account = queueAccount(of: channel.client, paidBy: channel.account)
        guard
            accountQueues.mayServe(account, at: start, most: most, under: inbox.isBehind(at: start) ? .reading : .none)
        else {
            return keep(channel)
        }
        // `mayServe` has counted the first of these posts.
        let (count, _) = serveChannel(channel)
        accountQueues.note(connection.context.now - start, of: account, more: max(0, count - 1))
        // A post that waits was posted in part. Queued here, its remainder precedes later calls of the client.
        if channel.waiting != nil { keep(channel) }
    }

    /// Queues a channel, unless it is queued already.
    ///
    /// - Parameter isFirst: whether the channel goes to the front of its account's queue, even if it is queued already.
    ///   The earlier entry then finds no posts left.
    func keep(_ channel: Channel, first isFirst: Bool = false) {
        guard isFirst || !channel.isQueued else { return }
        channel.isQueued = true
        let call = QueueEntry(channel, queueAccount(of: channel.client, paidBy: channel.account))
        charge(call)
        closeRows { $0.account == call.account }
        if isFirst {
            accountQueues.prepend(call, of: call.account)
        } else {
            accountQueues.append(call, of: call.account)
        }
        start()
    }

    /// Handles the end of a connection at once, or queues it behind the calls of its account. It is queued in three
    /// cases:
    /// - Calls of the connection wait.
    /// - The removal of the client's state is too large for one event, so it takes several parts.
    /// - The account has used up its time share, as when thousands of its connections end at once. After ``stop()`` the
    ///   share does not count, because the queue is served no more.
    ///
    /// - Parameters:
    ///   - signal: the bus's signal that the connection has ended.
    ///   - serve: handles the end; runs only if that happens at once.
    func takeEnd(_ signal: Message, of caller: UniqueName, _ account: AccountID, serve: () -> Void) {
        let account = queueAccount(of: caller, paidBy: account)
        let start = connection.context.now
        let isKept = driver.center.keepsCalls(of: caller) || driver.center.leavesInSlices(caller)
        guard !isKept, isStopped || mayServe(account, at: start, most: nil) else {
            left.insert(caller)
            driver.center.noteLeft(caller)
            return append(QueueEntry(signal, of: caller, account))
        }
        serve()
        accountQueues.note(connection.context.now - start, of: account)
    }

    /// Returns the account in whose queue a caller's next entry belongs. While calls of the caller wait, this is the
    /// account of those calls, even if the bus has since reported another one. Otherwise calls of one connection could
    /// overtake each other.
    private func queueAccount(of caller: UniqueName, paidBy account: AccountID) -> AccountID {
        queueAccounts.isEmpty ? account : queueAccounts[caller] ?? account
    }

    /// Returns the work that competes with serving now.
    private func pressure(at now: Instant) -> FairQueue<AccountID, QueueEntry>.Pressure {
        inbox.isBehind(at: now) ? .reading : isWriting ? .writing : .none
    }

    /// Whether a new call of an account may be served at once.
    ///
    /// - Parameter most: the maximum of the account's calls in a slot; nil for any number.
    private func mayServe(_ account: AccountID, at now: Instant, most: Int?) -> Bool {
        connection.outgoingBytes <= Self.maxUnwrittenAtAll
            && accountQueues.mayServe(account, at: now, most: most, under: pressure(at: now))
    }

    /// Whether a connection has ended and its end is still queued. Replies to its waiting calls then reach nobody.
    func hasLeft(_ caller: UniqueName) -> Bool { !left.isEmpty && left.contains(caller) }

    /// Serves the waiting calls without regard to backpressure and to unwritten bytes, for the given time. The service
    /// uses it before the process ends.
    func serveAll(for time: Duration) {
        announceLost(all: true)
        credit = .max
        serve(for: time, isLast: true)
    }

    /// Stops serving: all later calls from the bus are queued.
    func stop() {
        isStopped = true
        timer = nil
    }

    /// Removes and returns the waiting messages, so that they survive the end of the connection to the bus. Earlier
    /// losses are reported first. Entries of channels are discarded.
    func takeAll() -> [Message] {
        announceLost(all: true)
        var messages: [Message] = []
        while let call = pop() {
            if let message = call.message { messages.append(message) }
        }
        oversized = nil
        return messages
    }

    /// Loses calls that the process can't serve before it ends, and reports the lost posts to their posters and to the
    /// observers that they would have reached.
    ///
    /// - Returns: the calls other than posts without reply. The caller of this method answers them after this report,
    ///   because a reply means that all earlier posts were delivered or reported as lost.
    func loseAtEnd(_ messages: [Message]) -> [Message] {
        let others = messages.filter { message in
            guard let caller = message.sender else { return false }
            return !loseRead(message, of: caller)
        }
        announceLost(all: true)
        return others
    }

    private var isStopped = false
    /// The connections that have ended and whose end is still queued.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var left: Set<UniqueName> = []

    /// Releases the memory of connections that are gone (E8).
    func releaseMemory() {
        queueAccounts.releaseMemory()
        left.releaseMemory()
        accountQueues.releaseMemory()
    }

    // MARK: Keeping

    /// Queues a call, or loses it if the quota has no space for it.
    private func keep(_ message: Message, of caller: UniqueName, _ account: AccountID) {
        noteReading(message.byteCount)
        guard fitsQuota(for: message, of: caller) else { return lose(message, of: caller) }
        let call = QueueEntry(nil, of: caller, account)
        guard call.row.append(message) else { return append(QueueEntry(message, of: caller, account)) }
        append(call)
        if openRows.count == Self.maxOpenRows { openRows.removeFirst() }
        openRows.append(call)
    }

    /// Adds the estimated time for reading a message of this size to ``readingTime``.
    private func noteReading(_ byteCount: Int) {
        readingTime += Self.timePerMessage + .microseconds(byteCount / Self.bytesPerMicrosecond)
    }

    /// Charges an entry, and appends it to its account's queue.
    private func append(_ call: QueueEntry) {
        charge(call)
        closeRows { $0.account == call.account || $0.caller == call.caller }
        accountQueues.append(call, of: call.account)
        start()
    }

    /// Ends the appending of calls to these rows, because another entry follows them or they were removed.
    private func closeRows(_ isClosed: (QueueEntry) -> Bool) {
        if !openRows.isEmpty { openRows.removeAll(where: isClosed) }
    }

    /// Charges an entry to its caller in the core.
    private func charge(_ call: QueueEntry) {
        let isOversized = call.message != nil && call.message === oversized
        call.charged = QueueEntry.cost(inRow: max(call.byteCount, call.row.byteCount)) + QueueEntry.overhead
        // At least one byte is charged, because the core counts a caller without a charge as one without waiting calls.
        if isOversized { call.charged = max(1, min(call.charged, driver.center.freeCallBytes)) }
        // The short path serves callers of which other calls wait. The first waiting call makes the caller known.
        if !driver.center.callIsKeptBehindOthers(of: call.caller, byteCount: call.charged) {
            driver.perform { effects in
                driver.center.callIsKept(of: call.caller, byteCount: call.charged, effects: &effects)
            }
            queueAccounts[call.caller] = call.account
        }
        byteCount += call.byteCount
        updateReadLimit()
    }

    /// Removes and returns the next entry to serve, and ends its charge. A row yields its first call as a single
    /// message.
    private func pop() -> QueueEntry? {
        guard let call = accountQueues.popNext() else { return nil }
        if !call.row.isEmpty { return popFirst(of: call) }
        // The only signals in the queue report the end of a connection.
        if call.message?.kind == .signal { left.remove(call.caller) }
        noteTaken(call.charged, of: call.caller)
        byteCount -= call.byteCount
        updateReadLimit()
        return call
    }

    /// Removes and returns the first call of a row that was just removed from its queue. Puts the remaining row back.
    private func popFirst(of row: QueueEntry) -> QueueEntry? {
        guard let message = row.row.popFirst() else { return nil }
        var cost = QueueEntry.cost(inRow: message.byteCount)
        if row.row.isEmpty {
            // The last call ends the whole charge, which includes the overhead of the row.
            cost = row.charged
            closeRows { $0 === row }
        } else {
            accountQueues.prepend(row, of: row.account)
        }
        row.charged -= cost
        noteTaken(cost, of: row.caller)
        return QueueEntry(message, of: row.caller, row.account)
    }

    /// Ends the charge for an entry or a call of a row.
    private func noteTaken(_ cost: Int, of caller: UniqueName) {
        driver.center.callIsTaken(of: caller, byteCount: cost)
        if !driver.center.keepsCalls(of: caller) { queueAccounts[caller] = nil }
    }

    /// Raises the connection's read limit by the size of the waiting messages, which the connection still counts as
    /// received. Small changes are skipped to save calls.
    private func updateReadLimit() {
        let byteCount = byteCount + bytesInCallers
        guard abs(byteCount - byteCountInLimit) > Self.readAhead / 4 || byteCount == 0 else { return }
        byteCountInLimit = byteCount
        connection.maxReceivedBytes = Self.readAhead + byteCount
    }

    // MARK: Serving

    /// Whether more than ``maxUnwritten`` bytes wait to be written to the bus.
    var isWriting: Bool { connection.outgoingBytes > Self.maxUnwritten }

    /// Serves waiting calls for one work slice.
    ///
    /// - Parameters:
    ///   - time: the length of the work slice.
    ///   - unwritten: the unwritten bytes above which serving stops.
    ///   - isLast: whether the process is ending, so that unwritten bytes do not matter.
    private func serve(for time: Duration, upTo unwritten: Int = CallQueue.maxUnwritten, isLast: Bool = false) {
        guard !isStopped else { return }
        let start = connection.context.now
        var before = start
        while credit > 0, isLast || connection.outgoingBytes <= unwritten, let call = pop() {
            let (count, isMore) = serve(call)
            if credit < .max { credit -= min(count, credit) }
            if isMore {
                charge(call)
                accountQueues.prepend(call, of: call.account)
            } else if call.message === oversized {
                oversized = nil
            }
            var now = connection.context.now
            accountQueues.chargeWaiting(now - before)
            // `now` is read again after the callback, so that no account pays for deliveries that were sent in it.
            if isMore, onPart(call.channel == nil ? count - 1 : count) { now = connection.context.now }
            before = now
            if now - start >= time { return }
        }
    }

    /// Serves an entry. Returns the number of calls or posts that were served, and whether a part of the entry remains.
    private func serve(_ call: QueueEntry) -> (count: Int, isMore: Bool) {
        if let message = call.message {
            serve(message)
            return (1 + parts.takePostCount(), parts.hasBegun(message))
        }
        guard let channel = call.channel else { return (1, false) }
        let (count, isMore) = serveChannel(channel)
        channel.isQueued = isMore
        return (max(1, count), isMore)
    }

    /// Starts the timer of the intervals, which stops itself when it has nothing to do.
    private func start() {
        guard timer == nil, !isStopped else { return }
        timer = .timer(milliseconds: Self.interval, on: connection.context, priority: .of(.control)) { [unowned self] in
            intervalEnded()
            guard accountQueues.isEmpty, lost.isEmpty, !driver.center.isUnderBackpressure else {
                return .keep
            }
            timer = nil
            return .remove
        }
    }

    /// Runs at the end of each interval: measures reading, reports losses, and serves waiting calls.
    private func intervalEnded() {
        let now = connection.context.now
        // The reply arrives behind all messages that the bus holds now.
        if inbox.mayAsk {
            inbox.asked(at: now)
            connection.makeBusRoundTrip { [weak self] _ in self?.inbox.answered() }
        }
        announceLost()
        // The check may end the backpressure, so the state is read again after it.
        let sent = driver.center.isUnderBackpressure ? driver.center.checkBackpressure() : 0
        credit = driver.center.isUnderBackpressure ? max(Self.leastInInterval, sent) : .max
        if inbox.isBehind(at: now) {
            serveWhileReadingIsBehind()
        } else if isWriting {
            serve(for: Self.shortTimeInInterval, upTo: Self.maxUnwrittenAtAll)
        } else {
            serve(for: Self.timeInInterval)
            overdrawn = .zero
        }
        readingTime = .zero
    }

    /// Serves waiting calls while reading is behind, in a work slice that is a part of the time for reading. If no call
    /// was queued or lost in the interval, there is no such time, and the slice has its longest duration.
    private func serveWhileReadingIsBehind() {
        let part =
            readingTime == .zero
            ? Self.shortTimeInInterval : min(readingTime / Self.partOfReading, Self.shortTimeInInterval)
        overdrawn = max(.zero, overdrawn - part)
        guard overdrawn == .zero else { return }
        let start = connection.context.now
        serve(for: part)
        // The time beyond the slice is capped, so that one long call does not stop the serving of others for as long
        // again.
        overdrawn = min(max(.zero, connection.context.now - start - part), Self.maxOverdrawn)
    }

    // MARK: Losing

    /// Loses or refuses a call that exceeds the quota.
    private func lose(_ message: Message, of caller: UniqueName) {
        guard loseRead(message, of: caller) else { return refuse(message) }
        start()
    }

    /// Loses a call in the receive buffer, if it is a post without reply.
    ///
    /// - Returns: false if the call must be decoded, because it is another call or policy does not allow the post.
    private func lose(_ call: ArrivingCall, of caller: UniqueName) -> Bool {
        guard call.expectsNoReply else { return false }
        if let outline = PostOutline(of: call) {
            let registered = driver.center.registeredCount
            guard lost.addAgain(outline, from: caller, registered: registered) || lose(outline, of: caller) else {
                return false
            }
        } else {
            let texts = driver.center.observedTexts
            let outline = ArrivedPosts.runs(
                of: call, limits: driver.center.limits, isName: isObservedName(among: texts, for: caller),
                isObject: texts.mayContain)
            guard let outline else { return false }
            lose(outline, of: caller)
        }
        noteReading(call.byteCount)
        start()
        return true
    }

    /// Loses a decoded call, if it is a post without reply.
    ///
    /// - Returns: false for a call that is no post, for a post that policy does not allow, and for a post whose poster
    ///   wants a reply.
    private func loseRead(_ message: Message, of caller: UniqueName) -> Bool {
        guard message.expectsNoReply, message.hasPath(Wire.path),
            message.interface.map({ $0 == Wire.interface }) ?? true
        else { return false }
        if message.hasMember(PostMany.member), message.hasSignature(PostMany.inputs[0].signature) {
            let texts = driver.center.observedTexts
            let outline = ArrivedPosts.runs(
                of: message, limits: driver.center.limits, isName: isObservedName(among: texts, for: caller),
                isObject: texts.mayContain)
            if let outline { lose(outline, of: caller) }
            return outline != nil
        }
        let outline =
            if message.hasMember(PostCall.member) {
                try? PostOutline(of: message)
            } else if message.hasMember(PostJSON.member) {
                try? PostOutline(ofJSON: message)
            } else {
                nil as PostOutline?
            }
        return outline.map { lose($0, of: caller) } ?? false
    }

    /// Loses a post that arrived on a channel and exceeded the quota there.
    ///
    /// - Returns: false if policy does not allow the post.
    func lose(_ outline: PostOutline, ofChannelOf caller: UniqueName) -> Bool {
        guard lose(outline, of: caller) else { return false }
        start()
        return true
    }

    /// Records posts of another session that were lost before they reached this service.
    func lose(_ post: LostPost) {
        lost.add(post.count, from: post.poster, reaching: post.reach)
        boundLosses()
        start()
    }

    /// Records the loss of one post, if observers may match it.
    ///
    /// - Returns: false if policy does not allow the post.
    private func lose(_ outline: PostOutline, of caller: UniqueName) -> Bool {
        guard mayPost(caller)?(outline.name) != false else { return false }
        let reach = driver.center.reach(
            ofPost: outline.name, object: outline.object, deliverImmediately: outline.isImmediate)
        if let reach {
            lost.add(outline, from: caller, reaching: reach, registered: driver.center.registeredCount)
            boundLosses()
        }
        return true
    }

    /// Records the loss of the posts of one `PostMany` call. Posts that policy does not allow count as refused.
    private func lose(_ outline: ArrivedPosts.Outline, of caller: UniqueName) {
        let mayPost = mayPost(caller)
        var refused = outline.refused
        for run in outline.runs {
            // A run without a name has posts of unobserved names of a caller without a posting policy.
            guard run.name.map({ mayPost?($0) != false }) ?? true else {
                refused += Int(run.count)
                continue
            }
            let reach = driver.center.reach(ofPost: run.name, object: run.object, deliverImmediately: run.isImmediate)
            if let reach { lost.add(run.count, from: caller, reaching: reach) }
        }
        boundLosses()
        if refused > 0 { onRefusedPosts(caller, refused) }
    }

    /// Returns a filter for the bytes of a name: false for an unobserved name, because the losses of all such names
    /// count together. For a caller with a posting policy it is always true, because the policy must check each name.
    private func isObservedName(
        among texts: TextFilter, for caller: UniqueName
    ) -> (UnsafeRawBufferPointer) -> Bool {
        guard mayPost(caller) == nil else { return { _ in true } }
        return texts.mayContain
    }

    /// Reports lost posts to their posters and to the observers that they would have reached, for ``timeOfLosses`` at
    /// most.
    ///
    /// - Parameter isLast: whether all of them are reported, because the process or the connection ends.
    private func announceLost(all isLast: Bool = false) {
        defer { boundLosses() }
        let start = connection.context.now
        repeat {
            lost.collect { poster, count in onLostPosts(poster, Int(clamping: count)) }
            guard !lost.unreportedLoss.isEmpty else { return }
            driver.perform { effects in driver.center.losePosts(&lost.unreportedLoss, effects: &effects) }
        } while isLast || connection.context.now - start < Self.timeOfLosses
    }

    /// Pauses reading while the unreported losses exceed ``maxUnreported`` bytes, and resumes it below half of that.
    /// Losses with ever new names can arrive faster than they are reported. Further messages then wait in the bus.
    private func boundLosses() {
        let most = connection.isPaused ? Self.maxUnreported / 2 : Self.maxUnreported
        let isPaused = !isStopped && lost.byteCount > most
        if isPaused != connection.isPaused { connection.isPaused = isPaused }
    }
}
