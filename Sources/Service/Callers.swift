// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The table of identified callers, and the queue in front of it: a message is handled when its sender is identified.
///
/// The identity decides which account is charged for the memory of a call (E4), and which policy applies (P2). It comes
/// from two steps. ``CenterObject`` passes each arriving message to ``admit(_:)``.
///
/// 1. The bus returns the credentials of the connection. The query goes over the control connection, where the reply
///    does not wait behind the callers' messages. Meanwhile the messages of all callers wait, so that the order of the
///    bus is kept (D4, S5). While more than ``maxInOrder`` connections wait, messages of identified callers overtake
///    them.
/// 2. The kernel's files about the process show its sandbox. Reading them may block, if the process has a file system
///    of its own. Only the messages of this caller wait for that: for a second, and up to 256 KiB. Then the caller is
///    served as unidentified.
///
/// Waiting messages count as received bytes of the bus connection, which bounds them.
///
/// Threads: that of the bus's context.
final class Callers {
    /// An identified caller.
    final class Caller {
        /// The process ID; 0 if the bus does not know it, such as when the connection has left.
        let processID: UInt32
        fileprivate let name: UniqueName
        /// The sandbox of the process; `none` outside any sandbox, `unknown` where it can't be found out.
        let confinement: Confinement
        /// Whether a step of the identification failed. It is repeated at the next call.
        fileprivate let isProvisional: Bool
        /// Whether the connection had already left the bus when its credentials were requested.
        let hasLeft: Bool
        /// The account that is charged for the caller: its sandbox, process, user or connection, the first that is
        /// known.
        let account: AccountID
        /// The identity for ListClients and notification details (P1).
        let identity: Identity

        /// - Parameter other: the identity of another connection, whose memory is shared if both are equal.
        fileprivate init(
            _ credentials: ConnectionCredentials, _ description: ProcessDescription?, of name: UniqueName,
            confinement: Confinement, isProvisional: Bool, hasLeft: Bool, sharing other: Identity?
        ) {
            self.isProvisional = isProvisional
            self.hasLeft = hasLeft
            self.name = name
            self.confinement = confinement
            processID = credentials.processID
            let own = Identity(
                userID: credentials.userID, processID: processID > 0 ? processID : nil,
                process: Self.checked(description?.name),
                application: Self.checked(confinement.sandbox ?? description?.application),
                sandbox: Self.checked(confinement.sandbox), unit: Self.checked(description?.unit))
            identity = if let other, other == own { other } else { own }
            account =
                if let sandbox = confinement.sandbox {
                    .sandbox(sandbox)
                } else if processID > 0 {
                    .process(processID)
                } else {
                    credentials.userID.map(AccountID.user) ?? .connection(name)
                }
        }

        /// Returns the text; nil if it is empty, longer than 255 bytes, or contains a NUL, which no D-Bus message can
        /// carry.
        private static func checked(_ text: String?) -> String? {
            text.flatMap { $0.isEmpty || $0.utf8.count > 255 || $0.utf8.contains(0) ? nil : $0 }
        }

        /// The user ID; nil when the bus does not know it.
        var userID: UInt32? { identity.userID }
        /// The application's ID, which names its desktop file; nil where it is unknown.
        var application: String? { identity.application }

        /// The application in whose sandbox the process runs; nil outside a sandbox, and where that is unknown.
        var sandbox: String? { confinement.sandbox }
    }

