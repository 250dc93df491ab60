// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// Queries for retained messages of the broker. MQTT has no request for them: a query is a temporary subscription with
/// quality of service 0, with which the broker sends its retained messages. ``BrokerLink`` owns it. Queries serve to
/// compare values and presences with the broker.
///
/// A query takes these steps:
/// 1. Subscribe to its filters, in packets of at most ``batchSize`` filters.
/// 2. Wait until no message of it has arrived for a while, because some brokers send the messages in the background.
/// 3. Unsubscribe. The broker answers behind all earlier messages, so that neither a slow link nor paused reading makes
///    a message seem missing.
///
/// A broker without buffer space drops messages silently. To notice that, a query may use a *canary*: a retained
/// message that the broker certainly has, requested at the end of each packet. If the canary does not arrive, other
/// messages were probably dropped as well. It is in the same packet, because after the packet there may be space again.
final class RetainedQueries {
    private enum Time {
        /// The time without further messages after which step 2 ends, in milliseconds.
        static let calm: UInt32 = 3_000
        /// The maximum time of step 2, because messages of others may arrive all the time.
        static let showing = Duration.seconds(30)
        /// The maximum time for the broker's answer to a packet, in milliseconds.
        static let answer: UInt32 = 90_000
    }

    /// The answer to a query. The messages themselves arrive like all others.
    struct Answer {
        /// The filters that the broker does not allow to be subscribed to.
        var refused: Set<String> = []
        /// The outcome of the query.
        var outcome = Outcome.complete

        /// Whether the broker has probably shown all its messages of the filters that it did not refuse.
        var isComplete: Bool { outcome == .complete }
    }

    /// The outcome of a query.
    enum Outcome {
        /// The broker has answered, and the canary has arrived if one was used.
        case complete
        /// The broker has answered and not shown each canary, so it has probably dropped other messages as well.
        case withoutCanary
        /// The broker did not answer in time.
        case unanswered
    }

    /// The lowest subscription identifier of queries. Each query has its own, by which its messages are recognized.
    static let firstIdentifier: UInt32 = 2
    /// The content of a message on the canary's topic, to distinguish it from others on the same topic.
    struct CanaryContent: Equatable {
        let payload: [UInt8]
        let properties: [UserProperty]

        init(_ publication: Publication) { (payload, properties) = (publication.payload, publication.userProperties) }
    }

    /// The highest identifier that MQTT allows.
    private static let lastOfIdentifiers: UInt32 = 268_435_455

    /// The maximum number of filters in a packet.
    static let batchSize = 32

    /// A query that is in progress or waits.
    private final class Query {
        enum Phase {
            /// Step 1: the broker has not answered all packets.
            case asking
            /// Step 2: messages arrive.
            case showing
            /// Step 3: the broker has not answered all unsubscriptions.
            case ending
        }

        /// The identifier of the query's subscriptions.
        let identifier: UInt32
        let filters: [String]
        let excludesOwn: Bool
        let usesCanary: Bool
        /// The filters without wildcards.
        let topics: Set<String>
        /// The filters with wildcards.
        let wildcards: [String]
        var phase = Phase.asking
        /// The packets that the broker has not answered, with their filters.
        var unanswered: [PacketID: [String]] = [:]
        /// The answer so far.
        var answer = Answer()
        /// The time limit of the step.
        var timer: EventSource?
        /// The beginning of step 2.
        var shownSince = SuspendingClock.now
        /// The number of packets with a canary that was not refused.
        var canaries = 0
        /// The expected content of the canary (not its topic): that of its message when the query began; nil for any.
        var canary: CanaryContent?
        /// The number of subscriptions to the canary, of all queries, that the unsubscription of this query ends.
        var canariesEnded = 0
        /// The number of canaries that have arrived.
        var shownCanaries = 0
        let done: (Answer) -> Void

        init(
            _ identifier: UInt32, _ filters: [String], excludesOwn: Bool, usesCanary: Bool,
            _ done: @escaping (Answer) -> Void
        ) {
            self.identifier = identifier
            self.filters = filters
            self.excludesOwn = excludesOwn
            self.usesCanary = usesCanary
            self.done = done
            wildcards = filters.filter { $0.utf8.contains { $0 == UInt8(ascii: "+") || $0 == UInt8(ascii: "#") } }
            topics = Set(filters).subtracting(wildcards)
        }

        /// Whether a message on a topic belongs to the query.
        func isFor(_ topic: String) -> Bool {
            topics.contains(topic) || wildcards.contains { BridgeTopic.matches($0, topic) }
        }
    }

