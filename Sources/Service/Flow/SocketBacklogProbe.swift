// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The substitute for acknowledgments of clients that never answer a Ping, as with several D-Bus libraries (B6). It
/// asks the kernel for the unread bytes in the sockets between a client's process and the bus. Without unread bytes the
/// client has read all its messages.
///
/// The core requests a finding about a connection in two cases: the connection has never answered a probe and blocks
/// itself or others, or a reply is kept for it. ``find(_:)`` begins, and ``onFinding`` reports. Until then the sockets
/// of the process are examined again, after waits that double from ``firstWait`` to ``longestWait``. A finding is one
/// of these:
/// - The connection has read everything: two consecutive looks have found no unread bytes.
/// - Nothing shows whether it has. If the connection never answers probes, the core then lets its oldest window pass as
///   if it were acknowledged. Thus a client that reads gets its messages at a low rate.
///
/// The second finding has two causes:
/// - The process is invisible: the kernel shows no sockets of it, because it runs on another machine or in another
///   container. At most ``blindWindows`` windows in a second pass for its connections, the first after ``blindWait``.
/// - The process has several connections to the bus, and the kernel does not show which socket belongs to which
///   connection. If the unread bytes of some sockets do not change for ``blindWait`` while another socket is empty, one
///   window passes. If the bytes stay the same after that, the window did not arrive in these sockets. They then belong
///   to other connections, and are ignored. For example, a library leaves the first signal on an unused connection
///   unread until its program waits for a message.
///
/// The work is bounded, and other clients do not wait for it (E4). One look serves all connections of a process. The
/// kernel is asked on a worker thread, about some sockets at a time, for one process after the other, within a
/// ``Budget``. The sockets of a process are searched for once, and again when a further connection of it is probed.
///
/// Threads: only that of the service's main loop. Only the questions to the kernel run on another thread.
final class SocketBacklogProbe {
    typealias Instant = SuspendingClock.Instant

    /// Called with each finding: true when the connection has read all its messages, false when nothing shows whether
    /// it has.
    var onFinding: ((UniqueName, _ hasRead: Bool) -> Void)!
    /// Whether the bus may still hold messages to the connection. Its sockets then do not show whether it has read
    /// them.
    var mayBeInBus: ((UniqueName) -> Bool)!

    private unowned let bus: any MessageBus
    private let makeSockets: () -> (any SocketTable)?
    /// Returns the descriptor of the service's own connection to the bus.
    private let socketOfBus: () -> Int32?
    /// The worker thread for questions to the kernel.
    private let work: BlockingWork
    /// Counts the steps of each event (E8).
    let meter = StepMeter()
    /// The table of sockets; nil where the kernel does not show them.
    private var sockets: (any SocketTable)?
    /// The address to which the bus's ends of its connections are bound; nil where it is not known. By it, sockets to
    /// the bus are distinguished from other sockets of a process.
    private var busName: [UInt8]?
    /// Whether `sockets` and `busName` were determined, which happens at the first request.
    private var isPrepared = false
    /// The connections that are probed or were probed, until they leave.
    private var clients: [UniqueName: ProbedConnection] = [:]
    /// The processes of these connections, by process ID; 0 stands for unknown processes.
    private var processes: [UInt32: Process] = [:]
    /// The processes with a question to the kernel, each once, in rotation.
    private var taskQueue = Deque<Process>()
    /// The number of processes whose questions hold a file descriptor of the service.
    private var descriptorHolders = 0
    /// The processes that wait until ``descriptorHolders`` is below ``maxDescriptorHolders``.
    private var deferredProcesses = Deque<Process>()
    /// Whether a question runs on the worker thread.
    private var isAsking = false
    private var budget = Budget()
    /// The timer until the budget allows the next question.
    private var pause: EventSource?
    /// The findings that have not been reported.
    private var findings = Deque<(subject: ProbedConnection, hasRead: Bool)>()
    /// The source that reports findings.
    private var findingsSource: EventSource?
    /// The number of the last request (``find(_:)``), counted over all connections. It orders requests and looks.
    private var lastRequest: UInt64 = 0