    /// The main connection, on which messages arrive.
    private unowned let bus: any MessageBus
    /// The control connection, for queries to the bus; nil to send them on the main connection.
    weak var control: (any MessageBus)?
    /// The connection for queries to the bus: the one on which replies wait behind the fewest messages.
    var way: any MessageBus { control ?? bus }
    /// The kernel's information about processes.
    private let table: any ProcessTable
    /// Runs lookups that may block, outside the loop, with a timeout of one second.
    private let lookups: ProcessLookups
    /// Called when a connection has been identified, before its first call is served.
    var onKnown: ((UniqueName, Caller) -> Void)!
    /// Handles a message that had to wait.
    var handle: ((Message) -> Void)!
    /// The identified callers.
    private var callers: [UniqueName: Caller] = [:]
    /// The last result of the subscript. Consecutive messages often have the same sender.
    private var last: Caller?
    /// The identity of the last identified connection. Further connections of the same process share its memory,
    /// because a process may have thousands.
    private var lastIdentity: Identity?
    /// The connections in identification, with the time of the query on the clock of the process table.
    private var credentialQueries: [UniqueName: UInt64] = [:]
    /// The identities of callers that have left, for ``identity(of:)``.
    private var departed = DepartedIdentities()
    /// The messages of all connections that wait for step 1, in the order of their arrival.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var waiting = Deque<Waiting>()
    /// The number of waiting messages of each connection.
    private var waitingOf: [UniqueName: Int] = [:]
    /// The size of ``waiting``, in bytes.
    private var waitingBytes = 0 {
        didSet { reportKeptBytes() }
    }
    /// The credentials that the bus returned and that are not processed yet, in their order. They are processed a few
    /// at a time while many connections wait.
    private var answers = Deque<(name: UniqueName, answer: Answer)>()
    /// The connections whose entry is to be removed when their waiting messages are handled.
    private var forgotten: Set<UniqueName> = []
    /// The event source that continues with ``waiting`` and ``answers``.
    private var backlogSource: ReadySource!
    /// The maximum number of waiting connections for which identified callers wait as well.
    private static let maxInOrder = 32
    /// The maximum part of ``waitingBytes`` that ``onKeptBytesChanged`` reports.
    private static let maxWaitingBytes = 8 << 20
    /// The messages that wait for step 2, by caller.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var deferred: [UniqueName: DeferredCaller] = [:]
    /// The maximum size of one caller's deferred messages, in bytes.
    private static let maxDeferred = 256 << 10
    /// The maximum size of all deferred messages, in bytes.
    private static let maxDeferredTotal = 8 << 20
    /// The completions of running sandbox lookups, by process ID: one for each waiting connection of the process.
    private var lookingUp: [UInt32: [(Confinement?) -> Void]] = [:]
    /// The size of all deferred messages, in bytes.
    private var deferredBytes = 0 {
        didSet { reportKeptBytes() }
    }
    /// Called at each change with the bytes of the messages that are kept here. The call queue raises the connection's
    /// limit of received bytes by them, so that other messages are read meanwhile. The reported bytes are bounded.
    var onKeptBytesChanged: ((Int) -> Void)?

    private func reportKeptBytes() { onKeptBytesChanged?(deferredBytes + min(waitingBytes, Self.maxWaitingBytes)) }

    /// The result of step 1.
    private enum Answer {
        /// The credentials, and the kernel's information about the process; nil where the bus does not know the
        /// process.
        case found(ConnectionCredentials, (description: ProcessDescription?, confinement: Lookup<Confinement>)?)
        case failed(BusError)
    }

    /// A message that waits for step 1 of its caller, or behind such a message.
    private struct Waiting {
        let message: Message
        /// The sender of a method call; nil for another message.
        let caller: UniqueName?
        /// The caller, or the connection that left according to the message; nil for other messages.
        let about: UniqueName?
    }

    /// The state of a caller in step 2, with its messages.
    private struct DeferredCaller {
        let credentials: ConnectionCredentials
        let description: ProcessDescription?
        var messages: [Message] = []
        var byteCount = 0
    }

    /// - Parameter bus: the main connection; the caller keeps it.
    init(bus: any MessageBus, table: any ProcessTable, lookups: ProcessLookups) {
        self.bus = bus
        self.table = table
        self.lookups = lookups
        backlogSource = ReadySource(
            on: bus.context, priority: .of(.reading), isReady: { [unowned self] in isFirstReady || !answers.isEmpty },
            run: { [unowned self] in processBacklog() })
    }