    private let context: MainContext
    /// Sends a SUBSCRIBE packet.
    ///
    /// - Returns: nil if nothing was sent.
    private let subscribe: ([TopicFilter], _ identifier: UInt32) -> PacketID?
    /// Sends an UNSUBSCRIBE packet.
    private let unsubscribe: ([String]) -> PacketID?
    /// The queries in progress.
    private var queries: [Query] = []
    /// The queries that wait for the end of the one in progress.
    private var waiting: [Query] = []
    /// Whether only one query may be in progress. Without subscription identifiers it is unknown to which query a
    /// canary belongs.
    private var isOneAtATime = false
    /// The identifier of the last query.
    private var lastIdentifier = firstIdentifier
    /// The filters that the broker's session may still have, each with the number of queries that have subscribed to it
    /// and not confirmed its end.
    private var open: [String: Int] = [:]
    /// The unanswered packets that end subscriptions of an earlier connection, with their filters.
    private var leftovers: [PacketID: [String]] = [:]

    /// Creates an object without queries.
    ///
    /// - Parameters:
    ///   - subscribe: sends a SUBSCRIBE packet with a subscription identifier; returns nil if nothing was sent.
    ///   - unsubscribe: sends an UNSUBSCRIBE packet.
    init(
        context: MainContext, subscribe: @escaping ([TopicFilter], UInt32) -> PacketID?,
        unsubscribe: @escaping ([String]) -> PacketID?
    ) {
        self.context = context
        self.subscribe = subscribe
        self.unsubscribe = unsubscribe
    }

    /// The canary: a topic on which the broker certainly has a message, and a filter for it that no other subscription
    /// uses.
    var canary: (topic: String, filter: String)?

    /// The content that this process has published last on the canary's topic; nil for none. A message with other
    /// content that arrives during a query was published then, and is no canary.
    var canaryContent: CanaryContent?
    /// Whether the broker has ever shown the canary to this client. An access list may prevent it.
    private(set) var hasSeenCanary = false

    /// Whether no query is in progress or waits.
    var isIdle: Bool { queries.isEmpty && waiting.isEmpty }

    /// Begins a query.
    ///
    /// - Parameters:
    ///   - excludesOwn: whether messages that this bridge publishes meanwhile do not arrive.
    ///   - usesCanary: whether to use a canary.
    ///   - done: called when the query has ended. Not called if the connection ends before.
    func ask(
        _ filters: [String], excludesOwn: Bool, usesCanary: Bool, _ done: @escaping (_ answer: Answer) -> Void
    ) {
        lastIdentifier = lastIdentifier < Self.lastOfIdentifiers ? lastIdentifier + 1 : Self.firstIdentifier
        let query = Query(lastIdentifier, filters, excludesOwn: excludesOwn, usesCanary: usesCanary, done)
        guard !isOneAtATime || isIdle else { return waiting.append(query) }
        begin(query)
    }

    /// Step 1: subscribes.
    private func begin(_ query: Query) {
        let (filters, canary) = (query.filters, query.usesCanary ? canary : nil)
        query.canary = canaryContent
        for part in filters.chunks(of: Self.batchSize) {
            // Filters with different options would leave in separate packets, without the canary. The canary is a
            // message of this client itself, so with a canary no filter excludes own messages.
            var packet = part.map { filter($0, excludesOwn: query.excludesOwn && canary == nil) }
            if let canary { packet.append(filter(canary.filter, excludesOwn: false)) }
            if let id = subscribe(packet, query.identifier) {
                query.unanswered[id] = Array(part)
                if let canary {
                    query.canaries += 1
                    open[canary.filter, default: 0] += 1
                }
            } else {
                query.answer.refused.formUnion(part)
            }
        }
        for filter in filters { open[filter, default: 0] += 1 }
        queries.append(query)
        wait(for: query, Time.answer)
        // Without a sent packet there is no answer to wait for.
        if query.unanswered.isEmpty { end(query) }
    }

    /// Returns a filter with quality of service 0: the in-flight window does not delay its messages, and none of them
    /// waits in the session after a lost connection.
    private func filter(_ text: String, excludesOwn: Bool) -> TopicFilter {
        TopicFilter(
            text, quality: .atMostOnce, excludesOwn: excludesOwn, keepsRetainFlag: true, retainHandling: .always)
    }

    /// Handles the broker's answer to a subscription, of a query or not.
    func answered(_ id: PacketID, _ reasons: [ReasonCode]) {
        guard let query = queries.first(where: { $0.phase == .asking && $0.unanswered[id] != nil }) else { return }
        let asked = query.unanswered.removeValue(forKey: id)!
        query.answer.refused.formUnion(zip(asked, reasons).filter { $0.1.isFailure }.map(\.0))
        // The last filter is that of the canary.
        if reasons.count > asked.count, reasons.last?.isFailure == true { query.canaries -= 1 }
        guard query.unanswered.isEmpty else { return }
        query.phase = .showing
        query.shownSince = context.now
        wait(for: query, Time.calm)
    }

