// SPDX-License-Identifier: Apache-2.0
import CMosquitto
import MainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The glue between libmosquitto and a ``MainContext``: its socket is a source of the loop, and its keep-alive a timer.
///
/// The delegate is never told from inside a callback of libmosquitto, which holds locks there, and can neither connect
/// nor be destroyed: what happens becomes an event, and events are told when its function has returned.
final class ClientDriver: PolledSourceDelegate {
    enum State {
        /// No connection. libmosquitto may still have a dead socket.
        case idle
        /// From the call until the broker's answer.
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

    /// How often libmosquitto is had to read in one turn. It takes about one packet each time.
    private static let readsPerTurn = 64
    /// How long connecting may take, in seconds.
    private static let mostSeconds = 30

    weak var delegate: (any MQTTClientDelegate)?
    private(set) var state = State.idle
    let settings: MQTTClient.Settings
    let handle: OpaquePointer  // struct mosquitto
    private let context: MainContext
    private var source: PolledSource!
    private var watch: Watch?
    private var timer: EventSource?

    var isReadingPaused = false {
        didSet {
            guard isReadingPaused != oldValue else { return }
            // What OpenSSL has taken out of the socket can't be seen there.
            shallRead = !isReadingPaused
            startTimer()
            updateWatch()
        }
    }

    private var shallRead = false
    /// A write failed inside of a call; the loop finds out what that means.
    private var shallWrite = false
    /// Whether the other host has answered.
    private var isReached = false
    private var secondsConnecting = 0
    private var limits = BrokerLimits()
    /// What the broker answered instead of taking the connection.
    private var refusal: ReasonCode?
    /// What libmosquitto logged as errors since it was told to connect.
    private var problems: [String] = []
    /// Answers to subscriptions that are waited for, by packet.
    private var subscriptions: [UInt16: (Subscription, places: [Int])] = [:]

    private var events: [Event] = []
    private var nextEvent = 0
    private var eventNumber = 0
    private var isTelling = false
    private var droppedTexts: UInt64 = 0

    init(_ settings: MQTTClient.Settings, context: MainContext) throws(MQTTError) {
        self.settings = settings
        self.context = context
        handle = try Self.makeHandle(settings)
        source = PolledSource(delegate: self, priority: .default, context: context)
        setCallbacks()
    }

    deinit {
        mosquitto_destroy(handle)
    }

    // MARK: Dispatching

    func hasPendingWork() -> Bool {
        nextEvent < events.count || shallWrite || (shallRead && mayRead)
    }

    func dispatch() {
        let occurred = watch.map { source.occurred(on: $0.tag) } ?? []
        let isBroken = !occurred.isDisjoint(with: [.error, .hangUp])
        if occurred.contains(.writable) { isReached = true }
        if shallRead || isBroken || occurred.contains(.readable) { read() }
        if shallWrite || isBroken || occurred.contains(.writable) { write() }
        settle()
    }

    private var mayRead: Bool {
        state == .connecting || (state == .connected && !isReadingPaused)
    }

    private func read() {
        shallRead = false
        for _ in 0..<Self.readsPerTurn {
            guard mayRead else { return }
            let before = eventNumber
            if isInHandshake { shakeHands() } else { _ = mosquitto_loop_read(handle, 1) }
            guard eventNumber != before else { return }
            tell()
        }
        shallRead = true
    }

    private func write() {
        shallWrite = false
        guard state != .idle else { return }
        if isInHandshake { shakeHands() } else { _ = mosquitto_loop_write(handle, 1) }
    }

    /// Whether it may be that TLS is still being agreed on.
    private var isInHandshake: Bool { state == .connecting && settings.tls != nil }

