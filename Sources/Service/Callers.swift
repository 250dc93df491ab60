// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// The identities of calling connections, as the bus verified them.
///
/// No call is served before its caller is identified: the identity decides which account is charged for the memory that
/// a call takes (E4). The bus is asked over the control connection, where its answer does not wait behind the callers'
/// messages. Messages of all callers wait meanwhile, so that the bus's order is kept (D4, S5). When more than
/// ``maxInOrder`` connections wait, known callers no longer wait for them. The messages that wait are bounded by the
/// bytes that the connection may have received.
///
/// A process may run in a mount namespace whose files may not answer. Only the messages of that caller wait for the
/// look at them, for a limited time and up to 256 KiB. Then the caller is served as unidentified.
final class Callers {
    final class Caller {
        /// The process ID; 0 when the connection left before the bus was asked.
        let processID: UInt32
        fileprivate let name: UniqueName
        /// Whether it runs in the sandbox of an application, if that is known.
        let confinement: Confinement
        /// Whether the lookup failed at the bus or in the files of the process, so that it is repeated.
        fileprivate let isProvisional: Bool
        /// Whether it had left when the bus was asked, so that no reply is wanted.
        let hasLeft: Bool
        /// The account that is charged for the caller.
        let account: AccountID
        /// The identity for ListClients and notification details (P1). It is read at once: the process may be a command
        /// that ends a moment later.
        let identity: Identity

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

        /// Returns the text; nil when it is empty, longer than 255 bytes, or contains a NUL, which no signal can carry.
        private static func checked(_ text: String?) -> String? {
            text.flatMap { $0.isEmpty || $0.utf8.count > 255 || $0.utf8.contains(0) ? nil : $0 }
        }

        /// The user ID; nil when the bus does not know it.
        var userID: UInt32? { identity.userID }
        /// The application's ID, which names its desktop file; nil where it is unknown.
        var application: String? { identity.application }

        /// The application in whose sandbox it runs; nil where it runs in none, or that is unknown.
        var sandbox: String? { confinement.sandbox }
    }

    private unowned let bus: any MessageBus
    /// The control connection, over which the bus is asked; nil to ask on the main connection.
    weak var control: (any MessageBus)?
    /// The connection on which the bus answers soonest.
    var way: any MessageBus { control ?? bus }
    private let table: any ProcessTable
    private let lookups: ProcessLookups
    /// Called when a connection has been identified, before its first call is served.
    var onKnown: ((UniqueName, Caller) -> Void)!
    /// Handles a message that had to wait.
    var handle: ((Message) -> Void)!
    private var callers: [UniqueName: Caller] = [:]
    /// The caller that was looked up last: messages of one caller often follow each other.
    private var last: Caller?
    /// The identity that was learned last, shared by the connections of one process. A process may have thousands, and
    /// the remembered identities of departed ones must not keep the memory of all others from being given back.
    private var lastIdentity: Identity?
    /// The connections that the bus was asked about, with the time of the question.
    private var asked: [UniqueName: UInt64] = [:]
    private var departed = Departed()
    /// The messages that wait, in the order of their arrival.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var waiting = Deque<Waiting>()
    /// The number of waiting messages of each connection.
    private var waitingOf: [UniqueName: Int] = [:]
    /// The size of the waiting messages, in bytes.
    private var waitingBytes = 0 {
        didSet { tellKept() }
    }
    /// Answers of the bus that are yet to be taken up, in their order, while many connections wait.
    private var answers = Deque<(name: UniqueName, answer: Answer)>()
    /// Forgotten connections that are kept until their waiting messages are handled.
    private var forgotten: Set<UniqueName> = []
    /// The source that handles waiting messages and answers.
    private var rest: ReadySource!
    /// Up to this number of waiting connections, all messages wait in their order, regardless of size.
    private static let maxInOrder = 32
    /// The maximum of ``waitingBytes`` that counts in ``onPutOff``.
    private static let maxWaitingBytes = 8 << 20
    /// The messages that wait for the confinement lookup of their caller's process.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var deferred: [UniqueName: PutOff] = [:]
    private static let maxPutOff = 256 << 10
    /// The maximum of all messages that are put off, in bytes.
    private static let maxPutOffTogether = 8 << 20
    /// Completions of confinement lookups, by process: one for each waiting connection.
    private var lookingUp: [UInt32: [(Confinement?) -> Void]] = [:]
    /// The size of all messages that are put off, in bytes.
    private var putOffBytes = 0 {
        didSet { tellKept() }
    }
    /// Called at each change with the bytes kept here, up to a bound, so that they do not keep other messages from
    /// being read.
    var onPutOff: ((Int) -> Void)?

    private func tellKept() { onPutOff?(putOffBytes + min(waitingBytes, Self.maxWaitingBytes)) }

