// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The queries for retained messages of a broker: temporary subscriptions to the bridge's own values, those of one
/// host, or certain topics.
///
/// The messages arrive like all others. A query ends when no message of it has arrived for a while, as some brokers
/// send them in the background, and the broker has answered the unsubscription. The broker sends that answer behind all
/// earlier messages, so that neither a slow link nor paused reading makes a message seem missing.
///
/// A broker without buffer space drops messages silently. It then also drops the canary behind them, a message that it
/// certainly has. The canary is requested in the same packet, because after the packet there may be space again.
final class RetainedQueries {
    private enum Time {
        /// The time without further messages after which a query ends, in milliseconds.
        static let calm: UInt32 = 3_000
        /// The maximum time of a query: messages of others may arrive all the time.
        static let showing = Duration.seconds(30)
        /// The maximum time for the broker's answer to a packet, in milliseconds.
        static let answer: UInt32 = 90_000
    }

    /// The outcome of a query.
    struct Answer {
        /// The filters that the broker does not allow to be subscribed to.
        var refused: Set<String> = []
        var outcome = Outcome.complete

        /// Whether the broker has shown all its messages of the other filters.
        var isComplete: Bool { outcome == .complete }
    }

    /// The outcome of a query.
    enum Outcome {
        case complete
        /// The broker has answered and has not shown the canary, so it has probably dropped other messages as well.
        case withoutCanary
        case unanswered
    }

    /// The lowest identifier of queries; each query has its own.
    static let firstIdentifier: UInt32 = 2
    /// The content of a published message, as far as it differs from others on the same topic.
    struct CanaryContent: Equatable {
        let payload: [UInt8]
        let properties: [UserProperty]

        init(_ publication: Publication) { (payload, properties) = (publication.payload, publication.userProperties) }
    }

    private static let lastOfIdentifiers: UInt32 = 268_435_455

    /// The maximum number of filters in a packet.
    static let together = 32

    private final class Query {
        enum Phase {
            case asking
            case showing
            case ending
        }

        /// The identifier of the query's subscriptions.
        let identifier: UInt32
        let filters: [String]
        let excludesOwn: Bool
        let usesCanary: Bool
        let topics: Set<String>
        let wildcards: [String]
        var phase = Phase.asking
        /// The packets that the broker has not answered, with their filters.
        var unanswered: [PacketID: [String]] = [:]
        var answer = Answer()
        var timer: EventSource?
        var shownSince = SuspendingClock.now
        /// The number of packets with a canary, and the canary's content when they were sent.
        var canaries = 0
        var canary: CanaryContent?
        /// The number of canary subscriptions of all queries that end with this one.
        var canariesEnded = 0
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

        func isFor(_ topic: String) -> Bool {
            topics.contains(topic) || wildcards.contains { BridgeTopic.matches($0, topic) }
        }
    }

    private let context: MainContext
    /// - Returns: nil where nothing was sent.
    private let subscribe: ([TopicFilter], _ identifier: UInt32) -> PacketID?
    private let unsubscribe: ([String]) -> PacketID?
    private var queries: [Query] = []
    /// The queries that wait for the end of the present one.
    private var waiting: [Query] = []
    /// Whether only one query may be open: without subscription identifiers a canary may belong to another query.
    private var isOneAtATime = false
    private var lastIdentifier = firstIdentifier
    /// The filters that the broker's session may still have, with the number of query subscriptions whose end the
    /// broker has not confirmed.
    private var open: [String: Int] = [:]
    /// The unanswered packets that end subscriptions of an earlier connection.
    private var leftovers: [PacketID: [String]] = [:]

    init(
        context: MainContext, subscribe: @escaping ([TopicFilter], UInt32) -> PacketID?,
        unsubscribe: @escaping ([String]) -> PacketID?
    ) {
        self.context = context
        self.subscribe = subscribe
        self.unsubscribe = unsubscribe
    }

    /// A topic on which the broker certainly has a message, and a filter for it that no other subscription uses.
    var canary: (topic: String, filter: String)?

    /// The content that this process has published on the canary's topic; nil for none. A message that is published
    /// during a query also arrives through it, and is no canary.
    var canaryContent: CanaryContent?
    /// Whether the broker has ever shown the canary: an access list may keep it from this client.
    private(set) var hasSeenCanary = false

    /// Whether no query is open or queued.
    var isIdle: Bool { queries.isEmpty && waiting.isEmpty }

