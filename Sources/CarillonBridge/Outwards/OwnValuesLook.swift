// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The look at the values that the broker keeps of this host, once for each connection. It may have forgotten them, or restored
/// older ones, or have values of an earlier process that are gone: ``OwnValues`` compares.
///
/// The look is answered when the broker has shown everything; then the service is asked which values there are. A broker that
/// does not answer is looked at again, a few times.
final class OwnValuesLook {
    private enum Phase {
        case none
        /// The broker shows them.
        case looking
        /// The service is asked which values there are.
        case compared
    }

    /// Before the next look, where the broker did not show all, in milliseconds.
    private static let pause: UInt32 = 60_000
    /// The maximum of repeated looks. After them the values that the broker has shown have to do.
    private static let maxRepeats = 5

    private let configuration: BridgeConfiguration
    private let broker: BrokerLink
    private let exporter: Exporter
    private let context: MainContext
    /// Asks the service which values there are.
    private let askService: () -> Void
    private var phase = Phase.none
    private var timer: EventSource?
    /// The number of looks of this connection that were not answered in full.
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

    /// Whether the broker is about to show them.
    var isUnderWay: Bool { phase == .looking }

    /// There is a new connection.
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
            // A broker that shows nothing has not forgotten anything.
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

    /// The broker has sent a message on a topic of this host.
    ///
    /// - Parameter now: microseconds since 1970.
    func show(_ name: String, _ object: String, _ publication: Publication, now: Int64) {
        if phase == .looking { exporter.values.show(name, object, publication, now: now) }
    }

    /// The service has answered which values there are.
    ///
    /// - Returns: whether the broker had shown everything before it was asked. That ends the look.
    func finish() -> Bool {
        guard phase == .compared else { return false }
        phase = .none
        return true
    }

    /// The connection ends, or the crossing does.
    func stop() {
        (phase, timer) = (.none, nil)
        exporter.values.stopLooking()
    }
}
