// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonDBus

/// A connection to the simulated bus, as both of its ends see it.
final class Peer {
    /// A message on its way, with the time when it is at the other end.
    struct InFlight {
        let message: Message
        let size: Int
        let time: Int64
        /// The number of the connection that it comes from; 0 for the bus.
        var sender = 0
    }

    /// A message that the bus keeps, as it does not fit into the socket.
    private struct Kept {
        let message: Message
        let size: Int
        weak var sender: Peer?
        let number: Int
    }

    let number: Int
    unowned let bus: Bus
    let processID: UInt32
    var userID: UInt32 = 1000
    /// Nil before Hello.
    var name: UniqueName?
    /// Whether it may still send and receive.
    var isOpen = true

    // The client's end

    /// Told when something can be read, and once when the bus has closed the connection.
    var onReadable: (() -> Void)?
    private(set) var inbox = Deque<InFlight>()
    /// Bytes in the socket towards the client.
    private var socketBytes = 0
    /// The last that it gave to a message.
    private(set) var lastSerial: UInt32 = 0
    private var lastArrival: Int64 = 0

    // The bus's end

    /// What does not fit into the socket.
    private var backlog = Deque<Kept>()
    private(set) var backlogBytes = 0
    /// Messages that stand before this connection, by the numbers of their senders.
    private var unread: [Int: Int] = [:]
    private var unreadReplies: [Int: Int] = [:]
    /// Bytes that it has sent and that the bus keeps, for whomever.
    private var heldBytes = 0
    /// Whether the process has closed its end: the rest is read, and then it is over.
    private var isClosing = false
    private var toBus = Deque<InFlight>()
    private var lastDeparture: Int64 = 0
    private var isReadScheduled = false
    var rules: [MatchRule: Int] = [:]
    var ruleCount: Int { rules.values.reduce(0, +) }
    /// Calls to this connection that were not answered, by caller and serial.
    var unanswered: Set<PendingReply> = []
    private var random: Random

    struct PendingReply: Hashable {
        let caller: UniqueName
        let serial: UInt32
    }

    init(number: Int, bus: Bus, processID: UInt32) {
        self.number = number
        self.bus = bus
        self.processID = processID
        random = Random(seed: bus.world.seed, stream: 1 << 32 | UInt64(number))
    }

    // MARK: The client's end

    /// Sends a message, which gets its serial.
    func send(_ message: Message) -> UInt32 {
        let serial = message.numbered(nextSerial)
        if isOpen { leave(message.marshalled()) }
        return serial
    }

    /// The same for what is laid out already.
    func send(_ message: MarshalledMessage) {
        guard isOpen else { return }
        leave(Message(message, numbered: nextSerial))
    }

    /// The same for one of many.
    func send(_ pattern: MessagePattern, _ number: UInt64) -> UInt32 {
        let serial = nextSerial()
        if isOpen { leave(pattern.message(number, serial: serial)) }
        return serial
    }

    private func nextSerial() -> UInt32 {
        lastSerial += 1
        return lastSerial
    }

    /// A message is on its way to the bus.
    private func leave(_ message: Message) {
        bus.onSent?(message, self)
        lastDeparture = max(lastDeparture, bus.world.now + latency() * slowness)
        toBus.append(InFlight(message: message, size: message.byteCount, time: lastDeparture))
        scheduleRead()
    }

    /// The next message that has arrived.
    func receive() -> Message? {
        guard let first = inbox.first, first.time <= bus.world.now else { return nil }
        inbox.popFirst()
        socketBytes -= first.size
        if first.sender > 0 {
            unread[first.sender, default: 1] -= 1
            if first.message.isReply { unreadReplies[first.sender, default: 1] -= 1 }
        }
        while let next = backlog.first, socketBytes + next.size <= bus.manner.socketBytes || socketBytes == 0 {
            backlog.popFirst()
            backlogBytes -= next.size
            next.sender?.letGo(next.size)
            put(next.message, next.size, from: next.number)
        }
        if first.sender > 0 { bus.onRead?(first.message, first.sender, self) }
        return first.message
    }

    var hasMessage: Bool { inbox.first.map { $0.time <= bus.world.now } ?? false }
    /// Whether the bus has closed the connection, and all has been read.
    var hasEnded: Bool { !isOpen && inbox.isEmpty }
    var unreadBytes: Int { socketBytes + backlogBytes }

