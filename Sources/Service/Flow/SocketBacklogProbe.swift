// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// A probe of socket backlogs: it finds out whether connections read that never answer a Ping, as with several
/// libraries (B6). The kernel knows the unread bytes in the sockets between their processes and the bus.
///
/// The core requests a probe of a connection that has never answered, when it has used up its window or other
/// connections wait for in-flight quota. It also requests one of a connection that answers, while a reply is kept for
/// it. The process is then looked at again, at growing intervals, until no bytes are unread. A process is invisible if
/// the kernel shows no sockets of it, because it runs on another machine or in another container. Then the oldest
/// window passes after a second: a low rate for ever is better than silence.
///
/// The kernel does not show which socket of a process belongs to which connection. Therefore a process with several
/// connections to the bus counts as reading when it reads all of them, apart from sockets that were found to belong to
/// another connection. Such a socket has an unread backlog that does not change while a window is sent to the
/// connection, and another socket is empty. For example, a library leaves the signal about its name unread until its
/// program first waits for a message.
///
/// A process is looked at once for all its connections, and other clients do not wait for that (E4). The kernel is
/// asked on another thread, about some sockets at a time, for one process after the other. All looks together have a
/// budget of ``systemCallsPerSecond`` and ``processorShare``. The sockets of a process are searched for once, and again
/// when another of its connections is probed.
///
/// The kernel finds a socket by going through the sockets of all programs. Therefore the look at a process with many
/// sockets lists all sockets of the machine.
///
/// Threads: that of the bus's context. Only the questions to the kernel run on another thread.
final class SocketBacklogProbe {
    typealias Instant = SuspendingClock.Instant

    /// Called with each finding: true when the connection has read everything that the bus had handed on, false when
    /// nothing shows whether it has.
    var onFinding: ((UniqueName, _ hasRead: Bool) -> Void)!
    /// Whether the bus may still hold messages to the connection, in which case its sockets show nothing.
    var isOnTheWay: ((UniqueName) -> Bool)!

    private unowned let bus: any MessageBus
    private let makeSockets: () -> (any SocketTable)?
    private let socketOfBus: () -> Int32?
    private let work: BlockingWork
    /// Counts the steps of each event (E8).
    let meter = StepMeter()
    /// The table of sockets; nil where the kernel does not show them.
    private var sockets: (any SocketTable)?
    /// The name to which the bus's ends of connections are bound; nil where it is not known.
    private var busName: [UInt8]?
    private var isPrepared = false
    private var clients: [UniqueName: Subject] = [:]
    private var processes: [UInt32: Process] = [:]
    /// The processes with a question to the kernel, each once, in rotation.
    private var line = Deque<Process>()
    /// The number of processes whose questions hold a descriptor of the service.
    private var begun = 0
    /// The processes that wait until fewer questions hold a descriptor.
    private var later = Deque<Process>()
    private var isAsking = false
    private var budget = Budget()
    private var pause: EventSource?
    /// The findings that have not been reported.
    private var findings = Deque<(subject: Subject, hasRead: Bool)>()
    private var telling: EventSource?
    /// The number of the last question about a client.
    private var lastQuestion: UInt64 = 0

    /// The system calls per second, for all processes together.
    static let systemCallsPerSecond = 10_000
    /// The processor time in seconds per second, for all processes together. A look takes longer the more sockets there
    /// are.
    static let processorShare = 0.04
    /// The descriptors that one piece of work looks at.
    private static let descriptorsAtOnce = 64
    /// The number of a process's descriptors beyond which the process counts as invisible, because others wait
    /// meanwhile.
    private static let maxDescriptors = 131_072
    /// The processes whose questions may hold a descriptor of the service at a time. The others wait.
    private static let maxBegun = 16
    /// The connections of a process that one look covers.
    private static let clientsAtOnce = 256
    /// The findings that are reported at a time, because each may cause a window to be sent.
    private static let findingsAtOnce = 8
    private static let firstWait: UInt32 = 5
    private static let longestWait: UInt32 = 2000
    private static let blindWait: UInt32 = 1000
    private static let longestWaitForBus: UInt32 = 80
    /// The unread bytes of a socket, beyond which it may be full. An unchanged backlog shows nothing then.
    private static let maxStanding: UInt32 = 32 << 10
    /// The connections of a process beyond which it has to read all of them.
    private static let maxDistinguished = 16
    /// The windows of an invisible process that pass in a second.
    private static let blindWindows = 16
    /// The minimum pause between two searches for the sockets of a process; the second is for a process without visible
    /// sockets.
    private static let shortestPause = Duration.milliseconds(100)
    private static let pauseWhenBlind = Duration.seconds(10)
    /// The pause after the kernel has not answered. It is long because a thread may be stuck for ever.
    private static let pauseWhenStuck = Duration.seconds(3600)