    private enum Answer {
        /// With the kernel's information about the process; nil where the bus does not know the process.
        case found(ConnectionCredentials, (description: ProcessDescription?, confinement: Lookup<Confinement>)?)
        case failed(BusError)
    }

    private struct Waiting {
        let message: Message
        /// Nil for a message that is no call.
        let caller: UniqueName?
        /// The caller, or the connection whose departure the message reports.
        let about: UniqueName?
    }

    private struct PutOff {
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
        rest = ReadySource(
            on: bus.context, priority: .of(.reading), isReady: { [unowned self] in hasTimeLeft || !answers.isEmpty },
            run: { [unowned self] in goOn() })
    }

    subscript(name: UniqueName) -> Caller? {
        if let last, last.name == name { return last }
        guard let caller = callers[name] else { return nil }
        last = caller
        return caller
    }

    /// Whether a message that arrived may be handled now. Otherwise it is kept, and passed to ``handle`` later, in its
    /// order.
    func admit(_ message: Message) -> Bool {
        // Messages with descriptors are refused in any case, so their descriptors are not kept open.
        guard !message.hasDescriptors else { return true }
        let caller = message.kind == .methodCall ? message.sender : nil
        let isKnown = caller.map(isKnown) ?? true
        if isKnown, waiting.isEmpty { return deferred.isEmpty || !isPutOff(message, caller) }
        let about = caller ?? OwnerChange(message)?.departed
        if isKnown, waitingOf.count > Self.maxInOrder, about.map({ waitingOf[$0] == nil }) ?? true {
            return deferred.isEmpty || !isPutOff(message, caller)
        }
        waiting.append(Waiting(message: message, caller: caller, about: about))
        waitingBytes += message.byteCount
        if let about { waitingOf[about, default: 0] += 1 }
        return false
    }

    /// Whether messages arrived that were not handled yet.
    var isAnythingWaiting: Bool { !waiting.isEmpty || !deferred.isEmpty }

    /// Keeps a message of, or about the departure of, a caller whose process's files are being looked at. Returns
    /// whether it was kept.
    private func isPutOff(_ message: Message, _ caller: UniqueName?) -> Bool {
        guard let name = caller ?? OwnerChange(message)?.departed, var kept = deferred.removeValue(forKey: name) else {
            return false
        }
        kept.messages.append(message)
        kept.byteCount += message.byteCount
        deferred[name] = kept
        putOffBytes += message.byteCount
        if kept.byteCount > Self.maxPutOff && kept.messages.count > 1 || putOffBytes > Self.maxPutOffTogether {
            learned(kept.credentials, kept.description, of: name, confinement: nil)
        }
        return true
    }

    /// Identifies a connection that has not called, such as a restored client.
    func identify(_ name: UniqueName) {
        _ = isKnown(name)
    }

    /// Whether the connection is identified; asks the bus otherwise. A caller whose process's files are being looked at
    /// counts as known, and its messages are put off.
    private func isKnown(_ name: UniqueName) -> Bool {
        if let caller = self[name] {
            if caller.isProvisional, !lookups.isStuck(caller.processID) { ask(about: name) }
            return true
        }
        if deferred[name] != nil { return true }
        ask(about: name)
        return false
    }

    private func ask(about name: UniqueName) {
        guard asked[name] == nil else { return }
        asked[name] = table.now
        way.credentials(of: name) { [weak self] result in
            guard let self else { return }
            // With the connection the whole link ends, and waiting messages are handed over to the next link, which
            // asks again.
            if case .failure(let error) = result, error.name == BusError.disconnectedName { return }
            let answer = answer(result, of: name)
            guard answers.isEmpty, waitingOf.count <= Self.maxInOrder else { return answers.append((name, answer)) }
            takeUp(answer, of: name)
            goOn()
        }
    }

    private func answer(_ result: Result<ConnectionCredentials, BusError>, of name: UniqueName) -> Answer {
        switch result {
        case .failure(let error): return .failed(error)
        case .success(let credentials):
            let processID = credentials.processID
            guard processID > 0 else { return .found(credentials, nil) }
            // Read at once: the process may be a command that ends a moment later.
            let description = table.description(of: processID, startedBy: asked[name] ?? table.now)
            return .found(credentials, (description, table.confinement(of: processID)))
        }
    }

    private func takeUp(_ answer: Answer, of name: UniqueName) {
        switch answer {
        case .found(let credentials, nil): learned(credentials, nil, of: name, confinement: .unknown)
        case .found(let credentials, let process?):
            found(credentials, process.description, process.confinement, of: name)
        // The bus could not carry the question or the answer. The caller is served as unidentified, and looked up again
        // at its next call.
        case .failed(let error):
            let hasLeft = error.name == BusError.nameHasNoOwnerName
            learned(
                ConnectionCredentials(), nil, of: name, confinement: .unknown, isProvisional: !hasLeft,
                hasLeft: hasLeft)
        }
    }

