// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// One connection of the service to its bus: the main connection, the control connection, the request for the service's
/// name, and the D-Bus object (``CenterObject``).
///
/// ``Service`` makes a link, starts it, and replaces it when the bus closes one of the connections. The start has the
/// steps Hello on both connections, identity of the bus, name, state, serving. Calls that arrive before the state is
/// restored are kept.
///
/// Threads: that of the context.
final class ServiceLink {
    /// The reason why a link ended.
    enum End {
        /// The bus refused the connection, or a call with which a link starts.
        case refused(BusError)
        /// The bus closed a connection.
        case disconnected
        /// Another bus than before listens at the address.
        case otherBus
        /// Another connection has the service's name.
        case nameTaken
        /// The bus took the name away.
        case nameLost
    }

    let object: CenterObject
    private let machine: Machine
    /// The main connection, which has the service's name.
    private let connection: Connection
    /// The control connection, for queries to the bus and probes of clients. Their replies do not wait behind the calls
    /// that arrive on the main connection.
    private let control: Connection
    /// The state of the link before, until it is restored; nil at the first link.
    private var handoverState: HandoverState?
    /// The running test of a message size.
    private var sizeTest: MessageSizeTest?
    /// The timer of the next test.
    private var sizeTimer: EventSource?
    /// The pause before a size is tested again, in milliseconds. It doubles after each test, up to the longest pause.
    private static let firstPause: UInt32 = 30_000
    private static let longestPause: UInt32 = 3_600_000
    private var busID: String?
    /// Whether the state is restored and has not been handed over or written.
    private var hasState = false
    private var hasEnded = false
    /// The calls that arrived before the state was restored; nil afterwards.
    private var waitingCalls: [Message]?
    /// Their approximate memory, in bytes.
    private var waitingBytes = 0
    /// The timer of the next attempt to restore the state.
    private var stateTimer: EventSource?
    /// The interval between attempts while another process has the state, in milliseconds.
    private static let stateInterval: UInt32 = 20
    /// The number of attempts, about 10 s, after which the state is taken without a lock from a process that has lost
    /// the name and does not end.
    private static let maxAttempts = 500
    /// The maximum memory of ``waitingCalls``, in bytes. Further calls get an error.
    private static let maxWaitingBytes = 16 << 20
    /// The approximate overhead of keeping a call, in bytes.
    private static let callOverhead = 512
    /// The timer of the stop; nil unless the link stops.
    private var stopTimer: EventSource?
    /// The time for serving queued calls and sending due messages in a stop, in milliseconds.
    private static let stopTime: UInt32 = 2000
    /// The time after that until the stop ends even if the bus does not answer, in milliseconds.
    private static let timeForCarrying: UInt32 = 1000
    /// Called when the service has its name and serves.
    var onServing: (() -> Void)?
    private let onEnd: (End) -> Void

    /// Opens both connections. Call ``start()`` next.
    ///
    /// - Parameters:
    ///   - machine: the machine on which the service runs.
    ///   - handoverState: the state of the link that ended before; nil at the first.
    ///   - onEnd: called once, from the loop, unless the link is stopped.
    init(
        on machine: Machine, context: MainContext, handoverState: HandoverState?, onEnd: @escaping (End) -> Void
    ) throws(BusError) {
        self.machine = machine
        connection = try machine.connect(context, .of(.reading))
        control = try machine.connect(context, .of(.reading))
        self.handoverState = handoverState
        waitingCalls = handoverState?.calls ?? []
        self.onEnd = onEnd
        // A Ping is answered behind the caller's earlier calls, and its answer counts like other replies.
        connection.routePeerCalls()
        // The messages of one iteration of the loop are written together.
        connection.batchIterations()
        object = CenterObject(
            bus: connection, on: machine, configuration: handoverState?.configuration,
            sessions: handoverState?.sessions)
        connection.onMessage = { [unowned self] message in
            if losesName(message) {
                end(.nameLost)
                return true
            }
            return waitingCalls == nil ? object.handle(message) : keepUntilRestored(message)
        }
        for connection in [connection, control] {
            connection.onDisconnect = { [unowned self] in end(.disconnected) }
        }
    }

    /// Registers with the bus, takes the service's name, restores the state, and serves.
    ///
    /// The name comes first, because its owner has the right to the state: a process without the name must not touch
    /// the state. The call for which the bus started the service arrives before the reply to RequestName, so calls
    /// wait.
    func start() {
        connection.hello { [weak self] result in
            self?.with(result) { $0.startControl() }
        }
    }

