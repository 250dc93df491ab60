// SPDX-License-Identifier: Apache-2.0
import CarillonBridge
import CarillonCollections
import CarillonMQTT
import CarillonMainLoop

/// The client of a broker that a simulated bridge has, in the place of that of the MQTT library.
final class BrokerLine: BrokerClient, PolledSourceDelegate {
    weak var delegate: (any MQTTClientDelegate)?
    var isReadingPaused = false { didSet { if !isReadingPaused { process.wake() } } }
    private let settings: MQTTClient.Settings
    private let process: LoopProcess
    private let network: RealmNetwork
    private var source: PolledSource!
    private var connection: BrokerConnection?
    private var isConnected = false
    private var inbox = Deque<BrokerConnection.Packet>()
    private var lastID: UInt16 = 0

    /// Packets that are read in one turn.
    private static let packetsPerTurn = 64
    /// In microseconds.
    private static let packetCost: Int64 = 8

    init(_ settings: MQTTClient.Settings, of process: LoopProcess, _ network: RealmNetwork) {
        self.settings = settings
        self.process = process
        self.network = network
        source = PolledSource(delegate: self, priority: .default, context: process.context)
    }

    deinit { connection?.die() }

    /// Its process is gone.
    func die() {
        connection?.die()
        connection = nil
    }

    /// The cable is pulled for a while.
    func stall(_ microseconds: Int64) { connection?.stall(microseconds) }

    func connect(startsClean: Bool) throws(MQTTError) {
        guard connection == nil else { throw MQTTError(.connected) }
        let next = network.connect(settings, self)
        connection = next
        guard process.operate() else { return }
        next.toBroker { broker in broker.connect(next, startsClean: startsClean) }
    }

    func disconnect(_ reason: ReasonCode) {
        guard let connection, process.operate() else { return }
        connection.close(reason)
        end()
    }

    private func end() {
        connection = nil
        isConnected = false
        inbox.removeAll()
    }

    func publish(_ publication: Publication) throws(MQTTError) -> PacketID {
        guard !publication.topic.isEmpty, !publication.topic.contains(where: { $0 == "+" || $0 == "#" }) else {
            throw MQTTError(.topicInvalid, publication.topic)
        }
        return try send { id, connection, broker in broker.publish(connection, id, publication) }
    }

    func subscribe(_ filters: [TopicFilter]) throws(MQTTError) -> PacketID {
        try send { id, connection, broker in broker.subscribe(connection, id, filters) }
    }

    func unsubscribe(_ topics: [String]) throws(MQTTError) -> PacketID {
        try send { id, connection, broker in broker.unsubscribe(connection, id, topics) }
    }

    private func send(
        _ action: @escaping (UInt16, BrokerConnection, SimulatedBroker) -> Void
    ) throws(MQTTError) -> PacketID {
        guard let connection, isConnected else { throw MQTTError(.notConnected) }
        lastID = lastID == .max ? 1 : lastID + 1
        process.spend(Self.packetCost)
        if process.operate() { connection.toBroker { [lastID] broker in action(lastID, connection, broker) } }
        return PacketID(rawValue: lastID)
    }

    func arrived(_ packet: BrokerConnection.Packet, on connection: BrokerConnection) {
        guard connection === self.connection, !process.isDead else { return }
        inbox.append(packet)
        process.wake()
    }

    // MARK: The loop

    func hasPendingWork() -> Bool {
        guard !inbox.isEmpty else { return false }
        return !isReadingPaused || !isConnected
    }

    func dispatch() {
        for _ in 0..<Self.packetsPerTurn where !isReadingPaused || !isConnected {
            guard !process.isDead, let packet = inbox.popFirst() else { return }
            process.spend(Self.packetCost)
            take(packet)
        }
    }

    private func take(_ packet: BrokerConnection.Packet) {
        switch packet {
        case .connected(let isPresent, let limits):
            isConnected = true
            delegate?.connected(sessionPresent: isPresent, limits: limits)
        case .publication(let publication, let id):
            if publication.quality == .atLeastOnce, let connection, process.operate() {
                connection.toBroker { broker in broker.acknowledge(connection, id) }
            }
            guard !process.isDead else { return }
            delegate?.received(publication)
        case .acknowledged(let id, let reason): delegate?.acknowledged(PacketID(rawValue: id), reason)
        case .subscribed(let id, let reasons): delegate?.subscribed(PacketID(rawValue: id), reasons)
        case .unsubscribed(let id): delegate?.unsubscribed(PacketID(rawValue: id))
        case .ended(let error):
            end()
            delegate?.disconnected(error)
        }
    }
}

/// The way to the broker, for all machines.
final class RealmNetwork {
    let world: World
    let broker: SimulatedBroker
    private var lastNumber: UInt64 = 0

    init(_ world: World, _ broker: SimulatedBroker) {
        self.world = world
        self.broker = broker
    }

    func connect(_ settings: MQTTClient.Settings, _ line: BrokerLine) -> BrokerConnection {
        lastNumber += 1
        return BrokerConnection(lastNumber, settings, world, broker, line)
    }
}
