// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop

/// Who is behind the connections that call, as the bus verified it.
///
/// Nobody is served before that is known: it decides who pays for what a call makes the service hold (E4). The bus is
/// asked over the control connection, where its answer does not wait behind all that callers send. What arrives
/// meanwhile waits, whoever sent it, so that the bus's order stays what it was (D4, S5); but only for a few: when
/// thousands come at once nobody else waits for them. Messages that wait are bounded by what the connection may have received.
///
/// Where a process runs in files of its own, these are asked, and may not answer. For that nobody else waits: only what
/// this caller sent does, for a moment, as long as it is not too much. Then it is served as one of whom nothing is known.
final class Callers {
    final class Caller {
        /// 0 when the bus does not know it, as it left before it was asked.
        let processID: UInt32
        fileprivate let name: UniqueName
        /// Whether it runs in the sandbox of an application.
        let confinement: Confinement
        /// Whether the bus, or the files of its process, could not be asked.
        fileprivate let isProvisional: Bool
        /// Whether it had left when the bus was asked: nobody waits for answers.
        let hasLeft: Bool
        /// Who pays for it.
        let account: AccountID
        /// The same for those who ask (P1), read at once: it may be a command that has ended a moment later.
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

        /// What is no name is none: nothing, or what no signal could carry, or what somebody made up to be long.
        private static func checked(_ text: String?) -> String? {
            text.flatMap { $0.isEmpty || $0.utf8.count > 255 || $0.utf8.contains(0) ? nil : $0 }
        }

        /// Nil when the bus does not know it.
        var userID: UInt32? { identity.userID }
        /// The id of its application, as its desktop file is named; nil where nothing tells.
        var application: String? { identity.application }

        /// The application in whose sandbox it runs; nil where it is in none, or nothing tells.
        var sandbox: String? { confinement.sandbox }
    }

    private unowned let bus: any MessageBus
    /// Where the bus is asked; by default on the connection that is served.
    weak var control: (any MessageBus)?
    /// Where the bus answers soonest.
    var way: any MessageBus { control ?? bus }
    private let table: any ProcessTable
    private let lookups: ProcessLookups
    /// Called when it is known who is behind a connection, before its first call is served.
    var onKnown: ((UniqueName, Caller) -> Void)!
    /// Gets what had to wait.
    var handle: ((Message) -> Void)!
    private var callers: [UniqueName: Caller] = [:]
    /// That of them that was looked up last: messages come in rows.
    private var last: Caller?
    /// That of the one that was learned last: a process may have thousands of connections, and what is remembered of
    /// those that left shall not keep the memory of all others from being given back.
    private var lastIdentity: Identity?
    /// Since when.
    private var asked: [UniqueName: UInt64] = [:]
    private var departed = Departed()
    /// In the order of their arrival.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var waiting = Deque<Waiting>()
    /// How many of them are a connection's.
    private var waitingOf: [UniqueName: Int] = [:]
    /// Their size, in bytes.
    private var waitingBytes = 0 {
        didSet { tellKept() }
    }
    /// Answers of the bus, in its order, as long as many wait.
    private var answers = Deque<(name: UniqueName, answer: Answer)>()
    /// Those whom nobody needs to know any more, but for messages of theirs that wait.
    private var forgotten: Set<UniqueName> = []
    /// Goes on with these.
    private var rest: ReadySource!
    /// As long as something of no more connections waits everything does, in its order, however much that is.
    private static let maxInOrder = 32
    /// The bytes that may wait while more is read.
    private static let maxWaitingBytes = 8 << 20
    /// Messages that wait for the look at their own caller's process; below, the maximum of each caller in bytes.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var putOff: [UniqueName: PutOff] = [:]
    private static let maxPutOff = 256 << 10
    /// The same in bytes, of all together.
    private static let maxPutOffTogether = 8 << 20
    /// Gets what the files of a process tell, for each of its connections that waits for it.
    private var lookingUp: [UInt32: [(Confinement?) -> Void]] = [:]
    /// The size of all messages that are put off, in bytes; ``onPutOff`` is told of each change.
    private var putOffBytes = 0 {
        didSet { tellKept() }
    }
    /// Told how much is kept here, in bytes, that is not to keep others from being read.
    var onPutOff: ((Int) -> Void)?

