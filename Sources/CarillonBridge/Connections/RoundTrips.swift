// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The messages of the bridge to itself through the broker: requested tests, and the bridge's own probes.
///
/// A broker that has dropped messages awaits their acknowledgments forever, and sends nothing more when its window is
/// full of them. The bridge therefore sends a probe the same way as all messages, at the beginning and after each
/// query. A lost probe is a reason for a new connection, but only a limited number of times: an access list may block
/// all probes.
final class RoundTrips {
    private enum Time {
        /// The pause before a probe, in milliseconds: several queries cause one probe.
        static let calm: UInt32 = 500
        /// The maximum time of a probe, in milliseconds.
        static let own: UInt32 = 10_000
    }

    private let topic: String
    private let broker: BrokerLink
    private let makeToken: () -> String
    private let context: MainContext
    private var current: RoundTripTest?
    private var isOwn = false
    private var timer: EventSource?
    /// The time of the first probe of a row that failed because reading was paused.
    private var delayedSince: SuspendingClock.Instant?

    /// Whether any message has ever come back, and the number of reconnections that were caused since the last one.
    private var hasComeBack = false
    private var failures = 0
    /// The maximum number of failures. If no message has ever come back, one of them may have been dropped.
    private var maxFailures: Int { hasComeBack ? 3 : 1 }

    init(topic: String, broker: BrokerLink, makeToken: @escaping () -> String, context: MainContext) {
        self.topic = topic
        self.broker = broker
        self.makeToken = makeToken
        self.context = context
    }

    /// Whether a message is on its way.
    var isWaiting: Bool { current?.isOver == false }

    /// Handles a new connection.
    func connected() {
        delayedSince = nil
        if !hasComeBack || failures > 0 { probe() }
    }

    /// Sends a probe after a short pause.
    func probe() {
        guard timer == nil, !isWaiting else { return }
        timer = .once(milliseconds: Time.calm, on: context) { [unowned self] in
            timer = nil
            guard broker.isConnected, !isWaiting else { return }
            isOwn = true
            send(timeout: Time.own) { [unowned self] _ in isOwn = false }
        }
    }

    /// Sends a requested test message.
    func test(_ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void) {
        if isOwn { end("another test was requested") }
        guard !isWaiting else { return done(.failure(.init(reason: "another test is in progress"))) }
        send(timeout: RoundTripTest.timeout, done)
    }

    private func send(
        timeout: UInt32, _ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void
    ) {
        let (pauses, isPaused, begin) = (broker.pauses, broker.isReadingPaused, delayedSince ?? context.now)
        delayedSince = nil
        current = RoundTripTest(
            topic: topic, token: makeToken(), timeout: timeout, broker: broker, context: context
        ) { [unowned self] result in
            done(result)
            switch result {
            case .success: (hasComeBack, failures) = (true, 0)
            case .failure(let failure):
                guard failure.kind == .silence else { return }
                guard !isPaused, broker.pauses == pauses else {
                    // A message can't arrive behind unread ones.
                    delayedSince = begin
                    return probe()
                }
                if failures < maxFailures, broker.noteMissing(since: begin, mayBeOlder: false) { failures += 1 }
            }
        }
    }

    /// Ends the present message, because nothing arrives any more.
    func end(_ reason: String) {
        timer = nil
        current?.end(.failure(.init(reason: reason)))
    }

    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) { current?.subscribed(id, reasons) }
    func received(_ publication: Publication) { current?.received(publication) }
}
