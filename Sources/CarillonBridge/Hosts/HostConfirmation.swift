// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The detection of hosts that a broker has forgotten. After each connection the broker shows all hosts that it knows,
/// and hosts have time to connect to it.
final class HostConfirmation {
    private enum Phase {
        case idle
        /// The hosts have time to connect.
        case waiting
        /// The broker is asked for the hosts that it has not shown.
        case asking
    }

    /// The time for hosts to connect, in milliseconds. Hosts connect to their broker at least once in 75 seconds.
    private static let patience: UInt32 = 90_000

    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    private let began: () -> Void
    private let unconfirmed: () -> Set<Origin>
    private let known: () -> Set<Origin>
    private let confirm: ([Origin]) -> Void
    private let forget: ([Origin]) -> Void
    private var phase = Phase.idle
    /// Whether messages were dropped since the confirmation began.
    private var isDue = false
    /// Whether the broker did not show all hosts; `attempts` is the number of repetitions because of that.
    private var isIncomplete = false
    private var attempts = 0
    /// Whether received presences may come from the session's queue.
    private var mayBeQueued = false
    /// The hosts that are asked for although a message of them has arrived.
    private var shown: Set<Origin> = []
    private static let maxAttempts = 5
    private var timer: EventSource?

    /// - Parameters:
    ///   - began: called when the broker is about to show all hosts.
    ///   - unconfirmed: returns the hosts that were online, and that the broker has not shown since.
    ///   - known: returns all known hosts, online or not.
    ///   - confirm: receives the hosts whose earlier message counts, because the broker can't be asked for them.
    ///   - forget: receives the hosts that the broker has forgotten, in parts, and finally an empty list when all are
    ///     known.
    init(
        realm: String, broker: BrokerLink, context: MainContext, began: @escaping () -> Void,
        unconfirmed: @escaping () -> Set<Origin>, known: @escaping () -> Set<Origin>,
        confirm: @escaping ([Origin]) -> Void, forget: @escaping ([Origin]) -> Void
    ) {
        self.realm = realm
        self.broker = broker
        self.context = context
        self.began = began
        self.unconfirmed = unconfirmed
        self.known = known
        self.confirm = confirm
        self.forget = forget
    }

    /// Begins after a new connection.
    func begin() {
        (mayBeQueued, attempts) = (false, 0)
        goOn()
    }

    private func goOn() {
        (phase, isDue, isIncomplete) = (.waiting, false, false)
        mayBeQueued = mayBeQueued || broker.mayBeQueued
        began()
        _ = broker.subscribe([
            TopicFilter(
                BridgeTopic.presenceFilter(in: realm), excludesOwn: true, keepsRetainFlag: true, retainHandling: .always
            )
        ])
        waitForHosts()
    }

    private func waitForHosts() {
        timer = .once(milliseconds: Self.patience, on: context) { [unowned self] in
            timer = nil
            // While reading is paused, answers are not read either, and the broker would queue more and more of them.
            guard !broker.isReadingPaused else { return waitForHosts() }
            phase = .asking
            var hosts = unconfirmed()
            if mayBeQueued {
                // The broker may have dropped retained presences behind a full queue, and queued ones are old. Each
                // host is therefore asked for, including hosts that are reported offline.
                mayBeQueued = broker.mayBeQueued
                shown = known().subtracting(hosts)
                began()
                hosts.formUnion(shown)
            }
            ask(hosts.sorted { $0.text < $1.text }[...])
        }
    }

    /// Repeats the confirmation, because presences may be among dropped messages. Hosts that are asked for now are
    /// asked for once more.
    func again() { if phase == .idle { goOn() } else { isDue = true } }

    func stop() {
        (phase, timer, shown) = (.idle, nil, [])
    }

    /// Asks for a few hosts at once: of many retained messages a broker may drop some for lack of buffer space.
    private func ask(_ hosts: ArraySlice<Origin>) {
        guard !hosts.isEmpty else { return end() }
        let asked = hosts.prefix(RetainedQueries.together)
        func topic(_ origin: Origin) -> String { BridgeTopic(.online, of: origin).text(in: realm) }
        broker.showRetained(asked.map(topic), usesCanary: true) { [weak self] answer in
            guard let self, phase == .asking else { return }
            if !answer.isComplete { isIncomplete = true }
            // If the broker refuses the query or does not answer, its earlier message counts.
            confirm(asked.filter { shown.contains($0) && (!answer.isComplete || answer.refused.contains(topic($0))) })
            let unconfirmed = unconfirmed()
            let gone = asked.filter {
                unconfirmed.contains($0) && answer.isComplete && !answer.refused.contains(topic($0))
            }
            if !gone.isEmpty { forget(gone) }
            ask(hosts.dropFirst(asked.count))
        }
    }

    private func end() {
        (phase, shown) = (.idle, [])
        // Also ends hosts of which an earlier process knew only values.
        forget([])
        if isIncomplete, attempts < Self.maxAttempts {
            attempts += 1
            isDue = true
        }
        if isDue || mayBeQueued { goOn() }
    }
}