    /// The system calls per second, for all processes together.
    static let systemCallsPerSecond = 10_000
    /// The part of one processor's time, for all processes together. A system call takes longer the more sockets the
    /// machine has.
    static let processorShare = 0.04
    /// The descriptors of a process that one question to the kernel examines.
    private static let descriptorsAtOnce = 64
    /// The number of descriptors above which a process counts as invisible, because a longer search would delay others.
    private static let maxDescriptors = 131_072
    /// The maximum of ``descriptorHolders``.
    private static let maxDescriptorHolders = 16
    /// The connections of a process that one look covers.
    private static let clientsAtOnce = 256
    /// The findings that are reported at a time, because each may cause a window to be sent.
    private static let findingsAtOnce = 8
    /// The waits between two looks at a process, in milliseconds: the first and the longest one.
    private static let firstWait: UInt32 = 5
    private static let longestWait: UInt32 = 2000
    /// The wait until a window passes without evidence, in milliseconds.
    private static let blindWait: UInt32 = 1000
    /// The longest wait while the bus may still hold messages to all waiting connections of a process, in milliseconds.
    private static let longestWaitForBus: UInt32 = 80
    /// The unread bytes above which a socket may be full. A full socket does not change either when a window is sent,
    /// so it can't be distinguished from a socket of another connection.
    private static let maxStanding: UInt32 = 32 << 10
    /// The number of a process's sockets to the bus above which they are not distinguished: all of them must be read.
    private static let maxDistinguished = 16
    /// The windows that pass in a second for an invisible process.
    private static let blindWindows = 16
    /// The minimum pause between two searches for the sockets of a process, and the pause after a search without a
    /// result.
    private static let shortestPause = Duration.milliseconds(100)
    private static let pauseWhenBlind = Duration.seconds(10)
    /// The pause before the next search after the kernel has not answered. It is long, because each attempt may leave
    /// one more thread stuck for ever.
    private static let pauseWhenStuck = Duration.seconds(3600)

    /// A connection that is probed.
    private final class ProbedConnection {
        let client: UniqueName
        /// The process of the connection; nil until the bus has returned its id.
        var process: Process?
        /// The number of the first request about the connection (``lastRequest``).
        let firstRequest: UInt64
        /// The number of the last request about the connection. It is no question to the kernel.
        var question: UInt64
        /// Whether a finding is due.
        var isWaiting = false
        /// The time of the last request.
        var since: Instant
        /// Whether no bytes were unread at the last look. One such look is not enough, because the bus may just have
        /// been about to write more.
        var wasEmpty = false
        /// The unread bytes of each socket that may be the connection's, at the last look with unread bytes; nil before
        /// it.
        var unread: [UInt32: UInt32]?
        /// The time since which `unread` is unchanged.
        var unchangedSince: Instant
        /// The value of `unread` when a window last passed without evidence. If it is the same afterwards, the window
        /// did not arrive in these sockets.
        var standing: [UInt32: UInt32] = [:]
        /// The unread bytes in sockets that belong to other connections of the process, as far as it is known.
        var others: [UInt32: UInt32] = [:]

        init(_ client: UniqueName, question: UInt64, at now: Instant) {
            self.client = client
            firstRequest = question
            self.question = question
            since = now
            unchangedSince = now
        }
    }

    /// The next question to the kernel about a process. A search for sockets consists of `list`, `search` and `sort`; a
    /// look for unread bytes is one `look`. All except `list` are repeated until they are complete. `through` is the
    /// last request that the search or the look covers, and `since` is the beginning of the search.
    private enum Task {
        /// Open the list of the process's descriptors.
        case list(through: UInt64, since: Instant)
        /// Find the sockets among the next descriptors.
        case search(any DescriptorList, through: UInt64, since: Instant)
        /// Find the sockets that lead to the bus.
        case sort(SocketExamination, through: UInt64, since: Instant)
        /// Find the unread bytes in the sockets to the bus, for these connections.
        case look(SocketExamination, for: [ProbedConnection], through: UInt64)

