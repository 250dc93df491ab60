// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The look at the values that the broker keeps of this host, once for each connection. The broker may have forgotten
/// values, restored older ones, or have values of an earlier process that are gone; ``OwnValues`` compares.
///
/// When the broker has shown everything, the service is asked for its values. If the broker does not answer, the look
/// is repeated a few times.
final class OwnValuesLook {
    private enum Phase {
        case none
        /// The broker shows the values.
        case looking
        /// The service is asked for its values.
        case compared
    }

    /// The pause before the next look if the broker did not show everything, in milliseconds.
    private static let pause: UInt32 = 60_000
    /// The maximum number of repeated looks. After them the values that the broker has shown count.
    private static let maxRepeats = 5

    private let configuration: BridgeConfiguration
    private let broker: BrokerLink
    private let exporter: Exporter
    private let context: MainContext
    /// Asks the service for its values.
    private let askService: () -> Void
    private var phase = Phase.none
    private var timer: EventSource?
    /// The number of incomplete looks on this connection.
    private var failed = 0

    init(
        _ configuration: BridgeConfiguration, at broker: BrokerLink, for exporter: Exporter, context: MainContext,
        askService: @escaping () -> Void
    ) {
        self.configuration = configuration
        self.broker = broker
        self.exporter = exporter
        self.context = context
        self.askService = askService
    }

    /// Whether the broker is about to show the values.
    var isUnderWay: Bool { phase == .looking }

    /// Handles a new connection.
    func connected() {
        failed = 0
        begin()
    }

    private func begin() {
        guard !configuration.exports.isEmpty, broker.limits?.retainAvailable != false else { return }
        exporter.values.beginLooking()
        phase = .looking
        let filters = BridgeTopic.filters(of: configuration.origin, in: configuration.realm)
        broker.showRetained(filters, excludesOwn: false, usesCanary: true) { [weak self] answer in
            guard let self, phase == .looking else { return }
            // A broker that refuses the query counts as having forgotten nothing.
            guard answer.refused.isEmpty else { return stop() }
            let isCertain = answer.isComplete || answer.outcome == .withoutCanary && !broker.showsCanary
            guard isCertain || failed >= Self.maxRepeats else { return tryAgain() }
            phase = .compared
            askService()
        }
    }

    private func tryAgain() {
        failed += 1
        stop()
        timer = .once(milliseconds: Self.pause, on: context) { [unowned self] in
            timer = nil
            if broker.isConnected { begin() }
        }
    }

    /// Handles a message of the broker on a topic of this host.
    ///
    /// - Parameter now: microseconds since 1970.
    func show(_ name: String, _ object: String, _ publication: Publication, now: Int64) {
        if phase == .looking { exporter.values.show(name, object, publication, now: now) }
    }

    /// Ends the look when the service has listed its values.
    ///
    /// - Returns: whether a look was under way that the broker had ended, or had left incomplete too often.
    func finish() -> Bool {
        guard phase == .compared else { return false }
        phase = .none
        return true
    }

    /// Stops the look, because the connection or the crossing ends.
    func stop() {
        (phase, timer) = (.none, nil)
        exporter.values.stopLooking()
    }
}
