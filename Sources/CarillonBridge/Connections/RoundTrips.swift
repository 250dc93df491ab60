// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop

/// Messages of the bridge to itself by way of the broker: those that somebody asked for, and its own.
///
/// A broker that has dropped a message that it waits for an answer to sends nothing more when its window is full of such. So
/// behind each query, and at the beginning, one goes the way that all go. That one does not come back is a reason for another
/// connection, but not again and again: an access list may keep them away.
final class RoundTrips {
    private enum Time {
        /// Before one of its own is sent: several queries are one reason. In milliseconds.
        static let calm: UInt32 = 500
        /// The maximum for one of its own.
        static let own: UInt32 = 10_000
    }

    private let topic: String
    private let broker: BrokerLink
    private let makeToken: () -> String
    private let context: MainContext
    private var current: RoundTripTest?
    private var isOwn = false
    private var timer: EventSource?
    /// When the first of its own was sent that reading was paused for, as those behind it.
    private var delayedSince: SuspendingClock.Instant?

    /// Whether any has ever come back, and the reasons for another connection since the last that did.
    private var hasComeBack = false
    private var failures = 0
    /// Where none has ever come back one may have been dropped.
    private var maxFailures: Int { hasComeBack ? 3 : 1 }

    init(topic: String, broker: BrokerLink, makeToken: @escaping () -> String, context: MainContext) {
        self.topic = topic
        self.broker = broker
        self.makeToken = makeToken
        self.context = context
    }

    /// Whether one is on its way.
    var isWaiting: Bool { current?.isOver == false }

    /// There is a new connection.
    func connected() {
        delayedSince = nil
        if !hasComeBack || failures > 0 { probe() }
    }

    /// Sends one of its own, in a moment.
    func probe() {
        guard timer == nil, !isWaiting else { return }
        timer = .once(milliseconds: Time.calm, on: context) { [unowned self] in
            timer = nil
            guard broker.isConnected, !isWaiting else { return }
            isOwn = true
            send(timeout: Time.own) { [unowned self] _ in isOwn = false }
        }
    }

    /// Sends one that somebody asked for.
    func test(_ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void) {
        if isOwn { end("somebody waits for another one") }
        guard !isWaiting else { return done(.failure(.init(reason: "another test is on its way"))) }
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
                    // Behind what is not read it can't come.
                    delayedSince = begin
                    return probe()
                }
                if failures < maxFailures, broker.noteMissing(since: begin, mayBeOlder: false) { failures += 1 }
            }
        }
    }

    /// Nothing comes any more.
    func end(_ reason: String) {
        timer = nil
        current?.end(.failure(.init(reason: reason)))
    }

    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) { current?.subscribed(id, reasons) }
    func received(_ publication: Publication) { current?.received(publication) }
}