    /// Returns the state for the next link; nil if this link has not restored it. Call once, when the link has ended.
    func handOver() -> HandoverState? {
        guard hasState, let busID else { return nil }
        hasState = false
        return object.handOver(busID: busID)
    }

    /// Stops the service in these steps:
    ///
    /// 1. The name is released, so that the bus sends new calls to the next process, which waits for the state.
    /// 2. Queued calls are served, and due messages sent. The process waits until the bus has carried them, because the
    ///    bus discards the unread bytes of a closed connection.
    /// 3. The state is written, which lets the next process restore it.
    ///
    /// - Parameter completion: called once, from the loop, after about 3 s at the latest.
    func stop(_ completion: @escaping () -> Void) {
        guard hasState else { return completion() }
        guard stopTimer == nil else { return }
        let finish = { [weak self] in
            guard let self, hasState else { return }
            hasState = false
            object.finish()
            completion()
        }
        let context = connection.context
        stopTimer = .once(milliseconds: Self.stopTime, on: context, priority: .of(.control)) { [weak self] in
            guard let self, hasState else { return }
            object.settleAtOnce(finish)
            // The second timer starts only now, because reporting the lost calls took time.
            stopTimer = .once(
                milliseconds: Self.timeForCarrying, on: context, priority: .of(.control), action: finish)
        }
        connection.releaseName(Wire.busName) { [weak self] _ in self?.object.settle(finish) }
    }

    private func startControl() {
        control.hello { [weak self] result in
            self?.with(result) {
                $0.object.use(control: $0.control, beside: $0.connection)
                $0.identifyBus()
            }
        }
    }

