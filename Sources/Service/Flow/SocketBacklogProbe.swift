// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// Tells whether connections read that never answer a Ping, as several libraries never do (B6): the kernel knows how much
/// waits unread in the sockets between their processes and the bus.
///
/// Asked only for such a connection, and only when it has used up its window. Its process is then looked at again, ever more
/// seldom, until nothing waits unread. Where the kernel does not tell (another machine, another container), each look
/// takes a second and lets the oldest window pass: a modest rate for ever is better than silence.
///
/// Which of several sockets of a process is the connection's is not told. So a process with several connections to the
/// bus counts as reading when it reads all of them, apart from what was found to be another's: what stands unread there
/// does not change while a window is sent to the connection, and another socket is empty. A library leaves the news of
/// its name unread that way, until its program first waits for something.
///
/// A process is looked at once for all its connections, and nobody waits for that (E4): the kernel is asked on another
/// thread, for some sockets at a time, for one process after the other, and for no more than ``systemCallsPerSecond``, and
/// ``processorShare`` of a processor, of all together. The sockets of a process are searched for once, and again when
/// another of its connections is asked about.
///
/// The kernel finds a socket by going through those of all programs. So of a process that has many all are listed.
final class SocketBacklogProbe {
    typealias Instant = SuspendingClock.Instant

    /// Gets what was found: true when all has been read that the bus had handed on, false when nothing tells.
    var onFinding: ((UniqueName, _ hasRead: Bool) -> Void)!
    /// Whether the bus may not have handed on yet what was sent: then nothing that lies unread tells anything.
    var isOnTheWay: ((UniqueName) -> Bool)!

    private unowned let bus: any MessageBus
    private let makeSockets: () -> (any SocketTable)?
    private let socketOfBus: () -> Int32?
    private let work: BlockingWork
    /// Counts what each event takes (E8).
    let meter = StepMeter()
    /// Nil where the kernel does not tell.
    private var sockets: (any SocketTable)?
    /// The name to which the bus's ends of connections are bound; nil where that is not known.
    private var busName: [UInt8]?
    private var isPrepared = false
    private var clients: [UniqueName: Subject] = [:]
    private var processes: [UInt32: Process] = [:]
    /// Those of which something is to be asked, each once, in turns.
    private var line = Deque<Process>()
    /// Of those, the ones whose questions have a descriptor.
    private var begun = 0
    /// Those whose turn in the line comes when fewer have one.
    private var later = Deque<Process>()
    private var isAsking = false
    private var budget = Budget()
    private var pause: EventSource?
    /// Findings that were not told yet.
    private var findings = Deque<(subject: Subject, hasRead: Bool)>()
    private var telling: EventSource?
    /// Grows with each question about a client.
    private var lastQuestion: UInt64 = 0

    /// For all processes together.
    static let systemCallsPerSecond = 10_000
    /// Seconds of processor time, of each second, for all processes together: a look costs more the more sockets there are.
    static let processorShare = 0.04
    /// Descriptors that one piece of work looks at.
    private static let descriptorsAtOnce = 64
    /// Descriptors of a process beyond which nothing is looked for among them: others wait meanwhile.
    private static let maxDescriptors = 131_072
    /// Processes for which something is asked that has a descriptor of this one's. The others wait.
    private static let maxBegun = 16
    /// Connections of a process that one look is for.
    private static let clientsAtOnce = 256
    /// Findings that are told at a time: each may have a window sent.
    private static let findingsAtOnce = 8
    private static let firstWait: UInt32 = 5
    private static let longestWait: UInt32 = 2000
    private static let blindWait: UInt32 = 1000
    private static let longestWaitForBus: UInt32 = 80
    /// More than that in one socket may be all that it holds: that it does not change tells nothing then.
    private static let maxStanding: UInt32 = 32 << 10
    /// A process with more connections than that has to read all of them.
    private static let maxDistinguished = 16
    /// Windows that are let pass in a second to a process of which nothing tells.
    private static let blindWindows = 16
    /// Until the sockets of a process are searched for again: at least, and where none were found.
    private static let shortestPause = Duration.milliseconds(100)
    private static let pauseWhenBlind = Duration.seconds(10)
    /// The same after the kernel has not answered: a thread may be stuck for ever.
    private static let pauseWhenStuck = Duration.seconds(3600)

