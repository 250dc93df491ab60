// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Serves callers fairly when more comes than can be served (E4, A4).
///
/// Reading goes ahead of serving, so that a call of somebody who calls rarely does not wait behind those of somebody who
/// calls without end. What a process calls beyond its part of the time is kept here, in its order, and served in turns
/// with that of others. While an observer is behind that reads, calls are served at the pace at which it is.
///
/// All is read, always: whatever stays in the bus, what others send would come to stand behind it. When a process has as
/// much here as it may, its further calls are lost: posts are announced as such to whom they would have reached, other
/// calls are refused.
final class CallQueue {
    typealias Instant = SuspendingClock.Instant

    /// What the connection reads ahead of being served, besides what is kept here, in bytes.
    static let readAhead = 1 << 20
    /// How often there is a turn for what waits, however much there is to read: in milliseconds.
    private static let interval: UInt32 = 10
    private static let timeInInterval = Duration.milliseconds(4)
    /// The same while what the bus holds has to wait there: reading it is what others wait for.
    private static let leastTimeInInterval = Duration.milliseconds(1)
    /// Where a processor is shared with many, an interval is no measure of what this process did in it: while others wait
    /// for what is read, no more than this part of what reading took is for serving.
    private static let partOfReading = 4
    /// What reading a message takes, roughly: so long, and a microsecond for so many bytes.
    private static let timePerMessage = Duration.microseconds(5)
    private static let bytesPerMicrosecond = 250
    private static let maxOverdrawn = Duration.milliseconds(10)
    /// The time of a turn when there is nothing to read.
    private static let timeAtRest = Duration.milliseconds(2)
    /// Calls that are served in each interval however far observers are behind: 3,200 in a second.
    private static let leastInInterval = 32
    /// Calls of one process that are served at once in a slot while an observer is behind.
    private static let maxAtOnceInCrowd = 8
    /// The size, in bytes, of lost posts that may wait to be announced while more is read.
    private static let maxUnreported = 4 << 20
    /// The time that announcing them has in each interval.
    private static let timeOfLosses = Duration.milliseconds(2)
    /// While so much waits to be written, what has to wait anyway does, and only little is served at once: what comes of it
    /// would stand behind that, before the answers of others.
    private static let maxUnwritten = 256 << 10
    /// The same for what else is served: up to here nobody who waits is forgotten for it.
    private static let maxUnwrittenAtAll = 1 << 20

    /// An entry of a line.
    private final class Call {
        /// Nil for a channel's turn, and for a row of calls.
        let message: Message?
        let caller: UniqueName
        /// Whose line it is in.
        let account: AccountID
        let byteCount: Int
        /// The bytes that the core counts for it, while it waits.
        var charged = 0
        /// One that has something to be read, which stays in its socket until then.
        let channel: Channel?
        /// Calls of one connection.
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

        /// The memory of a call in a row, about: the array has some room, and the message is made when it is served.
        static func cost(inRow byteCount: Int) -> Int { byteCount + min(byteCount / 4, maxBytesOfRow / 4) + 64 }
        /// That of a row besides, or of a message.
        static let overhead = 512
        /// A row that has as many bytes gets no more.
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
    /// The rows at the end of their lines, of those who called last: what comes next from these goes there.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var openRows: [Call] = []
    private static let maxOpenRows = 8
    /// In which line the calls are kept of those of whom some are.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var places: [UniqueName: AccountID] = [:]
    /// The messages that are kept, in bytes; and when the connection was told last. Rows are none of the connection's.
    private var byteCount = 0
    private var byteCountTold = 0
    /// The same of those that ``Callers`` keeps.
    var keptElsewhere = 0 {
        didSet { tellConnection() }
    }
    /// Calls that may be served before the next interval.
    private var credit = Int.max
    /// What it took to read what was kept since the last interval, about.
    private var readingTime = Duration.zero
    /// What serving took beyond its part while others waited for what is read: a single call may take long, as when the
    /// state is written anew. It is made up for.
    private var overdrawn = Duration.zero
    private var lost = LostPosts()
    private var timer: EventSource?
    private var source: ReadySource!

