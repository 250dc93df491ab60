// SPDX-License-Identifier: Apache-2.0
import MQTT
import MainLoop

/// Messages of the bridge to itself by way of the broker: those that somebody asked for, and its own.
///
/// A broker that has dropped a message that it waits for an answer to sends nothing more when its window is full of such. So
/// behind each query, and at the beginning, one goes the way that all go. Where none has ever come back an access list may keep
/// them away: that is a reason once.
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
    private enum Experience {
        /// None has come back yet, and the first that does not may have been dropped.
        case none
        case comesBack
        /// None has ever come back.
        case silence
    }

    private var experience = Experience.none

    init(topic: String, broker: BrokerLink, makeToken: @escaping () -> String, context: MainContext) {
        self.topic = topic
        self.broker = broker
        self.makeToken = makeToken
        self.context = context
    }

    /// Whether one is on its way.
    var isWaiting: Bool { current?.isOver == false }

    /// There is a new connection.
    func connected() { if experience != .comesBack { probe() } }

    /// Sends one of its own, in a moment.
    func probe() {
        guard timer == nil, !isWaiting else { return }
        timer = .once(milliseconds: Time.calm, on: context) { [unowned self] in
            timer = nil
            guard broker.isConnected, !isWaiting else { return }
            isOwn = true
            send(timeout: Time.own) { [unowned self] result in
                guard isOwn else { return }
                isOwn = false
                switch result {
                case .success: experience = .comesBack
                case .failure(let failure) where failure.isRefusal: if experience == .none { experience = .silence }
                // Behind what is not read it can't come.
                case .failure where broker.isReadingPaused: probe()
                case .failure:
                    guard experience != .silence else { return }
                    if experience == .none { experience = .silence }
                    broker.noteMissing(mayBeOlder: false)
                }
            }
        }
    }

    /// Sends one that somebody asked for.
    func test(_ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void) {
        if isOwn { end("somebody waits for another one") }
        guard !isWaiting else { return done(.failure(.init(reason: "another test is on its way"))) }
        send(timeout: RoundTripTest.timeout) { [unowned self] result in
            if case .success = result { experience = .comesBack }
            done(result)
        }
    }

    private func send(
        timeout: UInt32, _ done: @escaping (Result<Duration, RoundTripTest.Failure>) -> Void
    ) {
        current = RoundTripTest(
            topic: topic, token: makeToken(), timeout: timeout, broker: broker, context: context, done)
    }

    /// Nothing comes any more.
    func end(_ reason: String) {
        (timer, isOwn) = (nil, false)
        current?.end(.failure(.init(reason: reason)))
    }

    func subscribed(_ id: PacketID, _ reasons: [ReasonCode]) { current?.subscribed(id, reasons) }
    func received(_ publication: Publication) { current?.received(publication) }
}
