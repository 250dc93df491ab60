// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop
import NotificationCore
import NotificationWire
import ServiceClient

/// The way between the session and the broker, under one configuration: whatever comes from one side is handed to the
/// part that it concerns.
final class Crossing {
    /// Without a service for so long the broker keeps what comes, and not this process.
    private static let patienceWithoutService: UInt32 = 20_000
    /// Within this time the broker has told, after a connection was made anew, whether another bridge is there.
    private static let timeOfOwnPresence: UInt32 = 500
    /// Within this time the broker has sent what it keeps of this host.
    private static let timeOfOwnValues: UInt32 = 3_000
    /// A round trip that takes longer has failed.
    private static let timeOfTest: UInt32 = 10_000

    let configuration: BridgeConfiguration
    private let context: MainContext
    private let center: CenterLink
    private let broker: BrokerLink
    private let file: StateFile
    /// What it says to be at the broker: another process is another one.
    private let run: String
    private let losses: LossAnnouncer
    private let exporter: Exporter
    private let importer: Importer
    private let hosts: HostAnnouncer
    /// Names, or values, that one answer may have.
    private static let page: UInt32 = 1_000

    private var interest: PagedQuestion<FollowInterest>!
    private var values: PagedQuestion<FollowValues>!
    private var serviceTimer: EventSource?
    /// Set until what an earlier process left at the broker was compared with what there is.
    private var ownValues: EventSource?
    private var hasSeenOwnValues = false
    private var roundTrip: RoundTrip?
    private var hasStarted = false
    /// Whether the broker has told this process that it is there: another one that tells so later is another bridge.
    private var isPresent = false
    private var presenceTimer: EventSource?

    private struct RoundTrip {
        let payload: [UInt8]
        let subscription: PacketID?
        var sent: ContinuousClock.Instant?
        let timeout: EventSource
        let done: (Result<Duration, RoundTripFailure>) -> Void
    }

    struct RoundTripFailure: Error {
        let reason: String
    }

    /// - Parameter file: where it keeps what the next one goes on with.
    /// - Throws: why there can be no connection to the broker with this configuration.
    init(
        _ configuration: BridgeConfiguration, sessionBus: String, context: MainContext, state file: StateFile
    ) throws(MQTTError) {
        self.configuration = configuration
        self.context = context
        self.file = file
        let center = CenterLink(address: sessionBus, context: context)
        let run = TopicCounts.randomRun()
        broker = try BrokerLink(try Self.settings(configuration, run: run, id: file.clientID()), context: context)
        self.center = center
        losses = LossAnnouncer(configuration, center: center, broker: broker, context: context)
        self.run = run
        exporter = Exporter(configuration, broker: broker) { [losses] count, name, reason in
            losses.lostOutwards(count, name, reason)
        }
        importer = Importer(configuration, center: center, broker: broker, context: context) {
            [losses] count, name, origin, reason in losses.lostInwards(count, name, origin, reason)
        }
        hosts = HostAnnouncer(configuration, center: center)
        // Programs register one name after the other.
        interest = PagedQuestion(
            "what is wanted", of: center, on: context, pauses: .init(calm: 50), first: FollowInterest(most: Self.page),
            further: { $0.names.last.map { FollowInterest(after: $0, most: Self.page) } }
        ) { [unowned self] pieces in
            importer.want(pieces.flatMap(\.names), any: pieces.contains(where: \.any))
            // Not before: what the broker has kept is for those who want it.
            if [.starting, .held].contains(broker.state), self.center.isThere { broker.connect() }
        }
        values = PagedQuestion(
            "which values it keeps", of: center, on: context, first: FollowValues(most: Self.page),
            further: { $0.last.map { FollowValues(after: $0.serial, most: Self.page) } }
        ) { [unowned self] pieces in
            let own = pieces.joined().lazy.filter(\.isOfThisSession)
            exporter.compare(with: Set(own.map { ValueKind($0.name, $0.object) }))
        }
        center.delegate = self
        broker.delegate = self
    }

    private static func settings(
        _ configuration: BridgeConfiguration, run: String, id: String?
    ) throws(MQTTError) -> MQTTClient.Settings {
        let password: String?
        do throws(FileError) {
            password = try configuration.password()
        } catch {
            throw MQTTError(.settingsInvalid, error.description)
        }
        let origin = configuration.origin
        var settings = MQTTClient.Settings(
            host: configuration.brokerHost, port: configuration.port,
            // Whoever knows it has the session, with what waits in it, if the broker does not bind it to a user.
            clientID: (["carillon", configuration.realm, origin.host, origin.user, id] as [String?]).compactMap(\.self)
                .joined(separator: "-"))
        settings.keepAlive = configuration.keepAlive
        settings.sessionExpiry = configuration.sessionExpiry
        settings.receiveMaximum = configuration.receiveMaximum
        settings.sendMaximum = configuration.inFlight
        settings.maximumPacketSize = 4 << 20
        settings.userName = configuration.userName
        settings.password = password
        settings.tls = configuration.tls.map { tls in
            MQTTClient.TLS(
                authorityFile: tls.authorityFile, certificateFile: tls.certificateFile, keyFile: tls.keyFile)
        }
        settings.will = HostTable.message(isOnline: false, run: run, topic: topic(.online, configuration))
        return settings
    }