    /// A connection that was asked about.
    private final class Subject {
        let client: UniqueName
        /// Nil until the bus has told it.
        var process: Process?
        /// When it was asked about first, as ``lastQuestion`` counts.
        let firstQuestion: UInt64
        /// When it was asked about last.
        var question: UInt64
        var isWaiting = false
        var since: Instant
        /// Whether nothing lay unread at the last look: the bus may just have been about to write more.
        var wasEmpty = false
        /// The bytes unread in each socket at the last look, and since when; nil before the first.
        var unread: [UInt32: UInt32]?
        var unchangedSince: Instant
        /// What stood so when a window was let pass, to see whether it comes there.
        var standing: [UInt32: UInt32] = [:]
        /// What stands unread on other connections of the process.
        var others: [UInt32: UInt32] = [:]

        init(_ client: UniqueName, question: UInt64, at now: Instant) {
            self.client = client
            firstQuestion = question
            self.question = question
            since = now
            unchangedSince = now
        }
    }

    private enum Task {
        /// Its descriptors are to be looked through, for questions up to this one, since when.
        case list(through: UInt64, since: Instant)
        /// Its descriptors are looked through, for questions up to this one, since when.
        case search(any DescriptorList, through: UInt64, since: Instant)
        /// Those of its sockets are looked for that lead to the bus.
        case sort(SocketExamination, through: UInt64, since: Instant)
        /// Its sockets to the bus are looked at, for questions up to this one.
        case look(SocketExamination, for: [Subject], through: UInt64)

        /// Whether a descriptor of this process's belongs to it.
        var takesDescriptor: Bool {
            switch self {
            case .list, .search: true
            case .sort(let examination, _, _), .look(let examination, _, _): examination.takesDescriptor
            }
        }
    }

    private final class Process {
        let id: UInt32
        /// Those between it and the bus.
        var sockets: [UInt32] = []
        /// All that a search has found so far.
        var found: [UInt32] = []
        /// Questions up to this one were asked before the sockets were searched for.
        var searchedThrough: UInt64 = 0
        var nextSearch: Instant
        /// Whether nothing tells of it.
        var isBlind = false
        /// Windows that may be let pass until then, if it is.
        var passesLeft = 0
        var passesEnd: Instant
        var subjects = 0
        /// Those that wait, in their order; also some that do not any more.
        var waiting = Deque<Subject>()
        var wait = SocketBacklogProbe.firstWait
        var timer: (source: EventSource, end: Instant)?
        var task: Task?
        /// Whether a descriptor of this process's belongs to the task.
        var needsDescriptor = false
        /// Whether it is among those whose questions have one.
        var isBegun = false
        /// The descriptors that a search has looked at so far.
        var looked = 0

        init(_ id: UInt32, at now: Instant) {
            self.id = id
            nextSearch = now
            passesEnd = now
        }
    }

    /// - Parameters:
    ///   - bus: the caller keeps it.
    ///   - socket: tells the descriptor of the connection to it; nil where there is none.
    ///   - sockets: makes the table of the machine; nil where the kernel does not tell.
    ///   - work: does what may block.
    init(
        bus: any MessageBus, socket: @escaping () -> Int32?, sockets: @escaping () -> (any SocketTable)?,
        work: BlockingWork
    ) {
        self.bus = bus
        socketOfBus = socket
        makeSockets = sockets
        self.work = work
    }

    /// Connections and processes that are kept here, to look at.
    var keptCount: Int { clients.count + processes.count }