    /// Returns an identified caller; nil for others.
    subscript(name: UniqueName) -> Caller? {
        if let last, last.name == name { return last }
        guard let caller = callers[name] else { return nil }
        last = caller
        return caller
    }

    /// Returns whether an arriving message may be handled now. Otherwise it is kept here, and passed to ``handle``
    /// later.
    func admit(_ message: Message) -> Bool {
        // A message with descriptors is refused later in any case. It does not wait, because its descriptors stay open
        // meanwhile.
        guard !message.hasDescriptors else { return true }
        let caller = message.kind == .methodCall ? message.sender : nil
        let isKnown = caller.map(isKnown) ?? true
        if isKnown, waiting.isEmpty { return deferred.isEmpty || !deferIfLookingUp(message, caller) }
        let about = caller ?? OwnerChange(message)?.departed
        // While many connections wait, a message overtakes them, unless messages of its own connection wait.
        if isKnown, waitingOf.count > Self.maxInOrder, about.map({ waitingOf[$0] == nil }) ?? true {
            return deferred.isEmpty || !deferIfLookingUp(message, caller)
        }
        waiting.append(Waiting(message: message, caller: caller, about: about))
        waitingBytes += message.byteCount
        if let about { waitingOf[about, default: 0] += 1 }
        return false
    }

    /// Whether messages wait here.
    var isAnythingWaiting: Bool { !waiting.isEmpty || !deferred.isEmpty }

    /// Defers a message if its caller is in step 2, or if it reports that such a caller left. Returns whether it did.
    private func deferIfLookingUp(_ message: Message, _ caller: UniqueName?) -> Bool {
        guard let name = caller ?? OwnerChange(message)?.departed, var kept = deferred.removeValue(forKey: name) else {
            return false
        }
        kept.messages.append(message)
        kept.byteCount += message.byteCount
        deferred[name] = kept
        deferredBytes += message.byteCount
        // Beyond the limits the caller counts as unidentified, and its deferred messages are handled. A single message
        // may be of any size.
        if kept.byteCount > Self.maxDeferred && kept.messages.count > 1 || deferredBytes > Self.maxDeferredTotal {
            learned(kept.credentials, kept.description, of: name, confinement: nil)
        }
        return true
    }

    /// Begins to identify a connection that has not called, such as a restored client.
    func identify(_ name: UniqueName) {
        _ = isKnown(name)
    }

    /// Returns whether step 1 of a connection is done; begins it otherwise. A caller in step 2 counts as known, and its
    /// messages are deferred.
    private func isKnown(_ name: UniqueName) -> Bool {
        if let caller = self[name] {
            // A failed identification is repeated, unless a lookup for the process is still blocked.
            if caller.isProvisional, !lookups.isStuck(caller.processID) { ask(about: name) }
            return true
        }
        if deferred[name] != nil { return true }
        ask(about: name)
        return false
    }

    /// Requests the credentials of a connection from the bus (step 1).
    private func ask(about name: UniqueName) {
        guard credentialQueries[name] == nil else { return }
        credentialQueries[name] = table.now
        way.credentials(of: name) { [weak self] result in
            guard let self else { return }
            // When the connection ends, the next link takes over the waiting messages, and requests the credentials
            // again.
            if case .failure(let error) = result, error.name == BusError.disconnectedName { return }
            let answer = answer(result, of: name)
            guard answers.isEmpty, waitingOf.count <= Self.maxInOrder else { return answers.append((name, answer)) }
            processAnswer(answer, of: name)
            processBacklog()
        }
    }

    /// Returns the result of step 1, with the kernel's information about the process that needs no blocking read.
    private func answer(_ result: Result<ConnectionCredentials, BusError>, of name: UniqueName) -> Answer {
        switch result {
        case .failure(let error): return .failed(error)
        case .success(let credentials):
            let processID = credentials.processID
            guard processID > 0 else { return .found(credentials, nil) }
            // The process is read now, because it may be a command that ends a moment later. A process that started
            // after the query is another one, to which the kernel gave the same ID.
            let description = table.description(of: processID, startedBy: credentialQueries[name] ?? table.now)
            return .found(credentials, (description, table.confinement(of: processID)))
        }
    }