        /// Whether the task holds a file descriptor of the service, now or with its next part.
        var takesDescriptor: Bool {
            switch self {
            case .list, .search: true
            case .sort(let examination, _, _), .look(let examination, _, _): examination.takesDescriptor
            }
        }
    }

    /// A process with connections that are probed.
    private final class Process {
        /// The process ID; 0 for all connections whose process the bus does not know.
        let id: UInt32
        /// The inode numbers of the process's sockets to the bus.
        var sockets: [UInt32] = []
        /// The inode numbers of all sockets that the current search has found so far.
        var found: [UInt32] = []
        /// The last request before the last search for sockets. A connection that is newer may have another socket.
        var searchedThrough: UInt64 = 0
        /// The time before which no search begins.
        var nextSearch: Instant
        /// Whether the process is invisible.
        var isInvisible = false
        /// The windows that may still pass until `passesEnd`, if the process is invisible.
        var passesLeft = 0
        var passesEnd: Instant
        /// The number of its connections in ``clients``.
        var subjects = 0
        /// The connections that wait for a finding, in their order. Some of them may have stopped waiting.
        var waiting = Deque<ProbedConnection>()
        /// The wait until the next look, in milliseconds.
        var wait = SocketBacklogProbe.firstWait
        var timer: (source: EventSource, end: Instant)?
        /// The question to the kernel that waits or runs; nil between two looks.
        var task: Task?
        /// Whether the task holds a file descriptor of the service.
        var needsDescriptor = false
        /// Whether the process counts in ``descriptorHolders``.
        var isDescriptorHolder = false
        /// The number of descriptors that the current search has examined so far.
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

