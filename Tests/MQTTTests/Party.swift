// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestSupport

/// The loop of one test: clients on a context that runs on the test's thread while the test waits.
final class Loop {
    let context = MainContext()

    /// Runs the context until `condition` holds.
    ///
    /// - Throws: ``NotInTime``.
    func run(
        _ what: @autoclosure () -> String, within patience: Patience = .event, until condition: () -> Bool
    ) throws {
        try context.run(what(), within: patience, until: condition)
    }

    /// Runs what is ready, and does not wait for more.
    ///
    /// - Returns: whether that had an end, so that the loop would sleep now.
    @discardableResult
    func turn() -> Bool {
        for _ in 0..<1_000 { guard context.iterate(mayBlock: false) else { return true } }
        return false
    }
}

/// A client, and what it told.
final class Party: MQTTClientDelegate {
    let client: MQTTClient
    let loop: Loop
    var connections: [(sessionPresent: Bool, limits: BrokerLimits)] = []
    var errors: [MQTTError] = []
    var received: [Publication] = []
    var acknowledged: [(id: PacketID, reason: ReasonCode)] = []
    var subscribed: [(id: PacketID, reasons: [ReasonCode])] = []
    var unsubscribed: [PacketID] = []
    /// Called with each publication that arrives.
    var onReceived: (Publication) -> Void = { _ in }
    /// Called with the end of a connection.
    var onDisconnected: (MQTTError) -> Void = { _ in }
    /// Whether a call of the client is under way, in which nothing may be told.
    private var isCalling = false
    private(set) var wasToldInCall = false

    convenience init(
        _ broker: MosquittoBroker, on loop: Loop, _ name: String = "party",
        change: (inout MQTTClient.Settings) throws -> Void = { _ in }
    ) throws {
        try self.init(port: broker.port, on: loop, name, change: change)
    }

    init(
        port: UInt16, on loop: Loop, _ name: String = "party",
        change: (inout MQTTClient.Settings) throws -> Void = { _ in }
    ) throws {
        var settings = MQTTClient.Settings(host: "127.0.0.1", port: port, clientID: name)
        try change(&settings)
        self.loop = loop
        client = try MQTTClient(settings, context: loop.context)
        client.delegate = self
    }

    /// Does something with the client, in which the delegate must not be called.
    func call<Result>(_ body: (MQTTClient) throws -> Result) rethrows -> Result {
        isCalling = true
        defer { isCalling = false }
        return try body(client)
    }

    private func told() {
        if isCalling { wasToldInCall = true }
    }

    // MARK: Steps of tests

    /// Connects, and waits until the broker has taken the connection.
    func connect() throws {
        let count = connections.count
        let failures = errors.count
        try call { try $0.connect() }
        try loop.run("connected: \(errors)") { connections.count > count || errors.count > failures }
        guard connections.count > count else { throw errors[failures] }
    }

    /// Why connecting failed, at once or later.
    func failure() throws -> MQTTError {
        do {
            try connect()
        } catch let error as MQTTError {
            return error
        }
        throw NotInTime("it connected")
    }

    /// Waits until the connection has ended.
    func waitForEnd() throws -> MQTTError {
        let count = errors.count
        try loop.run("disconnected") { errors.count > count }
        return errors[count]
    }

    /// Subscribes, and waits for the answer.
    @discardableResult
    func subscribe(_ filters: TopicFilter...) throws -> [ReasonCode] {
        let id = try call { try $0.subscribe(filters) }
        try loop.run("subscribed to \(filters)") { subscribed.contains { $0.id == id } }
        return subscribed.last { $0.id == id }!.reasons
    }

    /// Publishes, and waits until that is acknowledged.
    @discardableResult
    func publish(_ publication: Publication) throws -> ReasonCode {
        let count = acknowledged.count
        let id = try call { try $0.publish(publication) }
        try loop.run("acknowledged: \(publication.topic)") { acknowledged[count...].contains { $0.id == id } }
        return acknowledged[count...].last { $0.id == id }!.reason
    }

    @discardableResult
    func publish(_ topic: String, _ text: String = "", isRetained: Bool = false) throws -> ReasonCode {
        try publish(Publication(topic: topic, payload: Array(text.utf8), isRetained: isRetained))
    }

    /// Waits until as many publications have arrived, all in all.
    func waitForPublications(_ count: Int) throws {
        try loop.run("\(count) publications, not \(received.count)") { received.count >= count }
    }

    var texts: [String] { received.map(\.text) }

    // MARK: MQTTClientDelegate

    func connected(sessionPresent: Bool, limits: BrokerLimits) {
        told()
        connections.append((sessionPresent, limits))
    }

    func disconnected(_ error: MQTTError) {
        told()
        errors.append(error)
        onDisconnected(error)
    }

    func received(_ publication: Publication) {
        told()
        received.append(publication)
        onReceived(publication)
    }

    func acknowledged(_ id: PacketID, _ reason: ReasonCode) {
        told()
        acknowledged.append((id, reason))
    }

    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
        told()
        subscribed.append((id, reasons))
    }

    func unsubscribed(_ id: PacketID) {
        told()
        unsubscribed.append(id)
    }
}

extension Publication {
    var text: String { String(decoding: payload, as: UTF8.self) }
}
