// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The fetch of the values of subscriptions. Values do not come with the subscriptions, because a broker silently drops
/// values that do not fit into a session's queue. If all hosts together have too many values of a name, the values are
/// fetched host by host.
final class ValueFetch {
    private enum Time {
        /// The time for the messages in the session's queue, which come first, in milliseconds.
        static let afterQueue: UInt32 = 10_000
        /// The pause before a request is repeated because the broker could not show all, in milliseconds; it doubles
        /// each time.
        static let again: ClosedRange<UInt32> = 5_000...3_600_000
    }

    private let broker: BrokerLink
    private let context: MainContext
    /// Returns the filters of the present subscriptions.
    private let wanted: () -> Set<String>
    /// Returns a filter for each host in place of one filter for all.
    private let byHost: (String) -> [String]
    private let done: () -> Void
    /// The requested filters, with the number of open requests.
    private var asked: [String: Int] = [:]
    /// The filters whose values were not shown completely.
    private var due: Set<String> = []
    /// The filters for one host, with the filters for all hosts that they replace.
    private var ofHosts: [String: String] = [:]
    private var timer: EventSource?
    private var nextTime: SuspendingClock.Instant?
    private var pause = Time.again.lowerBound
    /// Whether a new value was shown; `quickTries` is the number of quick repetitions because of that.
    private var hasProgress = false
    private var quickTries = 0
    /// The maximum number of filters in a request after all together were too many; `lastOfPart` is the last filter of
    /// the request before. Each filter is requested in turn, and in the end alone, so that a filter with too many
    /// values delays no other.
    private var partSize = RetainedQueries.together
    private var lastOfPart = ""

    /// The maximum number of quick repetitions: values of others may change all the time.
    private static let maxQuickTries = 30

    /// - Parameters:
    ///   - byHost: returns a filter for each known host, in place of one for all.
    ///   - done: called whenever all values of a request are shown.
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

    var isDone: Bool { due.isEmpty && asked.isEmpty }

    /// Fetches the values of filters behind the messages in the session's queue.
    func fetchBehindQueue(_ filters: Set<String>) {
        due.formUnion(filters)
        if !due.isEmpty { wait(Time.afterQueue) }
    }

    /// Continues on a connection that replaces one ended by the bridge, as if it were the same.
    func connected() {
        guard !due.isEmpty else { return }
        let left = nextTime.map { ($0 - context.now).microseconds / 1_000 } ?? 0
        wait(UInt32(clamping: max(1, left)))
    }

    /// Notes that the broker has shown a new value: with the shown values it may get further the next time.
    func noteProgress() { hasProgress = true }

    func connectionEnded() {
        due.formUnion(asked.keys)
        asked = [:]
        timer = nil
    }

    private func wait(_ milliseconds: UInt32) {
        nextTime = context.now + .milliseconds(Int64(milliseconds))
        timer = .once(milliseconds: milliseconds, on: context) { [unowned self] in
            timer = nil
            goOn()
        }
    }

    private func dropUnwanted() {
        let wanted = wanted()
        due = due.filter { wanted.contains(ofHosts[$0] ?? $0) }
        if due.isEmpty, asked.isEmpty { ofHosts = [:] }
    }

    private func goOn() {
        dropUnwanted()
        guard pause > Time.again.lowerBound || !ofHosts.isEmpty else { return fetch(due) }
        let sorted = due.sorted()
        let next = sorted.firstIndex { $0 > lastOfPart } ?? 0
        let part = sorted[next...].prefix(partSize)
        lastOfPart = part.last ?? ""
        fetch(Set(part))
    }

    /// Replaces a filter with filters for single hosts, because the values of all hosts together were too many.
    private func askByHost(_ all: String) {
        let filters = byHost(all)
        guard filters.count > 1 else { return }
        due.remove(all)
        due.formUnion(filters)
        for filter in filters { ofHosts[filter] = all }
        partSize = Self.firstHosts
    }

    private static let firstHosts = 8

    /// Fetches the values of one host.
    ///
    /// - Parameter filters: the filters for the host, with the filters for all hosts that they replace.
    func fetch(ofHost filters: [String: String]) {
        ofHosts.merge(filters) { $1 }
        fetch(Set(filters.keys))
    }

    /// Fetches the values of filters.
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

    private func shown(_ filters: Set<String>, _ answer: RetainedQueries.Answer) {
        for filter in filters { asked[filter] = asked[filter].flatMap { $0 > 1 ? $0 - 1 : nil } }
        // A broker that refuses the query shows the values with the subscriptions.
        let refused = filters.filter { answer.refused.contains(BridgeTopic.alias(of: $0)) }.intersection(wanted())
        for part in refused.sorted().chunks(of: RetainedQueries.together) {
            _ = broker.subscribe(part.map { TopicFilter($0, retainHandling: .always) })
        }
        if answer.isComplete {
            done()
            partSize = min(partSize * 2, RetainedQueries.together)
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