    private func identifyBus() {
        connection.busID { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure(let error): end(.refused(error))
            case .success(let id):
                busID = id
                guard handoverState?.busID ?? id == id else { return end(.otherBus) }
                requestName(onBus: id)
            }
        }
    }

    private func requestName(onBus id: String) {
        connection.requestName(Wire.busName) { [weak self] result in
            self?.with(result) { link, outcome in
                guard outcome == .acquired else { return link.end(.nameTaken) }
                link.takeUpState(onBus: id)
            }
        }
    }

    /// Restores the state from the link before, or from the disk.
    private func takeUpState(onBus id: String) {
        guard let handoverState else { return recover(onBus: id) }
        object.inherit(handoverState)
        testSuspectSize(handoverState.largest, known: handoverState.maxBytes)
        self.handoverState = nil
        serve()
    }

    /// Serves from now on, beginning with the kept calls.
    private func serve() {
        hasState = true
        if let uniqueName = connection.uniqueName { object.followActivity(uniqueName: uniqueName) }
        object.resume()
        if let uniqueName = connection.uniqueName { object.joinSessions(as: uniqueName) }
        Log.notice("serving \(Wire.busName) as \(connection.uniqueName?.rawValue ?? "")")
        let calls = waitingCalls ?? []
        waitingCalls = nil
        // The limit applies only from here. Before, the connection had to read all waiting calls to get the replies of
        // the bus behind them.
        connection.maxReceivedBytes = CallQueue.readAhead
        for call in calls where !object.handle(call) && !call.expectsNoReply {
            connection.send(call.errorReply(.unknownMethod("there is no such method")))
        }
        onServing?()
    }

    /// Keeps a call until the state is restored. Beyond the memory limit, and with descriptors, the call gets an error.
    private func keepUntilRestored(_ message: Message) -> Bool {
        guard message.kind == .methodCall else { return false }
        let size = message.byteCount + Self.callOverhead
        if waitingBytes + size <= Self.maxWaitingBytes, !message.hasDescriptors {
            waitingBytes += size
            waitingCalls!.append(message)
        } else if !message.expectsNoReply {
            connection.send(
                message.errorReply(BusError(name: BusError.limitsExceededName, message: "the service is starting")))
        }
        return true
    }

    /// Tests a message size that may be the reason why the bus closed the last connection. Notifications of that size
    /// are not sent meanwhile. If the size is safe, or above the earlier limit, only that limit is tested again.
    ///
    /// - Parameters:
    ///   - size: the size of the largest notification in flight on that connection, in bytes.
    ///   - known: the earlier limit, in bytes.
    private func testSuspectSize(_ size: Int, known: Int) {
        guard size > MessageSizeTest.safeSize, size < known else {
            return testAgain(nil, after: Self.firstPause)
        }
        object.maxBytes = size
        test(size, otherwise: known, pause: Self.firstPause)
    }

    /// Tests a message size, and sets the limit by the result. Only the first test of a size, with the first pause, can
    /// lower the limit. Later tests can lift it.
    ///
    /// - Parameters:
    ///   - size: the size in bytes.
    ///   - known: the limit if the bus carries this size, in bytes.
    ///   - pause: the pause until the next test, in milliseconds.
    private func test(_ size: Int, otherwise known: Int, pause: UInt32) {
        sizeTest = MessageSizeTest(size: size, machine: machine, context: connection.context) {
            [unowned self] isCarried in
            let isFirst = pause == Self.firstPause
            if isCarried {
                object.maxBytes = known
                if !isFirst { Log.notice("the bus accepts notifications of \(size) bytes again") }
            } else if isFirst {
                // The limit is an eighth below the size that failed.
                object.maxBytes = max(MessageSizeTest.safeSize, size - size / 8)
                Log.warning(
                    "the bus rejects notifications of \(size) bytes; larger than \(object.maxBytes) bytes are not sent",
                    ["CARILLON_REASON": "bus-limits"])
            }
            testAgain(isCarried ? nil : size, after: pause)
        }
    }

    /// Schedules another test while there is a limit. The cause may have been temporary: dbus-broker closes a
    /// connection also when a quota is used up.
    ///
    /// - Parameter size: the size to test, in bytes; nil for the size that once failed, which is computed from the
    ///   limit.
    private func testAgain(_ size: Int?, after pause: UInt32) {
        guard object.maxBytes < .max else { return }
        let size = size ?? object.maxBytes / 7 * 8
        sizeTimer = .once(milliseconds: pause, on: connection.context) { [unowned self] in
            test(size, otherwise: .max, pause: min(pause * 2, Self.longestPause))
        }
    }

    /// Restores the state on disk, if the machine has a directory for it.
    private func recover(onBus busID: String) {
        guard let directory = machine.runtimeDirectory else {
            Log.notice("XDG_RUNTIME_DIR is not set: a crash of the service will lose registrations")
            return serve()
        }
        guard !busID.isEmpty, busID.allSatisfy(\.isHexDigit) else {
            Log.warning("the bus has no usable id: a crash of the service will lose registrations")
            return serve()
        }
        recover(directory: directory + "/carillon", busID: busID, attempt: 1)
    }

    /// Restores the state on disk, and tries again while another process has it: the previous owner of the name closes
    /// its connection before its files.
    private func recover(directory: String, busID: String, attempt: Int) {
        let isLate = attempt > Self.maxAttempts
        if isLate { Log.warning("the previous owner of the name has not released the state: taking it over") }
        // Without the lock there is nothing to wait for, so the service serves in any case.
        guard !object.recover(directory: directory, busID: busID, address: machine.address, takesLock: !isLate), !isLate
        else {
            return serve()
        }
        stateTimer = .once(milliseconds: Self.stateInterval, on: connection.context) { [unowned self] in
            recover(directory: directory, busID: busID, attempt: attempt + 1)
        }
    }

    /// Whether the message is the bus's signal that the service has lost its name. A stopping service has released it
    /// itself.
    private func losesName(_ message: Message) -> Bool {
        guard stopTimer == nil, message.isSignal("org.freedesktop.DBus", "NameLost"), message.isFromBus else {
            return false
        }
        var reader = MessageReader(message)
        return (try? reader.readString()) == Wire.busName.rawValue
    }

    /// Continues with the value of a successful reply of the bus; ends the link otherwise.
    private func with<Value>(_ result: Result<Value, BusError>, _ goOn: (ServiceLink, Value) -> Void) {
        switch result {
        case .failure(let error): end(.refused(error))
        case .success(let value): goOn(self, value)
        }
    }

    private func with<Value>(_ result: Result<Value, BusError>, _ goOn: (ServiceLink) -> Void) {
        with(result) { link, _ in goOn(link) }
    }

    /// Reports the end of the link, once: after a failed handshake the connection may end too. A link that is being
    /// stopped reports nothing.
    private func end(_ reason: End) {
        guard !hasEnded, stopTimer == nil else { return }
        hasEnded = true
        onEnd(reason)
    }
}