    /// Goes on with the handshake, or with what follows it.
    ///
    /// Here libmosquitto neither tells that the connection failed nor closes the socket of one that did, and says that it
    /// wants to write when it wants to read. So the socket is looked at before.
    private func shakeHands() {
        var byte: UInt8 = 0
        let count = recv(mosquitto_socket(handle), &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        if count < 0, ![EAGAIN, EWOULDBLOCK, EINTR].contains(errno) {
            return giveUp(MQTTError(.system(errno)))
        }
        let code = mosquitto_loop_read(handle, 1)
        let failure = errno
        guard state == .connecting else { return }
        guard code == MOSQ_ERR_SUCCESS.rawValue else { return giveUp(MQTTError(code, errno: failure, detail: problem)) }
        guard count != 0 else { return giveUp(MQTTError(.connectionLost, Self.hint)) }
        // What waited for the end of the handshake.
        _ = mosquitto_loop_write(handle, 1)
    }

    /// Brings what is to be told, and what is waited for, up to date. To be called after each dispatch.
    private func settle() {
        tell()
        if state != .idle, mosquitto_socket(handle) < 0 { ended(MQTTError(.connectionLost, problem)) }
        tell()
        updateWatch()
    }

    private func updateWatch() {
        let descriptor = mosquitto_socket(handle)
        var conditions: PolledSource.Conditions = []
        if descriptor >= 0 {
            switch state {
            case .idle: break
            case .connecting where settings.tls != nil:
                // The first words of TLS fit into an empty socket. If they ever do not, the timer goes on with them.
                conditions = isReached ? [.readable] : [.readable, .writable]
            case .connecting, .connected:
                if mayRead { conditions.insert(.readable) }
                if mosquitto_want_write(handle) { conditions.insert(.writable) }
            case .leaving:
                conditions = [.writable]
            }
        }
        if let watch {
            guard watch.descriptor != descriptor || watch.conditions != conditions else { return }
            source.remove(watch.tag)
            self.watch = nil
        }
        // Without anything to wait for it is taken out, as a hang-up would still be reported, over and over.
        guard !conditions.isEmpty else { return }
        let tag = source.add(descriptor: descriptor, waitingFor: conditions.union([.error, .hangUp]))
        watch = Watch(tag: tag, descriptor: descriptor, conditions: conditions)
    }

    // MARK: Time

    private func startTimer() {
        timer = nil
        let seconds: UInt32
        switch state {
        case .idle, .leaving: return
        case .connecting: seconds = 1
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
        case .connecting:
            secondsConnecting += 1
            if secondsConnecting >= Self.mostSeconds {
                giveUp(MQTTError(.noAnswer))
            } else if isInHandshake, isReached {
                shakeHands()
            }
        case .connected:
            _ = mosquitto_loop_misc(handle)
        }
        settle()
    }

    // MARK: Connecting

    func connect() throws(MQTTError) {
        guard state == .idle || state == .leaving else { throw MQTTError(.connected) }
        problems = []
        refusal = nil
        isReached = false
        secondsConnecting = 0
        try setFiles()
        try setProperties()
        startLog()
        // It closes the socket of before, and may get the same number for the next.
        state = .idle
        updateWatch()
        let code = mosquitto_connect_bind_async(
            handle, settings.host, Int32(settings.port), Int32(settings.keepAlive), nil)
        let failure = errno
        guard code == MOSQ_ERR_SUCCESS.rawValue else { throw MQTTError(code, errno: failure, detail: problem) }
        _ = fcntl(mosquitto_socket(handle), F_SETFD, FD_CLOEXEC)
        state = .connecting
        startTimer()
        updateWatch()
    }

    func disconnect(_ reason: ReasonCode) {
        switch state {
        case .idle, .leaving: return
        case .connecting: close()
        case .connected:
            state = .leaving
            if mosquitto_disconnect_v5(handle, Int32(reason.rawValue), nil) != MOSQ_ERR_SUCCESS.rawValue { close() }
        }
        startTimer()
        updateWatch()
    }

    /// Ends a connection of which libmosquitto does not see that it has ended.
    private func giveUp(_ error: MQTTError) {
        close()
        append(.disconnected(error))
    }

    private func close() {
        state = .idle
        over()
        let descriptor = mosquitto_socket(handle)
        guard descriptor >= 0 else { return }
        // It has no function that closes. It does so when it reads that nothing comes any more.
        shutdown(descriptor, Int32(SHUT_RDWR))
        _ = mosquitto_loop_read(handle, 1)
    }

    /// The connection is no more.
    private func ended(_ error: MQTTError) {
        let wasWanted = state == .connecting || state == .connected
        state = .idle
        over()
        if wasWanted { append(.disconnected(error)) }
    }

    private func over() {
        timer = nil
        subscriptions = [:]
        (shallRead, shallWrite) = (false, false)
        mosquitto_log_callback_set(handle, nil)
    }

    // MARK: Publishing and subscribing

    func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        guard state == .connected else { throw MQTTError(.notConnected) }
        try publication.topic.checkForPacket()
        guard !publication.topic.isEmpty,
            mosquitto_pub_topic_check(publication.topic) == MOSQ_ERR_SUCCESS.rawValue
        else { throw MQTTError(.topicInvalid, publication.topic) }
        guard publication.packetSize <= limits.mostBytes else { throw MQTTError(.packetTooLarge) }
        var properties = PropertyList()
        try properties.addProperties(of: publication)
        var number: Int32 = 0
        let code = publication.payload.withUnsafeBytes { payload in
            mosquitto_publish_v5(
                handle, &number, publication.topic, Int32(payload.count), payload.baseAddress,
                publication.quality.rawValue, publication.isRetained, properties.pointer)
        }
        return try sent(number, code, errno: errno)
    }