    /// How many messages of another connection stand before this one, in the bus or in the socket.
    func unreadMessages(from sender: Peer) -> Int { unread[sender.number, default: 0] }

    /// How many of them answer its calls.
    func unreadReplies(from sender: Peer) -> Int { unreadReplies[sender.number, default: 0] }

    /// The process closes its end, or died.
    ///
    /// - Parameter losing: what the bus has not read goes with it, from some message on.
    func close(losing: Bool) {
        guard isOpen else { return }
        isOpen = false
        isClosing = true
        onReadable = nil
        inbox.removeAll()
        dropBacklog()
        if losing, !toBus.isEmpty {
            toBus = Deque(toBus.prefix(random.number(0...toBus.count)))
        }
        let end = toBus.last?.time ?? bus.world.now + latency()
        bus.world.at(max(end, bus.world.now)) { [self] in
            read()
            bus.ended(self)
        }
    }

    // MARK: The bus's end

    private func latency() -> Int64 { Int64(random.number(10...60)) * bus.manner.slowness }
    /// How much later than others the bus reads it.
    var slowness: Int64 = 1

    /// Whether the bus leaves unread what it sends, as it keeps too much of it already.
    private var isBlockedOnQuota: Bool {
        guard !isClosing, let most = bus.manner.maxIncomingBytes else { return false }
        return heldBytes > most
    }

    /// The bus keeps less of what this connection has sent.
    private func letGo(_ count: Int) {
        heldBytes -= count
        scheduleRead()
    }

    private func dropBacklog() {
        let dropped = backlog
        backlog.removeAll()
        backlogBytes = 0
        for kept in dropped { kept.sender?.letGo(kept.size) }
    }

    private func scheduleRead() {
        guard !isReadScheduled, !isBlockedOnQuota, let first = toBus.first else { return }
        isReadScheduled = true
        bus.world.at(first.time) { [weak self] in self?.read() }
    }

    /// What arrived at the bus.
    private func read() {
        isReadScheduled = false
        while !isBlockedOnQuota, let first = toBus.first, first.time <= bus.world.now {
            toBus.popFirst()
            bus.handle(first.message, from: self)
        }
        scheduleRead()
    }

    /// Hands a message to the client's end, or keeps it while the socket is full.
    ///
    /// - Parameter sender: nil for the bus.
    /// - Returns: false when the bus keeps too much for this connection already.
    func deliver(_ message: Message, from sender: Peer? = nil, delay: Int64 = 0) -> Bool {
        guard isOpen else { return true }
        if delay > 0 { lastArrival = max(lastArrival, bus.world.now + delay) }
        let size = message.byteCount
        guard backlog.isEmpty, socketBytes + size <= bus.manner.socketBytes || socketBytes == 0 else {
            guard backlogBytes + size <= bus.manner.maxOutgoingBytes else { return false }
            backlog.append(Kept(message: message, size: size, sender: sender, number: sender?.number ?? 0))
            backlogBytes += size
            sender?.heldBytes += size
            noteUnread(message, from: sender)
            return true
        }
        put(message, size, from: sender?.number ?? 0)
        noteUnread(message, from: sender)
        return true
    }

    private func noteUnread(_ message: Message, from sender: Peer?) {
        guard let sender else { return }
        unread[sender.number, default: 0] += 1
        if message.isReply { unreadReplies[sender.number, default: 0] += 1 }
        bus.onDelivered?(sender, self)
    }

    private func put(_ message: Message, _ size: Int, from sender: Int) {
        socketBytes += size
        lastArrival = max(lastArrival, bus.world.now + latency())
        inbox.append(InFlight(message: message, size: size, time: lastArrival, sender: sender))
        bus.world.at(lastArrival) { [weak self] in self?.onReadable?() }
    }

    /// The bus closes the connection: what is in the socket can still be read.
    func cut() {
        guard isOpen else { return }
        isOpen = false
        dropBacklog()
        toBus.removeAll()
        bus.world.at(max(lastArrival, bus.world.now)) { [weak self] in self?.onReadable?() }
    }
}

extension Message {
    fileprivate var isReply: Bool { kind == .methodReturn || kind == .error }
}
