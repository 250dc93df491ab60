// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT

/// A connection between a bridge and the simulated broker, with the network between them: each direction in its order, and
/// late when the cable is pulled.
final class BrokerConnection {
    /// A packet from the broker.
    enum Packet {
        case connected(_ isSessionPresent: Bool, BrokerLimits)
        case publication(Publication, id: UInt16)
        case acknowledged(UInt16, ReasonCode)
        case subscribed(UInt16, [ReasonCode])
        case unsubscribed(UInt16)
        case ended(MQTTError)
    }

    let number: UInt64
    let settings: MQTTClient.Settings
    private let world: World
    private unowned let broker: SimulatedBroker
    private weak var line: BrokerLine?
    private var random: Random
    /// Whether the broker has taken it, and it is not over there.
    var isKnown = false
    /// Whether it is not over for the bridge.
    private var isOpen = true
    private var stalledUntil: Int64 = 0
    private var lastToBroker: Int64 = 0
    private var lastToClient: Int64 = 0

    /// The time that a packet takes, in microseconds.
    private static let latency = 200...8_000

    init(
        _ number: UInt64, _ settings: MQTTClient.Settings, _ world: World, _ broker: SimulatedBroker, _ line: BrokerLine
    ) {
        self.number = number
        self.settings = settings
        self.world = world
        self.broker = broker
        self.line = line
        random = Random(seed: world.seed, stream: 3 << 40 | number)
    }

    /// Something goes to the broker.
    func toBroker(_ action: @escaping (SimulatedBroker) -> Void) {
        lastToBroker = max(lastToBroker, stalledUntil, world.now + Int64(random.number(Self.latency)))
        world.at(lastToBroker) { [broker] in action(broker) }
    }

    /// The broker sends something.
    func send(_ packet: Packet) {
        lastToClient = max(lastToClient, stalledUntil, world.now + Int64(random.number(Self.latency)))
        world.at(lastToClient) { [weak self] in self?.arrive(packet) }
    }

    private func arrive(_ packet: Packet) {
        guard isOpen else { return }
        if case .ended = packet { isOpen = false }
        line?.arrived(packet, on: self)
    }

    /// The broker ends it, and says why.
    func end(_ error: MQTTError) { send(.ended(error)) }

    /// The broker is gone.
    func cut() {
        isKnown = false
        end(MQTTError(.connectionLost))
    }

    /// The bridge ends it.
    func close(_ reason: ReasonCode) {
        guard isOpen else { return }
        isOpen = false
        toBroker { [self] broker in broker.disconnect(self, reason) }
    }

    /// The bridge's process is gone.
    func die() {
        guard isOpen else { return }
        isOpen = false
        toBroker { [self] broker in broker.lost(self, hasWill: true) }
    }

    /// Nothing goes through for a while. Each side gives it up when it has not heard the other for one and a half of the
    /// keep-alive time.
    func stall(_ microseconds: Int64) {
        stalledUntil = max(stalledUntil, world.now + microseconds)
        let patience = Int64(settings.keepAlive) * 1_500_000
        guard microseconds > patience else { return }
        world.after(patience) { [weak self] in
            guard let self else { return }
            broker.lost(self, hasWill: true)
            arrive(.ended(MQTTError(.noAnswer)))
        }
    }
}
