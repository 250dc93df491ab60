// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The queue of calls that the service has read and not served, fair to all callers (E4, A4).
///
/// The service reads ahead of serving, so a call of an occasional caller does not wait behind the calls of a busy one.
/// An account (a process, a sandboxed application, a user or a connection) that is within its time share is served at
/// once. Calls beyond that share wait here in their order, and the queues of all accounts are served in rotation. While
/// the service is under backpressure from an observer that reads, it serves calls at the pace of that observer.
///
/// The service never leaves messages in the bus on purpose, because messages of other senders would queue up behind
/// them. An account that has used up its quota of waiting calls loses its further calls. Posts that want no reply are
/// announced as lost to the observers that they would have reached. Other calls are refused.
///
/// Threads: that of the connection's context.
final class CallQueue {
    typealias Instant = SuspendingClock.Instant

    /// The bytes that the connection may read ahead of serving, besides the calls that are kept here.
    static let readAhead = 1 << 20
    /// The pause between two work slices for waiting calls, in milliseconds. It is the same however much there is to
    /// read.
    private static let interval: UInt32 = 10
    private static let timeInInterval = Duration.milliseconds(4)
    /// The work slice for waiting calls while reading is behind, because every other caller then waits for reading.
    private static let leastTimeInInterval = Duration.milliseconds(1)
    /// The divisor of the reading time that serving may use while reading is behind. On a busy machine this process has
    /// the processor for only a part of an interval, so the length of the interval is no measure of its work.
    private static let partOfReading = 4
    /// The estimated time for reading a message: a fixed time, and a microsecond for each 250 bytes.
    private static let timePerMessage = Duration.microseconds(5)
    private static let bytesPerMicrosecond = 250
    private static let maxOverdrawn = Duration.milliseconds(10)
    /// The work slice for waiting calls when there is nothing to read.
    private static let timeAtRest = Duration.milliseconds(2)
    /// The calls that are served in each interval however far observers are behind: 3,200 in a second.
    private static let leastInInterval = 32
    /// The calls of one account that are served at once in a slot while the service is under backpressure.
    private static let maxAtOnceUnderBackpressure = 8
    /// The maximum size, in bytes, of unreported lost posts while the service goes on reading.
    private static let maxUnreported = 4 << 20
    /// The time for announcing lost posts in each interval.
    private static let timeOfLosses = Duration.milliseconds(2)
    /// The unwritten bytes beyond which waiting calls stay queued and fewer calls are served at once. Signals that
    /// these calls cause would be queued ahead of the replies to other callers.
    private static let maxUnwritten = 256 << 10
    /// The unwritten bytes beyond which no call is served at once. Waiting calls still get a short work slice in each
    /// interval below this limit.
    private static let maxUnwrittenAtAll = 1 << 20

    /// An entry of an account's queue: a message, a row of calls, or a channel.
    private final class Call {
        /// The message of the call; nil for a channel, and for a row of calls.
        let message: Message?
        let caller: UniqueName
        /// The account in whose queue the entry is.
        let account: AccountID
        let byteCount: Int
        /// The bytes that the core charges for the entry while it waits.
        var charged = 0
        /// The channel with readable posts, which stay in its socket until the entry is served; nil for other entries.
        let channel: Channel?
        /// Consecutive calls of one connection, stored as bytes.
        var row = CallRow()

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

        /// The approximate memory of a call in a row. The array of a row has spare capacity, and the message is made
        /// only when the call is served.
        static func cost(inRow byteCount: Int) -> Int { byteCount + min(byteCount / 4, maxBytesOfRow / 4) + 64 }
        /// The memory of a row or message besides the cost of its calls, in bytes.
        static let overhead = 512
        /// The size of a row, in bytes, at which no further call is appended to it.
        static let maxBytesOfRow = 64 << 10
    }

    private unowned let driver: CenterDriver
    private unowned let connection: Connection
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var inbox = InboxWatch()
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var lines = FairQueue<AccountID, Call>()
    /// The rows at the ends of their queues. The next calls of the same connections are appended to them.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var openRows: [Call] = []
    private static let maxOpenRows = 8
    /// The account whose queue has the waiting calls of a connection.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var places: [UniqueName: AccountID] = [:]
    /// The bytes of the messages that are kept, and the last value that the connection has got. Rows are not memory of
    /// the connection.
    private var byteCount = 0
    private var byteCountTold = 0
    /// The bytes of the messages that ``Callers`` keeps.
    var keptElsewhere = 0 {
        didSet { tellConnection() }
    }
    /// The calls that may be served before the next interval.
    private var credit = Int.max
    /// The estimated time for reading the calls that were kept since the last interval.
    private var readingTime = Duration.zero
    /// The time that serving has used beyond its share while reading was behind. Later work slices are shortened by it.
    /// A single call may take long, for example when the state log is rewritten.
    private var overdrawn = Duration.zero
    private var lost = LostPosts()
    private var timer: EventSource?
    private var source: ReadySource!

