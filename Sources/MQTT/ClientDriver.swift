// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The adapter between libmosquitto and a ``MainContext``, for one connection of an ``MQTTClient``. The connection's
/// socket is a source of the loop, and a timer of the loop does the keep-alive.
///
/// A callback of libmosquitto never calls the delegate: the library holds locks there, so that the delegate could
/// neither connect again nor release the client. The callback appends an event to ``EventQueue``, which delivers it
/// when the library's function has returned.
final class ClientDriver: PolledSourceDelegate {
    /// The state of the connection.
    enum State {
        /// There is no connection. libmosquitto may still have a dead socket.
        case idle
        /// A thread looks up the broker's name. Until it has finished, only that thread may use libmosquitto.
        case resolving
        /// The TCP connection has begun, and the broker has not accepted the MQTT connection.
        case connecting
        /// The broker has accepted the connection.
        case connected
        /// The DISCONNECT packet is being written.
        case leaving
    }

    /// The registration of the socket with the event source.
    private struct Watch {
        let tag: PolledSource.Tag
        let descriptor: Int32
        let conditions: PolledSource.Conditions
    }

    /// The maximum number of reads by libmosquitto in one dispatch of the loop. Each reads about one packet. Other
    /// sources of the loop run between two dispatches.
    private static let readsPerDispatch = 64

    let settings: MQTTClient.Settings
    let events: EventQueue
    let handle: LibraryHandle
    private let context: MainContext
    private let work: BlockingWork
    /// The source that calls ``dispatch()``.
    private var source: PolledSource!
    /// The present registration of the socket; nil while the loop does not wait for the socket.
    private var watch: Watch?
    /// The timer that calls ``tick()``: for the time limit while connecting, and for the keep-alive afterwards.
    private var timer: EventSource?

    /// The present state.
    private(set) var state = State.idle
    /// The limits that the broker announced; the defaults before.
    private(set) var limits = BrokerLimits()
    /// The subscriptions that the broker has not answered.
    var subscriptions = PendingSubscriptions()
    /// The address family for the next attempt.
    private(set) var addresses: AddressChoice

    /// Whether the socket is not read, so that the broker's messages stay at the broker.
    var isReadingPaused: Bool {
        didSet {
            guard isReadingPaused != oldValue else { return }
            // Data that OpenSSL has already read from the socket does not make the socket readable.
            readPending = !isReadingPaused
            startTimer()
            updateWatch()
        }
    }

    /// Whether to read although the socket is not readable: the last dispatch reached its limit, or a pause has ended.
    private var readPending = false
    /// Whether a write has failed inside a call. The next dispatch writes again, and libmosquitto then reports the
    /// reason.
    private var writePending = false
    /// Whether the TCP connection to the broker's host was made.
    private var isReached = false
    /// The seconds since ``connect()``, counted by the timer.
    private var secondsConnecting = 0
    /// The broker's refusal of the connection; nil for none.
    private var refusal: MQTTError?
    /// The number of received publications with invalid UTF-8, which were dropped.
    private var droppedTexts: UInt64 = 0

    /// Creates a driver without a connection.
    ///
    /// - Parameters:
    ///   - startsClean: whether the broker is to discard its session of this client.
    ///   - events: the queue of events for the delegate.
    ///   - addresses: the address family that earlier connections have led to.
    ///   - work: the threads that look up names.
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

    /// Whether the loop has to call ``dispatch()`` without waiting for the socket.
    func hasPendingWork() -> Bool { events.isWaiting || writePending || (readPending && mayRead) }

    /// Reads and writes as the socket allows. At an error both run, because libmosquitto reports the end of the
    /// connection in one of them.
    func dispatch() {
        let occurred = watch.map { source.occurred(on: $0.tag) } ?? []
        let isBroken = !occurred.isDisjoint(with: [.error, .hangUp])
        // A socket becomes writable without an error when its TCP connection is made.
        if occurred.contains(.writable), !isBroken { isReached = true }
        if readPending || isBroken || occurred.contains(.readable) { read() }
        if writePending || isBroken || occurred.contains(.writable) { write() }
        settle()
    }

    /// Whether packets may be read now.
    private var mayRead: Bool { state == .connecting || (state == .connected && !isReadingPaused) }

    /// Reads packets, and delivers the events of each before it reads the next. It stops when a read has caused no
    /// event.
    private func read() {
        readPending = false
        for _ in 0..<Self.readsPerDispatch {
            guard mayRead else { return }
            let before = events.count
            if isInHandshake { shakeHands() } else { _ = mosquitto_loop_read(handle.pointer, 1) }
            guard events.count != before else { return }
            events.deliver()
        }
        readPending = true
    }

    /// Writes queued packets, as far as the socket takes them.
    private func write() {
        writePending = false
        guard state != .idle, state != .resolving else { return }
        if isInHandshake { shakeHands() } else { _ = mosquitto_loop_write(handle.pointer, 1) }
    }

