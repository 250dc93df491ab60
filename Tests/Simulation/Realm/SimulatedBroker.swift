// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonMQTT

/// A model of a broker of MQTT 5: sessions, retained messages, wills with their delay, expiry, the receive maximum, saves, and
/// ways of failing.
final class SimulatedBroker {
    /// How it behaves where brokers differ.
    struct Manner {
        /// Publications that one client may have on its way to it.
        var receiveMaximum: UInt16 = 20
        /// Messages that wait for a session, at most; later ones are dropped without a word.
        var maxQueued = 1_000
        /// Whether a client gets a message once for each of its subscriptions, as with mosquitto.
        var sendsForEachSubscription = true
        /// Whether the answer to a subscription stands before the retained messages.
        var answersFirst = true
        /// The time between two saves, in microseconds; nil for saving at an end in order only.
        var timeBetweenSaves: Int64?
    }

    private struct Kept {
        var publication: Publication
        var expiry: Int64?
    }

    private struct Waiting {
        var publication: Publication
        var expiry: Int64?
        var id: UInt16 = 0
    }

    private struct Session {
        var filters: [String: TopicFilter] = [:]
        var inFlight: [Waiting] = []
        var queue = Deque<Waiting>()
        var lastID: UInt16 = 0
    }

    /// All that it would save.
    private struct State {
        var retained: [String: Kept] = [:]
        var sessions: [String: Session] = [:]
    }

    /// Levels of a topic, as with mosquitto.
    private static let maxLevels = 200

    let world: World
    let manner: Manner
    private var state = State()
    private var saved = State()
    private(set) var isUp = true
    private var connections: [String: BrokerConnection] = [:]
    /// Which will of a client is due, by number.
    private var dueWills: [String: UInt64] = [:]
    private var lastWill: UInt64 = 0
    private var drops: [String: Int] = [:]
    private var wills: [String: Publication] = [:]
    /// The topics of presences of which nobody but their host knows better: those of before that it has restored, and forged ones.
    private(set) var untruePresences: Set<String> = []
    /// Those whose wills went with its power, and that have not come back.
    private(set) var clientsWithoutWill: Set<String> = []
    /// Whether it has ever lost what it kept.
    private(set) var hasLostAll = false
    /// With what it refuses connections; nil for not.
    var refusal: ReasonCode?
    /// With what it answers publications of notifications; nil for success.
    var publicationRefusal: ReasonCode?

    init(_ world: World, _ manner: Manner) {
        self.world = world
        self.manner = manner
        saveSoon()
    }

    private func saveSoon() {
        guard let time = manner.timeBetweenSaves else { return }
        world.after(time) { [weak self] in
            guard let self else { return }
            if isUp { saved = state }
            saveSoon()
        }
    }

    // MARK: Its life

    /// Ends, with a save or without, and starts again later.
    func restart(after microseconds: Int64, saving: Bool) {
        guard isUp else { return }
        world.note("broker \(saving ? "stops" : "loses power")")
        if !saving { hasLostAll = true }
        for (client, connection) in connections.sorted(by: { $0.key < $1.key }) {
            wills[client] = connection.settings.will
            dueWills[client] = 0
        }
        if saving {
            // mosquitto publishes them then.
            for client in dueWills.keys.sorted() { fireWill(of: client, number: dueWills[client]!) }
            saved = state
        }
        clientsWithoutWill.formUnion(dueWills.keys)
        for (topic, kept) in saved.retained where topic.hasSuffix("/online") {
            if state.retained[topic]?.publication.payload != kept.publication.payload { untruePresences.insert(topic) }
        }
        isUp = false
        for connection in connections.values.sorted(by: { $0.number < $1.number }) { connection.cut() }
        connections = [:]
        dueWills = [:]
        world.after(microseconds) { [weak self] in
            guard let self else { return }
            state = saved
            isUp = true
            world.note("broker starts: \(state.sessions.count) sessions, \(state.retained.count) retained messages")
        }
    }

    /// Forgets all that it has of a client but the retained messages, as where its session has expired.
    func expireSession(of client: String) {
        guard connections[client] == nil else { return }
        state.sessions[client] = nil
        fireWill(of: client, number: dueWills[client] ?? 0)
    }

    /// Drops the next messages of notifications for a client, as if too many were waiting.
    func drop(_ count: Int, for client: String) { drops[client] = count }

