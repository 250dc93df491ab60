// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// Finds hosts that a broker has forgotten: after each connection it shows all that it knows, and the others have time to
/// connect to it, too.
final class HostConfirmation {
    private enum Phase {
        case idle
        /// The hosts have time.
        case waiting
        /// The broker is asked for those that it has not shown.
        case asking
    }

    /// Hosts connect to their broker once in 75 seconds at least. In milliseconds.
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
    /// Whether messages were dropped since it began.
    private var isDue = false
    /// Whether the broker did not show all, and how often it was asked again because of that.
    private var isIncomplete = false
    private var attempts = 0
    /// Whether presences that have come may be of the session's queue.
    private var mayBeQueued = false
    /// The hosts that are asked for although something has come of them.
    private var shown: Set<Origin> = []
    private static let maxAttempts = 5
    private var timer: EventSource?

    /// - Parameters:
    ///   - began: called when the broker is about to show all.
    ///   - unconfirmed: the hosts that were online, and that the broker has not shown since.
    ///   - known: all hosts of which anything is known, online or not.
    ///   - confirm: gets those whose word is taken, as the broker can't be asked for them.
    ///   - forget: gets those that it has forgotten, in parts; at last none, when all are known.
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

    /// There is a new connection.
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
            // Answers are not read either, and the broker would keep more and more of them.
            guard !broker.isReadingPaused else { return waitForHosts() }
            phase = .asking
            var hosts = unconfirmed()
            if mayBeQueued {
                // The broker may have dropped retained presences behind a full queue, and queued ones are old: each host is asked
                // for, also those that are said to be offline.
                mayBeQueued = broker.mayBeQueued
                shown = known().subtracting(hosts)
                began()
                hosts.formUnion(shown)
            }
            ask(hosts.sorted { $0.text < $1.text }[...])
        }
    }

    /// Messages were dropped, and presences may be among them. Hosts that are asked for at the moment are so once more.
    func again() { if phase == .idle { goOn() } else { isDue = true } }

    func stop() {
        (phase, timer, shown) = (.idle, nil, [])
    }

    /// Asks for hosts, a few at once: of many that a subscription shows a broker may drop some for want of room.
    private func ask(_ hosts: ArraySlice<Origin>) {
        guard !hosts.isEmpty else { return end() }
        let asked = hosts.prefix(RetainedQueries.together)
        func topic(_ origin: Origin) -> String { BridgeTopic(.online, of: origin).text(in: realm) }
        broker.showRetained(asked.map(topic), usesCanary: true) { [weak self] answer in
            guard let self, phase == .asking else { return }
            if !answer.isComplete { isIncomplete = true }
            // The broker does not let be asked, or did not answer: then what it has sent has to do.
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
        // Also those of which an earlier process knew values only.
        forget([])
        if isIncomplete, attempts < Self.maxAttempts {
            attempts += 1
            isDue = true
        }
        if isDue || mayBeQueued { goOn() }
    }
}