    /// Whether the TLS handshake may be in progress. libmosquitto does not report its end, so this is true until the
    /// broker has accepted the connection.
    private var isInHandshake: Bool { state == .connecting && settings.tls != nil }

    /// Continues the TLS handshake, or the MQTT exchange that follows it.
    ///
    /// During the handshake libmosquitto neither reports a failure nor closes the socket of a failed connection, and it
    /// asks to write when it has to read. Therefore each step first looks at the socket with `MSG_PEEK`, which finds
    /// errors and the end of the stream.
    private func shakeHands() {
        for _ in 0..<Self.readsPerDispatch {
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
            // All input is read before any output is written: a broker that rejects the certificate has sent the reason
            // and closed the connection, and a write would fail without that reason.
            guard count > 0 else { break }
        }
        // Sends the packets that waited for the end of the handshake.
        _ = mosquitto_loop_write(handle.pointer, 1)
    }

    /// Whether the TCP connection was made at some time. The socket's error is no evidence: OpenSSL writes at once and
    /// may have consumed the error of a refused connection.
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

    /// Detects the end of the connection, delivers events and updates the registration of the socket. Called after all
    /// work of the loop in this class.
    private func settle() {
        if state != .idle, state != .resolving, mosquitto_socket(handle.pointer) < 0 {
            ended(MQTTError(.connectionLost))
        }
        events.deliver()
        updateWatch()
    }

    /// Registers the socket for the conditions that the driver now waits for, if they have changed.
    func updateWatch() {
        // During a name lookup only the thread may use the handle, and also afterwards if the lookup was given up.
        let descriptor = state == .resolving || state == .idle ? -1 : mosquitto_socket(handle.pointer)
        let conditions = descriptor < 0 ? [] : wanted
        if let watch {
            guard watch.descriptor != descriptor || watch.conditions != conditions else { return }
            source.remove(watch.tag)
            self.watch = nil
        }
        // Without a condition the socket is not registered: the loop would still report a hang-up, again and again.
        guard !conditions.isEmpty else { return }
        let tag = source.add(descriptor: descriptor, waitingFor: conditions.union([.error, .hangUp]))
        watch = Watch(tag: tag, descriptor: descriptor, conditions: conditions)
    }

    /// The conditions of the socket to wait for in the present state.
    private var wanted: PolledSource.Conditions {
        switch state {
        case .idle, .resolving: return []
        // The first message of TLS fits into an empty socket's buffer, so nothing has to wait for writability after the
        // TCP connection is made. If it ever does not fit, the timer continues the handshake.
        case .connecting where settings.tls != nil: return isReached ? [.readable] : [.readable, .writable]
        case .connecting, .connected:
            var conditions: PolledSource.Conditions = mayRead ? [.readable] : []
            if mosquitto_want_write(handle.pointer) { conditions.insert(.writable) }
            return conditions
        case .leaving: return [.writable]
        }
    }

    // MARK: Timer

