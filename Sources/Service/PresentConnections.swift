// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// Which connections are on the bus, for whoever lists some that the service does not watch. The bus is asked each time:
/// to be told of the leaving of all who ever posted would cost every one of them two calls to the bus.
final class PresentConnections {
    typealias Answer = (Set<UniqueName>?) -> Void

    private unowned let callers: Callers
    /// Those who wait for what the bus was asked.
    private var asked: [Answer] = []
    /// Those who came behind that question, and get the answer to the next one.
    private var waiting: [Answer] = []
    private static let maxWaiting = 1024

    /// - Parameter callers: the caller keeps it. Where they are asked about, this is.
    init(_ callers: Callers) {
        self.callers = callers
    }

    /// - Parameter answer: gets those that are there behind all that the bus has carried so far; nil where the bus does
    ///   not tell.
    /// - Throws: LimitExceeded while too many wait.
    func ask(_ answer: @escaping Answer) throws(BusError) {
        guard asked.count + waiting.count < Self.maxWaiting else {
            throw BusError(.limitExceeded, message: "too many wait for what the bus tells")
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
