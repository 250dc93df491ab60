// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The adapter between libmosquitto and a ``MainContext``, for one connection: its socket is a source of the loop, and
/// its keep-alive a timer.
///
/// The delegate is never called inside a callback of libmosquitto, which holds locks there, and can neither connect nor
/// be destroyed. A callback appends an event, and events are delivered when the library's function has returned.
final class ClientDriver: PolledSourceDelegate {
    enum State {
        /// No connection. libmosquitto may still have a dead socket.
        case idle
        /// A thread looks up the broker's name, and owns libmosquitto.
        case reaching
        /// The connection is begun, and the broker has not answered.
        case connecting
        case connected
        /// The last packet is being written.
        case leaving
    }

    private struct Watch {
        let tag: PolledSource.Tag
        let descriptor: Int32
        let conditions: PolledSource.Conditions
    }

    /// The maximum number of reads by libmosquitto in one dispatch. Each takes about one packet.
    private static let readsPerTurn = 64

    let settings: MQTTClient.Settings
    let events: EventQueue
    let handle: LibraryHandle
    private let context: MainContext
    private let work: BlockingWork
    private var source: PolledSource!
    private var watch: Watch?
    private var timer: EventSource?

    private(set) var state = State.idle
    private(set) var limits = BrokerLimits()
    var subscriptions = Subscriptions()
    private(set) var addresses: AddressChoice

    var isReadingPaused: Bool {
        didSet {
            guard isReadingPaused != oldValue else { return }
            // Data that OpenSSL has already read from the socket does not make the socket readable.
            shallRead = !isReadingPaused
            startTimer()
            updateWatch()
        }
    }

    private var shallRead = false
    /// Whether a write has failed inside a call; the loop finds out the reason.
    private var shallWrite = false
    /// Whether the broker's host has answered.
    private var isReached = false
    private var secondsConnecting = 0
    /// The broker's refusal of the connection; nil for none.
    private var refusal: MQTTError?
    private var droppedTexts: UInt64 = 0

    /// - Parameters:
    ///   - events: the queue of events for the delegate.
    ///   - addresses: the choice that earlier connections have led to.
    ///   - work: the thread for looking up names.
    init(
        _ settings: MQTTClient.Settings, startsClean: Bool, events: EventQueue, addresses: AddressChoice,
        isReadingPaused: Bool, work: BlockingWork, context: MainContext
    ) throws(MQTTError) {
        self.settings = settings
        self.events = events
        self.addresses = addresses
        self.isReadingPaused = isReadingPaused
        self.work = work
        self.context = context
        handle = try LibraryHandle(settings, startsClean: startsClean)
        source = PolledSource(delegate: self, priority: .default, context: context)
        handle.driver = self
        handle.setCallbacks()
    }

    // MARK: Dispatching

    func hasPendingWork() -> Bool { events.isWaiting || shallWrite || (shallRead && mayRead) }

    func dispatch() {
        let occurred = watch.map { source.occurred(on: $0.tag) } ?? []
        let isBroken = !occurred.isDisjoint(with: [.error, .hangUp])
        if occurred.contains(.writable), !isBroken { isReached = true }
        if shallRead || isBroken || occurred.contains(.readable) { read() }
        if shallWrite || isBroken || occurred.contains(.writable) { write() }
        settle()
    }

    private var mayRead: Bool { state == .connecting || (state == .connected && !isReadingPaused) }

    private func read() {
        shallRead = false
        for _ in 0..<Self.readsPerTurn {
            guard mayRead else { return }
            let before = events.count
            if isInHandshake { shakeHands() } else { _ = mosquitto_loop_read(handle.pointer, 1) }
            guard events.count != before else { return }
            events.deliver()
        }
        shallRead = true
    }

    private func write() {
        shallWrite = false
        guard state != .idle, state != .reaching else { return }
        if isInHandshake { shakeHands() } else { _ = mosquitto_loop_write(handle.pointer, 1) }
    }

    /// Whether the TLS handshake may still be in progress.
    private var isInHandshake: Bool { state == .connecting && settings.tls != nil }

