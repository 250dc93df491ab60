// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// Tells what is lost: in the session, by a notification for each name and reason, and at the broker, on the host's topic
/// for its status. At most once a second.
final class LossAnnouncer {
    /// What it posts.
    static let name = "org.carillon.Bridge.Lost"
    private static let calm: UInt32 = 1_000
    /// Before something is announced again that the service has not taken.
    private static let pause: UInt32 = 10_000
    /// A connection is good enough for the status when it has lasted so long: a broker may end it because of that.
    private static let beforeStatus: UInt32 = 5_000
    /// Names that the status at the broker tells apart.
    private static let maxNames = 100

    private let center: CenterLink
    private let context: MainContext
    /// The configuration and the broker that the bridge has now.
    private var configuration: BridgeConfiguration
    private weak var broker: BrokerLink?
    private var ledger = LossLedger()
    private var timer: EventSource?
    private var statusTimer: EventSource?
    /// What went out and did not come there, by its name.
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

    /// The losses that are not announced, for all that is known.
    var unannounced: [LossLedger.Entry: UInt64] { ledger.unannounced }

    /// Ever.
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

    /// A notification is lost that was for another realm than the bridge has now, or from another host or user. Only the
    /// session is told: the present broker has nothing to do with it, and shall not have its name.
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

    /// The service is there: what is pending is told.
    func serviceCame() {
        guard !ledger.pending.isEmpty else { return }
        timer = nil
        tellSoon()
    }

    private func tell() {
        // Otherwise they are told when it comes; later losses are added.
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

    /// A service that ends may have taken it. Better told twice than not at all.
    private func answered(_ entry: LossLedger.Entry, _ count: UInt64, _ isTaken: Bool) {
        ledger.answered(entry, count, isTaken: isTaken)
        if !isTaken { tellSoon(in: Self.pause) }
    }

    /// The broker may have forgotten the status.
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
