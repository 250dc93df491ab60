import NotificationCore
import Testing

/// Faults that the model found in what comes back after a restart, by their rules.
@Suite("Restoring")
struct RestoringTests {
    /// Three are lost to a client that has not answered, and it has not been told.
    private static let loss: [Step] = [
        .limit(.queuedPerClient, 1),
        .observe(client: 0, name: 0, object: 0, .hold, .default),
        .post(poster: 1, name: 1, object: 0, bytes: 40_000, immediately: false, times: 5),
    ]
    private static let post = Step.post(poster: 1, name: 1, object: 0, bytes: 0, immediately: false, times: 1)

    @Test(
        "E3, S4: what was lost counts once, whether or not the client was told before the restart",
        arguments: [
            loss + [.restart],
            // The place of a post decides whether the log is as it grew, or written anew.
            loss + [post, .restart],
            loss + [.answer(client: 0, times: 1), .restart],
            loss + [.answer(client: 0, times: 1), post, .restart],
            loss + [.restart, .answer(client: 0, times: 1), .restart, post, .restart],
        ])
    func losses(_ steps: [Step]) {
        let difference = Difference.first(in: steps)
        #expect(difference == nil, "\(difference.map(String.init(describing:)) ?? "")")
    }

    @Test("E3, C3: clients match in the order of registration after a restart, too")
    func order() throws {
        let old = DistributedCenter()
        var effects: [Effect] = []
        let clients = (1...20).map { client($0) }
        for client in clients + clients.reversed() {
            _ = try old.addObserver(of: client, name: "A", object: "", options: ObserverOptions(), effects: &effects)
        }
        let new = DistributedCenter()
        old.forEachRememberedChange { change in #expect(new.restore(change)) }
        new.finishRestoring(effects: &effects)

        effects = []
        let payload = Scenario.Payload(byteCount: 0, tag: 0)
        _ = try new.post(name: "A", object: "", userInfo: payload, from: ":1.0", effects: &effects)
        new.sendAllReady(effects: &effects)
        let receivers = effects.compactMap { if case .deliver(let delivery) = $0 { delivery.client } else { nil } }
        #expect(receivers == clients)
    }
}
