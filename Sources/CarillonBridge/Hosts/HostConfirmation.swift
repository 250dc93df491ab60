// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop

/// Finds hosts that a broker has forgotten: after each connection it shows all that it knows, and the others have time to
/// connect to it, too.
final class HostConfirmation {
    /// Hosts connect to their broker once in 75 seconds at least. In milliseconds.
    private static let patience: UInt32 = 90_000
    /// Between two looks at whether the bridge has read everything.
    private static let calm: UInt32 = 3_000

    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    private let unconfirmed: () -> Set<Origin>
    private let forget: ([Origin]) -> Void
    private let check: RetainedCheck
    private var timer: EventSource?

    /// - Parameters:
    ///   - unconfirmed: the hosts that were online, and that the broker has not shown on this connection.
    ///   - forget: gets those that it has forgotten, in parts; none where all were shown from the beginning.
    init(
        realm: String, broker: BrokerLink, context: MainContext, unconfirmed: @escaping () -> Set<Origin>,
        forget: @escaping ([Origin]) -> Void
    ) {
        self.realm = realm
        self.broker = broker
        self.context = context
        self.unconfirmed = unconfirmed
        self.forget = forget
        check = RetainedCheck(broker: broker, context: context) { topics in
            forget(topics.compactMap { BridgeTopic($0, in: realm)?.origin })
        }
    }

    /// There is a new connection.
    func begin() {
        _ = broker.subscribe([
            TopicFilter(
                BridgeTopic.presenceFilter(in: realm), excludesOwn: true, keepsRetainFlag: true, retainHandling: .always
            )
        ])
        wait(Self.patience)
    }

    func stop() {
        timer = nil
        check.stop()
    }

    func take(_ publication: Publication) { check.take(publication) }
    func answered(_ id: PacketID, _ reasons: [ReasonCode]) { check.answered(id, reasons) }

    private func wait(_ milliseconds: UInt32) {
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            timer = nil
            // Presences that are not read yet are not shown.
            if broker.isReadingPaused { return wait(Self.calm) }
            let hosts = unconfirmed().sorted { $0.text < $1.text }
            check.check(hosts.map { BridgeTopic(.online, of: $0).text(in: realm) })
            // Also those of which an earlier process knew values only.
            if hosts.isEmpty { forget([]) }
        }
    }
}
