// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The announcements of losses: in the session by a notification for each name and reason, and at the broker by the
/// status on the host's topic. They are published at most once a second.
final class LossAnnouncer {
    /// The name of the notification.
    static let name = "org.carillon.Bridge.Lost"
    private static let calm: UInt32 = 1_000
    /// The pause before an announcement that the service has not accepted is repeated, in milliseconds.
    private static let pause: UInt32 = 10_000
    /// The age of a connection at which the status is published, in milliseconds: a broker may end the connection
    /// because of the status.
    private static let beforeStatus: UInt32 = 5_000
    /// The maximum number of names that the status at the broker distinguishes.
    private static let maxNames = 100

    private let center: CenterLink
    private let context: MainContext
    /// The present configuration and broker of the bridge.
    private var configuration: BridgeConfiguration
    private weak var broker: BrokerLink?
    private var ledger = LossLedger()
    private var timer: EventSource?
    private var statusTimer: EventSource?
    /// The numbers of lost outgoing notifications, by name.
    private var outwards: [String: UInt64] = [:]
    private var mustTellBroker = false

    init(_ configuration: BridgeConfiguration, center: CenterLink, context: MainContext) {
        self.configuration = configuration
        self.center = center
        self.context = context
    }

    /// Announces to another broker, or as another origin, from now on.
    func use(_ configuration: BridgeConfiguration, _ broker: BrokerLink) {
        if configuration.origin != self.configuration.origin || configuration.realm != self.configuration.realm {
            outwards = [:]
        }
        self.configuration = configuration
        self.broker = broker
    }

    /// Continues with losses that an earlier bridge could not announce.
    func goOn(with losses: [LossLedger.Entry: UInt64]) {
        guard !losses.isEmpty else { return }
        ledger.restore(losses)
        tellSoon()
    }

    /// The losses that no observer may know of.
    var unannounced: [LossLedger.Entry: UInt64] { ledger.unannounced }

    /// The total of lost outgoing notifications.
    var outwardsCount: UInt64 { ledger.outwards }
    var inwardsCount: UInt64 { ledger.inwards }

    func lostOutwards(_ count: UInt64, _ name: String?, _ reason: LossReason) {
        ledger.lost(count, of: name, from: configuration.origin, because: reason, .outwards)
        let name = name ?? ""
        outwards[outwards[name] != nil || outwards.count < Self.maxNames ? name : "", default: 0]
            .addLosses(count)
        mustTellBroker = true
        tellSoon()
    }

    /// Notes the loss of a notification for another realm, host or user than the bridge has now. Only the session is
    /// informed: the present broker is not concerned, and must not learn the name.
    func lostByChange(_ name: String?, of origin: Origin) {
        ledger.lost(of: name, from: origin, because: .reconfigured, .outwards)
        tellSoon()
    }

    func lostInwards(_ count: UInt64, _ name: String?, _ origin: Origin, _ reason: LossReason) {
        ledger.lost(count, of: name, from: origin, because: reason, .inwards)
        tellSoon()
    }

    private func tellSoon(in milliseconds: UInt32 = calm) {
        guard timer == nil else { return }
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            timer = nil
            tell()
        }
    }

    /// Announces at once, if the service is there.
    func announceNow() {
        timer = nil
        tell()
    }

    /// Announces pending losses to a service that has appeared.
    func serviceCame() {
        guard !ledger.pending.isEmpty else { return }
        timer = nil
        tellSoon()
    }

    private func tell() {
        // Without a service the losses stay pending; later losses are added.
        guard center.isThere else { return tellBroker() }
        for (entry, count, isNew) in ledger.takePending() {
            let name = entry.name?.text ?? ""
            if isNew {
                Log.warning(
                    "\(count) of \(name.isEmpty ? "several names" : name) from \(entry.origin.text) are lost: "
                        + entry.reason.rawValue)
            }
            center.tell(
                Self.name, about: name,
                [
                    "name": .string(name), "host": .string(entry.origin.host), "user": .string(entry.origin.user),
                    "count": .uint64(count), "reason": .string(entry.reason.rawValue),
                ]
            ) { [weak self] isTaken in self?.answered(entry, count, isTaken) }
        }
        tellBroker()
    }

    /// A service that ends may have accepted the announcement. Two announcements are better than none.
    private func answered(_ entry: LossLedger.Entry, _ count: UInt64, _ isTaken: Bool) {
        ledger.answered(entry, count, isTaken: isTaken)
        if !isTaken { tellSoon(in: Self.pause) }
    }

    /// Schedules the status, which the broker may have forgotten.
    func brokerConnected() {
        if !outwards.isEmpty { mustTellBroker = true }
        statusTimer = .once(milliseconds: Self.beforeStatus, on: context) { [unowned self] in
            statusTimer = nil
            tellBroker()
        }
    }

    func brokerDisconnected() { statusTimer = nil }

    private func tellBroker() {
        guard mustTellBroker, statusTimer == nil, let broker, broker.isConnected else { return }
        let names = outwards.sorted { $0.key < $1.key }.map { ($0.key, String($0.value)) }
        let payload = PropertyListJSON.object([
            ("lost", String(outwards.values.reduce(UInt64(0)) { $0.addingLosses($1) })),
            ("names", PropertyListJSON.object(names)),
        ])
        let topic = BridgeTopic(.status, of: configuration.origin).text(in: configuration.realm)
        do throws(MQTTError) {
            _ = try broker.publish(
                Publication(
                    topic: topic, payload: Array(payload.utf8), isRetained: true,
                    contentType: Payload.contentType))
            mustTellBroker = false
        } catch {
            Log.info("the status can't be published: \(error)")
        }
    }
}