    /// Takes a request for a finding about a connection. One finding follows, unless ``forget(_:)`` is called first. A
    /// second request before it restarts the examination.
    func find(_ client: UniqueName) {
        prepare()
        let now = bus.context.now
        lastRequest += 1
        let subject = clients[client] ?? ProbedConnection(client, question: lastRequest, at: now)
        let isNew = clients.updateValue(subject, forKey: client) == nil
        subject.question = lastRequest
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

    /// Ends the probing of a connection that has left the bus.
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

    /// Opens the table of sockets at the first request.
    private func prepare() {
        guard !isPrepared else { return }
        isPrepared = true
        sockets = makeSockets()
        busName = nameOfBus()
    }

    /// Returns the address to which the bus's end of the service's own connection is bound. All connections of the bus
    /// have it, because accepted sockets have the address of the listening one.
    private func nameOfBus() -> [UInt8]? {
        guard let sockets, let descriptor = socketOfBus(), let inode = sockets.inode(of: descriptor),
            let peer = sockets[inode]?.peer
        else { return nil }
        return sockets[peer]?.name
    }

    // MARK: Scheduling

    /// Returns the entry of a process, and makes one for a new process.
    private func process(_ id: UInt32) -> Process {
        if let process = processes[id] { return process }
        let process = Process(id, at: bus.context.now)
        processes[id] = process
        return process
    }

    /// Lets a connection wait for a finding about its process.
    private func begin(_ subject: ProbedConnection, _ process: Process) {
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
        // The timer has priority over posts, because a flood of posts would delay it for as long as the flood lasts.
        let source = EventSource.once(milliseconds: process.wait, on: bus.context, priority: .of(.control)) {
            [weak self, weak process] in
            guard let self, let process, processes[process.id] === process else { return }
            process.timer = nil
            look(at: process)
            meter.endEvent("backlogLooks")
        }
        process.timer = (source, end)
    }

    /// Begins a look at a process for its waiting connections, or first a search for its sockets. If the process is
    /// invisible, lets windows pass until the time of the next search.
    ///
    /// A look does not cover connections to which the bus may still hold messages, and connections that are newer than
    /// the last search. Those wait for the next look or search.
    private func look(at process: Process) {
        let now = bus.context.now
        dropIdle(process)
        guard !process.waiting.isEmpty else { return }
        guard !process.isInvisible || process.nextSearch <= now else { return passWindows(process, at: now) }
        var ready: [ProbedConnection] = []
        var isSearchWanted = false
        for _ in 0..<min(process.waiting.count, Self.clientsAtOnce) {
            meter.count()
            // Each connection moves to the end, so that looks cover all of them in rotation.
            let subject = process.waiting.popFirst()!
            guard subject.isWaiting else { continue }
            process.waiting.append(subject)
            if mayBeInBus(subject.client) {
                subject.wasEmpty = false
                subject.unread = nil
            } else if subject.firstRequest > process.searchedThrough {
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
        ask(process, .look(SocketExamination(of: process.sockets), for: ready, through: lastRequest))
    }

    /// Removes connections that no longer wait from the front of the queue.
    private func dropIdle(_ process: Process) {
        while let first = process.waiting.first, !first.isWaiting {
            meter.count()
            _ = process.waiting.popFirst()
        }
    }

    /// Lets one window of each connection pass that has waited for ``blindWait``, up to ``blindWindows`` in a second
    /// for the process.
    private func passWindows(_ process: Process, at now: Instant) {
        // The times are 10 ms shorter than the wait of the timer, so that its run finds them over in any case.
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
            queueFinding(first, hasRead: false)
        }
        guard !process.waiting.isEmpty else { return }
        process.wait = Self.blindWait
        schedule(process)
    }

    // MARK: Asking the kernel

    /// Begins the search for the sockets of a process to the bus.
    private func search(_ process: Process, at now: Instant) {
        guard sockets != nil, busName != nil, process.id > 0 else {
            return searchEnded(process, found: [], since: now)
        }
        ask(process, .list(through: lastRequest, since: now))
    }

    /// Takes the result of a search.
    ///
    /// - Parameters:
    ///   - found: the sockets to the bus; empty if the process is invisible.
    ///   - since: the beginning of the search. The next one begins no sooner than after twice the duration of this one.
    ///   - pause: the pause before the next search if the process is invisible.
    private func searchEnded(
        _ process: Process, found: [UInt32], since: Instant, pause: Duration = pauseWhenBlind
    ) {
        let now = bus.context.now
        process.sockets = found
        process.isInvisible = found.isEmpty
        // Then every connection of the process requests the next search.
        if found.isEmpty { process.searchedThrough = 0 }
        let duration = since.duration(to: now)
        process.nextSearch = now + (found.isEmpty ? pause : max(Self.shortestPause, duration * 2))
        process.wait = found.isEmpty ? Self.blindWait : Self.firstWait
        if found.isEmpty { schedule(process) } else { look(at: process) }
    }

    /// Queues a question to the kernel about a process.
    private func ask(_ process: Process, _ task: Task) {
        process.task = task
        // Determined here, because the worker thread must not use the task at the same time.
        process.needsDescriptor = task.takesDescriptor
        if process.isDescriptorHolder || !process.needsDescriptor {
            taskQueue.append(process)
        } else {
            deferredProcesses.append(process)
        }
        askNext()
    }

    /// Counts the process no longer in ``descriptorHolders``, if its task holds no file descriptor any more.
    private func noteEnd(of process: Process) {
        let goesOn = processes[process.id] === process && process.task != nil && process.needsDescriptor
        guard process.isDescriptorHolder, !goesOn else { return }
        process.isDescriptorHolder = false
        descriptorHolders -= 1
    }

    /// Runs the next question to the kernel on the worker thread, within the budget:
    ///
    /// 1. Deferred processes join the queue, as far as descriptors are free.
    /// 2. If the budget is used up, a timer continues later.
    /// 3. The question of the first process runs on the thread. Its answer is paid and handled, and the next question
    ///    follows.
    private func askNext() {
        guard !isAsking, pause == nil else { return }
        // Processes whose connections have all left are skipped.
        while let first = taskQueue.first, processes[first.id] !== first { noteEnd(of: taskQueue.popFirst()!) }
        while descriptorHolders < Self.maxDescriptorHolders, let next = deferredProcesses.popFirst() {
            guard processes[next.id] === next else { continue }
            next.isDescriptorHolder = true
            descriptorHolders += 1
            taskQueue.append(next)
        }
        guard !taskQueue.isEmpty else { return }
        if let wait = budget.wait(at: bus.context.now) {
            pause = .once(milliseconds: wait, on: bus.context, priority: .of(.control)) { [unowned self] in
                pause = nil
                askNext()
            }
            return
        }
        let process = taskQueue.popFirst()!
        guard let task = process.task else { return askNext() }
        // There is no table after an earlier question got no answer, if no new table could be made.
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
                // Without a result, the question was given up because the kernel did not answer in time.
                if let answer = result?.answer { answered(process, task, answer) } else { unanswered(process) }
            } else if result == nil {
                // As in ``unanswered(_:)``, for a process whose connections have all left.
                self.sockets = makeSockets()
            }
            noteEnd(of: process)
            meter.endEvent("backlogQuestions")
            askNext()
        }
    }