    /// The `PostMany` call that is being served in parts although it exceeds the free quota; one at a time.
    ///
    /// Thus no limit is too small for such a call, and the memory of all waiting calls exceeds the limit by one message
    /// at most. The call is charged with the free bytes outside the reserve, so that calls of other processes can still
    /// be kept.
    private var oversized: Message?
    /// The calls that are served in parts, with their unserved remainders.
    private let parts: CallsInParts
    /// Serves a message that was kept.
    var serve: ((Message) -> Void)!
    /// Takes some posts from a channel. Returns their number, and whether there are more.
    var serveChannel: ((Channel) -> (count: Int, isMore: Bool))!
    /// Refuses a call that exceeds the quota of waiting calls.
    var refuse: ((Message) -> Void)!
    /// Called for each lost `PostMany` call with refused posts, with the number of these posts.
    var onRefusedPosts: ((UniqueName, Int) -> Void)!
    /// Called with the poster and the number of lost posts, before the observers are informed.
    var onLostPosts: (UniqueName, Int) -> Void = { _, _ in }
    /// Whether no earlier call waits in ``Callers``, so that a call may be taken without making a message of it.
    var mayTakeAtGlance: (() -> Bool)!
    /// Called for each call that ``takeAtGlance(_:)`` took or lost.
    var onGlance: (() -> Void)!
    /// Called after each part of a call with the number of posts in it. Returns whether notifications were sent during
    /// the callback.
    var onPart: ((Int) -> Bool)!
    /// Returns the policy check of a connection for names of posts; nil where the connection may post any name.
    var mayPost: ((UniqueName) -> ((String) -> Bool)?)!

    /// - Parameters:
    ///   - driver: the driver that performs the effects of the calls.
    ///   - parts: the calls that are served in parts.
    ///   - connection: the connection that receives the calls; the caller keeps it.
    init(of driver: CenterDriver, _ parts: CallsInParts, on connection: Connection) {
        self.driver = driver
        self.parts = parts
        parts.isContinued = true
        self.connection = connection
        source = ReadySource(
            on: connection.context, priority: .of(.waitingCalls),
            isReady: { [unowned self] in
                !isStopped && !lines.isEmpty && credit > 0 && !isWriting && !inbox.isBehind(at: connection.context.now)
            },
            run: { [unowned self] in serve(for: Self.timeAtRest) })
        driver.onBackpressure = { [unowned self] in start() }
    }

    /// Serves a call at once, or keeps it.
    ///
    /// - Parameter serve: runs if the call is served at once.
    /// - Returns: the result of `serve`; true if the call was kept or lost.
    func take(
        _ call: Message, of caller: UniqueName, _ account: AccountID, serve: () -> Bool
    ) -> Bool {
        // A call with descriptors is refused in any case, so its descriptors are not kept open in the queue.
        guard !call.hasDescriptors else { return serve() }
        #if CARILLON_PLANTED
            let account = place(
                of: caller, paidBy: PlantedFault.strikes(.unfairQueue) ? AccountID.user(0) : account)
        #else
            let account = place(of: caller, paidBy: account)
        #endif
        let start = connection.context.now
        let most = driver.center.isUnderBackpressure ? Self.maxAtOnceUnderBackpressure : nil
        guard !isStopped,
            mayServe(account, at: start, most: most),
            oversized == nil || !call.hasMember(PostMany.member) || hasRoom(for: call, of: caller)
        else {
            keep(call, of: caller, account)
            return true
        }
        defer {
            let posts = parts.takePostCount()
            lines.note(connection.context.now - start, of: account, more: posts)
            if parts.hasBegun(call) {
                if oversized == nil, !hasRoom(for: call, of: caller) { oversized = call }
                append(Call(call, of: caller, account))
                _ = onPart(posts)
            }
        }
        return serve()
    }

    private func hasRoom(for call: Message, of caller: UniqueName) -> Bool {
        driver.center.mayKeepCall(
            of: caller, byteCount: Call.cost(inRow: call.byteCount) + Call.overhead, wantsAnswer: !call.expectsNoReply)
    }

