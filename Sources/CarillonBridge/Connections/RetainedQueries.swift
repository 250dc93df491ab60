// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The subscriptions with which the bridge asks once what a broker has retained: its own values, those of one host, or certain
/// topics.
///
/// The messages come as all others do. They have come when the broker has sent none of them for a while, as some send them in
/// the background, and has answered the end of the subscription, which it does behind all that it sent before: so neither a slow
/// link nor a pause in reading makes a message seem to be missing. A broker that has no room drops some without a word; then it
/// drops the canary behind them as well, a message that it surely has: it is asked for in the same packet, as after that there
/// may be room again.
final class RetainedQueries {
    private enum Time {
        /// In milliseconds.
        static let calm: UInt32 = 3_000
        /// The maximum: messages of others may come all the time.
        static let showing = Duration.seconds(30)
        /// The maximum for the broker to answer a packet, in milliseconds.
        static let answer: UInt32 = 90_000
    }

    /// The outcome of a query.
    struct Answer {
        /// The filters that the broker does not let be subscribed to.
        var refused: Set<String> = []
        var outcome = Outcome.complete

        /// Whether it has shown all that it has of the others.
        var isComplete: Bool { outcome == .complete }
    }

    /// The way that a query has ended.
    enum Outcome {
        case complete
        /// It has answered, and has not shown the canary: so it has dropped more, for all that anybody knows.
        case withoutCanary
        case unanswered
    }

    /// The identifiers of queries: each has one of its own.
    static let firstIdentifier: UInt32 = 2
    /// A published message, as far as it differs from others on the same topic.
    struct CanaryContent: Equatable {
        let payload: [UInt8]
        let properties: [UserProperty]

        init(_ publication: Publication) { (payload, properties) = (publication.payload, publication.userProperties) }
    }

    private static let lastOfIdentifiers: UInt32 = 268_435_455

    /// The maximum of filters in a packet.
    static let together = 32

    private final class Query {
        enum Phase {
            case asking
            case showing
            case ending
        }

        /// That of its subscriptions.
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
        /// The packets with a canary, its content when they were sent, and how often it was shown.
        var canaries = 0
        var canary: CanaryContent?
        /// Those of all queries that end with this one.
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
    /// Those that wait for the end of the one that is under way.
    private var waiting: [Query] = []
    /// Whether the broker tells of a message by which subscriptions it comes. Of one that does not, a canary may be that of
    /// another query, so that there is one at a time.
    private var isOneAtATime = false
    private var lastIdentifier = firstIdentifier
    /// Filters that the session may have still, with the subscriptions of queries of which the broker has not said that they have
    /// ended.
    private var open: [String: Int] = [:]
    /// The packets that end those of an earlier connection.
    private var leftovers: [PacketID: [String]] = [:]

    init(
        context: MainContext, subscribe: @escaping ([TopicFilter], UInt32) -> PacketID?,
        unsubscribe: @escaping ([String]) -> PacketID?
    ) {
        self.context = context
        self.subscribe = subscribe
        self.unsubscribe = unsubscribe
    }

    /// A topic on which the broker has a message for certain, and a filter for it that nobody else uses.
    var canary: (topic: String, filter: String)?

    /// The content that this process has published on the canary's topic; nil for none. A message that is published while a
    /// query is open comes by it as well, and is no canary.
    var canaryContent: CanaryContent?
    /// Whether the broker has ever shown the canary: an access list may keep it from this client.
    private(set) var hasSeenCanary = false

    /// Whether nothing is asked for.
    var isIdle: Bool { queries.isEmpty && waiting.isEmpty }

    /// Asks for the retained messages of filters.
    ///
    /// - Parameters:
    ///   - excludesOwn: whether messages that this bridge publishes meanwhile do not come.
    ///   - usesCanary: whether it matters that none is missing.
    ///   - done: called when it is over. Not called if the connection ends before.
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
            // Other options would make it another packet.
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

    /// Not limited by the window, and nothing of it waits in the session behind a lost connection.
    private func filter(_ text: String, excludesOwn: Bool) -> TopicFilter {
        TopicFilter(
            text, quality: .atMostOnce, excludesOwn: excludesOwn, keepsRetainFlag: true, retainHandling: .always)
    }

    /// The broker has answered a subscription.
    func answered(_ id: PacketID, _ reasons: [ReasonCode]) {
        guard let query = queries.first(where: { $0.phase == .asking && $0.unanswered[id] != nil }) else { return }
        let asked = query.unanswered.removeValue(forKey: id)!
        query.answer.refused.formUnion(zip(asked, reasons).filter { $0.1.isFailure }.map(\.0))
        // The last is the canary.
        if reasons.count > asked.count, reasons.last?.isFailure == true { query.canaries -= 1 }
        guard query.unanswered.isEmpty else { return }
        query.phase = .showing
        query.shownSince = context.now
        wait(for: query, Time.calm)
    }

    /// The broker has sent a retained message.
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

    /// The broker has answered the end of a subscription.
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

    /// There is a new connection. The session may have subscriptions of queries that the last one cut off.
    ///
    /// - Parameter identifiersAvailable: whether the broker tells by which subscriptions a message comes.
    func connected(sessionPresent: Bool, identifiersAvailable: Bool) {
        isOneAtATime = !identifiersAvailable
        guard sessionPresent else { return open = [:] }
        for part in open.keys.sorted().chunks(of: Self.together) {
            if let id = unsubscribe(Array(part)) { leftovers[id] = Array(part) }
        }
    }

    /// The connection is about to end in order.
    func withdraw() {
        for part in open.keys.sorted().chunks(of: Self.together) { _ = unsubscribe(Array(part)) }
        (queries, waiting, open) = ([], [], [:])
    }

    func connectionEnded() {
        (queries, waiting, leftovers) = ([], [], [:])
        // However many they were, one packet ends them.
        open = open.mapValues { _ in 1 }
    }
}

extension Collection {
    /// The elements, in parts of a size at most.
    func chunks(of size: Int) -> [SubSequence] {
        var (parts, rest) = ([SubSequence](), self[...])
        while !rest.isEmpty {
            parts.append(rest.prefix(size))
            rest = rest.dropFirst(size)
        }
        return parts
    }
}