    /// Treats a process as invisible, because the kernel has not answered in time. A stuck thread may still use the
    /// table of sockets, so a new table replaces it.
    private func unanswered(_ process: Process) {
        sockets = makeSockets()
        searchEnded(process, found: [], since: bus.context.now, pause: Self.pauseWhenStuck)
    }

    /// The kernel's answer to a ``Task``.
    private enum Answer: Sendable {
        /// The list of a process's descriptors; nil where it is not visible.
        case list((any DescriptorList)?)
        /// Some sockets of a process; nil at the end of the list.
        case found([UInt32]?)
        /// The end of a part of an examination, which has the result.
        case examined(isMore: Bool)
    }

    /// The cost of a question, which the ``Budget`` pays.
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

        /// Runs the next part of an examination, and measures its cost.
        static func measured(
            _ examination: SocketExamination, in sockets: any SocketTable
        ) -> (answer: Answer, cost: Cost) {
            measured(in: sockets) {
                let before = examination.systemCalls
                let isMore = examination.runNextPart(in: sockets)
                return (.examined(isMore: isMore), examination.systemCalls - before)
            }
        }
    }

    /// Takes the answer to a process's question, and asks the next one or takes the result.
    private func answered(_ process: Process, _ task: Task, _ answer: Answer) {
        switch (task, answer) {
        // A search begins: open the list of descriptors, and read it from the start.
        case (.list(let last, let since), .list(let list)):
            guard let list else { return searchEnded(process, found: [], since: since) }
            process.searchedThrough = last
            (process.found, process.looked) = ([], 0)
            ask(process, .search(list, through: last, since: since))
        // Collect sockets until the end of the list. Then sort out the sockets that do not lead to the bus.
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
        // Repeat until all parts are examined. The search ends with the sockets that lead to the bus.
        case (.sort(let examination, let last, let since), .examined(let isMore)):
            guard isMore else { return searchEnded(process, found: examination.leadingToBus, since: since) }
            ask(process, .sort(examination, through: last, since: since))
        // Repeat until all parts are examined. The look ends with the unread bytes of each socket.
        case (.look(let examination, let subjects, let last), .examined(let isMore)):
            guard isMore else { return lookEnded(process, examination.unread, for: subjects, through: last) }
            ask(process, .look(examination, for: subjects, through: last))
        default: preconditionFailure("the answer does not belong to the question")
        }
    }

    // MARK: Findings