    /// A connection that is probed.
    private final class Subject {
        let client: UniqueName
        /// The process of the connection; nil until the bus has returned its id.
        var process: Process?
        /// The number of the first question about the connection (``lastQuestion``).
        let firstQuestion: UInt64
        /// The number of the last question about the connection.
        var question: UInt64
        var isWaiting = false
        var since: Instant
        /// Whether no bytes were unread at the last look. One such look is not enough, because the bus may just have
        /// been about to write more.
        var wasEmpty = false
        /// The unread bytes of each socket at the last look, and the time since which they are unchanged; nil before
        /// the first look.
        var unread: [UInt32: UInt32]?
        var unchangedSince: Instant
        /// The unread bytes at the moment a window was let pass, to see whether that window arrives there.
        var standing: [UInt32: UInt32] = [:]
        /// The unread bytes in sockets that belong to other connections of the process.
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
        /// List the descriptors of the process, for questions up to `through`. The search began at `since`.
        case list(through: UInt64, since: Instant)
        /// Look through the descriptors for sockets.
        case search(any DescriptorList, through: UInt64, since: Instant)
        /// Find the sockets that lead to the bus.
        case sort(SocketExamination, through: UInt64, since: Instant)
        /// Look at the sockets to the bus, for questions up to `through`.
        case look(SocketExamination, for: [Subject], through: UInt64)

        /// Whether the task holds a descriptor of the service.
        var takesDescriptor: Bool {
            switch self {
            case .list, .search: true
            case .sort(let examination, _, _), .look(let examination, _, _): examination.takesDescriptor
            }
        }
    }

    private final class Process {
        let id: UInt32
        /// The inodes of the process's sockets to the bus.
        var sockets: [UInt32] = []
        /// The inodes of all sockets that the search has found so far.
        var found: [UInt32] = []
        /// The last question before the search for sockets. Later connections may have other sockets.
        var searchedThrough: UInt64 = 0
        var nextSearch: Instant
        /// Whether the process is invisible.
        var isBlind = false
        /// The windows that may pass until `passesEnd`, if the process is invisible.
        var passesLeft = 0
        var passesEnd: Instant
        var subjects = 0
        /// The connections that wait for a finding, in their order. Some of them may have stopped waiting.
        var waiting = Deque<Subject>()
        var wait = SocketBacklogProbe.firstWait
        var timer: (source: EventSource, end: Instant)?
        var task: Task?
        /// Whether the task holds a descriptor of the service.
        var needsDescriptor = false
        /// Whether the process counts in ``begun``.
        var isBegun = false
        /// The number of descriptors that the search has looked at so far.
        var looked = 0

        init(_ id: UInt32, at now: Instant) {
            self.id = id
            nextSearch = now
            passesEnd = now
        }
    }

    /// - Parameters:
    ///   - bus: the bus connection; the caller keeps it.
    ///   - socket: returns the descriptor of the connection to the bus; nil where there is none.
    ///   - sockets: makes the table of the machine's sockets; nil where the kernel does not show them.
    ///   - work: runs the questions to the kernel, which may block.
    init(
        bus: any MessageBus, socket: @escaping () -> Int32?, sockets: @escaping () -> (any SocketTable)?,
        work: BlockingWork
    ) {
        self.bus = bus
        socketOfBus = socket
        makeSockets = sockets
        self.work = work
    }

    /// The number of connections and processes with state. For inspection.
    var keptCount: Int { clients.count + processes.count }

