// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The detection of hosts whose presence the broker has forgotten. Such a host counts as offline, although no message
/// says so. ``BridgeInstance`` begins a confirmation at each connection.
///
/// A confirmation takes these steps:
/// 1. Subscribe to the presence of all hosts, so that the broker shows the retained presence messages.
/// 2. Wait until hosts have had time to connect and to publish their presence again.
/// 3. Query the broker for each host that is still unconfirmed.
/// 4. Report the hosts that the broker does not show as forgotten.
final class HostConfirmation {
    private enum Phase {
        case idle
        /// Step 2: the hosts have time to connect.
        case waiting
        /// Step 3: the broker is queried.
        case asking
    }

    /// The duration of step 2, in milliseconds. A bridge without a connection tries to connect at least every 75
    /// seconds (``BrokerLink``).
    private static let patience: UInt32 = 90_000

    private let realm: String
    private let broker: BrokerLink
    private let context: MainContext
    /// Called before the broker shows the hosts: all hosts that are online become unconfirmed.
    private let began: () -> Void
    /// Returns the unconfirmed hosts.
    private let unconfirmed: () -> Set<Origin>
    /// Returns all known hosts, online or not.
    private let known: () -> Set<Origin>
    /// Receives hosts that count as online by their earlier messages.
    private let confirm: ([Origin]) -> Void
    /// Receives hosts that the broker has forgotten.
    private let forget: ([Origin]) -> Void
    private var phase = Phase.idle
    /// Whether messages were dropped since the confirmation began, so that another one follows.
    private var isDue = false
    /// Whether the broker did not answer all queries completely.
    private var isIncomplete = false
    /// The number of confirmations that were repeated for that reason.
    private var attempts = 0
    /// Whether received presence messages may be old, because the broker had queued them for the session.
    private var mayBeQueued = false
    /// The hosts that are queried although a presence message of them has arrived.
    private var shown: Set<Origin> = []
    /// The maximum number of repetitions.
    private static let maxAttempts = 5
    /// Runs during step 2.
    private var timer: EventSource?

    /// Creates an object that does nothing before ``begin()``.
    ///
    /// - Parameters:
    ///   - began: called before the broker shows the hosts: all hosts that are online become unconfirmed.
    ///   - unconfirmed: returns the unconfirmed hosts.
    ///   - known: returns all known hosts, online or not.
    ///   - confirm: receives hosts that count as online by their earlier messages, because the broker did not answer
    ///     the query.
    ///   - forget: receives the hosts that the broker has forgotten, several times, and at the end an empty list.
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

    /// Begins a confirmation on a new connection.
    func begin() {
        (mayBeQueued, attempts) = (false, 0)
        goOn()
    }

    /// Step 1: subscribes to the presence of all hosts.
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

    /// Step 2: waits, and then begins step 3.
    private func waitForHosts() {
        timer = .once(milliseconds: Self.patience, on: context) { [unowned self] in
            timer = nil
            // While reading is paused, no answer would arrive, and the broker would queue more and more of them.
            guard !broker.isReadingPaused else { return waitForHosts() }
            phase = .asking
            var hosts = unconfirmed()
            if mayBeQueued {
                // The broker may have dropped presence messages because of a full queue, and queued ones are old. Each
                // host is therefore queried, also a host that is reported offline. `began` makes the online hosts
                // unconfirmed again.
                // If the broker may still send queued messages, another confirmation follows.
                mayBeQueued = broker.mayBeQueued
                shown = known().subtracting(hosts)
                began()
                hosts.formUnion(shown)
            }
            ask(hosts.sorted { $0.text < $1.text }[...])
        }
    }

    /// Repeats the confirmation, because presence messages may be among dropped messages. If one is in progress,
    /// another one follows it.
    func again() { if phase == .idle { goOn() } else { isDue = true } }

    /// Stops, because the connection has ended.
    func stop() {
        (phase, timer, shown) = (.idle, nil, [])
    }

    /// Step 3: queries the broker for a few hosts at a time. For many hosts a broker may drop some messages for lack of
    /// buffer space.
    private func ask(_ hosts: ArraySlice<Origin>) {
        guard !hosts.isEmpty else { return end() }
        let asked = hosts.prefix(RetainedQueries.batchSize)
        func topic(_ origin: Origin) -> String { BridgeTopic(.online, of: origin).text(in: realm) }
        broker.showRetained(asked.map(topic), usesCanary: true) { [weak self] answer in
            guard let self, phase == .asking else { return }
            if !answer.isComplete { isIncomplete = true }
            // If the broker refuses the query or does not answer, a host's earlier message counts.
            confirm(asked.filter { shown.contains($0) && (!answer.isComplete || answer.refused.contains(topic($0))) })
            let unconfirmed = unconfirmed()
            let gone = asked.filter {
                unconfirmed.contains($0) && answer.isComplete && !answer.refused.contains(topic($0))
            }
            if !gone.isEmpty { forget(gone) }
            ask(hosts.dropFirst(asked.count))
        }
    }

    /// Ends the confirmation, and begins another one if it is due or was incomplete.
    private func end() {
        (phase, shown) = (.idle, [])
        // With an empty list the receiver also ends hosts that it knows only by their saved values.
        forget([])
        if isIncomplete, attempts < Self.maxAttempts {
            attempts += 1
            isDue = true
        }
        if isDue || mayBeQueued { goOn() }
    }
}