    /// A call of many posts that is being served although there is no room to keep it: one at a time, so that no limit is
    /// too small for such a call, and the memory of all that wait exceeds the limit by one message at most. It is charged
    /// what room there is, without the reserve, so that others have their calls served beside it.
    private var oversized: Message?
    /// Calls of which a part was served, with what is left of them.
    private let parts: CallsInParts
    /// Serves a message that was kept.
    var serve: ((Message) -> Void)!
    /// Takes some of what a channel brings. Returns how many posts that was, and whether there is more.
    var serveChannel: ((Channel) -> (count: Int, isMore: Bool))!
    /// Refuses a call for which there is no room.
    var refuse: ((Message) -> Void)!
    /// Called for each lost call of many posts of which some would have been refused, with their number.
    var onRefusedPosts: ((UniqueName, Int) -> Void)!
    /// Called with posts that were lost, before the observers are told.
    var onLostPosts: (UniqueName, Int) -> Void = { _, _ in }
    /// Whether nothing that arrived before is still to be looked at.
    var mayTakeAtGlance: (() -> Bool)!
    /// Called for each call that was taken or lost so.
    var onGlance: (() -> Void)!
    /// Called for each part of a call with the posts in it. Returns whether it took some time itself.
    var onPart: ((Int) -> Bool)!
    /// Whether policy lets a connection post a name; nil where it may post any.
    var mayPost: ((UniqueName) -> ((String) -> Bool)?)!

    /// - Parameters:
    ///   - driver: gets what comes of the calls.
    ///   - connection: from which they come.
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
        driver.onCrowded = { [unowned self] in start() }
    }

    /// Serves a call at once, or keeps it.
    ///
    /// - Parameter serve: runs in the first case.
    /// - Returns: what it returns; true in the second.
    func take(
        _ call: Message, of caller: UniqueName, _ account: AccountID, serve: () -> Bool
    ) -> Bool {
        // What has descriptors is refused in any case, and they are not kept open for that.
        guard !call.hasDescriptors else { return serve() }
        #if CARILLON_PLANTED
            let account = place(
                of: caller, paidBy: PlantedFault.strikes(.unfairLines) ? AccountID.user(0) : account)
        #else
            let account = place(of: caller, paidBy: account)
        #endif
        let start = connection.context.now
        let most = driver.center.isUnderBackpressure ? Self.maxAtOnceInCrowd : nil
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

    /// Keeps or loses a call that just came before a message is made of it, where those of its connection wait anyway. A
    /// flood consists of such.
    ///
    /// - Returns: false where it is to be looked at.
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

    /// Takes some of what a channel brings at once, or has it wait for its turn, behind what came from its process before.
    func take(_ channel: Channel) {
        let start = connection.context.now
        let most = driver.center.isUnderBackpressure ? Self.maxAtOnceInCrowd : nil
        let account = place(of: channel.client, paidBy: channel.account)
        guard
            lines.mayServe(account, at: start, most: most, under: inbox.isBehind(at: start) ? .reading : .none)
        else {
            return keep(channel)
        }
        let (count, _) = serveChannel(channel)
        lines.note(connection.context.now - start, of: account, more: max(0, count - 1))
        // Nothing else of the client is served before the rest of it.
        if channel.waiting != nil { keep(channel) }
    }

    /// Has a channel wait for its turn.
    ///
    /// - Parameter isFirst: whether nothing else of its account is served before it is at its end. The place that it may
    ///   have in line is of no effect then.
    func keep(_ channel: Channel, first isFirst: Bool = false) {
        guard isFirst || !channel.isQueued else { return }
        channel.isQueued = true
        let call = Call(channel, place(of: channel.client, paidBy: channel.account))
        charge(call)
        closeRows { $0.account == call.account }
        if isFirst { lines.prepend(call, of: call.account) } else { lines.append(call, of: call.account) }
        start()
    }

    /// Serves the end of a connection at once, or keeps it: behind the calls of it that are kept, as it is to be served part
    /// by part, or as thousands of connections of its process end at once.
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

    /// The line in which what comes from a caller now has its place: that of its calls that are kept, also where it was
    /// found out since who pays for it, or the calls of one connection would go past each other.
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

    /// Whether a connection has left of which calls are kept, so that nobody waits for their answers.
    func hasLeft(_ caller: UniqueName) -> Bool { !left.isEmpty && left.contains(caller) }

    /// Serves what is kept without regard to anybody's pace, for as long as the time lasts: there will be no later.
    func serveAll(for time: Duration) {
        announceLost(all: true)
        credit = .max
        serve(for: time, isLast: true)
    }

    /// From now on all that comes is kept, and nothing is served.
    func stop() {
        isStopped = true
        timer = nil
    }

    /// Takes out all that is kept. What was read is not lost with the connection, and what was lost before is told.
    func takeAll() -> [Message] {
        announceLost(all: true)
        var messages: [Message] = []
        while let call = pop() {
            if let message = call.message { messages.append(message) }
        }
        oversized = nil
        return messages
    }

    /// The process ends before these calls can be served: their callers hear it, and the observers whom the posts would have
    /// reached.
    ///
    /// - Returns: those that are no posts without an answer. They are answered when the losses are announced: an answer means
    ///   that everything before is known.
    func loseAtEnd(_ messages: [Message]) -> [Message] {
        let others = messages.filter { message in
            guard let caller = message.sender else { return false }
            return !loseRead(message, of: caller)
        }
        announceLost(all: true)
        return others
    }

    private var isStopped = false
    /// Those that have left, as the bus has told behind calls that are kept.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var left: Set<UniqueName> = []

    /// Gives up what is kept of connections that are gone (E8).
    func releaseRoom() {
        places.releaseRoom()
        left.releaseRoom()
        lines.releaseRoom()
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
        // Something, by which the caller is known to have a call that waits.
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

    /// What is kept counts as received and not given up, too.
    private func tellConnection() {
        let byteCount = byteCount + keptElsewhere
        guard abs(byteCount - byteCountTold) > Self.readAhead / 4 || byteCount == 0 else { return }
        byteCountTold = byteCount
        connection.maxReceivedBytes = Self.readAhead + byteCount
    }

    // MARK: Serving

    /// Whether so much waits to be written that what has to wait anyway does.
    var isWriting: Bool { connection.outgoingBytes > Self.maxUnwritten }

    /// - Parameters:
    ///   - unwritten: the bytes that may wait to be written.
    ///   - isLast: whether there is no later.
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
            // Deliveries that go out then are nobody's turn.
            if isMore, onPart(call.channel == nil ? count - 1 : count) { now = connection.context.now }
            before = now
            if now - start >= time { return }
        }
    }