    /// Processes a result of step 1.
    private func processAnswer(_ answer: Answer, of name: UniqueName) {
        switch answer {
        case .found(let credentials, nil): learned(credentials, nil, of: name, confinement: .unknown)
        case .found(let credentials, let process?):
            found(credentials, process.description, process.confinement, of: name)
        // The caller is served as unidentified. If the connection still exists, its next call repeats the query: the
        // bus may have been out of quota.
        case .failed(let error):
            let hasLeft = error.name == BusError.nameHasNoOwnerName
            learned(
                ConnectionCredentials(), nil, of: name, confinement: .unknown, isProvisional: !hasLeft,
                hasLeft: hasLeft)
        }
    }

    /// Returns the identity of an identified connection, and for 60 s after its departure; otherwise nil.
    func identity(of name: UniqueName) -> Identity? {
        self[name]?.identity ?? departed.identity(of: name, at: bus.context.now)
    }

    /// The identified connections, for tests.
    var names: some Collection<UniqueName> { callers.keys }

    /// Releases the memory of entries of departed connections (E8).
    func releaseMemory() {
        callers.releaseMemory()
        credentialQueries.releaseMemory()
        waitingOf.releaseMemory()
        forgotten.releaseMemory()
        deferred.releaseMemory()
        lookingUp.releaseMemory()
    }

    /// Forgets a connection after its departure. If its messages still wait here, its entry is removed after them.
    func forget(_ name: UniqueName) {
        if waitingOf[name] != nil, callers[name] != nil {
            forgotten.insert(name)
            return
        }
        if let caller = callers.removeValue(forKey: name) {
            departed.append(name, caller.identity, at: bus.context.now)
        }
        last = nil
    }

    /// Begins step 2: finds the sandbox of the process.
    private func found(
        _ credentials: ConnectionCredentials, _ description: ProcessDescription?, _ lookup: Lookup<Confinement>,
        of name: UniqueName
    ) {
        let processID = credentials.processID
        // A provisional caller, whose identification is repeated, is served meanwhile.
        if case .mayBlock = lookup, callers[name] == nil {
            deferred[name] = DeferredCaller(credentials: credentials, description: description)
        }
        // One lookup serves all connections of the process.
        let isAsked = lookingUp[processID] != nil
        lookingUp[processID, default: []].append { [unowned self] confinement in
            // The result is out of date if the connection was identified otherwise, or forgotten, meanwhile.
            guard credentialQueries[name] != nil || callers[name]?.isProvisional == true else { return }
            learned(credentials, description, of: name, confinement: confinement)
        }
        if !isAsked {
            lookups.find(lookup, of: processID) { [weak self] confinement in
                for completion in self?.lookingUp.removeValue(forKey: processID) ?? [] { completion(confinement) }
            }
        }
    }

    /// Ends the identification, and handles the deferred messages of the connection.
    ///
    /// - Parameter confinement: the sandbox of the process; nil if the lookup failed or takes too long.
    private func learned(
        _ credentials: ConnectionCredentials, _ description: ProcessDescription?, of name: UniqueName,
        confinement: Confinement?, isProvisional: Bool = false, hasLeft: Bool = false
    ) {
        credentialQueries[name] = nil
        let caller = Caller(
            credentials, description, of: name, confinement: confinement ?? .unknown,
            isProvisional: isProvisional || confinement == nil, hasLeft: hasLeft, sharing: lastIdentity)
        callers[name] = caller
        lastIdentity = caller.identity
        last = nil
        onKnown(name, caller)
        guard let kept = deferred.removeValue(forKey: name) else { return }
        deferredBytes -= kept.byteCount
        for message in kept.messages { handle(message) }
    }

