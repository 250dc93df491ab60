// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The requests to the broker for the retained values of the subscriptions, each with retries until the broker has
/// shown all of them. ``Importer`` uses it.
///
/// Values are not requested with the subscriptions, because a broker silently drops values that do not fit into the
/// queue of a session. They are requested by queries (``RetainedQueries``), which reveal dropped messages. After an
/// incomplete answer fewer filters are requested at once. If the values of all hosts are too many for one
/// filter, they are requested host by host.
final class ValueFetch {
    private enum Time {
        /// The pause before a request on a new connection, in milliseconds: the broker first sends the messages that it
        /// has queued for the session.
        static let afterQueue: UInt32 = 10_000
        /// The pause before a request is repeated after an incomplete answer, in milliseconds; it doubles each time.
        static let again: ClosedRange<UInt32> = 5_000...3_600_000
    }

    private let broker: BrokerLink
    private let context: MainContext
    /// Returns the filters of the present subscriptions.
    private let wanted: () -> Set<String>
    /// Returns the filters that replace a filter for all hosts: one for each known host.
    private let byHost: (String) -> [String]
    /// Called whenever the broker has shown all values of a request.
    private let done: () -> Void
    /// The requested filters, with the number of unanswered requests.
    private var asked: [String: Int] = [:]
    /// The filters that have to be requested: new filters, and filters whose values were not shown completely.
    private var due: Set<String> = []
    /// The filters for one host, each with the filter for all hosts that it replaces.
    private var ofHosts: [String: String] = [:]
    /// Runs before the next request.
    private var timer: EventSource?
    /// The end of the timer, also after a connection has ended.
    private var nextTime: SuspendingClock.Instant?
    /// The pause after the last incomplete answer, in milliseconds.
    private var pause = Time.again.lowerBound
    /// Whether the broker has shown a new value since the last incomplete answer.
    private var hasProgress = false
    /// The number of requests that were repeated without a longer pause because of such progress.
    private var quickTries = 0
    /// The maximum number of filters in a request, after an incomplete answer. It is halved until each filter is
    /// requested alone, so that a filter with too many values delays no other.
    private var partSize = RetainedQueries.batchSize
    /// The last filter of the request before, in alphabetical order; the next request continues behind it.
    private var lastOfPart = ""

    /// The maximum of `quickTries`. Values of other hosts may change all the time, so that there is always progress.
    private static let maxQuickTries = 30

    /// Creates an object without requests.
    ///
    /// - Parameters:
    ///   - wanted: returns the filters of the present subscriptions.
    ///   - byHost: returns the filters that replace a filter for all hosts.
    ///   - done: called whenever the broker has shown all values of a request.
    init(
        broker: BrokerLink, context: MainContext, wanted: @escaping () -> Set<String>,
        byHost: @escaping (String) -> [String], done: @escaping () -> Void
    ) {
        self.broker = broker
        self.context = context
        self.wanted = wanted
        self.byHost = byHost
        self.done = done
    }

    /// Whether the broker has shown all values of all requested filters.
    var isDone: Bool { due.isEmpty && asked.isEmpty }

    /// Requests the values of filters after the messages that the broker has queued for the session.
    func fetchBehindQueue(_ filters: Set<String>) {
        due.formUnion(filters)
        if !due.isEmpty { wait(Time.afterQueue) }
    }

    /// Continues after the bridge itself has replaced its connection. The pauses continue.
    func connected() {
        guard !due.isEmpty else { return }
        let left = nextTime.map { ($0 - context.now).microseconds / 1_000 } ?? 0
        wait(UInt32(clamping: max(1, left)))
    }

    /// Notes that the broker has shown a new value. An early repetition of the request is then worthwhile.
    func noteProgress() { hasProgress = true }

    /// Handles the end of the connection: unanswered requests have to be repeated.
    func connectionEnded() {
        due.formUnion(asked.keys)
        asked = [:]
        timer = nil
    }

    /// Schedules the next request.
    private func wait(_ milliseconds: UInt32) {
        nextTime = context.now + .milliseconds(Int64(milliseconds))
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            timer = nil
            goOn()
        }
    }

    /// Forgets filters that are no longer subscribed to.
    private func dropUnwanted() {
        let wanted = wanted()
        due = due.filter { wanted.contains(ofHosts[$0] ?? $0) }
        if due.isEmpty, asked.isEmpty { ofHosts = [:] }
    }

    /// Requests the filters that are due: all at once, or the next few after an incomplete answer.
    private func goOn() {
        dropUnwanted()
        guard pause > Time.again.lowerBound || !ofHosts.isEmpty else { return fetch(due) }
        let sorted = due.sorted()
        let next = sorted.firstIndex { $0 > lastOfPart } ?? 0
        let part = sorted[next...].prefix(partSize)
        lastOfPart = part.last ?? ""
        fetch(Set(part))
    }

    /// Replaces a filter with filters for single hosts.
    private func askByHost(_ all: String) {
        let filters = byHost(all)
        guard filters.count > 1 else { return }
        due.remove(all)
        due.formUnion(filters)
        for filter in filters { ofHosts[filter] = all }
        partSize = Self.firstHosts
    }

    /// The number of hosts in the first request after that.
    private static let firstHosts = 8

    /// Requests the values of one host.
    ///
    /// - Parameter filters: the filters for the host, each with the filter for all hosts that it replaces.
    func fetch(ofHost filters: [String: String]) {
        ofHosts.merge(filters) { $1 }
        fetch(Set(filters.keys))
    }

    /// Requests the values of filters now; without a connection, later.
    func fetch(_ filters: Set<String>) {
        due.formUnion(filters)
        guard broker.isConnected else { return }
        due.subtract(filters)
        // A broker that retains no messages has no values.
        guard !filters.isEmpty, broker.limits?.retainAvailable != false else { return }
        for filter in filters { asked[filter, default: 0] += 1 }
        broker.showRetained(filters.sorted().map(BridgeTopic.alias), usesCanary: true) { [weak self] answer in
            self?.shown(filters, answer)
        }
    }

    /// Handles the broker's answer to a request. After a complete answer the next filters follow at once, and more of
    /// them. After an incomplete one fewer filters are requested, after a pause.
    private func shown(_ filters: Set<String>, _ answer: RetainedQueries.Answer) {
        for filter in filters { asked[filter] = asked[filter].flatMap { $0 > 1 ? $0 - 1 : nil } }
        // If the broker refuses a query, the values are requested by repeating the subscription.
        let refused = filters.filter { answer.refused.contains(BridgeTopic.alias(of: $0)) }.intersection(wanted())
        for part in refused.sorted().chunks(of: RetainedQueries.batchSize) {
            _ = broker.subscribe(part.map { TopicFilter($0, retainHandling: .always) })
        }
        if answer.isComplete {
            done()
            partSize = min(partSize * 2, RetainedQueries.batchSize)
            if due.isEmpty {
                (pause, quickTries) = (Time.again.lowerBound, 0)
                if asked.isEmpty { ofHosts = [:] }
            } else if timer == nil {
                goOn()
            }
        } else {
            due.formUnion(filters.subtracting(refused))
            partSize = max(1, min(partSize, filters.count) / 2)
            if filters.count == 1, let all = filters.first, due.contains(all), ofHosts[all] == nil { askByHost(all) }
            dropUnwanted()
            guard !due.isEmpty, timer == nil else { return }
            if hasProgress, quickTries < Self.maxQuickTries {
                quickTries += 1
                wait(Time.again.lowerBound)
            } else {
                pause = min(pause * 2, Time.again.upperBound)
                wait(pause)
            }
            hasProgress = false
        }
    }
}