    /// Keeps or loses an arriving call without making a message of it, if calls of the same connection wait already.
    /// Most calls of a flood take this path.
    ///
    /// - Returns: false where the call must be examined as a message.
    func takeAtGlance(_ call: ArrivingCall) -> Bool {
        guard !isStopped, let row = openRows.first(where: { call.isFrom($0.caller) }), mayTakeAtGlance() else {
            return false
        }
        let cost = Call.cost(inRow: call.byteCount)
        guard driver.center.mayKeepCall(of: row.caller, byteCount: cost, wantsAnswer: !call.expectsNoReply) else {
            guard lose(call, of: row.caller) else { return false }
            onGlance()
            return true
        }
        guard row.row.byteCount < Call.maxBytesOfRow else { return false }
        noteReading(call.byteCount)
        row.row.append(call)
        row.charged += cost
        _ = driver.center.callIsKeptBehindOthers(of: row.caller, byteCount: cost)
        onGlance()
        return true
    }

    /// Takes some posts from a channel at once, or queues the channel behind earlier calls of its process.
    func take(_ channel: Channel) {
        let start = connection.context.now
        let most = driver.center.isUnderBackpressure ? Self.maxAtOnceUnderBackpressure : nil
        let account = place(of: channel.client, paidBy: channel.account)
        guard
            lines.mayServe(account, at: start, most: most, under: inbox.isBehind(at: start) ? .reading : .none)
        else {
            return keep(channel)
        }
        let (count, _) = serveChannel(channel)
        lines.note(connection.context.now - start, of: account, more: max(0, count - 1))
        // No other call of the client is served before the rest of the post.
        if channel.waiting != nil { keep(channel) }
    }

    /// Queues a channel.
    ///
    /// - Parameter isFirst: whether the channel goes to the front of its account's queue, until it is exhausted. An
    ///   entry that the channel may already have in the queue then has no effect.
    func keep(_ channel: Channel, first isFirst: Bool = false) {
        guard isFirst || !channel.isQueued else { return }
        channel.isQueued = true
        let call = Call(channel, place(of: channel.client, paidBy: channel.account))
        charge(call)
        closeRows { $0.account == call.account }
        if isFirst { lines.prepend(call, of: call.account) } else { lines.append(call, of: call.account) }
        start()
    }

    /// Serves the end of a connection at once, or queues it. It is queued in three cases:
    ///
    /// - Calls of the connection wait.
    /// - The client leaves in parts, because its removal is too large for one event.
    /// - The account has used up its time share, as when thousands of its connections end at once.
    func takeEnd(_ signal: Message, of caller: UniqueName, _ account: AccountID, serve: () -> Void) {
        let account = place(of: caller, paidBy: account)
        let start = connection.context.now
        let isKept = driver.center.keepsCalls(of: caller) || driver.center.takesPartsToLeave(caller)
        guard !isKept, isStopped || mayServe(account, at: start, most: nil) else {
            left.insert(caller)
            driver.center.noteLeft(caller)
            return append(Call(signal, of: caller, account))
        }
        serve()
        lines.note(connection.context.now - start, of: account)
    }

    /// Returns the account in whose queue a caller's next entry belongs. While calls of the caller wait, this is the
    /// account of those calls, even if the bus has since reported another one. Otherwise calls of one connection could
    /// overtake each other.
    private func place(of caller: UniqueName, paidBy account: AccountID) -> AccountID {
        places.isEmpty ? account : places[caller] ?? account
    }

    private func pressure(at now: Instant) -> FairQueue<AccountID, Call>.Pressure {
        inbox.isBehind(at: now) ? .reading : isWriting ? .writing : .none
    }

    private func mayServe(_ account: AccountID, at now: Instant, most: Int?) -> Bool {
        connection.outgoingBytes <= Self.maxUnwrittenAtAll
            && lines.mayServe(account, at: now, most: most, under: pressure(at: now))
    }

    /// Whether the queue has the end of a connection, so that replies to the connection's waiting calls reach nobody.
    func hasLeft(_ caller: UniqueName) -> Bool { !left.isEmpty && left.contains(caller) }

    /// Serves the waiting calls without regard to backpressure and to unwritten bytes, for the given time. Call before
    /// the process ends.
    func serveAll(for time: Duration) {
        announceLost(all: true)
        credit = .max
        serve(for: time, isLast: true)
    }

    /// Stops serving. All later calls are kept.
    func stop() {
        isStopped = true
        timer = nil
    }

    /// Removes and returns the waiting messages, so that messages that were read are not lost with the connection.
    /// Earlier losses are announced first. Entries of channels are discarded.
    func takeAll() -> [Message] {
        announceLost(all: true)
        var messages: [Message] = []
        while let call = pop() {
            if let message = call.message { messages.append(message) }
        }
        oversized = nil
        return messages
    }