    /// Returns the identity of a connection; of a departed one for 60 s.
    func identity(of name: UniqueName) -> Identity? {
        self[name]?.identity ?? departed.identity(of: name, at: bus.context.now)
    }

    /// The connections for which an entry is kept, for tests.
    var names: some Collection<UniqueName> { callers.keys }

    /// Releases the memory of entries of departed connections (E8).
    func releaseMemory() {
        callers.releaseMemory()
        asked.releaseMemory()
        waitingOf.releaseMemory()
        forgotten.releaseMemory()
        deferred.releaseMemory()
        lookingUp.releaseMemory()
    }

    /// Forgets a connection after its departure. Its messages may still wait here.
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

    private func found(
        _ credentials: ConnectionCredentials, _ description: ProcessDescription?, _ lookup: Lookup<Confinement>,
        of name: UniqueName
    ) {
        let processID = credentials.processID
        if case .mayBlock = lookup, callers[name] == nil {
            deferred[name] = PutOff(credentials: credentials, description: description)
        }
        let isAsked = lookingUp[processID] != nil
        lookingUp[processID, default: []].append { [unowned self] confinement in
            guard asked[name] != nil || callers[name]?.isProvisional == true else { return }
            learned(credentials, description, of: name, confinement: confinement)
        }
        if !isAsked {
            // One lookup serves all connections of the process.
            lookups.find(lookup, of: processID) { [weak self] confinement in
                for completion in self?.lookingUp.removeValue(forKey: processID) ?? [] { completion(confinement) }
            }
        }
    }

    /// - Parameter confinement: nil when the lookup failed for now.
    private func learned(
        _ credentials: ConnectionCredentials, _ description: ProcessDescription?, of name: UniqueName,
        confinement: Confinement?, isProvisional: Bool = false, hasLeft: Bool = false
    ) {
        asked[name] = nil
        let caller = Caller(
            credentials, description, of: name, confinement: confinement ?? .unknown,
            isProvisional: isProvisional || confinement == nil, hasLeft: hasLeft, sharing: lastIdentity)
        callers[name] = caller
        lastIdentity = caller.identity
        last = nil
        onKnown(name, caller)
        guard let kept = deferred.removeValue(forKey: name) else { return }
        putOffBytes -= kept.byteCount
        for message in kept.messages { handle(message) }
    }

    /// Takes up answers, and handles the messages that no longer have to wait, a limited number per iteration of the
    /// loop. Many connections may bring many messages, and others are to be read meanwhile.
    private func goOn() {
        let start = bus.context.now
        let areMany = waitingOf.count > Self.maxInOrder || !answers.isEmpty
        for number in 0..<Self.maxAtOnce {
            if let first = waiting.first, first.caller.map(isKnown) ?? true {
                popFirst()
                if let name = first.caller, forgotten.remove(name) != nil, let caller = callers[name] {
                    onKnown(name, caller)
                }
                if deferred.isEmpty || !isPutOff(first.message, first.caller) { handle(first.message) }
                // The report of the departure was the last of its messages.
                if let name = first.about, waitingOf[name] == nil, forgotten.remove(name) != nil { forget(name) }
            } else if let answer = answers.popFirst() {
                takeUp(answer.answer, of: answer.name)
            } else {
                return
            }
            guard areMany || number >= Self.minAtOnceOfFew else { continue }
            if bus.context.now - start > Self.maxTime { return }
        }
    }

    /// The number of messages handled per iteration of the loop, and the time for it. Few callers get at least as many
    /// as one iteration reads. The maximum is higher than that, so that the backlog ends while a flood is being read.
    private static let minAtOnceOfFew = 32
    private static let maxAtOnce = 256
    private static let maxTime = Duration.microseconds(500)

    private func popFirst() {
        guard let first = waiting.popFirst() else { return }
        waitingBytes -= first.message.byteCount
        guard let about = first.about, let count = waitingOf[about] else { return }
        waitingOf[about] = count > 1 ? count - 1 : nil
    }

    /// Takes out the waiting messages: those of each caller in the order of their arrival.
    func takeWaiting() -> [Message] {
        defer {
            (waiting, waitingOf, waitingBytes, forgotten) = (Deque(), [:], 0, [])
            (deferred, putOffBytes) = ([:], 0)
        }
        // Messages that were put off arrived before the waiting messages of the same callers.
        return deferred.sorted { $0.key < $1.key }.flatMap(\.value.messages) + waiting.map(\.message)
    }

    private var hasTimeLeft: Bool {
        guard !waiting.isEmpty else { return false }
        guard let caller = waiting.first?.caller else { return true }
        // A caller that was answered and forgotten meanwhile is asked about again.
        return self[caller] != nil || deferred[caller] != nil || asked[caller] == nil
    }
}

/// The identities of departed connections: at most 1,024, for 60 s (P1). Expired entries are removed with the next
/// access.
private struct Departed {
    typealias Instant = SuspendingClock.Instant

    private static let most = 1024
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
