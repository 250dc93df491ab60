// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// Has the broker show the values of subscriptions. They do not come with these: of what does not fit into a session's queue a
/// broker drops a part without a word. A name of which all hosts together have more than that is asked for by host.
final class ValueFetch {
    private enum Time {
        /// The messages in the session's queue come first, in milliseconds.
        static let afterQueue: UInt32 = 10_000
        /// Before it is asked again where it could not show all, each time twice as long. In milliseconds.
        static let again: ClosedRange<UInt32> = 5_000...3_600_000
    }

    private let broker: BrokerLink
    private let context: MainContext
    /// The filters of the subscriptions that there are.
    private let wanted: () -> Set<String>
    /// A filter for each host instead of one for all.
    private let byHost: (String) -> [String]
    private let done: () -> Void
    /// The filters that are asked for, and how often.
    private var asked: [String: Int] = [:]
    /// Those of which not all was shown.
    private var due: Set<String> = []
    /// Filters for one host, with that for all in whose place they stand.
    private var ofHosts: [String: String] = [:]
    private var timer: EventSource?
    private var nextTime: SuspendingClock.Instant?
    private var pause = Time.again.lowerBound
    /// Whether a value was shown that was not there before, and how often it was asked again at once because of that.
    private var hasProgress = false
    private var quickTries = 0
    /// The maximum of filters in a question, where all together was too much, and the last one of the question before: each has
    /// its turn, and in the end alone, so that one with too many values holds up no other.
    private var partSize = RetainedQueries.together
    private var lastOfPart = ""

    /// Values of others may change all the time.
    private static let maxQuickTries = 30

    /// - Parameters:
    ///   - byHost: a filter for each host that there is, instead of one for all.
    ///   - done: called whenever all is shown.
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

    /// The same, behind what the broker has in the session's queue.
    func fetchBehindQueue(_ filters: Set<String>) {
        due.formUnion(filters)
        if !due.isEmpty { wait(Time.afterQueue) }
    }

    /// There is a connection again, in the place of one that the bridge has ended: goes on as if it were the same.
    func connected() {
        guard !due.isEmpty else { return }
        let left = nextTime.map { ($0 - context.now).microseconds / 1_000 } ?? 0
        wait(UInt32(clamping: max(1, left)))
    }

    /// The broker has shown a value that was not there before: with what it has shown, it may get further the next time.
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

    /// The values of one filter were too many, of all hosts together.
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
    /// - Parameter filters: with those for all hosts in whose place they stand.
    func fetch(ofHost filters: [String: String]) {
        ofHosts.merge(filters) { $1 }
        fetch(Set(filters.keys))
    }

    /// Fetches the values of filters.
    func fetch(_ filters: Set<String>) {
        due.formUnion(filters)
        guard broker.isConnected else { return }
        due.subtract(filters)
        // A broker that keeps no values has none.
        guard !filters.isEmpty, broker.limits?.retainAvailable != false else { return }
        for filter in filters { asked[filter, default: 0] += 1 }
        broker.showRetained(filters.sorted().map(BridgeTopic.alias), usesCanary: true) { [weak self] answer in
            self?.shown(filters, answer)
        }
    }

    private func shown(_ filters: Set<String>, _ answer: RetainedQueries.Answer) {
        for filter in filters { asked[filter] = asked[filter].flatMap { $0 > 1 ? $0 - 1 : nil } }
        // A broker that does not allow it shows them with the subscriptions.
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