    /// Asks for the retained messages of filters.
    ///
    /// - Parameters:
    ///   - excludesOwn: whether messages that this bridge publishes meanwhile do not arrive.
    ///   - usesCanary: whether a canary is to reveal dropped messages.
    ///   - done: called when the query has ended. Not called if the connection ends before.
    func ask(
        _ filters: [String], excludesOwn: Bool, usesCanary: Bool, _ done: @escaping (_ answer: Answer) -> Void
    ) {
        lastIdentifier = lastIdentifier < Self.lastOfIdentifiers ? lastIdentifier + 1 : Self.firstIdentifier
        let query = Query(lastIdentifier, filters, excludesOwn: excludesOwn, usesCanary: usesCanary, done)
        guard !isOneAtATime || isIdle else { return waiting.append(query) }
        begin(query)
    }

    private func begin(_ query: Query) {
        let (filters, canary) = (query.filters, query.usesCanary ? canary : nil)
        query.canary = canaryContent
        for part in filters.chunks(of: Self.together) {
            // All filters of a packet have the same options.
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
        if query.unanswered.isEmpty { end(query) }
    }

    /// Returns a filter with quality of service 0: the window does not limit its messages, and none of them waits in
    /// the session after a lost connection.
    private func filter(_ text: String, excludesOwn: Bool) -> TopicFilter {
        TopicFilter(
            text, quality: .atMostOnce, excludesOwn: excludesOwn, keepsRetainFlag: true, retainHandling: .always)
    }

    /// Handles the broker's answer to a subscription.
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

    /// Handles a retained message of the broker.
    func received(_ publication: Publication) {
        let (topic, identifiers) = (publication.topic, publication.subscriptions)
        let isCanary = topic == canary?.topic
        if isCanary { hasSeenCanary = true }
        for query in queries {
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

    private func wait(for query: Query, _ milliseconds: UInt32) {
        query.timer = .once(milliseconds: milliseconds, on: context) { [unowned self, unowned query] in
            query.timer = nil
            switch query.phase {
            case .showing: end(query)
            case .asking, .ending:
                for part in query.filters.chunks(of: Self.together) { _ = unsubscribe(Array(part)) }
                query.answer.outcome = .unanswered
                end(of: query)
            }
        }
    }

    private func end(_ query: Query) {
        query.phase = .ending
        wait(for: query, Time.answer)
        let isLast = queries.allSatisfy { $0 === query || $0.phase == .ending }
        if isLast { query.canariesEnded = canary.flatMap { open[$0.filter] } ?? 0 }
        for part in query.filters.chunks(of: Self.together) {
            if let id = unsubscribe(Array(part) + (isLast ? canary.map { [$0.filter] } ?? [] : [])) {
                query.unanswered[id] = Array(part)
            }
        }
    }

    /// Handles the broker's answer to an unsubscription.
    func ended(_ id: PacketID) {
        if let filters = leftovers.removeValue(forKey: id) { return close(filters) }
        guard let query = queries.first(where: { $0.phase == .ending && $0.unanswered[id] != nil }) else { return }
        close(query.unanswered.removeValue(forKey: id)!)
        guard query.unanswered.isEmpty else { return }
        if let canary { close([canary.filter], count: query.canariesEnded) }
        if query.shownCanaries < query.canaries { query.answer.outcome = .withoutCanary }
        end(of: query)
    }

    private func close(_ filters: [String], count: Int = 1) {
        for filter in filters {
            guard let uses = open[filter] else { continue }
            open[filter] = uses > count ? uses - count : nil
        }
    }

    private func end(of query: Query) {
        query.timer = nil
        queries.removeAll { $0 === query }
        query.done(query.answer)
        guard queries.isEmpty, !waiting.isEmpty else { return }
        begin(waiting.removeFirst())
    }

    // MARK: Connections

    /// Handles a new connection: ends subscriptions of interrupted queries that the session may still have.
    ///
    /// - Parameter identifiersAvailable: whether the broker sends the identifiers of a message's subscriptions.
    func connected(sessionPresent: Bool, identifiersAvailable: Bool) {
        isOneAtATime = !identifiersAvailable
        guard sessionPresent else { return open = [:] }
        for part in open.keys.sorted().chunks(of: Self.together) {
            if let id = unsubscribe(Array(part)) { leftovers[id] = Array(part) }
        }
    }

    /// Ends all queries before the connection ends in order.
    func withdraw() {
        for part in open.keys.sorted().chunks(of: Self.together) { _ = unsubscribe(Array(part)) }
        (queries, waiting, open) = ([], [], [:])
    }

    func connectionEnded() {
        (queries, waiting, leftovers) = ([], [], [:])
        // One packet ends all subscriptions with the same filter.
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