    /// Loses calls that the process can't serve before it ends. Their posters and the observers that the posts would
    /// have reached are informed.
    ///
    /// - Returns: the calls other than posts without reply. The caller answers them after the losses are announced,
    ///   because a reply means that all earlier posts are accounted for.
    func loseAtEnd(_ messages: [Message]) -> [Message] {
        let others = messages.filter { message in
            guard let caller = message.sender else { return false }
            return !loseRead(message, of: caller)
        }
        announceLost(all: true)
        return others
    }

    private var isStopped = false
    /// The connections whose end is queued behind their waiting calls.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var left: Set<UniqueName> = []

    /// Releases the memory of connections that are gone (E8).
    func releaseMemory() {
        places.releaseMemory()
        left.releaseMemory()
        lines.releaseMemory()
    }

    // MARK: Keeping

    private func keep(_ message: Message, of caller: UniqueName, _ account: AccountID) {
        noteReading(message.byteCount)
        guard hasRoom(for: message, of: caller) else { return lose(message, of: caller) }
        let call = Call(nil, of: caller, account)
        guard call.row.append(message) else { return append(Call(message, of: caller, account)) }
        append(call)
        if openRows.count == Self.maxOpenRows { openRows.removeFirst() }
        openRows.append(call)
    }

    private func noteReading(_ byteCount: Int) {
        readingTime += Self.timePerMessage + .microseconds(byteCount / Self.bytesPerMicrosecond)
    }

    private func append(_ call: Call) {
        charge(call)
        closeRows { $0.account == call.account || $0.caller == call.caller }
        lines.append(call, of: call.account)
        start()
    }

    private func closeRows(_ isClosed: (Call) -> Bool) {
        if !openRows.isEmpty { openRows.removeAll(where: isClosed) }
    }

    private func charge(_ call: Call) {
        let isOversized = call.message != nil && call.message === oversized
        call.charged = Call.cost(inRow: max(call.byteCount, call.row.byteCount)) + Call.overhead
        // At least one byte is charged, by which the core knows that the caller has a waiting call.
        if isOversized { call.charged = max(1, min(call.charged, driver.center.roomForCalls)) }
        if !driver.center.callIsKeptBehindOthers(of: call.caller, byteCount: call.charged) {
            driver.perform { effects in
                driver.center.callIsKept(of: call.caller, byteCount: call.charged, effects: &effects)
            }
            places[call.caller] = call.account
        }
        byteCount += call.byteCount
        tellConnection()
    }

    private func pop() -> Call? {
        guard let call = lines.popNext() else { return nil }
        if !call.row.isEmpty { return popFirst(of: call) }
        if call.message?.kind == .signal { left.remove(call.caller) }
        noteTaken(call.charged, of: call.caller)
        byteCount -= call.byteCount
        tellConnection()
        return call
    }

    private func popFirst(of row: Call) -> Call? {
        guard let message = row.row.popFirst() else { return nil }
        var cost = Call.cost(inRow: message.byteCount)
        if row.row.isEmpty {
            cost = row.charged
            closeRows { $0 === row }
        } else {
            lines.prepend(row, of: row.account)
        }
        row.charged -= cost
        noteTaken(cost, of: row.caller)
        return Call(message, of: row.caller, row.account)
    }

    private func noteTaken(_ cost: Int, of caller: UniqueName) {
        driver.center.callIsTaken(of: caller, byteCount: cost)
        if !driver.center.keepsCalls(of: caller) { places[caller] = nil }
    }

    /// Sets the connection's limit for received bytes. Kept messages still count as received by the connection.
    private func tellConnection() {
        let byteCount = byteCount + keptElsewhere
        guard abs(byteCount - byteCountTold) > Self.readAhead / 4 || byteCount == 0 else { return }
        byteCountTold = byteCount
        connection.maxReceivedBytes = Self.readAhead + byteCount
    }

    // MARK: Serving

    /// Whether so many bytes are unwritten that waiting calls stay queued.
    var isWriting: Bool { connection.outgoingBytes > Self.maxUnwritten }