    /// Returns how many calls that was, and whether some of it is left.
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
        // Nobody whose call was read waits for much longer than it took.
        overdrawn = min(max(.zero, connection.context.now - start - part), Self.maxOverdrawn)
    }

    // MARK: Losing

    private func lose(_ message: Message, of caller: UniqueName) {
        guard loseRead(message, of: caller) else { return refuse(message) }
        start()
    }

    /// The same of one that was not looked at.
    ///
    /// - Returns: false where it is to be looked at.
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

    /// - Returns: false for what is no post, or is none that the caller may make, or whose poster can be told.
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

    /// The same of one that came on a channel, and had no room there.
    ///
    /// - Returns: false where it would have been refused.
    func lose(_ outline: PostOutline, ofChannelOf caller: UniqueName) -> Bool {
        guard lose(outline, of: caller) else { return false }
        start()
        return true
    }

    /// Posts were lost before they came here.
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

    /// Those that came in one call, as far as the caller may post them.
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

    /// Tells of a name's bytes whether it makes a difference: each does for a caller who may not post all.
    private func isObservedName(
        among texts: TextFilter, for caller: UniqueName
    ) -> (UnsafeRawBufferPointer) -> Bool {
        guard mayPost(caller) == nil else { return { _ in true } }
        return texts.mayContain
    }

    /// Announces what was lost, some of it where that is much.
    ///
    /// - Parameter isLast: whether there is no later.
    private func announceLost(all isLast: Bool = false) {
        defer { boundLosses() }
        let start = connection.context.now
        repeat {
            lost.collect { poster, count in onLostPosts(poster, Int(clamping: count)) }
            guard !lost.unreportedLoss.isEmpty else { return }
            driver.perform { effects in driver.center.losePosts(&lost.unreportedLoss, effects: &effects) }
        } while isLast || connection.context.now - start < Self.timeOfLosses
    }

    /// Nothing is read while too much is still to be announced, of ever other names, faster than it can be: it waits in the
    /// bus, and with it whatever else comes, while what was read is served.
    private func boundLosses() {
        let most = connection.isPaused ? Self.maxUnreported / 2 : Self.maxUnreported
        let isPaused = !isStopped && lost.byteCount > most
        if isPaused != connection.isPaused { connection.isPaused = isPaused }
    }
}
