// SPDX-License-Identifier: Apache-2.0
import Collections
import MQTT
import MainLoop

/// Asks the broker for the retained messages of certain topics, each alone: of many that a subscription shows at once a broker
/// may have dropped some for want of room.
final class RetainedCheck {
    /// The time for the broker to show them behind its answer, in milliseconds.
    private static let calm: UInt32 = 3_000
    /// Topics that are asked for together.
    private static let together = 32

    private let broker: BrokerLink
    private let context: MainContext
    private let lacks: ([String]) -> Void
    private var waiting = Deque<String>()
    /// Those of the present subscription.
    private var asked: [String] = []
    /// Those of them that the broker has not shown.
    private var unseen: Set<String> = []
    private var subscription: PacketID?
    private var timer: EventSource?

    /// - Parameter lacks: gets topics on which the broker has nothing.
    init(broker: BrokerLink, context: MainContext, lacks: @escaping ([String]) -> Void) {
        self.broker = broker
        self.context = context
        self.lacks = lacks
    }

    var isIdle: Bool { waiting.isEmpty && asked.isEmpty }

    func check(_ topics: [String]) {
        for topic in topics { waiting.append(topic) }
        if asked.isEmpty { askForNext() }
    }

    /// The connection has ended.
    func stop() {
        waiting.removeAll()
        (asked, unseen) = ([], [])
        (subscription, timer) = (nil, nil)
    }

    func take(_ publication: Publication) { unseen.remove(publication.topic) }

    func answered(_ id: PacketID, _ reasons: [ReasonCode]) {
        guard id == subscription else { return }
        subscription = nil
        // Nothing is known of those that it does not show.
        for (topic, reason) in zip(asked, reasons) where reason.isFailure { unseen.remove(topic) }
        wait()
    }

    private func wait() {
        timer = .once(milliseconds: Self.calm, on: context) { [unowned self] in
            timer = nil
            // Messages that are not read yet are not shown.
            if broker.isReadingPaused { return wait() }
            broker.unsubscribe(asked)
            let gone = asked.filter(unseen.contains)
            (asked, unseen) = ([], [])
            askForNext()
            if !gone.isEmpty { lacks(gone) }
        }
    }

    private func askForNext() {
        while asked.count < Self.together, let next = waiting.popFirst() { asked.append(next) }
        guard !asked.isEmpty else { return }
        unseen = Set(asked)
        // Not limited by the window, and nothing of it waits in the session behind a lost connection.
        subscription = broker.subscribe(
            asked.map { TopicFilter($0, quality: .atMostOnce, keepsRetainFlag: true, retainHandling: .always) })
        // There is no connection: nothing is found on it.
        if subscription == nil { stop() }
    }
}