    private static func topic(_ subject: BridgeTopic.Subject, _ configuration: BridgeConfiguration) -> String {
        BridgeTopic(subject, of: configuration.origin).text(in: configuration.realm)
    }

    func start() {
        hasStarted = true
        if let state = file.take() {
            if state.realm == configuration.realm, state.origin == configuration.origin {
                exporter.goOn(with: state.counts, state.queue)
                importer.goOn(with: state.places)
            } else {
                // It is for topics that are no longer those of this bridge.
                for entry in state.queue { losses.lostByChange(entry.message.name, of: state.origin) }
            }
        }
        center.start(exporting: configuration.exports)
        // Also while nothing is exported: something has to be asked of the service to know it.
        interest.ask()
    }

    /// Says good-bye to the broker, which keeps what comes, and lets go of the session.
    ///
    /// - Parameter done: called when that is over, within about a second.
    func stop(_ done: @escaping () -> Void) {
        serviceTimer = nil
        ownValues = nil
        presenceTimer = nil
        endRoundTrip(.failure(RoundTripFailure(reason: "the bridge ends")))
        losses.tellBroker()
        broker.end(as: .stopped, presence(isOnline: false)) { [self] in
            center.stop()
            keepState()
            done()
        }
    }

    private func keepState() {
        // Before that, what is kept is another one's.
        guard hasStarted else { return }
        let state = SavedState(
            realm: configuration.realm, origin: configuration.origin, counts: exporter.counts,
            places: importer.gate.places, queue: exporter.unconfirmed)
        guard !file.save(state), !state.queue.isEmpty else { return }
        Log.warning("\(state.queue.count) notifications are lost that the broker has not confirmed")
    }

    private func presence(isOnline: Bool) -> Publication {
        HostTable.message(isOnline: isOnline, run: run, topic: Self.topic(.online, configuration))
    }

    // MARK: Status

    var status: BridgeStatus {
        var status = BridgeStatus()
        status.version = Wire.softwareVersion
        status.state = broker.state.name
        status.reason = reason
        status.broker = brokerText
        status.usesTLS = configuration.tls != nil
        status.realm = configuration.realm
        (status.host, status.user) = (configuration.origin.host, configuration.origin.user)
        status.exports = configuration.exports.map(\.description)
        status.imports = configuration.imports.map(\.description)
        status.subscriptions = UInt32(importer.filters.count)
        status.queued = UInt32(exporter.queuedCount)
        status.queuedBytes = UInt64(exporter.queuedBytes)
        status.inFlight = UInt32(exporter.inFlightCount)
        status.exported = exporter.exported
        status.imported = importer.imported
        status.lostOutwards = losses.outwardsCount
        status.lostInwards = losses.inwardsCount
        status.refused = importer.refused
        status.repeated = importer.repeated
        status.acknowledgement = exporter.acknowledgement.map { UInt64(clamping: $0.microseconds) } ?? 0
        let known = importer.gate.hosts.hosts.sorted { $0.key.text < $1.key.text }
        status.stripped = known.filter(\.value.isStripped).map(\.key.text)
        status.hosts = known.map { origin, host in
            .init(host: origin.host, user: origin.user, isOnline: host.isOnline, software: host.software)
        }
        return status
    }

    private var brokerText: String { "\(configuration.brokerHost):\(configuration.port)" }

    private var reason: String {
        switch broker.state {
        case .waiting(let reason): reason
        case .takenOver: "another bridge has connected with the same realm, host and user"
        case .held: "the session has no notification center"
        case .starting, .connecting, .stopped: ""
        case .connected: center.refusal ?? ""
        }
    }

    // MARK: Round trip

    /// Sends something to itself by way of the broker.
    func test(_ done: @escaping (Result<Duration, RoundTripFailure>) -> Void) {
        guard broker.isConnected else {
            let reason = reason.isEmpty ? broker.state.name : reason
            return done(.failure(RoundTripFailure(reason: "not connected to \(brokerText): \(reason)")))
        }
        guard roundTrip == nil else {
            return done(.failure(RoundTripFailure(reason: "another test is on its way")))
        }
        let topic = Self.topic(.test, configuration)
        let subscription = broker.subscribe([TopicFilter(topic, excludesOwn: false)])
        let seconds = Self.timeOfTest / 1_000
        roundTrip = RoundTrip(
            payload: Array(String(UInt64.random(in: .min ... .max)).utf8), subscription: subscription,
            timeout: .once(milliseconds: Self.timeOfTest, on: context) { [unowned self] in
                let words =
                    "a message to itself did not come back within \(seconds) s: the broker's access list has to "
                endRoundTrip(.failure(RoundTripFailure(reason: words + "allow reading and writing \(topic)")))
            }, done: done)
    }

    private func sendRoundTrip() {
        guard let payload = roundTrip?.payload else { return }
        roundTrip?.sent = .now
        do throws(MQTTError) {
            _ = try broker.publish(Publication(topic: Self.topic(.test, configuration), payload: payload))
        } catch {
            endRoundTrip(.failure(RoundTripFailure(reason: error.description)))
        }
    }