    /// Serves waiting calls.
    ///
    /// - Parameters:
    ///   - time: the length of the work slice.
    ///   - unwritten: the unwritten bytes beyond which serving stops.
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
                lines.prepend(call, of: call.account)
            } else if call.message === oversized {
                oversized = nil
            }
            var now = connection.context.now
            lines.noteTurn(now - before)
            // The time of deliveries that are sent then is charged to no account.
            if isMore, onPart(call.channel == nil ? count - 1 : count) { now = connection.context.now }
            before = now
            if now - start >= time { return }
        }
    }

    /// Serves an entry. Returns the number of calls in it, and whether a part of it is left.
    private func serve(_ call: Call) -> (count: Int, isMore: Bool) {
        if let message = call.message {
            serve(message)
            return (1 + parts.takePostCount(), parts.hasBegun(message))
        }
        guard let channel = call.channel else { return (1, false) }
        let (count, isMore) = serveChannel(channel)
        channel.isQueued = isMore
        return (max(1, count), isMore)
    }

    private func start() {
        guard timer == nil, !isStopped else { return }
        timer = .timer(milliseconds: Self.interval, on: connection.context, priority: .of(.control)) { [unowned self] in
            intervalEnded()
            guard lines.isEmpty, lost.isEmpty, !driver.center.isUnderBackpressure else {
                return .keep
            }
            timer = nil
            return .remove
        }
    }

    private func intervalEnded() {
        let now = connection.context.now
        if inbox.mayAsk {
            inbox.asked(at: now)
            connection.passBus { [weak self] _ in self?.inbox.answered() }
        }
        announceLost()
        let sent = driver.center.isUnderBackpressure ? driver.center.checkBackpressure() : 0
        credit = driver.center.isUnderBackpressure ? max(Self.leastInInterval, sent) : .max
        if inbox.isBehind(at: now) {
            serveBesideReading()
        } else if isWriting {
            serve(for: Self.leastTimeInInterval, upTo: Self.maxUnwrittenAtAll)
        } else {
            serve(for: Self.timeInInterval)
            overdrawn = .zero
        }
        readingTime = .zero
    }

    private func serveBesideReading() {
        let part =
            readingTime == .zero
            ? Self.leastTimeInInterval : min(readingTime / Self.partOfReading, Self.leastTimeInInterval)
        overdrawn = max(.zero, overdrawn - part)
        guard overdrawn == .zero else { return }
        let start = connection.context.now
        serve(for: part)
        // The excess is capped, so that a caller whose call was read waits not much longer than that call took.
        overdrawn = min(max(.zero, connection.context.now - start - part), Self.maxOverdrawn)
    }

    // MARK: Losing

    private func lose(_ message: Message, of caller: UniqueName) {
        guard loseRead(message, of: caller) else { return refuse(message) }
        start()
    }

    /// Loses a call of which no message was made.
    ///
    /// - Returns: false where the call must be examined as a message.
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

    /// Loses a message that was read, if it is a post without reply.
    ///
    /// - Returns: false for a message that is no post, a post that the caller may not make, and a post whose poster
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
    /// - Returns: false where the post would have been refused.
    func lose(_ outline: PostOutline, ofChannelOf caller: UniqueName) -> Bool {
        guard lose(outline, of: caller) else { return false }
        start()
        return true
    }

    /// Records posts that were lost before they reached this queue.
    func lose(_ post: LostPost) {
        lost.add(post.count, from: post.poster, reaching: post.reach)
        boundLosses()
        start()
    }

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

    /// Loses the posts of one call, as far as the caller may post them.
    private func lose(_ outline: ArrivedPosts.Outline, of caller: UniqueName) {
        let mayPost = mayPost(caller)
        var refused = outline.refused
        for run in outline.runs {
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

    /// Returns a filter for the bytes of a name: whether the name makes a difference. For a caller with a posting
    /// policy every name does.
    private func isObservedName(
        among texts: TextFilter, for caller: UniqueName
    ) -> (UnsafeRawBufferPointer) -> Bool {
        guard mayPost(caller) == nil else { return { _ in true } }
        return texts.mayContain
    }

    /// Announces lost posts, for ``timeOfLosses`` at most.
    ///
    /// - Parameter isLast: whether all of them are announced, because the process or the connection ends.
    private func announceLost(all isLast: Bool = false) {
        defer { boundLosses() }
        let start = connection.context.now
        repeat {
            lost.collect { poster, count in onLostPosts(poster, Int(clamping: count)) }
            guard !lost.unreportedLoss.isEmpty else { return }
            driver.perform { effects in driver.center.losePosts(&lost.unreportedLoss, effects: &effects) }
        } while isLast || connection.context.now - start < Self.timeOfLosses
    }

    /// Pauses reading while too many lost posts are unreported. Losses of ever new names can arrive faster than they
    /// are announced; then further messages wait in the bus while the messages that were read are served.
    private func boundLosses() {
        let most = connection.isPaused ? Self.maxUnreported / 2 : Self.maxUnreported
        let isPaused = !isStopped && lost.byteCount > most
        if isPaused != connection.isPaused { connection.isPaused = isPaused }
    }
}
