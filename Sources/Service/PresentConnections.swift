// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The connections that are on the bus, for lists of connections that the service does not watch. The bus is asked each
/// time: a watch on each poster would cost it two calls to the bus.
final class PresentConnections {
    typealias Answer = (Set<UniqueName>?) -> Void

    private unowned let callers: Callers
    /// Requests that wait for the pending question to the bus.
    private var asked: [Answer] = []
    /// Requests that came behind that question; the next question answers them.
    private var waiting: [Answer] = []
    private static let maxWaiting = 1024

    /// - Parameter callers: the table of callers, over whose connection the bus is asked; the caller keeps it.
    init(_ callers: Callers) {
        self.callers = callers
    }

    /// Asks the bus for its connections.
    ///
    /// - Parameter answer: gets the connections that are present behind all that the bus has carried so far; nil where
    ///   the bus does not answer.
    /// - Throws: LimitExceeded while too many requests wait (`maxWaiting`).
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
            if asked.isEmpty, !waiting.isEmpty { askBus() }
        }
    }
}
