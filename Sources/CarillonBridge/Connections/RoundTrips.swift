// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// The messages that the bridge sends to itself through the broker, one at a time: the tests of `carillon bridge test`,
/// and the bridge's own probes. ``BridgeInstance`` owns it.
///
/// A broker that has dropped messages waits for their acknowledgments forever. When they fill its in-flight window, it
/// sends no further message. A probe takes the same path as all messages, at the beginning of a connection and after
/// each query, and finds that out. A lost probe is a reason to renew the connection, but only a limited number of
/// times, because an access list may block all probes.
final class RoundTrips {
    private enum Time {
        /// The pause before a probe, in milliseconds, so that several queries cause one probe.
        static let calm: UInt32 = 500
        /// The time limit of a probe, in milliseconds.
        static let own: UInt32 = 10_000
    }

    private let topic: String
    private let broker: BrokerLink
    /// Returns a random payload, by which a test message is recognized.
    private let makeToken: () -> String
    private let context: MainContext
    /// The present or last test or probe.
    private var current: RoundTripTest?
    /// Whether the message in progress is the bridge's own probe, and no requested test.
    private var isOwn = false
    /// Runs before a probe.
    private var timer: EventSource?
    /// The time of the first of several probes that failed because reading was paused; nil for none.
    private var delayedSince: SuspendingClock.Instant?

    /// Whether any message has ever come back.
    private var hasComeBack = false
    /// The number of renewals of the connection since a message last came back.
    private var failures = 0
    /// The maximum of `failures`. If no message has ever come back, an access list may block all, so only one renewal
    /// is tried.
    private var maxFailures: Int { hasComeBack ? 3 : 1 }

    /// Creates an object without tests.
    ///
    /// - Parameter topic: the topic of the messages.
    init(topic: String, broker: BrokerLink, makeToken: @escaping () -> String, context: MainContext) {
        self.topic = topic
        self.broker = broker
        self.makeToken = makeToken
        self.context = context
    }

    /// Whether a test or a probe is in progress.
    var isWaiting: Bool { current?.isOver == false }

    /// Handles a new connection. If messages have come back before and no probe was lost since, no probe is needed.
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

    /// Sends a requested test message. A probe in progress ends; another requested test is refused.
    func test(_ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void) {
        if isOwn { end("another test was requested") }
        guard !isWaiting else { return done(.failure(.init(reason: "another test is in progress"))) }
        send(timeout: RoundTripTest.timeout, done)
    }

    /// Sends a message.
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
                    // While reading was paused, the message could not arrive. This is no evidence of dropped messages.
                    delayedSince = begin
                    return probe()
                }
                if failures < maxFailures, broker.noteMissing(since: begin, mayBeOlder: false) { failures += 1 }
            }
        }
    }

    /// Ends the test in progress, for example because the connection has ended.
    func end(_ reason: String) {
        timer = nil
        current?.end(.failure(.init(reason: reason)))
    }

    /// Passes the broker's answer to a subscription on.
    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) { current?.subscribed(id, reasons) }
    /// Passes a message on the topic on.
    func received(_ publication: Publication) { current?.received(publication) }
}