    private func tellKept() { onPutOff?(putOffBytes + min(waitingBytes, Self.maxWaitingBytes)) }

    private enum Answer {
        /// With what the kernel says of the process; nil where the bus does not know that.
        case found(ConnectionCredentials, (description: ProcessDescription?, confinement: Lookup<Confinement>)?)
        case failed(BusError)
    }

    private struct Waiting {
        let message: Message
        /// Nil for what is no call.
        let caller: UniqueName?
        /// The same, or the connection whose end it tells.
        let about: UniqueName?
    }

    private struct PutOff {
        let credentials: ConnectionCredentials
        let description: ProcessDescription?
        var messages: [Message] = []
        var byteCount = 0
    }

    /// - Parameter bus: the caller keeps it.
    init(bus: any MessageBus, table: any ProcessTable, lookups: ProcessLookups) {
        self.bus = bus
        self.table = table
        self.lookups = lookups
        rest = ReadySource(
            on: bus.context, priority: .of(.reading), isReady: { [unowned self] in mayGoOn || !answers.isEmpty },
            run: { [unowned self] in goOn() })
    }

    subscript(name: UniqueName) -> Caller? {
        if let last, last.name == name { return last }
        guard let caller = callers[name] else { return nil }
        last = caller
        return caller
    }

    /// Whether a message that arrived may be handled now. Otherwise it is kept, and given to ``handle`` in its turn.
    func admit(_ message: Message) -> Bool {
        // What has descriptors is refused in any case, and they are not kept open for that.
        guard !message.hasDescriptors else { return true }
        let caller = message.kind == .methodCall ? message.sender : nil
        let isKnown = caller.map(isKnown) ?? true
        if isKnown, waiting.isEmpty { return putOff.isEmpty || !isPutOff(message, caller) }
        let about = caller ?? OwnerChange(message)?.departed
        if isKnown, waitingOf.count > Self.maxInOrder, about.map({ waitingOf[$0] == nil }) ?? true {
            return putOff.isEmpty || !isPutOff(message, caller)
        }
        waiting.append(Waiting(message: message, caller: caller, about: about))
        waitingBytes += message.byteCount
        if let about { waitingOf[about, default: 0] += 1 }
        return false
    }

    /// Whether something arrived that was not handled yet.
    var isAnythingWaiting: Bool { !waiting.isEmpty || !putOff.isEmpty }

    /// Keeps what a caller sent, or the bus tells of it, whose process's files are being asked.
    private func isPutOff(_ message: Message, _ caller: UniqueName?) -> Bool {
        guard let name = caller ?? OwnerChange(message)?.departed, var kept = putOff.removeValue(forKey: name) else {
            return false
        }
        kept.messages.append(message)
        kept.byteCount += message.byteCount
        putOff[name] = kept
        putOffBytes += message.byteCount
        if kept.byteCount > Self.maxPutOff && kept.messages.count > 1 || putOffBytes > Self.maxPutOffTogether {
            learned(kept.credentials, kept.description, of: name, confinement: nil)
        }
        return true
    }

    /// Finds out who is behind a connection that has not called, as an earlier process knew it.
    func identify(_ name: UniqueName) {
        _ = isKnown(name)
    }

    /// Asks where it is not. One whose process's files are being asked counts as known, and is put off.
    private func isKnown(_ name: UniqueName) -> Bool {
        if let caller = self[name] {
            if caller.isProvisional, !lookups.isStuck(caller.processID) { ask(about: name) }
            return true
        }
        if putOff[name] != nil { return true }
        ask(about: name)
        return false
    }

    private func ask(about name: UniqueName) {
        guard asked[name] == nil else { return }
        asked[name] = table.now
        way.credentials(of: name) { [weak self] result in
            guard let self else { return }
            // With the connection ends the whole link, and the next one asks: what waits is handed over to it.
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
            // At once: it may be a command that ends a moment later.
            let description = table.description(of: processID, startedBy: asked[name] ?? table.now)
            return .found(credentials, (description, table.confinement(of: processID)))
        }
    }