    func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID {
        guard state == .connected else { throw MQTTError(.notConnected) }
        for filter in filters { try check(filter.topic) }
        // A packet has one set of options for all its filters.
        var groups: [[Int]] = []
        for (index, filter) in filters.enumerated() {
            if let group = groups.firstIndex(where: { filters[$0[0]].hasOptions(of: filter) }) {
                groups[group].append(index)
            } else {
                groups.append([index])
            }
        }
        guard let first = groups.first else { throw MQTTError(.topicInvalid) }
        let subscription = Subscription(id: try send(first, of: filters), count: filters.count, packets: groups.count)
        subscriptions[subscription.id.rawValue] = (subscription, first)
        for group in groups.dropFirst() {
            subscriptions[try send(group, of: filters).rawValue] = (subscription, group)
        }
        return subscription.id
    }

    private func send(_ group: [Int], of filters: [TopicFilter]) throws(MQTTError) -> PacketID {
        let first = filters[group[0]]
        var number: Int32 = 0
        let code = withCStrings(group.map { filters[$0].topic }) { count, texts in
            mosquitto_subscribe_multiple(handle, &number, count, texts, first.quality.rawValue, first.options, nil)
        }
        return try sent(number, code, errno: errno)
    }

    func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID {
        guard state == .connected else { throw MQTTError(.notConnected) }
        guard !topics.isEmpty else { throw MQTTError(.topicInvalid) }
        for topic in topics { try check(topic) }
        var number: Int32 = 0
        let code = withCStrings(topics) { count, texts in
            mosquitto_unsubscribe_multiple(handle, &number, count, texts, nil)
        }
        return try sent(number, code, errno: errno)
    }

    private func check(_ filter: String) throws(MQTTError) {
        try filter.checkForPacket()
        guard !filter.isEmpty, mosquitto_sub_topic_check(filter) == MOSQ_ERR_SUCCESS.rawValue else {
            throw MQTTError(.topicInvalid, filter)
        }
    }

    /// What a function that queues a packet returned. Where it only could not write, the packet is taken all the same.
    private func sent(_ number: Int32, _ code: Int32, errno failure: Int32) throws(MQTTError) -> PacketID {
        switch mosq_err_t(code) {
        case MOSQ_ERR_SUCCESS: break
        case MOSQ_ERR_CONN_LOST, MOSQ_ERR_ERRNO, MOSQ_ERR_NO_CONN: shallWrite = true
        default: throw MQTTError(code, errno: failure)
        }
        updateWatch()
        return PacketID(rawValue: UInt16(truncatingIfNeeded: number))
    }

    // MARK: Telling

    private enum Event {
        case connected(Bool, BrokerLimits)
        case disconnected(MQTTError)
        case received(Publication)
        case acknowledged(PacketID, ReasonCode)
        case subscribed(PacketID, [ReasonCode])
        case unsubscribed(PacketID)
    }

    private func append(_ event: Event) {
        events.append(event)
        eventNumber &+= 1
    }

    /// Tells what has happened. Of a loop inside of the delegate, the one outside goes on with it.
    private func tell() {
        guard !isTelling else { return }
        isTelling = true
        defer { isTelling = false }
        while nextEvent < events.count {
            let event = events[nextEvent]
            nextEvent += 1
            switch event {
            case .connected(let isPresent, let limits): delegate?.connected(sessionPresent: isPresent, limits: limits)
            case .disconnected(let error): delegate?.disconnected(error)
            case .received(let publication): delegate?.received(publication)
            case .acknowledged(let id, let reason): delegate?.acknowledged(id, reason)
            case .subscribed(let id, let reasons): delegate?.subscribed(id, reasons)
            case .unsubscribed(let id): delegate?.unsubscribed(id)
            }
        }
        events.removeAll(keepingCapacity: true)
        nextEvent = 0
    }