    /// Takes the result of a look, and schedules the next one for connections that still wait.
    ///
    /// - Parameters:
    ///   - unread: the unread bytes of each socket to the bus that is still connected.
    ///   - last: the last request before the look.
    private func lookEnded(
        _ process: Process, _ unread: [UInt32: UInt32], for subjects: [ProbedConnection], through last: UInt64
    ) {
        let now = bus.context.now
        if unread.count < process.sockets.count {
            // Some sockets were closed. If all of them were, the sockets are searched for again.
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
        // A request that arrived during the look needs another look.
        for subject in subjects where subject.isWaiting && subject.question <= last {
            judge(subject, unread, isAllRead: isAllRead, at: now)
            isAgainSoon = isAgainSoon || (subject.isWaiting && subject.wasEmpty)
        }
        // A connection with one empty look needs only a second one for its finding.
        process.wait = isAgainSoon ? Self.firstWait : min(process.wait * 2, Self.longestWait)
        dropIdle(process)
        if !process.waiting.isEmpty { schedule(process) }
    }

    /// Derives a finding about a connection from the result of a look, if the result shows one:
    ///
    /// 1. If all sockets that may be the connection's are empty, two such looks in a row are the finding that it has
    ///    read.
    /// 2. If their unread bytes have changed, the time without a change begins again.
    /// 3. After ``blindWait`` without a change, one window passes, if another socket is empty.
    /// 4. If the bytes are still the same after that, the sockets belong to other connections (`others`).
    private func judge(_ subject: ProbedConnection, _ unread: [UInt32: UInt32], isAllRead: Bool, at now: Instant) {
        guard !isAllRead else {
            subject.others = [:]
            return noteEmpty(subject)
        }
        guard unread.count <= Self.maxDistinguished else { return subject.wasEmpty = false }
        meter.count(2 * unread.count)
        // A socket of another connection whose unread bytes changed may be the connection's own after all.
        subject.others = subject.others.filter { unread[$0.key] == $0.value }
        let own = unread.filter { $0.value > 0 && subject.others[$0.key] == nil }
        guard !own.isEmpty else { return noteEmpty(subject) }
        subject.wasEmpty = false
        guard own == subject.unread else {
            subject.unread = own
            subject.unchangedSince = now
            return
        }
        // Some other socket must be empty: it may be the connection's own.
        guard subject.unchangedSince + .milliseconds(Int(Self.blindWait)) <= now,
            own.count + subject.others.count < unread.count, own.values.allSatisfy({ $0 <= Self.maxStanding })
        else { return }
        if own == subject.standing {
            subject.others.merge(own) { $1 }
        } else {
            subject.standing = own
            queueFinding(subject, hasRead: false)
        }
    }

    /// Notes that a look has found no unread bytes of a connection. The second time in a row, that is a finding.
    private func noteEmpty(_ subject: ProbedConnection) {
        if subject.wasEmpty { queueFinding(subject, hasRead: true) } else { subject.wasEmpty = true }
    }

    /// Queues a finding. It is reported in a later iteration of the loop, ``findingsAtOnce`` in each, so that other
    /// events are handled in between.
    private func queueFinding(_ subject: ProbedConnection, hasRead: Bool) {
        subject.isWaiting = false
        findings.append((subject, hasRead))
        if findingsSource == nil { scheduleFindings(after: 0) }
    }

    /// Schedules the report of the next findings.
    private func scheduleFindings(after milliseconds: UInt32) {
        findingsSource = .once(milliseconds: milliseconds, on: bus.context, priority: .of(.control)) { [unowned self] in
            findingsSource = nil
            for _ in 0..<Self.findingsAtOnce {
                guard let (subject, hasRead) = findings.popFirst() else { break }
                // A connection that waits again has a newer request, for which this finding is outdated.
                if clients[subject.client] === subject, !subject.isWaiting { onFinding(subject.client, hasRead) }
            }
            if !findings.isEmpty { scheduleFindings(after: 1) }
        }
    }
}
