// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The service's presence on its bus: both connections, the object behind them, and the request for the name.
final class ServiceLink {
    /// The reason for the end of a link.
    enum End {
        /// The bus refused the connection.
        case refused(BusError)
        /// The bus closed a connection.
        case disconnected
        /// The bus is not the one on which the service was before.
        case otherBus
        /// Another connection has the service's name.
        case nameTaken
        /// The bus took the name away.
        case nameLost
    }

    let object: CenterObject
    private let machine: Machine
    private let connection: Connection
    /// The control connection, for questions to the bus and to clients: their answers do not wait behind other
    /// messages.
    private let control: Connection
    private var handoverState: HandoverState?
    private var sizeTest: SizeTest?
    private var sizeTimer: EventSource?
    /// The pause between tests of a size that the bus did not carry, in milliseconds; it doubles each time.
    private static let firstPause: UInt32 = 30_000
    private static let longestPause: UInt32 = 3_600_000
    private var busID: String?
    private var hasState = false
    private var hasEnded = false
    /// Calls that arrived before the state was restored; nil since then.
    private var waitingCalls: [Message]?
    private var waitingBytes = 0
    private var stateTimer: EventSource?
    /// The interval between requests for the state that another process holds, in milliseconds.
    private static let stateInterval: UInt32 = 20
    /// The number of attempts before the state is taken from a process that has lost the name and does not end.
    private static let maxAttempts = 500
    /// The maximum memory of calls that wait meanwhile, in bytes.
    private static let maxWaitingBytes = 16 << 20
    /// The overhead of keeping a call, in bytes, approximately.
    private static let callOverhead = 512
    /// Set while the link stops.
    private var stopTimer: EventSource?
    /// The time after which nothing more is served and sent, and the further time to wait for the bus, in milliseconds.
    private static let stopTime: UInt32 = 2000
    private static let timeForCarrying: UInt32 = 1000
    /// Called when the service has its name and serves.
    var onServing: (() -> Void)?
    private let onEnd: (End) -> Void

    /// Connects. Call ``start()`` next.
    ///
    /// - Parameters:
    ///   - machine: the machine on which the service runs.
    ///   - heritage: the handover state of the link that ended before; nil at the first.
    ///   - onEnd: called once, from the loop.
    init(
        on machine: Machine, context: MainContext, handoverState: HandoverState?, onEnd: @escaping (End) -> Void
    ) throws(BusError) {
        self.machine = machine
        connection = try machine.connect(context, .of(.reading))
        control = try machine.connect(context, .of(.reading))
        self.handoverState = handoverState
        waitingCalls = handoverState?.calls ?? []
        self.onEnd = onEnd
        connection.routePeerCalls()
        connection.gatherTurns()
        object = CenterObject(
            bus: connection, on: machine, configuration: handoverState?.configuration,
            sessions: handoverState?.sessions)
        connection.onMessage = { [unowned self] message in
            if losesName(message) {
                end(.nameLost)
                return true
            }
            return waitingCalls == nil ? object.handle(message) : hold(message)
        }
        for connection in [connection, control] {
            connection.onDisconnect = { [unowned self] in end(.disconnected) }
        }
    }

    /// Registers with the bus, takes the service's name, restores the state, and serves.
    ///
    /// The order matters: the owner of the name has the state, and a process that does not get the name does not touch
    /// the state. The call that activated the service precedes the answer to RequestName, so calls wait.
    func start() {
        connection.hello { [weak self] result in
            self?.with(result) { $0.startControl() }
        }
    }

    /// Returns the state for the next link; nil when this link has not restored it. Call once, when the link has ended.
    func handOver() -> HandoverState? {
        guard hasState, let busID else { return nil }
        hasState = false
        return object.handOver(busID: busID)
    }

    /// Leaves in order. First the name is released, so that calls come to the next process, which waits for the state.
    /// Then the messages in flight are sent, and then the state is written. The bus discards the unread messages of a
    /// connection that is closed.
    ///
    /// - Parameter completion: called once, from the loop, also when the bus does not answer for 3 s.
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
            // The second timer starts after the losses have been announced, which takes time.
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

    private func takeUpState(onBus id: String) {
        guard let handoverState else { return recover(onBus: id) }
        object.inherit(handoverState)
        suspect(handoverState.largest, known: handoverState.maxBytes)
        self.handoverState = nil
        serve()
    }