    /// Starts the timer of the present state: each second while connecting, and four times in a keep-alive interval
    /// afterwards. A paused connection has none: libmosquitto would miss the broker's answers to its pings and end the
    /// connection.
    private func startTimer() {
        timer = nil
        let seconds: UInt32
        switch state {
        case .idle, .leaving: return
        case .resolving, .connecting: seconds = 1
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

    /// Enforces the connect timeout, or does the keep-alive of libmosquitto.
    private func tick() {
        switch state {
        case .idle, .leaving: return
        case .resolving:
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

    /// The result of the name lookup, from its thread.
    private struct LookupResult: Sendable {
        var addresses: AddressChoice
        var error: MQTTError?
    }

    /// Begins to connect; a thread looks up the broker's name. Called once for each driver.
    func connect() throws(MQTTError) {
        try handle.setFiles(settings)
        try handle.setProperties(settings)
        handle.startLog()
        state = .resolving
        startTimer()
        work.run { [handle, settings, addresses] in
            var reached = LookupResult(addresses: addresses)
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

    /// Handles the end of the name lookup; the TCP connection is then in progress.
    ///
    /// - Parameter reached: the result; nil if no thread was available, or if the lookup took too long.
    private func reached(_ reached: LookupResult?) {
        guard state == .resolving else { return }
        if let reached { addresses = reached.addresses }
        guard let reached, reached.error == nil else {
            let error = reached?.error ?? MQTTError(.lookUp(EAI_AGAIN))
            state = .idle
            over()
            events.append(.disconnected(error.cause == .connectionLost ? MQTTError(.connectionLost, hint) : error))
            return events.deliver()
        }
        _ = fcntl(mosquitto_socket(handle.pointer), F_SETFD, FD_CLOEXEC)
        // If libmosquitto could write the first packet at once, the TCP connection is made.
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

    /// Ends the connection with a DISCONNECT packet, or the attempt to connect. The delegate receives no event.
    func disconnect(_ reason: ReasonCode) {
        switch state {
        case .idle, .leaving: return
        case .resolving, .connecting: close()
        case .connected:
            state = .leaving
            // The call may already write the packet and end the connection, so the state changes before it.
            if mosquitto_disconnect_v5(handle.pointer, Int32(reason.rawValue), nil) != MOSQ_ERR_SUCCESS.rawValue {
                close()
            }
        }
        startTimer()
        updateWatch()
    }

    /// Ends a connection whose end libmosquitto does not notice, and reports the error.
    private func giveUp(_ error: MQTTError) {
        if state == .connecting, !isReached { addresses.failed() }
        close()
        events.append(.disconnected(error))
    }

    /// Closes the socket without a DISCONNECT packet.
    private func close() {
        let hasSocket = state != .resolving
        state = .idle
        over()
        // The thread that looks up a name still uses the handle. The socket is closed when the handle is freed.
        guard hasSocket else { return }
        let descriptor = mosquitto_socket(handle.pointer)
        guard descriptor >= 0 else { return }
        // libmosquitto has no function that closes the socket. It closes it when it reads the end of the stream, which
        // `shutdown` causes.
        shutdown(descriptor, Int32(SHUT_RDWR))
        _ = mosquitto_loop_read(handle.pointer, 1)
    }

    /// Handles the end of the connection that libmosquitto has reported. After ``disconnect(_:)`` the delegate receives
    /// no event.
    private func ended(_ error: MQTTError) {
        let wasWanted = state == .connecting || state == .connected
        if state == .connecting, !isReached { addresses.failed() }
        state = .idle
        over()
        if wasWanted { events.append(.disconnected(error)) }
    }

    /// Releases everything that belongs to the connection.
    private func over() {
        timer = nil
        subscriptions.removeAll()
        (readPending, writePending) = (false, false)
        // Allowed although a thread may be connecting, because libmosquitto protects its log callback with a lock.
        handle.stopLog()
    }

    /// Evaluates the result of a libmosquitto function that queues a packet. If only the write failed, the packet is
    /// queued and the next dispatch writes it.
    ///
    /// - Parameters:
    ///   - number: libmosquitto's identifier of the packet.
    ///   - code: the result of the function.
    ///   - failure: the value of `errno` just after it.
    func sent(_ number: Int32, _ code: Int32, errno failure: Int32) throws(MQTTError) -> PacketID {
        switch mosq_err_t(code) {
        case MOSQ_ERR_SUCCESS: break
        case MOSQ_ERR_CONN_LOST, MOSQ_ERR_ERRNO, MOSQ_ERR_NO_CONN: writePending = true
        default: throw MQTTError(code, errno: failure)
        }
        updateWatch()
        return PacketID(number)
    }

    // MARK: Callbacks of libmosquitto, which LibraryHandle.setCallbacks() passes on

    /// Handles the CONNACK packet: the broker's acceptance or refusal. After a refusal ``disconnected(_:errno:_:)``
    /// follows.
    func answered(_ reason: ReasonCode, sessionPresent: Bool, _ properties: ReceivedProperties) {
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

    /// Handles the end of the connection.
    ///
    /// - Parameter code: a reason code of MQTT from the broker's DISCONNECT packet, or an error code of libmosquitto.
    func disconnected(_ code: Int32, errno failure: Int32, _ properties: ReceivedProperties) {
        let error: MQTTError =
            if let refusal {
                refusal
            } else if let reason = UInt8(exactly: code).map(ReasonCode.init(rawValue:)), reason.isFailure {
                // MQTT's codes of failures begin at 128. libmosquitto's own error codes are smaller.
                MQTTError(.ended(reason), properties.explanation)
            } else if code == MOSQ_ERR_SUCCESS.rawValue {
                MQTTError(.connectionLost)
            } else {
                state == .connecting ? unanswered(code, errno: failure) : MQTTError(code, errno: failure)
            }
        ended(error)
    }

    /// Handles a publication.
    func received(_ message: mosquitto_message, _ properties: ReceivedProperties) {
        do {
            events.append(.received(try Publication(message, properties)))
        } catch {
            // libmosquitto checks texts itself, so this is not expected.
            if let times = Log.throttle(&droppedTexts) {
                Log.warning("dropped \(times) publications so far because of text that is not valid UTF-8")
            }
        }
    }

    /// Handles the answer to one packet of a subscription.
    func subscribed(_ id: PacketID, _ answers: [ReasonCode]) {
        if let (id, reasons) = subscriptions.answer(id, answers) { events.append(.subscribed(id, reasons)) }
    }

    /// Returns the error for a connection that ended before the broker accepted it, with the probable cause.
    private func unanswered(_ code: Int32, errno failure: Int32) -> MQTTError {
        let error = MQTTError(code, errno: failure, detail: handle.problem(of: settings))
        return error.cause == .connectionLost ? MQTTError(.connectionLost, hint) : error
    }

    /// The probable causes when the connection ends before the broker has answered.
    private var hint: String {
        settings.tls == nil
            ? "before the broker answered; it may not speak MQTT 5, or may require TLS"
            : "before the broker answered; it may require another certificate, or may not speak TLS or MQTT 5"
    }
}