    /// Continues the handshake, or the exchange that follows it.
    ///
    /// During the handshake libmosquitto neither reports that the connection failed, nor closes the socket of a failed
    /// one, and it asks to write when it has to read. The socket is therefore examined first.
    private func shakeHands() {
        for _ in 0..<Self.readsPerTurn {
            var byte: UInt8 = 0
            let count = recv(mosquitto_socket(handle.pointer), &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
            if count < 0, ![EAGAIN, EWOULDBLOCK, EINTR].contains(errno) { return giveUp(MQTTError(.system(errno))) }
            let code = mosquitto_loop_read(handle.pointer, 1)
            let failure = errno
            guard state == .connecting else { return }
            guard code == MOSQ_ERR_SUCCESS.rawValue else { return giveUp(unanswered(code, errno: failure)) }
            guard count != 0 else {
                return giveUp(wasEverConnected ? MQTTError(.connectionLost, hint) : MQTTError(.system(ECONNREFUSED)))
            }
            // All input is read before any output is written: a broker that requires another certificate has said so,
            // and closed.
            guard count > 0 else { break }
        }
        // Sends the packets that waited for the end of the handshake.
        _ = mosquitto_loop_write(handle.pointer, 1)
    }

    /// Whether the socket has ever been connected. OpenSSL writes at once, and may have consumed the error of a refused
    /// connection.
    private var wasEverConnected: Bool {
        var address = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return isReached
            || withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    getpeername(mosquitto_socket(handle.pointer), $0, &length) == 0
                }
            }
    }

    /// Delivers events and updates the watch of the socket. Called at the end of all work of the loop here.
    private func settle() {
        if state != .idle, state != .reaching, mosquitto_socket(handle.pointer) < 0 {
            ended(MQTTError(.connectionLost))
        }
        events.deliver()
        updateWatch()
    }

    func updateWatch() {
        // Without a connection a thread may still own the handle.
        let descriptor = state == .reaching || state == .idle ? -1 : mosquitto_socket(handle.pointer)
        let conditions = descriptor < 0 ? [] : wanted
        if let watch {
            guard watch.descriptor != descriptor || watch.conditions != conditions else { return }
            source.remove(watch.tag)
            self.watch = nil
        }
        // Without a condition the descriptor is removed: a hang-up would still be reported, over and over.
        guard !conditions.isEmpty else { return }
        let tag = source.add(descriptor: descriptor, waitingFor: conditions.union([.error, .hangUp]))
        watch = Watch(tag: tag, descriptor: descriptor, conditions: conditions)
    }

    private var wanted: PolledSource.Conditions {
        switch state {
        case .idle, .reaching: return []
        // The first message of TLS fits into an empty socket. If it ever does not, the timer continues the handshake.
        case .connecting where settings.tls != nil: return isReached ? [.readable] : [.readable, .writable]
        case .connecting, .connected:
            var conditions: PolledSource.Conditions = mayRead ? [.readable] : []
            if mosquitto_want_write(handle.pointer) { conditions.insert(.writable) }
            return conditions
        case .leaving: return [.writable]
        }
    }

    // MARK: Timer

    private func startTimer() {
        timer = nil
        let seconds: UInt32
        switch state {
        case .idle, .leaving: return
        case .reaching, .connecting: seconds = 1
        case .connected:
            let keepAlive = UInt32(limits.keepAlive ?? settings.keepAlive)
            guard keepAlive > 0, !isReadingPaused else { return }
            seconds = max(1, keepAlive / 4)
        }
        timer = .timer(milliseconds: seconds * 1_000, on: context) { [weak self] in
            guard let self else { return .remove }
            tick()
            return .keep
        }
    }

    private func tick() {
        switch state {
        case .idle, .leaving: return
        case .reaching:
            secondsConnecting += 1
            if secondsConnecting >= Int(settings.connectTimeout) { giveUp(MQTTError(.lookUp(EAI_AGAIN))) }
        case .connecting:
            secondsConnecting += 1
            if secondsConnecting >= Int(settings.connectTimeout) {
                giveUp(MQTTError(.noAnswer))
            } else if isInHandshake, isReached {
                shakeHands()
            }
        case .connected:
            _ = mosquitto_loop_misc(handle.pointer)
        }
        settle()
    }

    // MARK: Connecting

    private struct Reached: Sendable {
        var addresses: AddressChoice
        var error: MQTTError?
    }

    /// Begins to connect. Called once for each driver.
    func connect() throws(MQTTError) {
        try handle.setFiles(settings)
        try handle.setProperties(settings)
        handle.startLog()
        state = .reaching
        startTimer()
        work.run { [handle, settings, addresses] in
            var reached = Reached(addresses: addresses)
            do throws(MQTTError) {
                try reached.addresses.connect { bindAddress throws(MQTTError) in
                    let code = mosquitto_connect_bind_async(
                        handle.pointer, settings.host, Int32(settings.port), Int32(settings.keepAlive), bindAddress)
                    let failure = errno
                    guard code == MOSQ_ERR_SUCCESS.rawValue else {
                        throw MQTTError(code, errno: failure, detail: handle.problem(of: settings))
                    }
                }
            } catch {
                reached.error = error
            }
            return reached
        } then: { [weak self] reached in
            self?.reached(reached)
        }
    }

    /// Handles the end of the name lookup, and the beginning of the connection.
    ///
    /// - Parameter reached: nil if there was no thread for it.
    private func reached(_ reached: Reached?) {
        guard state == .reaching else { return }
        if let reached { addresses = reached.addresses }
        guard let reached, reached.error == nil else {
            let error = reached?.error ?? MQTTError(.lookUp(EAI_AGAIN))
            state = .idle
            over()
            events.append(.disconnected(error.cause == .connectionLost ? MQTTError(.connectionLost, hint) : error))
            return events.deliver()
        }
        _ = fcntl(mosquitto_socket(handle.pointer), F_SETFD, FD_CLOEXEC)
        // If the first packet was written at once, the host is reached.
        isReached = settings.tls == nil && !mosquitto_want_write(handle.pointer)
        state = .connecting
        settle()
    }

    /// Abandons the connection, because another driver replaces this one.
    func abandon() {
        state = .idle
        over()
        updateWatch()
        handle.driver = nil
    }

    func disconnect(_ reason: ReasonCode) {
        switch state {
        case .idle, .leaving: return
        case .reaching, .connecting: close()
        case .connected:
            state = .leaving
            // When this returns, the packet may be written and the connection may have ended.
            if mosquitto_disconnect_v5(handle.pointer, Int32(reason.rawValue), nil) != MOSQ_ERR_SUCCESS.rawValue {
                close()
            }
        }
        startTimer()
        updateWatch()
    }

    /// Ends a connection whose end libmosquitto does not notice.
    private func giveUp(_ error: MQTTError) {
        if state == .connecting, !isReached { addresses.failed() }
        close()
        events.append(.disconnected(error))
    }

    private func close() {
        let hasSocket = state != .reaching
        state = .idle
        over()
        // A thread that looks up a name closes the socket with the handle, when it is done.
        guard hasSocket else { return }
        let descriptor = mosquitto_socket(handle.pointer)
        guard descriptor >= 0 else { return }
        // libmosquitto has no function that closes the socket. It closes it when it reads the end of the stream.
        shutdown(descriptor, Int32(SHUT_RDWR))
        _ = mosquitto_loop_read(handle.pointer, 1)
    }

    /// Handles the end of the connection.
    private func ended(_ error: MQTTError) {
        let wasWanted = state == .connecting || state == .connected
        if state == .connecting, !isReached { addresses.failed() }
        state = .idle
        over()
        if wasWanted { events.append(.disconnected(error)) }
    }

    private func over() {
        timer = nil
        subscriptions.removeAll()
        (shallRead, shallWrite) = (false, false)
        // libmosquitto locks this, also while a thread connects.
        handle.stopLog()
    }

    /// Evaluates the result of a function that queues a packet. If it could only not write, the packet is queued all
    /// the same.
    func sent(_ number: Int32, _ code: Int32, errno failure: Int32) throws(MQTTError) -> PacketID {
        switch mosq_err_t(code) {
        case MOSQ_ERR_SUCCESS: break
        case MOSQ_ERR_CONN_LOST, MOSQ_ERR_ERRNO, MOSQ_ERR_NO_CONN: shallWrite = true
        default: throw MQTTError(code, errno: failure)
        }
        updateWatch()
        return PacketID(number)
    }

    // MARK: Callbacks of libmosquitto

    func answered(_ reason: ReasonCode, sessionPresent: Bool, _ properties: ArrivedProperties) {
        guard state == .connecting else { return }
        guard reason == .success else {
            refusal = MQTTError(.refused(reason), properties.explanation)
            return
        }
        limits = BrokerLimits(properties)
        state = .connected
        handle.stopLog()
        events.append(.connected(sessionPresent: sessionPresent, limits))
        startTimer()
    }

    func disconnected(_ code: Int32, errno failure: Int32, _ properties: ArrivedProperties) {
        let error: MQTTError =
            if let refusal {
                refusal
            } else if let reason = UInt8(exactly: code).map(ReasonCode.init(rawValue:)), reason.isFailure {
                // The codes of libmosquitto itself are smaller.
                MQTTError(.ended(reason), properties.explanation)
            } else if code == MOSQ_ERR_SUCCESS.rawValue {
                MQTTError(.connectionLost)
            } else {
                state == .connecting ? unanswered(code, errno: failure) : MQTTError(code, errno: failure)
            }
        ended(error)
    }

    func received(_ message: mosquitto_message, _ properties: ArrivedProperties) {
        do {
            events.append(.received(try Publication(message, properties)))
        } catch {
            // A safeguard, because libmosquitto itself checks texts.
            if let times = Log.throttle(&droppedTexts) {
                Log.warning("dropped \(times) publications so far because of text that is not valid UTF-8")
            }
        }
    }

    func subscribed(_ id: PacketID, _ answers: [ReasonCode]) {
        if let (id, reasons) = subscriptions.answer(id, answers) { events.append(.subscribed(id, reasons)) }
    }

    /// Returns the probable reason why there was no answer.
    private func unanswered(_ code: Int32, errno failure: Int32) -> MQTTError {
        let error = MQTTError(code, errno: failure, detail: handle.problem(of: settings))
        return error.cause == .connectionLost ? MQTTError(.connectionLost, hint) : error
    }

    /// The probable causes when a broker closes a connection without an answer.
    private var hint: String {
        settings.tls == nil
            ? "before the broker answered; it may not speak MQTT 5, or not without TLS"
            : "before the broker answered; it may want another certificate, or not speak TLS and MQTT 5"
    }
}