    /// Starts to probe a connection. A finding follows, unless ``forget(_:)`` is called first.
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

    /// Releases the memory of clients that are gone (E8).
    func releaseMemory() {
        clients.releaseMemory()
        processes.releaseMemory()
    }

    func forget(_ client: UniqueName) {
        guard let subject = clients.removeValue(forKey: client) else { return }
        subject.isWaiting = false
        guard let process = subject.process else { return }
        process.subjects -= 1
        if process.subjects == 0 {
            process.timer = nil
            // Breaks the reference cycle between process and subjects.
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

    /// Returns the name to which the bus's end of the service's own connection is bound.
    private func nameOfBus() -> [UInt8]? {
        guard let sockets, let descriptor = socketOfBus(), let inode = sockets.inode(of: descriptor),
            let peer = sockets[inode]?.peer
        else { return nil }
        return sockets[peer]?.name
    }

    // MARK: Scheduling

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

    /// Schedules a look at a process after its wait, unless an earlier one is scheduled.
    private func schedule(_ process: Process) {
        guard process.task == nil, processes[process.id] === process else { return }
        let end = bus.context.now + .milliseconds(Int(process.wait))
        if let timer = process.timer, timer.end <= end { return }
        // The timer has priority over posts, because a flood of posts would delay it for as long as it lasts. The work
        // is small.
        let source = EventSource.once(milliseconds: process.wait, on: bus.context, priority: .of(.control)) {
            [weak self, weak process] in
            guard let self, let process, processes[process.id] === process else { return }
            process.timer = nil
            look(at: process)
            meter.endEvent("backlogLooks")
        }
        process.timer = (source, end)
    }

    private func look(at process: Process) {
        let now = bus.context.now
        dropIdle(process)
        guard !process.waiting.isEmpty else { return }
        guard !process.isBlind || process.nextSearch <= now else { return passWindows(process, at: now) }
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

    /// Lets the oldest windows of an invisible process pass, ``blindWindows`` in a second.
    private func passWindows(_ process: Process, at now: Instant) {
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
        // The task is examined here, while no thread uses it.
        process.needsDescriptor = task.takesDescriptor
        if process.isBegun || !process.needsDescriptor { line.append(process) } else { later.append(process) }
        askNext()
    }

    /// Releases the process's slot among ``begun`` if its task no longer holds a descriptor.
    private func noteEnd(of process: Process) {
        let goesOn = processes[process.id] === process && process.task != nil && process.needsDescriptor
        guard process.isBegun, !goesOn else { return }
        process.isBegun = false
        begun -= 1
    }

    /// Runs the next question to the kernel, within the budget.
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
            meter.endEvent("backlogQuestions")
            askNext()
        }
    }

    /// Treats a process as invisible after the kernel has not answered. A stuck thread may still use the table, so a
    /// new table takes its place.
    private func unanswered(_ process: Process) {
        sockets = makeSockets()
        searchEnded(process, found: [], since: bus.context.now, pause: Self.pauseWhenStuck)
    }

    private enum Answer: Sendable {
        /// The descriptors of a process; nil where they are not visible.
        case list((any DescriptorList)?)
        /// Some sockets of a process; nil at the end.
        case found([UInt32]?)
        case examined(isMore: Bool)
    }

    private struct Cost: Sendable {
        var systemCalls: Int
        var processorTime: Duration

        /// Measures the cost of `body`, which returns the number of its system calls other than those of the table.
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

    // MARK: Findings

    private func lookEnded(
        _ process: Process, _ unread: [UInt32: UInt32], for subjects: [Subject], through last: UInt64
    ) {
        let now = bus.context.now
        if unread.count < process.sockets.count {
            // Some sockets were closed. If all were, the process may have others.
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
        // A question that was asked during the look needs another look.
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
        // A socket whose unread bytes changed may be the connection's own.
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

    /// Reports a finding in later iterations of the loop, ``findingsAtOnce`` in each, so that other events are handled
    /// in between.
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
                // A finding for an earlier question is outdated.
                if clients[subject.client] === subject, !subject.isWaiting { onFinding(subject.client, hasRead) }
            }
            if !findings.isEmpty { tellSome(after: 1) }
        }
    }
}