    /// Drops no more.
    func endDrops() { drops = [:] }

    /// Ends the connection of a client.
    func kick(_ client: String, _ reason: ReasonCode) {
        guard let connection = connections[client] else { return }
        world.note("broker ends the connection of \(client): \(reason)")
        connection.end(MQTTError(.ended(reason)))
        lost(connection, hasWill: true)
    }

    // MARK: Packets

    func connect(_ connection: BrokerConnection, startsClean: Bool) {
        guard isUp else { return connection.end(MQTTError(.system(111))) }
        if let refusal { return connection.end(MQTTError(.refused(refusal))) }
        let client = connection.settings.clientID
        if let before = connections[client] {
            before.end(MQTTError(.ended(.sessionTakenOver)))
            lost(before, hasWill: true)
        }
        dueWills[client] = nil
        clientsWithoutWill.remove(client)
        if startsClean { state.sessions[client] = nil }
        let isPresent = state.sessions[client] != nil
        if !isPresent { state.sessions[client] = Session() }
        connections[client] = connection
        connection.isKnown = true
        connection.send(
            .connected(isPresent, BrokerLimits(receiveMaximum: manner.receiveMaximum)))
        for waiting in state.sessions[client, default: Session()].inFlight { send(waiting, to: connection) }
        pump(client)
    }

    func disconnect(_ connection: BrokerConnection, _ reason: ReasonCode) {
        lost(connection, hasWill: reason == .disconnectWithWill)
    }

    /// A connection is over.
    func lost(_ connection: BrokerConnection, hasWill: Bool) {
        let client = connection.settings.clientID
        guard connection.isKnown, connections[client] === connection else { return }
        connection.isKnown = false
        connections[client] = nil
        guard hasWill, connection.settings.will != nil else { return }
        lastWill += 1
        let number = lastWill
        dueWills[client] = number
        wills[client] = connection.settings.will
        world.after(Int64(connection.settings.willDelay) * 1_000_000) { [weak self] in
            self?.fireWill(of: client, number: number)
        }
    }

    private func fireWill(of client: String, number: UInt64) {
        guard isUp, dueWills[client] == number, let will = wills[client] else { return }
        dueWills[client] = nil
        world.note("broker publishes the will of \(client)")
        _ = route(will, from: nil)
    }

    func publish(_ connection: BrokerConnection, _ id: UInt16, _ publication: Publication) {
        guard connection.isKnown else { return }
        guard publication.topic.utf8.filter({ $0 == UInt8(ascii: "/") }).count < Self.maxLevels else {
            connection.end(MQTTError(.ended(.protocolError)))
            return lost(connection, hasWill: true)
        }
        if let publicationRefusal, ["n", "v"].contains(publication.topic.split(separator: "/").dropFirst(5).first) {
            if publication.quality == .atLeastOnce { connection.send(.acknowledged(id, publicationRefusal)) }
            return
        }
        let count = route(publication, from: connection.settings.clientID)
        if publication.quality == .atLeastOnce {
            connection.send(.acknowledged(id, count > 0 ? .success : .noMatchingSubscribers))
        }
    }

    /// Publishes something of somebody who is no bridge.
    func publish(_ publication: Publication) {
        guard isUp else { return }
        _ = route(publication, from: nil)
        if publication.topic.hasSuffix("/online") { untruePresences.insert(publication.topic) }
    }

    func acknowledge(_ connection: BrokerConnection, _ id: UInt16) {
        let client = connection.settings.clientID
        guard connection.isKnown, let place = state.sessions[client]?.inFlight.firstIndex(where: { $0.id == id }) else {
            return
        }
        state.sessions[client]!.inFlight.remove(at: place)
        pump(client)
    }

    func subscribe(_ connection: BrokerConnection, _ id: UInt16, _ filters: [TopicFilter]) {
        guard connection.isKnown else { return }
        let client = connection.settings.clientID
        let reasons = filters.map { $0.quality == .atLeastOnce ? ReasonCode.grantedAtLeastOnce : .success }
        if manner.answersFirst { connection.send(.subscribed(id, reasons)) }
        for filter in filters {
            let isNew =
                state.sessions[client, default: Session()].filters.updateValue(filter, forKey: filter.topic) == nil
            guard filter.retainHandling == .always || filter.retainHandling == .ifNew && isNew else { continue }
            for (topic, kept) in state.retained.sorted(by: { $0.key < $1.key }) where Self.matches(filter.topic, topic)
            {
                var publication = kept.publication
                publication.isRetained = true
                publication.quality = lower(publication.quality, filter.quality)
                publication.subscriptions = filter.identifier.map { [$0] } ?? []
                give(Waiting(publication: publication, expiry: kept.expiry), to: client)
            }
        }
        if !manner.answersFirst { connection.send(.subscribed(id, reasons)) }
    }