    /// Handles waiting messages whose callers are known, and processes results of step 1, within a limit per iteration
    /// of the loop. The limit lets the loop read other messages meanwhile.
    private func processBacklog() {
        let start = bus.context.now
        let areMany = waitingOf.count > Self.maxInOrder || !answers.isEmpty
        for number in 0..<Self.maxAtOnce {
            if let first = waiting.first, first.caller.map(isKnown) ?? true {
                popFirst()
                // The core has forgotten the connection, and is informed again of its identity before the message. It
                // reports with ``forget(_:)`` when it forgets the connection once more.
                if let name = first.caller, forgotten.remove(name) != nil, let caller = callers[name] {
                    onKnown(name, caller)
                }
                if deferred.isEmpty || !deferIfLookingUp(first.message, first.caller) { handle(first.message) }
                // The last message of a departed connection was handled.
                if let name = first.about, waitingOf[name] == nil, forgotten.remove(name) != nil { forget(name) }
            } else if let answer = answers.popFirst() {
                processAnswer(answer.answer, of: answer.name)
            } else {
                return
            }
            guard areMany || number >= Self.minAtOnceOfFew else { continue }
            if bus.context.now - start > Self.maxTime { return }
        }
    }

    /// The number of messages that are handled regardless of ``maxTime``, if few connections wait. One iteration of the
    /// loop reads at most as many, so the queue does not grow.
    private static let minAtOnceOfFew = 32
    /// The maximum number of messages in an iteration of the loop. It is larger than the number that one iteration
    /// reads, so that the queue becomes shorter during a flood.
    private static let maxAtOnce = 256
    /// The maximum time for these messages.
    private static let maxTime = Duration.microseconds(500)

    /// Removes the first waiting message from the queue and the counts.
    private func popFirst() {
        guard let first = waiting.popFirst() else { return }
        waitingBytes -= first.message.byteCount
        guard let about = first.about, let count = waitingOf[about] else { return }
        waitingOf[about] = count > 1 ? count - 1 : nil
    }

    /// Removes and returns all waiting and deferred messages, each caller's in the order of their arrival.
    func takeWaiting() -> [Message] {
        defer {
            (waiting, waitingOf, waitingBytes, forgotten) = (Deque(), [:], 0, [])
            (deferred, deferredBytes) = ([:], 0)
        }
        // The deferred messages of a caller arrived before its waiting messages.
        return deferred.sorted { $0.key < $1.key }.flatMap(\.value.messages) + waiting.map(\.message)
    }

    /// Whether the first waiting message can be handled, or its caller is still to be requested from the bus.
    private var isFirstReady: Bool {
        guard !waiting.isEmpty else { return false }
        guard let caller = waiting.first?.caller else { return true }
        // A caller that was identified and then forgotten has none of these states, and its credentials are requested
        // again.
        return self[caller] != nil || deferred[caller] != nil || credentialQueries[caller] == nil
    }
}

/// The identities of departed connections: at most 1,024, for 60 s (P1). Expired entries are removed with the next
/// access.
private struct DepartedIdentities {
    typealias Instant = SuspendingClock.Instant

    /// The maximum number of identities.
    private static let most = 1024
    /// The time for which an identity is kept.
    private static let time = Duration.seconds(60)

    private var identities: [UniqueName: Identity] = [:]
    /// In the order of departure, the oldest first.
    private var order = Deque<(name: UniqueName, since: Instant)>()

    mutating func append(_ name: UniqueName, _ identity: Identity, at now: Instant) {
        guard identities.updateValue(identity, forKey: name) == nil else { return }
        order.append((name, now))
        while let oldest = order.first, order.count > Self.most || oldest.since + Self.time < now {
            _ = order.popFirst()
            identities[oldest.name] = nil
        }
    }

    mutating func identity(of name: UniqueName, at now: Instant) -> Identity? {
        while let oldest = order.first, oldest.since + Self.time < now {
            _ = order.popFirst()
            identities[oldest.name] = nil
        }
        return identities[name]
    }
}