    private func endRoundTrip(_ result: Result<Duration, RoundTripFailure>) {
        guard let trip = roundTrip else { return }
        roundTrip = nil
        broker.unsubscribe([Self.topic(.test, configuration)])
        trip.done(result)
    }
}

// MARK: From the session

extension Crossing: CenterLinkDelegate {
    func arrived(_ notification: ArrivedNotification) { exporter.take(notification) }
    func missed(_ count: UInt64) { losses.lostOutwards(count, nil, .notSeen) }
    func interestChanged() { interest.ask() }
    func valuesRemoved() { values.ask() }

    func serviceChanged(isThere: Bool) {
        guard isThere else {
            serviceTimer = .once(milliseconds: Self.patienceWithoutService, on: context) { [unowned self] in
                Log.notice("there is no notification center in the session: the broker keeps what comes")
                broker.end(as: .held, presence(isOnline: false))
            }
            return
        }
        serviceTimer = nil
        interest.ask()
        values.ask()
        hosts.tellAll(importer.gate.hosts)
        tellConnection()
        importer.pump()
    }

    private func tellConnection() {
        hosts.tellConnection(broker.state == .connected, broker: brokerText, reason: reason)
    }
}

// MARK: From the broker

extension Crossing: BrokerLinkDelegate {
    func brokerChanged() { if center.isThere { tellConnection() } }

    func brokerConnected(sessionPresent: Bool) {
        Log.notice("connected to \(brokerText)\(sessionPresent ? ", which kept what came meanwhile" : "")")
        let own = TopicFilter(Self.topic(.online, configuration), excludesOwn: false, retainHandling: .always)
        _ = broker.subscribe([own])
        if isPresent {
            presenceTimer = .once(milliseconds: Self.timeOfOwnPresence, on: context) { [unowned self] in
                presenceTimer = nil
                announcePresence()
            }
        } else {
            announcePresence()
        }
        if configuration.followsPresence {
            _ = broker.subscribe([
                TopicFilter(
                    BridgeTopic.presenceFilter(in: configuration.realm), excludesOwn: true, keepsRetainFlag: true,
                    retainHandling: .always)
            ])
        }
        importer.connected()
        lookForOwnValues()
        losses.tellBroker()
        exporter.pump()
    }

    private func announcePresence() {
        guard broker.isConnected else { return }
        do throws(MQTTError) {
            _ = try broker.publish(presence(isOnline: true))
        } catch {
            Log.warning("the presence of this host can't be published: \(error)")
        }
    }

    /// Has the broker tell what it keeps of this host, once: an earlier process may have left values there that have gone
    /// since.
    private func lookForOwnValues() {
        guard !hasSeenOwnValues, !configuration.exports.isEmpty else { return }
        let filters = BridgeTopic.filters(of: configuration.origin, in: configuration.realm)
        _ = broker.subscribe(
            filters.map {
                TopicFilter($0, excludesOwn: false, keepsRetainFlag: true, retainHandling: .always)
            })
        ownValues = .once(milliseconds: Self.timeOfOwnValues, on: context) { [unowned self] in
            ownValues = nil
            hasSeenOwnValues = broker.isConnected
            broker.unsubscribe(filters)
            values.ask()
        }
    }

    func brokerSent(_ publication: Publication) {
        switch importer.take(publication) {
        case .own(let topic): takeOwn(publication, topic)
        case .presence(let origin, let host, let isNewlyStripped):
            hosts.tell(origin, host, isNewlyStripped: isNewlyStripped)
        case .ignored, .unwanted, .refused, .repeated, .message: break
        }
    }

    private func takeOwn(_ publication: Publication, _ topic: BridgeTopic) {
        switch topic.subject {
        case .notification(let name):
            if ownValues != nil, publication.isRetained, !publication.payload.isEmpty { exporter.found(name, "") }
        case .value(let name, let object):
            if ownValues != nil, publication.isRetained, !publication.payload.isEmpty { exporter.found(name, object) }
        case .test:
            guard let trip = roundTrip, trip.payload == publication.payload, let sent = trip.sent else { return }
            endRoundTrip(.success(sent.duration(to: .now)))
        case .online:
            guard let run = HostTable.run(in: publication) else { return }
            if run == self.run {
                isPresent = true
            } else if isPresent {
                // It came after this one. What was there before is of a process that has ended, or gives way itself.
                broker.giveWay()
            }
        case .status: break
        }
    }

    func brokerAcknowledged(_ id: PacketID, _ reason: ReasonCode) { exporter.acknowledged(id, reason) }

    func brokerSubscribed(_ id: PacketID, _ reasons: [ReasonCode]) {
        if id == roundTrip?.subscription { return sendRoundTrip() }
        if let reason = reasons.first(where: \.isFailure) {
            Log.warning("the broker refused a subscription: \(reason); look at its access list")
        }
    }
}

extension Duration {
    var microseconds: Int64 {
        components.seconds * 1_000_000 + components.attoseconds / 1_000_000_000_000
    }
}