    private func serve() {
        hasState = true
        if let uniqueName = connection.uniqueName { object.followActivity(uniqueName: uniqueName) }
        object.resume()
        if let uniqueName = connection.uniqueName { object.joinSessions(as: uniqueName) }
        Log.notice("serving \(Wire.busName) as \(connection.uniqueName?.rawValue ?? "")")
        let calls = waitingCalls ?? []
        waitingCalls = nil
        // Not set before: necessary answers of the bus stood behind calls that wait.
        connection.maxReceivedBytes = CallQueue.readAhead
        for call in calls where !object.handle(call) && !call.expectsNoReply {
            connection.send(call.errorReply(.unknownMethod("there is no such method")))
        }
        onServing?()
    }

    /// Keeps a call until the state has been restored. Only calls can arrive before.
    private func hold(_ message: Message) -> Bool {
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

    /// Tests whether the bus carries a notification of the size that may have cost the connection before. None of that
    /// size is sent meanwhile.
    private func suspect(_ size: Int, known: Int) {
        guard size > SizeTest.harmless, size < known else {
            return testAgain(nil, after: Self.firstPause)
        }
        object.maxBytes = size
        test(size, otherwise: known, pause: Self.firstPause)
    }

    /// - Parameters:
    ///   - known: the maximum size when the bus carries one of `size`.
    ///   - pause: the pause until another test, in milliseconds.
    private func test(_ size: Int, otherwise known: Int, pause: UInt32) {
        sizeTest = SizeTest(size: size, machine: machine, context: connection.context) { [unowned self] isCarried in
            let isFirst = pause == Self.firstPause
            if isCarried {
                object.maxBytes = known
                if !isFirst { Log.notice("the bus accepts notifications of \(size) bytes again") }
            } else if isFirst {
                object.maxBytes = max(SizeTest.harmless, size - size / 8)
                Log.warning(
                    "the bus rejects notifications of \(size) bytes; larger than \(object.maxBytes) bytes are not sent",
                    ["CARILLON_REASON": "bus-limits"])
            }
            testAgain(isCarried ? nil : size, after: pause)
        }
    }

    /// Repeats the test: the bus may only have been out of quota, after which dbus-broker closes the connection too.
    ///
    /// - Parameter size: the size to test, in bytes; nil for the size that an earlier link could not send.
    private func testAgain(_ size: Int?, after pause: UInt32) {
        guard object.maxBytes < .max else { return }
        let size = size ?? object.maxBytes / 7 * 8
        sizeTimer = .once(milliseconds: pause, on: connection.context) { [unowned self] in
            test(size, otherwise: .max, pause: min(pause * 2, Self.longestPause))
        }
    }

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

    /// Restores the state. The process that had the name before may still be ending: its connection closes before its
    /// files.
    private func recover(directory: String, busID: String, attempt: Int) {
        let isLate = attempt > Self.maxAttempts
        if isLate { Log.warning("the previous owner of the name has not released the state: taking it over") }
        guard !object.recover(directory: directory, busID: busID, address: machine.address, takesLock: !isLate), !isLate
        else {
            return serve()
        }
        stateTimer = .once(milliseconds: Self.stateInterval, on: connection.context) { [unowned self] in
            recover(directory: directory, busID: busID, attempt: attempt + 1)
        }
    }

    private func losesName(_ message: Message) -> Bool {
        guard stopTimer == nil, message.isSignal("org.freedesktop.DBus", "NameLost"), message.isFromBus else {
            return false
        }
        var reader = MessageReader(message)
        return (try? reader.readString()) == Wire.busName.rawValue
    }

    private func with<Value>(_ result: Result<Value, BusError>, _ goOn: (ServiceLink, Value) -> Void) {
        switch result {
        case .failure(let error): end(.refused(error))
        case .success(let value): goOn(self, value)
        }
    }

    private func with<Value>(_ result: Result<Value, BusError>, _ goOn: (ServiceLink) -> Void) {
        with(result) { link, _ in goOn(link) }
    }

    /// Ends the link with the first reason: a failed handshake may be followed by the end of the connection. While the
    /// link stops no failure counts.
    private func end(_ reason: End) {
        guard !hasEnded, stopTimer == nil else { return }
        hasEnded = true
        onEnd(reason)
    }
}