    /// Begins to look.
    func find(_ client: UniqueName) {
        prepare()
        let now = bus.context.now
        lastQuestion += 1
        let subject = clients[client] ?? Subject(client, question: lastQuestion, at: now)
        let isNew = clients.updateValue(subject, forKey: client) == nil
        subject.question = lastQuestion
        subject.since = now
        subject.wasEmpty = false
        subject.unread = nil
        if let process = subject.process {
            begin(subject, process)
        } else if isNew {
            bus.processID(of: client) { [weak self] result in
                guard let self, clients[client] === subject else { return }
                let process = process((try? result.get()) ?? 0)
                process.subjects += 1
                subject.process = process
                begin(subject, process)
            }
        }
    }

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        clients.releaseRoom()
        processes.releaseRoom()
    }

    func forget(_ client: UniqueName) {
        guard let subject = clients.removeValue(forKey: client) else { return }
        subject.isWaiting = false
        guard let process = subject.process else { return }
        process.subjects -= 1
        if process.subjects == 0 {
            process.timer = nil
            // They hold it, and it them.
            process.waiting = Deque()
            processes[process.id] = nil
        }
    }

    private func prepare() {
        guard !isPrepared else { return }
        isPrepared = true
        sockets = makeSockets()
        busName = nameOfBus()
    }

    /// What the other end of the service's own connection is bound to.
    private func nameOfBus() -> [UInt8]? {
        guard let sockets, let descriptor = socketOfBus(), let inode = sockets.inode(of: descriptor),
            let peer = sockets[inode]?.peer
        else { return nil }
        return sockets[peer]?.name
    }

    // MARK: When

    private func process(_ id: UInt32) -> Process {
        if let process = processes[id] { return process }
        let process = Process(id, at: bus.context.now)
        processes[id] = process
        return process
    }

    private func begin(_ subject: Subject, _ process: Process) {
        process.wait = Self.firstWait
        if !subject.isWaiting {
            subject.isWaiting = true
            process.waiting.append(subject)
        }
        schedule(process)
    }

    /// Has a process be looked at after its wait, if not before.
    private func schedule(_ process: Process) {
        guard process.task == nil, processes[process.id] === process else { return }
        let end = bus.context.now + .milliseconds(Int(process.wait))
        if let timer = process.timer, timer.end <= end { return }
        // Ahead of the posts: a flood of them would hold it up for as long as it lasts. There is little to do here.
        let source = EventSource.once(milliseconds: process.wait, on: bus.context, priority: .of(.control)) {
            [weak self, weak process] in
            guard let self, let process, processes[process.id] === process else { return }
            process.timer = nil
            look(at: process)
            meter.endEvent("witnessLooks")
        }
        process.timer = (source, end)
    }

    private func look(at process: Process) {
        let now = bus.context.now
        dropIdle(process)
        guard !process.waiting.isEmpty else { return }
        guard !process.isBlind || process.nextSearch <= now else { return letPass(process, at: now) }
        var ready: [Subject] = []
        var isSearchWanted = false
        for _ in 0..<min(process.waiting.count, Self.clientsAtOnce) {
            meter.count()
            let subject = process.waiting.popFirst()!
            guard subject.isWaiting else { continue }
            process.waiting.append(subject)
            if isOnTheWay(subject.client) {
                subject.wasEmpty = false
                subject.unread = nil
            } else if subject.firstQuestion > process.searchedThrough {
                isSearchWanted = true
            } else {
                ready.append(subject)
            }
        }
        if isSearchWanted, process.nextSearch <= now { return search(process, at: now) }
        guard !ready.isEmpty else {
            process.wait = min(process.wait * 2, Self.longestWaitForBus)
            return schedule(process)
        }
        ask(process, .look(SocketExamination(of: process.sockets), for: ready, through: lastQuestion))
    }

    private func dropIdle(_ process: Process) {
        while let first = process.waiting.first, !first.isWaiting {
            meter.count()
            _ = process.waiting.popFirst()
        }
    }

    /// Nothing tells of the process: the oldest windows pass, some in a second.
    private func letPass(_ process: Process, at now: Instant) {
        if process.passesEnd <= now {
            process.passesEnd = now + .milliseconds(Int(Self.blindWait) - 10)
            process.passesLeft = Self.blindWindows
        }
        while process.passesLeft > 0, let first = process.waiting.first,
            !first.isWaiting || first.since + .milliseconds(Int(Self.blindWait) - 10) <= now
        {
            meter.count()
            _ = process.waiting.popFirst()
            guard first.isWaiting else { continue }
            process.passesLeft -= 1
            tell(first, hasRead: false)
        }
        guard !process.waiting.isEmpty else { return }
        process.wait = Self.blindWait
        schedule(process)
    }

    // MARK: Asking the kernel

    private func search(_ process: Process, at now: Instant) {
        guard sockets != nil, busName != nil, process.id > 0 else {
            return searchEnded(process, found: [], since: now)
        }
        ask(process, .list(through: lastQuestion, since: now))
    }

    private func searchEnded(
        _ process: Process, found: [UInt32], since: Instant, pause: Duration = pauseWhenBlind
    ) {
        let now = bus.context.now
        process.sockets = found
        process.isBlind = found.isEmpty
        if found.isEmpty { process.searchedThrough = 0 }
        let duration = since.duration(to: now)
        process.nextSearch = now + (found.isEmpty ? pause : max(Self.shortestPause, duration * 2))
        process.wait = found.isEmpty ? Self.blindWait : Self.firstWait
        if found.isEmpty { schedule(process) } else { look(at: process) }
    }

    private func ask(_ process: Process, _ task: Task) {
        process.task = task
        // Looked at here, where no thread has it.
        process.needsDescriptor = task.takesDescriptor
        if process.isBegun || !process.needsDescriptor { line.append(process) } else { later.append(process) }
        askNext()
    }

    /// Has others begin where nothing that is asked for this process has a descriptor any more.
    private func noteEnd(of process: Process) {
        let goesOn = processes[process.id] === process && process.task != nil && process.needsDescriptor
        guard process.isBegun, !goesOn else { return }
        process.isBegun = false
        begun -= 1
    }

    /// Has some be asked of the process whose turn it is.
    private func askNext() {
        guard !isAsking, pause == nil else { return }
        while let first = line.first, processes[first.id] !== first { noteEnd(of: line.popFirst()!) }
        while begun < Self.maxBegun, let next = later.popFirst() {
            guard processes[next.id] === next else { continue }
            next.isBegun = true
            begun += 1
            line.append(next)
        }
        guard !line.isEmpty else { return }
        if let wait = budget.wait(at: bus.context.now) {
            pause = .once(milliseconds: wait, on: bus.context, priority: .of(.control)) { [unowned self] in
                pause = nil
                askNext()
            }
            return
        }
        let process = line.popFirst()!
        guard let task = process.task else { return askNext() }
        guard let sockets else {
            process.task = nil
            unanswered(process)
            noteEnd(of: process)
            return askNext()
        }
        isAsking = true
        let question: @Sendable () -> (answer: Answer, cost: Cost) =
            switch task {
            case .list:
                { [id = process.id] in Cost.measured(in: sockets) { (.list(sockets.descriptors(of: id)), 0) } }
            case .search(let list, _, _):
                {
                    Cost.measured(in: sockets) {
                        let before = list.systemCalls
                        return (.found(list.nextSockets(among: Self.descriptorsAtOnce)), list.systemCalls - before)
                    }
                }
            case .sort(let examination, _, _), .look(let examination, _, _): { Cost.measured(examination, in: sockets) }
            }
        work.run(question) { [weak self] result in
            guard let self else { return }
            isAsking = false
            if let result {
                budget.spend(result.cost.systemCalls, result.cost.processorTime)
                meter.countSystemCalls(result.cost.systemCalls)
            }
            if processes[process.id] === process {
                process.task = nil
                if let answer = result?.answer { answered(process, task, answer) } else { unanswered(process) }
            } else if result == nil {
                self.sockets = makeSockets()
            }
            noteEnd(of: process)
            meter.endEvent("witnessAsks")
            askNext()
        }
    }

    /// The kernel has not answered: nothing tells of the process. A thread that is stuck may still use the table.
    private func unanswered(_ process: Process) {
        sockets = makeSockets()
        searchEnded(process, found: [], since: bus.context.now, pause: Self.pauseWhenStuck)
    }

    private enum Answer: Sendable {
        /// The descriptors of a process; nil where they can't be seen.
        case list((any DescriptorList)?)
        /// Some sockets of a process; nil at the end.
        case found([UInt32]?)
        case examined(isMore: Bool)
    }

    private struct Cost: Sendable {
        var systemCalls: Int
        var processorTime: Duration

        /// - Parameter body: returns how many system calls it made besides those of the table, too.
        static func measured(
            in sockets: any SocketTable, _ body: () -> (answer: Answer, systemCalls: Int)
        ) -> (answer: Answer, cost: Cost) {
            let before = (calls: sockets.systemCalls, time: sockets.processorTime)
            let (answer, calls) = body()
            let cost = Cost(
                systemCalls: sockets.systemCalls - before.calls + calls,
                processorTime: sockets.processorTime - before.time)
            return (answer, cost)
        }

        static func measured(
            _ examination: SocketExamination, in sockets: any SocketTable
        ) -> (answer: Answer, cost: Cost) {
            measured(in: sockets) {
                let before = examination.systemCalls
                let isMore = examination.goOn(in: sockets)
                return (.examined(isMore: isMore), examination.systemCalls - before)
            }
        }
    }

    private func answered(_ process: Process, _ task: Task, _ answer: Answer) {
        switch (task, answer) {
        case (.list(let last, let since), .list(let list)):
            guard let list else { return searchEnded(process, found: [], since: since) }
            process.searchedThrough = last
            (process.found, process.looked) = ([], 0)
            ask(process, .search(list, through: last, since: since))
        case (.search(let list, let last, let since), .found(let some)):
            if let some {
                process.found += some
                process.looked += Self.descriptorsAtOnce
                guard process.looked <= Self.maxDescriptors else {
                    process.found = []
                    return searchEnded(process, found: [], since: since)
                }
                return ask(process, .search(list, through: last, since: since))
            }
            guard !process.found.isEmpty else { return searchEnded(process, found: [], since: since) }
            ask(process, .sort(SocketExamination(of: process.found, leadingTo: busName), through: last, since: since))
            process.found = []
        case (.sort(let examination, let last, let since), .examined(let isMore)):
            guard isMore else { return searchEnded(process, found: examination.leadingToBus, since: since) }
            ask(process, .sort(examination, through: last, since: since))
        case (.look(let examination, let subjects, let last), .examined(let isMore)):
            guard isMore else { return lookEnded(process, examination.unread, for: subjects, through: last) }
            ask(process, .look(examination, for: subjects, through: last))
        default: preconditionFailure("that was not asked")
        }
    }

    // MARK: Finding

    private func lookEnded(
        _ process: Process, _ unread: [UInt32: UInt32], for subjects: [Subject], through last: UInt64
    ) {
        let now = bus.context.now
        if unread.count < process.sockets.count {
            // Some were closed. Where all are, there may be others.
            process.sockets.removeAll { unread[$0] == nil }
            if unread.isEmpty {
                process.searchedThrough = 0
                process.wait = Self.firstWait
                return schedule(process)
            }
        }
        meter.count(unread.count + subjects.count)
        let isAllRead = unread.values.allSatisfy { $0 == 0 }
        var isAgainSoon = false
        // A question that came meanwhile is for the next look.
        for subject in subjects where subject.isWaiting && subject.question <= last {
            judge(subject, unread, isAllRead: isAllRead, at: now)
            isAgainSoon = isAgainSoon || (subject.isWaiting && subject.wasEmpty)
        }
        process.wait = isAgainSoon ? Self.firstWait : min(process.wait * 2, Self.longestWait)
        dropIdle(process)
        if !process.waiting.isEmpty { schedule(process) }
    }

    private func judge(_ subject: Subject, _ unread: [UInt32: UInt32], isAllRead: Bool, at now: Instant) {
        guard !isAllRead else {
            subject.others = [:]
            return noteEmpty(subject)
        }
        guard unread.count <= Self.maxDistinguished else { return subject.wasEmpty = false }
        meter.count(2 * unread.count)
        // Something came or went there: it may be the connection's own.
        subject.others = subject.others.filter { unread[$0.key] == $0.value }
        let own = unread.filter { $0.value > 0 && subject.others[$0.key] == nil }
        guard !own.isEmpty else { return noteEmpty(subject) }
        subject.wasEmpty = false
        guard own == subject.unread else {
            subject.unread = own
            subject.unchangedSince = now
            return
        }
        guard subject.unchangedSince + .milliseconds(Int(Self.blindWait)) <= now,
            own.count + subject.others.count < unread.count, own.values.allSatisfy({ $0 <= Self.maxStanding })
        else { return }
        if own == subject.standing {
            subject.others.merge(own) { $1 }
        } else {
            subject.standing = own
            tell(subject, hasRead: false)
        }
    }

    private func noteEmpty(_ subject: Subject) {
        if subject.wasEmpty { tell(subject, hasRead: true) } else { subject.wasEmpty = true }
    }

    /// Has it be told in the next turns of the loop, some in each, with what others want in between.
    private func tell(_ subject: Subject, hasRead: Bool) {
        subject.isWaiting = false
        findings.append((subject, hasRead))
        if telling == nil { tellSome(after: 0) }
    }

    private func tellSome(after milliseconds: UInt32) {
        telling = .once(milliseconds: milliseconds, on: bus.context, priority: .of(.control)) { [unowned self] in
            telling = nil
            for _ in 0..<Self.findingsAtOnce {
                guard let (subject, hasRead) = findings.popFirst() else { break }
                // One that was asked since then is another question.
                if clients[subject.client] === subject, !subject.isWaiting { onFinding(subject.client, hasRead) }
            }
            if !findings.isEmpty { tellSome(after: 1) }
        }
    }
}
