// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The query for the values that the broker retains of this host, once for each connection. ``OwnValues`` then compares
/// them with those of the session: the broker may have forgotten values, restored older ones, or have values of an
/// earlier process that have ended.
///
/// When the broker has shown all values, the service is asked for its list of values. After an incomplete answer of the
/// broker the query is repeated, up to five times.
final class OwnValuesCheck {
    /// The state of the comparison on this connection.
    private enum Phase {
        /// Nothing is in progress.
        case none
        /// The broker shows the values.
        case looking
        /// The broker has shown all values, and the service is asked for its list.
        case compared
    }

    /// The pause before the query is repeated, in milliseconds.
    private static let pause: UInt32 = 60_000
    /// The maximum number of repetitions. After them an incomplete answer counts as complete.
    private static let maxRepeats = 5

    private let configuration: BridgeConfiguration
    private let broker: BrokerLink
    /// The owner of the ``OwnValues`` that compares.
    private let exporter: Exporter
    private let context: MainContext
    /// Asks the service for its list of values.
    private let askService: () -> Void
    private var phase = Phase.none
    /// Runs before a repetition.
    private var timer: EventSource?
    /// The number of incomplete answers on this connection.
    private var failed = 0

    /// Creates an object that does nothing before ``connected()``.
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

    /// Whether the query is in progress.
    var isUnderWay: Bool { phase == .looking }

    /// Begins on a new connection.
    func connected() {
        failed = 0
        begin()
    }

    /// Queries the broker, if the bridge exports names and the broker retains messages.
    private func begin() {
        guard !configuration.exports.isEmpty, broker.limits?.retainAvailable != false else { return }
        exporter.values.beginLooking()
        phase = .looking
        let filters = BridgeTopic.filters(of: configuration.origin, in: configuration.realm)
        broker.showRetained(filters, excludesOwn: false, usesCanary: true) { [weak self] answer in
            guard let self, phase == .looking else { return }
            // A broker that refuses the query counts as having forgotten nothing.
            guard answer.refused.isEmpty else { return stop() }
            // Without a canary, dropped messages can't be noticed, so any answer counts as complete.
            let isCertain = answer.isComplete || answer.outcome == .withoutCanary && !broker.showsCanary
            guard isCertain || failed >= Self.maxRepeats else { return tryAgain() }
            phase = .compared
            askService()
        }
    }

    /// Schedules a repetition.
    private func tryAgain() {
        failed += 1
        stop()
        timer = .once(milliseconds: Self.pause, on: context) { [unowned self] in
            timer = nil
            if broker.isConnected { begin() }
        }
    }

    /// Passes a message on a topic of this host to the comparison, while the query is in progress.
    ///
    /// - Parameter now: microseconds since 1970.
    func show(_ name: String, _ object: String, _ publication: Publication, now: Int64) {
        if phase == .looking { exporter.values.show(name, object, publication, now: now) }
    }

    /// Ends the comparison, because the service has listed its values.
    ///
    /// - Returns: whether the broker had shown its values before.
    func finish() -> Bool {
        guard phase == .compared else { return false }
        phase = .none
        return true
    }

    /// Stops, because the connection or the crossing ends.
    func stop() {
        (phase, timer) = (.none, nil)
        exporter.values.stopLooking()
    }
}