    // MARK: What libmosquitto tells

    func answered(_ reason: ReasonCode, sessionPresent: Bool, _ properties: ArrivedProperties) {
        guard state == .connecting else { return }
        guard reason == .success else {
            refusal = reason
            return
        }
        limits = BrokerLimits(properties)
        state = .connected
        mosquitto_log_callback_set(handle, nil)
        append(.connected(sessionPresent, limits))
        startTimer()
    }

    func disconnected(_ code: Int32, errno failure: Int32) {
        let error: MQTTError =
            if let refusal {
                MQTTError(.refused(refusal))
            } else if let reason = UInt8(exactly: code).map(ReasonCode.init(rawValue:)), reason.isFailure {
                // Numbers of libmosquitto's own are smaller.
                MQTTError(.ended(reason))
            } else if code == MOSQ_ERR_SUCCESS.rawValue {
                MQTTError(.connectionLost)
            } else {
                MQTTError(code, errno: failure, detail: problem)
            }
        let isUnexplained = state == .connecting && error == MQTTError(.connectionLost)
        ended(isUnexplained ? MQTTError(.connectionLost, Self.hint) : error)
    }

    func received(_ message: mosquitto_message, _ properties: ArrivedProperties) {
        do {
            append(.received(try Publication(message, properties)))
        } catch {
            // libmosquitto checks texts itself; this is in case that it does not.
            if let times = Log.throttle(&droppedTexts) {
                Log.warning("dropped \(times) publications so far of which a text is no UTF-8")
            }
        }
    }

    func acknowledged(_ number: Int32, _ reason: ReasonCode) {
        append(.acknowledged(PacketID(rawValue: UInt16(truncatingIfNeeded: number)), reason))
    }

    func subscribed(_ number: Int32, _ reasons: [ReasonCode]) {
        guard let (subscription, places) = subscriptions.removeValue(forKey: UInt16(truncatingIfNeeded: number))
        else { return }
        if subscription.isComplete(after: reasons, at: places) {
            append(.subscribed(subscription.id, subscription.reasons))
        }
    }

    func unsubscribed(_ number: Int32) {
        append(.unsubscribed(PacketID(rawValue: UInt16(truncatingIfNeeded: number))))
    }

    func logged(_ text: String) {
        // A connection says a few things at most.
        if problems.count < 8 { problems.append(text) }
    }

    // MARK: Words

    /// What to think of when a broker closes a connection without an answer.
    private static let hint = "before the broker answered; it may not speak MQTT 5, or not on this port"

    /// What libmosquitto logged, for a person.
    private var problem: String? {
        if problems.contains(where: { $0.contains("host name verification failed") }) {
            return "the certificate is not that of \(settings.host)"
        }
        if let file = settings.tls?.authorityFile, problems.contains(where: { $0.contains("Unable to load CA") }) {
            return "\(file) has no certificates"
        }
        var words: [String] = []
        for text in problems {
            // error:0A000086:SSL routines::certificate verify failed
            let word =
                text.hasPrefix("OpenSSL Error")
                ? text.split(separator: ":").last.map(String.init) ?? text
                : text.hasPrefix("Error: ") ? String(text.dropFirst(7)) : text
            if !words.contains(word) { words.append(word) }
        }
        return words.isEmpty ? nil : words.joined(separator: "; ")
    }
}

/// A subscription of which parts may go in packets of their own.
private final class Subscription {
    let id: PacketID
    private(set) var reasons: [ReasonCode]
    private var packets: Int

    init(id: PacketID, count: Int, packets: Int) {
        self.id = id
        reasons = Array(repeating: .unspecified, count: count)
        self.packets = packets
    }

    /// Takes the answers to the filters at some places.
    func isComplete(after answers: [ReasonCode], at places: [Int]) -> Bool {
        for (place, reason) in zip(places, answers) { reasons[place] = reason }
        packets -= 1
        return packets == 0
    }
}

/// Runs `body` with texts as C has them.
private func withCStrings<Result>(
    _ texts: [String], _ body: (Int32, UnsafePointer<UnsafeMutablePointer<CChar>?>) -> Result
) -> Result {
    let copies = texts.map { strdup($0) }
    defer { copies.forEach { free($0) } }
    return body(Int32(copies.count), copies)
}
