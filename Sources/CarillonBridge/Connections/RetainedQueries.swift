// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop

/// The subscriptions with which the bridge asks once what a broker has retained: its own values, those of one host, or certain
/// topics.
///
/// The messages come as all others do. They have all come when the broker has sent none for a while, as some send them in the
/// background, and has answered the end of the subscription, which it does behind all that it sent before: so neither a slow
/// link nor a pause in reading makes a message seem to be missing.
final class RetainedQueries {
    private enum Time {
        /// In milliseconds.
        static let calm: UInt32 = 3_000
        /// The maximum: messages of others may come all the time.
        static let showing = Duration.seconds(30)
    }

    /// The maximum of filters in a packet.
    static let together = 32

    private final class Query {
        let filters: [String]
        /// The packets that the broker has not answered, with their filters.
        var unanswered: [PacketID: [String]] = [:]
        var refused: Set<String> = []
        var timer: EventSource?
        var shownSince = SuspendingClock.now
        var isEnding = false
        let done: (Set<String>) -> Void

        init(_ filters: [String], _ done: @escaping (Set<String>) -> Void) {
            self.filters = filters
            self.done = done
        }
    }

    private let context: MainContext
    /// - Returns: nil where nothing was sent.
    private let subscribe: ([TopicFilter]) -> PacketID?
    private let unsubscribe: ([String]) -> PacketID?
    private var queries: [Query] = []
    /// Filters that the session may have still.
    private var open: Set<String> = []
    /// The packets that end those of an earlier connection.
    private var leftovers: [PacketID: [String]] = [:]

    init(
        context: MainContext, subscribe: @escaping ([TopicFilter]) -> PacketID?,
        unsubscribe: @escaping ([String]) -> PacketID?
    ) {
        self.context = context
        self.subscribe = subscribe
        self.unsubscribe = unsubscribe
    }

    /// Asks for the retained messages of filters.
    ///
    /// - Parameter done: gets the filters that the broker refused, when it has shown those of all others. Not called if the
    ///   connection ends before.
    func ask(_ filters: [String], excludesOwn: Bool, _ done: @escaping (_ refused: Set<String>) -> Void) {
        let query = Query(filters, done)
        for part in filters.chunks(of: Self.together) {
            let id = subscribe(
                part.map {
                    // Not limited by the window, and nothing of it waits in the session behind a lost connection.
                    TopicFilter(
                        $0, quality: .atMostOnce, excludesOwn: excludesOwn, keepsRetainFlag: true,
                        retainHandling: .always)
                })
            if let id { query.unanswered[id] = Array(part) } else { query.refused.formUnion(part) }
        }
        open.formUnion(filters)
        queries.append(query)
        if query.unanswered.isEmpty { wait(for: query) }
    }

    /// The broker has answered a subscription.
    func answered(_ id: PacketID, _ reasons: [ReasonCode]) {
        guard let query = queries.first(where: { $0.unanswered[id] != nil && !$0.isEnding }) else { return }
        let asked = query.unanswered.removeValue(forKey: id)!
        query.refused.formUnion(zip(asked, reasons).filter { $0.1.isFailure }.map(\.0))
        guard query.unanswered.isEmpty else { return }
        query.shownSince = context.now
        wait(for: query)
    }

    /// The broker has sent a retained message.
    func received() {
        for query in queries where query.timer != nil && context.now - query.shownSince < Time.showing {
            wait(for: query)
        }
    }

    private func wait(for query: Query) {
        query.timer = .once(milliseconds: Time.calm, on: context) { [unowned self, unowned query] in
            query.timer = nil
            end(query)
        }
    }

    private func end(_ query: Query) {
        query.isEnding = true
        for part in query.filters.chunks(of: Self.together) {
            if let id = unsubscribe(Array(part)) { query.unanswered[id] = Array(part) }
        }
        // There is a connection, and the packet is none: nobody answers.
        if query.unanswered.isEmpty { end(of: query) }
    }

    /// The broker has answered the end of a subscription.
    func ended(_ id: PacketID) {
        if let filters = leftovers.removeValue(forKey: id) { return open.subtract(filters) }
        guard let query = queries.first(where: { $0.unanswered[id] != nil && $0.isEnding }) else { return }
        open.subtract(query.unanswered.removeValue(forKey: id)!)
        if query.unanswered.isEmpty { end(of: query) }
    }

    private func end(of query: Query) {
        queries.removeAll { $0 === query }
        query.done(query.refused)
    }

    // MARK: Connections

    /// There is a new connection. The session may have subscriptions of queries that the last one cut off.
    func connected(sessionPresent: Bool) {
        guard sessionPresent else { return open = [] }
        for part in open.sorted().chunks(of: Self.together) {
            if let id = unsubscribe(Array(part)) { leftovers[id] = Array(part) }
        }
    }

    /// The connection is about to end in order.
    func withdraw() {
        for part in open.sorted().chunks(of: Self.together) { _ = unsubscribe(Array(part)) }
        (queries, open) = ([], [])
    }

    func connectionEnded() { (queries, leftovers) = ([], [:]) }
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