    /// Handles a retained message of the broker: counts canaries, and extends step 2 of the queries to which it
    /// belongs.
    func received(_ publication: Publication) {
        let (topic, identifiers) = (publication.topic, publication.subscriptions)
        let isCanary = topic == canary?.topic
        if isCanary { hasSeenCanary = true }
        for query in queries {
            // The broker's answer to a subscription has the identifier of that subscription alone. A message with
            // several identifiers was published during the query, and is no canary.
            if isCanary, identifiers.isEmpty || identifiers == [query.identifier],
                query.canary.map({ $0 == CanaryContent(publication) }) ?? true
            {
                query.shownCanaries += 1
            }
            guard query.phase == .showing, context.now - query.shownSince < Time.showing, query.isFor(topic) else {
                continue
            }
            wait(for: query, Time.calm)
        }
    }

    /// Starts the timer of a step.
    private func wait(for query: Query, _ milliseconds: UInt32) {
        query.timer = .once(milliseconds: milliseconds, on: context) { [unowned self, unowned query] in
            query.timer = nil
            switch query.phase {
            case .showing: end(query)
            case .asking, .ending:
                // The broker did not answer in time. It may have subscriptions all the same.
                for part in query.filters.chunks(of: Self.batchSize) { _ = unsubscribe(Array(part)) }
                query.answer.outcome = .unanswered
                end(of: query)
            }
        }
    }

    /// Step 3: unsubscribes. Only the last query in progress also ends the subscription to the canary, which all
    /// queries share.
    private func end(_ query: Query) {
        query.phase = .ending
        wait(for: query, Time.answer)
        let isLast = queries.allSatisfy { $0 === query || $0.phase == .ending }
        if isLast { query.canariesEnded = canary.flatMap { open[$0.filter] } ?? 0 }
        for part in query.filters.chunks(of: Self.batchSize) {
            if let id = unsubscribe(Array(part) + (isLast ? canary.map { [$0.filter] } ?? [] : [])) {
                query.unanswered[id] = Array(part)
            }
        }
    }

    /// Handles the broker's answer to an unsubscription, of a query or not.
    func ended(_ id: PacketID) {
        if let filters = leftovers.removeValue(forKey: id) { return close(filters) }
        guard let query = queries.first(where: { $0.phase == .ending && $0.unanswered[id] != nil }) else { return }
        close(query.unanswered.removeValue(forKey: id)!)
        guard query.unanswered.isEmpty else { return }
        if let canary { close([canary.filter], count: query.canariesEnded) }
        if query.shownCanaries < query.canaries { query.answer.outcome = .withoutCanary }
        end(of: query)
    }

    /// Notes that the broker has ended subscriptions.
    private func close(_ filters: [String], count: Int = 1) {
        for filter in filters {
            guard let uses = open[filter] else { continue }
            open[filter] = uses > count ? uses - count : nil
        }
    }

    /// Ends a query after step 3: passes its answer on, and begins the next waiting query.
    private func end(of query: Query) {
        query.timer = nil
        queries.removeAll { $0 === query }
        query.done(query.answer)
        guard queries.isEmpty, !waiting.isEmpty else { return }
        begin(waiting.removeFirst())
    }

    // MARK: Connections

    /// Handles a new connection: ends subscriptions of interrupted queries that the broker's session may still have.
    func connected(sessionPresent: Bool, identifiersAvailable: Bool) {
        isOneAtATime = !identifiersAvailable
        guard sessionPresent else { return open = [:] }
        for part in open.keys.sorted().chunks(of: Self.batchSize) {
            if let id = unsubscribe(Array(part)) { leftovers[id] = Array(part) }
        }
    }

    /// Ends the subscriptions of all queries before the bridge ends the connection. No callback is called.
    func withdraw() {
        for part in open.keys.sorted().chunks(of: Self.batchSize) { _ = unsubscribe(Array(part)) }
        (queries, waiting, open) = ([], [], [:])
    }

    /// Ends all queries without a callback, because the connection has ended.
    func connectionEnded() {
        (queries, waiting, leftovers) = ([], [], [:])
        // At the next connection one packet ends the subscription to a filter, for any number of queries.
        open = open.mapValues { _ in 1 }
    }
}

extension Collection {
    /// Returns the elements in parts of at most `size` elements.
    func chunks(of size: Int) -> [SubSequence] {
        var (parts, rest) = ([SubSequence](), self[...])
        while !rest.isEmpty {
            parts.append(rest.prefix(size))
            rest = rest.dropFirst(size)
        }
        return parts
    }
}