    private func takeUp(_ answer: Answer, of name: UniqueName) {
        switch answer {
        case .found(let credentials, nil): learned(credentials, nil, of: name, confinement: .unknown)
        case .found(let credentials, let process?):
            found(credentials, process.description, process.confinement, of: name)
        // The bus had no room for the question or the answer. Served as one of whom nothing is known, it is asked
        // about again with its next call.
        case .failed(let error):
            let hasLeft = error.name == BusError.nameHasNoOwnerName
            learned(
                ConnectionCredentials(), nil, of: name, confinement: .unknown, isProvisional: !hasLeft,
                hasLeft: hasLeft)
        }
    }

    /// What is known of who is behind a connection; of one that has left, for a minute.
    func identity(of name: UniqueName) -> Identity? {
        self[name]?.identity ?? departed.identity(of: name, at: bus.context.now)
    }

    /// Those of whom something is kept, to look at.
    var names: some Collection<UniqueName> { callers.keys }

    /// Gives up what is kept of connections that are gone (E8).
    func releaseRoom() {
        callers.releaseRoom()
        asked.releaseRoom()
        waitingOf.releaseRoom()
        forgotten.releaseRoom()
        putOff.releaseRoom()
        lookingUp.releaseRoom()
    }

    /// Nothing of the connection is left, but for what may wait here.
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
            putOff[name] = PutOff(credentials: credentials, description: description)
        }
        let isAsked = lookingUp[processID] != nil
        lookingUp[processID, default: []].append { [unowned self] confinement in
            guard asked[name] != nil || callers[name]?.isProvisional == true else { return }
            learned(credentials, description, of: name, confinement: confinement)
        }
        if !isAsked {
            // Once for all connections of the process.
            lookups.find(lookup, of: processID) { [weak self] confinement in
                for completion in self?.lookingUp.removeValue(forKey: processID) ?? [] { completion(confinement) }
            }
        }
    }

    /// - Parameter confinement: nil when it could not be found out, for now.
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
        guard let kept = putOff.removeValue(forKey: name) else { return }
        putOffBytes -= kept.byteCount
        for message in kept.messages { handle(message) }
    }

    /// Takes up answers, and handles what waits and does not have to any more, some of it: what comes of many at once may
    /// be much, and others are to be read meanwhile.
    private func goOn() {
        let start = bus.context.now
        let areMany = waitingOf.count > Self.maxInOrder || !answers.isEmpty
        for number in 0..<Self.maxAtOnce {
            if let first = waiting.first, first.caller.map(isKnown) ?? true {
                popFirst()
                if let name = first.caller, forgotten.remove(name) != nil, let caller = callers[name] {
                    onKnown(name, caller)
                }
                if putOff.isEmpty || !isPutOff(first.message, first.caller) { handle(first.message) }
                // Its end was the last of it.
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

    /// Messages that are handled in one turn of the loop, for so long; of a few callers as many as are read in one at
    /// least. That they are more has what waits come to an end while a flood is being read.
    private static let minAtOnceOfFew = 32
    private static let maxAtOnce = 256
    private static let maxTime = Duration.microseconds(500)

    private func popFirst() {
        guard let first = waiting.popFirst() else { return }
        waitingBytes -= first.message.byteCount
        guard let about = first.about, let count = waitingOf[about] else { return }
        waitingOf[about] = count > 1 ? count - 1 : nil
    }

    /// Takes out what waits: of each caller in the order of its arrival.
    func takeWaiting() -> [Message] {
        defer {
            (waiting, waitingOf, waitingBytes, forgotten) = (Deque(), [:], 0, [])
            (putOff, putOffBytes) = ([:], 0)
        }
        // Those came before what waits of the same callers.
        return putOff.sorted { $0.key < $1.key }.flatMap(\.value.messages) + waiting.map(\.message)
    }

    private var mayGoOn: Bool {
        guard !waiting.isEmpty else { return false }
        guard let caller = waiting.first?.caller else { return true }
        // One whose answer has come and that is not known any more is asked about again.
        return self[caller] != nil || putOff[caller] != nil || asked[caller] == nil
    }
}

/// Who was behind connections that are gone, so many of them, and for so long (P1). What is too old goes with the next one.
private struct Departed {
    typealias Instant = SuspendingClock.Instant

    private static let most = 1024
    private static let time = Duration.seconds(60)

    private var identities: [UniqueName: Identity] = [:]
    /// The oldest first.
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
