// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMQTT
import CarillonMainLoop
import CarillonWire

/// The reports of lost messages. In the session each name and reason is announced by a notification
/// `org.carillon.Bridge.Lost`. At the broker a retained status message of this host holds the number of lost outgoing
/// notifications. Both are published at most once a second. It lives as long as the bridge, so that a reload loses no
/// report.
final class LossAnnouncer {
    /// The name of the notification.
    static let name = "org.carillon.Bridge.Lost"
    /// The delay of a report, which merges several losses, in milliseconds.
    private static let calm: UInt32 = 1_000
    /// The pause before a notification that the service has not accepted is posted again, in milliseconds.
    private static let pause: UInt32 = 10_000
    /// The age of a connection at which the status is published, in milliseconds. A broker may end the connection
    /// because of the status; other messages are then sent first.
    private static let beforeStatus: UInt32 = 5_000
    /// The maximum number of names in the status. Further ones count as an empty name.
    private static let maxNames = 100

    private let center: CenterLink
    private let context: MainContext
    /// The present configuration and broker of the bridge.
    private var configuration: BridgeConfiguration
    private weak var broker: BrokerLink?
    /// The losses that are not announced in the session.
    private var ledger = LossLedger()
    /// Runs before the next report.
    private var timer: EventSource?
    /// Runs while a connection is too young for the status.
    private var statusTimer: EventSource?
    /// The numbers of lost outgoing notifications by name, for the status; the empty name for unknown ones.
    private var outwards: [String: UInt64] = [:]
    /// Whether the status at the broker is out of date.
    private var isStatusDue = false

    /// Creates an announcer without losses.
    init(_ configuration: BridgeConfiguration, center: CenterLink, context: MainContext) {
        self.configuration = configuration
        self.center = center
        self.context = context
    }

    /// Publishes the status at another broker, or as another host, from now on.
    func use(_ configuration: BridgeConfiguration, _ broker: BrokerLink) {
        if configuration.origin != self.configuration.origin || configuration.realm != self.configuration.realm {
            outwards = [:]
        }
        self.configuration = configuration
        self.broker = broker
    }

    /// Continues with the losses that an earlier bridge process could not announce.
    func goOn(with losses: [LossLedger.Entry: UInt64]) {
        guard !losses.isEmpty else { return }
        ledger.restore(losses)
        announceSoon()
    }

    /// The losses that no observer may know of, for the saved state.
    var unannounced: [LossLedger.Entry: UInt64] { ledger.unannounced }

    /// The total of lost outgoing notifications.
    var outwardsCount: UInt64 { ledger.outwards }
    /// The total of lost incoming messages.
    var inwardsCount: UInt64 { ledger.inwards }

    /// Reports lost notifications of this session.
    ///
    /// - Parameter name: their name; nil if it is unknown.
    func lostOutwards(_ count: UInt64, _ name: String?, _ reason: LossReason) {
        ledger.lost(count, of: name, from: configuration.origin, because: reason, .outwards)
        let name = name ?? ""
        outwards[outwards[name] != nil || outwards.count < Self.maxNames ? name : "", default: 0]
            .addLosses(count)
        isStatusDue = true
        announceSoon()
    }

    /// Reports the loss of a notification that was queued under an earlier realm, host or user. It is announced only in
    /// the session: the present broker must not learn the name.
    func lostByChange(_ name: String?, of origin: Origin) {
        ledger.lost(of: name, from: origin, because: .reconfigured, .outwards)
        announceSoon()
    }

    /// Reports lost messages of another host.
    func lostInwards(_ count: UInt64, _ name: String?, _ origin: Origin, _ reason: LossReason) {
        ledger.lost(count, of: name, from: origin, because: reason, .inwards)
        announceSoon()
    }

    /// Schedules a report.
    private func announceSoon(in milliseconds: UInt32 = calm) {
        guard timer == nil else { return }
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            timer = nil
            announce()
        }
    }

    /// Reports now.
    func announceNow() {
        timer = nil
        announce()
    }

    /// Reports pending losses to a service that has appeared.
    func serviceAppeared() {
        guard !ledger.pending.isEmpty else { return }
        // The longer pause after a failed announcement may be in progress.
        timer = nil
        announceSoon()
    }

    /// Announces the losses in the session, and publishes the status.
    private func announce() {
        // Without a service the losses stay pending; later losses are added.
        guard center.isThere else { return publishStatus() }
        for (entry, count, isNew) in ledger.takePending() {
            let name = entry.name?.text ?? ""
            // Losses whose announcement is repeated are in the log already.
            if isNew {
                Log.warning(
                    "lost notifications of \(name.isEmpty ? "several names" : name) from \(entry.origin.text): "
                        + "\(count), \(entry.reason.rawValue)")
            }
            center.announce(
                Self.name, about: name,
                [
                    "name": .string(name), "host": .string(entry.origin.host), "user": .string(entry.origin.user),
                    "count": .uint64(count), "reason": .string(entry.reason.rawValue),
                ]
            ) { [weak self] isTaken in self?.answered(entry, count, isTaken) }
        }
        publishStatus()
    }

    /// Handles the service's answer to an announcement. A service that ends may have accepted it, so it may be
    /// announced twice.
    private func answered(_ entry: LossLedger.Entry, _ count: UInt64, _ isTaken: Bool) {
        ledger.answered(entry, count, isTaken: isTaken)
        if !isTaken { announceSoon(in: Self.pause) }
    }

    /// Schedules the status on a new connection, because the broker may have forgotten it.
    func brokerConnected() {
        if !outwards.isEmpty { isStatusDue = true }
        statusTimer = .once(milliseconds: Self.beforeStatus, on: context) { [unowned self] in
            statusTimer = nil
            publishStatus()
        }
    }

    /// Handles the end of the connection.
    func brokerDisconnected() { statusTimer = nil }

    /// Publishes the status, if it is out of date and the connection is old enough.
    private func publishStatus() {
        guard isStatusDue, statusTimer == nil, let broker, broker.isConnected else { return }
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
            isStatusDue = false
        } catch {
            Log.info("the status can't be published: \(error)")
        }
    }
}