    func unsubscribe(_ connection: BrokerConnection, _ id: UInt16, _ topics: [String]) {
        guard connection.isKnown else { return }
        for topic in topics { state.sessions[connection.settings.clientID]?.filters[topic] = nil }
        connection.send(.unsubscribed(id))
    }

    // MARK: Routing

    /// - Returns: how many sessions get it.
    private func route(_ publication: Publication, from sender: String?) -> Int {
        let expiry = publication.expiry.map { world.now + Int64($0) * 1_000_000 }
        if publication.isRetained {
            let isRemoval = publication.payload.isEmpty
            untruePresences.remove(publication.topic)
            state.retained[publication.topic] = isRemoval ? nil : Kept(publication: publication, expiry: expiry)
        }
        var count = 0
        for (client, session) in state.sessions.sorted(by: { $0.key < $1.key }) {
            let filters = session.filters.values.sorted { $0.topic < $1.topic }.filter {
                Self.matches($0.topic, publication.topic) && !($0.excludesOwn && client == sender)
            }
            guard !filters.isEmpty else { continue }
            count += 1
            for together in manner.sendsForEachSubscription ? filters.map({ [$0] }) : [filters] {
                var copy = publication
                copy.isRetained = publication.isRetained && together.contains(where: \.keepsRetainFlag)
                copy.quality = together.contains { $0.quality == .atLeastOnce } ? publication.quality : .atMostOnce
                copy.subscriptions = together.compactMap(\.identifier)
                give(Waiting(publication: copy, expiry: expiry), to: client)
            }
        }
        return count
    }

    private func lower(_ one: QualityOfService, _ other: QualityOfService) -> QualityOfService {
        one == .atMostOnce || other == .atMostOnce ? .atMostOnce : .atLeastOnce
    }

    private func give(_ waiting: Waiting, to client: String) {
        guard waiting.publication.quality == .atLeastOnce else {
            if let connection = connections[client] { send(waiting, to: connection) }
            return
        }
        let isDropped = drops[client, default: 0] > 0 && !waiting.publication.isRetained
        if isDropped { drops[client]! -= 1 }
        guard !isDropped, state.sessions[client, default: Session()].queue.count < manner.maxQueued else {
            return world.note("broker drops a message for \(client): \(waiting.publication.topic)")
        }
        state.sessions[client]!.queue.append(waiting)
        pump(client)
    }

    private func pump(_ client: String) {
        guard let connection = connections[client] else { return }
        let window = Int(connection.settings.receiveMaximum)
        while state.sessions[client, default: Session()].inFlight.count < window,
            var waiting = state.sessions[client]!.queue.popFirst()
        {
            if let expiry = waiting.expiry, expiry <= world.now { continue }
            repeat {
                state.sessions[client]!.lastID &+= 1
                waiting.id = state.sessions[client]!.lastID
            } while waiting.id == 0 || state.sessions[client]!.inFlight.contains { $0.id == waiting.id }
            state.sessions[client]!.inFlight.append(waiting)
            send(waiting, to: connection)
        }
    }

    private func send(_ waiting: Waiting, to connection: BrokerConnection) {
        var publication = waiting.publication
        publication.expiry = waiting.expiry.map { UInt32(max(0, $0 - world.now) / 1_000_000) }
        connection.send(.publication(publication, id: waiting.id))
    }

    /// Whether a topic matches a filter.
    static func matches(_ filter: String, _ topic: String) -> Bool {
        let wanted = filter.split(separator: "/", omittingEmptySubsequences: false)
        let levels = topic.split(separator: "/", omittingEmptySubsequences: false)
        for (index, level) in wanted.enumerated() {
            if level == "#" { return levels.count >= index }
            guard index < levels.count, level == "+" || level == levels[index] else { return false }
        }
        return wanted.count == levels.count
    }
}
