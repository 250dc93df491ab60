// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A query for the connections that are on the bus now, for `ListPosters`: the service does not watch posters, so some
/// of the posters that it remembers have left.
///
/// Each request is answered by a query that begins after it. Requests that arrive during a query share the next one. A
/// watch on each poster would cost two calls to the bus per poster instead.
final class PresentConnections {
    /// Gets the names of the present connections; nil if the bus does not answer.
    typealias Answer = (Set<UniqueName>?) -> Void

    private unowned let callers: Callers
    /// The requests that the running query answers; empty while none runs.
    private var asked: [Answer] = []
    /// The requests that arrived after the running query began. The next query answers them.
    private var waiting: [Answer] = []
    /// The maximum number of unanswered requests.
    private static let maxWaiting = 1024

    /// - Parameter callers: has the connection for the query (``Callers/way``); the owner of this object keeps it
    ///   alive.
    init(_ callers: Callers) {
        self.callers = callers
    }

    /// Requests the connections of the bus.
    ///
    /// - Parameter answer: called once, with the connections that are present when the bus handles the query.
    /// - Throws: LimitExceeded while ``maxWaiting`` requests are unanswered.
    func ask(_ answer: @escaping Answer) throws(BusError) {
        guard asked.count + waiting.count < Self.maxWaiting else {
            throw BusError(.limitExceeded, message: "too many requests wait for an answer of the bus")
        }
        waiting.append(answer)
        if asked.isEmpty { askBus() }
    }

    private func askBus() {
        (asked, waiting) = (waiting, [])
        callers.way.connections { [weak self] result in
            guard let self else { return }
            let names = try? result.get()
            let answered = asked
            asked = []
            answered.forEach { $0(names) }
            // One of these requests may have made another, which has begun a query.
            if asked.isEmpty, !waiting.isEmpty { askBus() }
        }
    }
}
