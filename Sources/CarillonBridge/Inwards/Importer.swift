// SPDX-License-Identifier: Apache-2.0
import Collections
import DBus
import MQTT
import MainLoop
import NotificationCore
import NotificationWire
import ServiceClient

/// What comes from the broker into the session: checked, and posted in its order with where it is from.
final class Importer: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// Posts without an answer, and messages that wait for that, at most; beyond that the broker is not read.
    static let window = 64

    private let configuration: BridgeConfiguration
    private let center: CenterLink
    private let broker: BrokerLink
    private let lost: (UInt64, String?, Origin, LossReason) -> Void
    private(set) var gate: InwardGate
    private var inbox = Deque<InwardMessage>()
    private var unanswered = 0
    /// Whether the first of the inbox waits for an answer, and all others behind it.
    private var isComparing = false
    private var holeTimer: EventSource?
    private let context: MainContext
    private(set) var imported: UInt64 = 0
    private(set) var repeated: UInt64 = 0
    private(set) var refused: UInt64 = 0

    init(
        _ configuration: BridgeConfiguration, center: CenterLink, broker: BrokerLink, context: MainContext,
        lost: @escaping (UInt64, String?, Origin, LossReason) -> Void
    ) {
        self.configuration = configuration
        self.center = center
        self.broker = broker
        self.context = context
        self.lost = lost
        gate = InwardGate(
            realm: configuration.realm, own: configuration.origin, imports: configuration.imports)
    }

    /// Goes on where an earlier process ended.
    func goOn(with places: PlaceCheck) {
        gate = InwardGate(
            realm: configuration.realm, own: configuration.origin, imports: configuration.imports, places: places)
    }

    var filters: Set<String> { gate.wanted.filters(in: configuration.realm) }

    // MARK: Subscriptions

    /// Subscribes to what the session's observers want now, and no longer to what they do not.
    func want(_ names: [String], any isAnyWanted: Bool) {
        let before = filters
        gate.wanted = WantedNames(
            observed: names, isAnyObserved: isAnyWanted, imports: configuration.imports,
            mostSubscriptions: configuration.mostSubscriptions)
        if gate.wanted.isCut {
            Log.warning(
                "more names are wanted than the limit subscriptions = \(configuration.mostSubscriptions) allows: "
                    + "the rest is not taken")
        }
        let after = filters
        unsubscribe(before.subtracting(after))
        subscribe(after.subtracting(before))
    }

    /// Subscribes to everything again, as the broker may have forgotten. It sends values only for what is new to it.
    func connected() { subscribe(filters) }

    private static let together = 32

    private func subscribe(_ filters: Set<String>) {
        for part in filters.sorted().chunks(of: Self.together) {
            _ = broker.subscribe(
                part.map { TopicFilter($0, excludesOwn: true, keepsRetainFlag: true, retainHandling: .ifNew) })
        }
    }

    private func unsubscribe(_ filters: Set<String>) {
        for part in filters.sorted().chunks(of: Self.together) { broker.unsubscribe(Array(part)) }
    }

    // MARK: Messages

    /// Takes what is for the session.
    ///
    /// - Returns: what it is, for those whom it concerns else.
    func take(_ publication: Publication) -> InwardGate.Judgement {
        let judgement = gate.judge(publication, now: .now)
        switch judgement {
        case .ignored, .own, .presence: break
        // Of an earlier process that the broker kept the session of, or of what was wanted a moment ago.
        case .unwanted(let name): unsubscribeUnwanted(name)
        case .refused(let name, let origin, let reason, let words):
            refused += 1
            Log.info("\(name) of \(origin.text) is not taken: \(words)")
            if let reason { lost(1, name, origin, reason) }
        case .repeated: repeated += 1
        case .message(let message):
            inbox.append(message)
            pump()
        }
        watchHoles()
        return judgement
    }

    private func unsubscribeUnwanted(_ name: String) {
        let filters = Set(BridgeTopic.filters(name: name, in: configuration.realm))
        unsubscribe(filters.subtracting(self.filters))
        for case .below(let prefix) in configuration.imports where NamePattern.below(prefix).matches(name) {
            unsubscribe(Set(BridgeTopic.filters(below: prefix, in: configuration.realm)).subtracting(self.filters))
        }
    }

    private func watchHoles() {
        guard gate.isWaitingForLosses, holeTimer == nil else { return }
        holeTimer = .once(milliseconds: 1_000, on: context) { [unowned self] in
            holeTimer = nil
            for loss in gate.losses(at: .now) { lost(loss.count, loss.name, loss.origin, .missing) }
            watchHoles()
        }
    }

    /// Posts what waits, while the service is there and answers.
    func pump() {
        defer { broker.isReadingPaused = inbox.count + unanswered >= Self.window }
        while center.isThere, !isComparing, unanswered < Self.window, let message = inbox.popFirst() {
            if case .notification(let userInfo) = message.content, message.isToldAnew {
                compare(message, userInfo)
            } else {
                carryOut(message)
            }
        }
    }

    private func carryOut(_ message: InwardMessage) {
        switch message.content {
        case .notification(let userInfo): post(message, userInfo)
        case .removal:
            unanswered += 1
            let call = RemoveRetainedFrom(
                host: message.origin.host, user: message.origin.user, name: message.name, object: message.object)
            center.submit(
                .call(call) { [weak self] result in
                    if case .failure(let error) = result { self?.failed(message, error) }
                    self?.answered()
                })
        }
    }

    private func post(_ message: InwardMessage, _ userInfo: [String: PropertyList]) {
        do throws(CenterError) {
            var options = PostOptions()
            options.origin = try OutsideOrigin(host: message.origin.host, user: message.origin.user)
            options.retention = message.isKept ? Retention() : nil
            options.expiresAfter = message.expiresAfter
            let post = try OutgoingPost(
                name: message.name, object: message.object, userInfo: userInfo, options: options
            ) { [weak self] result in
                switch result {
                case .success: self?.imported += 1
                case .failure(let error): self?.failed(message, error)
                }
                self?.answered()
            }
            unanswered += 1
            center.submit(.post(post))
        } catch {
            failed(message, .refused(BusError(error)))
        }
    }

    private func answered() {
        unanswered -= 1
        pump()
    }

    private func failed(_ message: InwardMessage, _ error: ServiceError) {
        refused += 1
        if case .refused = error {
            Log.info("\(message.name) of \(message.origin.text) was refused: \(error)")
            lost(1, message.name, message.origin, .refused)
        } else {
            // It may have been posted. Nothing comes twice, so it is told that it may not have come at all.
            lost(1, message.name, message.origin, .uncertain)
        }
    }

    /// Posts a value that was at the broker before only where it is not here already: who comes back to the broker is
    /// told all of them anew, and nothing has happened.
    private func compare(_ message: InwardMessage, _ userInfo: [String: PropertyList]) {
        isComparing = true
        center.submit(
            .call(Get(name: message.name, object: message.object)) { [weak self] result in
                guard let self else { return }
                isComparing = false
                let kept = (try? result.get()) ?? []
                let isHere = kept.contains { message.isKept(as: $0, userInfo) }
                if isHere { repeated += 1 } else { carryOut(message) }
                pump()
            })
    }
}

extension Array {
    fileprivate func chunks(of size: Int) -> [ArraySlice<Element>] {
        stride(from: 0, to: count, by: size).map { self[$0..<Swift.min($0 + size, count)] }
    }
}
