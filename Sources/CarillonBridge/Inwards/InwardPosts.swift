// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The service, as the bridge posts to it.
protocol PostingService: AskedService {
    /// Whether the service supports notifications for all sessions of the machine (G1).
    var knowsAllSessions: Bool { get }

    /// - Parameter completion: called on the loop's thread, not before this returns.
    /// - Throws: an error for an invalid post.
    func post(
        _ post: PostCall, completion: @escaping @Sendable (Result<Int, ServiceError>) -> Void
    ) throws(CenterError)
}

/// The queue of other hosts' messages to post, in order, each with its origin. It lives as long as the bridge, so that
/// a reload neither loses nor repeats a message.
///
/// Nothing is posted twice. If it is unknown whether the service has accepted a post, an ordinary message counts as
/// lost. A value is compared with the service's value, because it is known which one there has to be.
final class InwardPosts: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// The maximum number of unanswered posts.
    static let window = 64
    /// The pauses before a question is asked again that the service did not answer, in milliseconds; they double each
    /// time.
    private static let pauses: ClosedRange<UInt32> = 1_000...60_000

    private let service: any PostingService
    private let context: MainContext
    /// Microseconds since 1970 in UTC.
    private let time: () -> Int64
    /// Reports losses: their number, name, origin and reason.
    private let lost: (UInt64, String?, Origin, LossReason) -> Void
    private var inbox = Deque<InwardMessage>()
    /// The messages with unanswered posts, by the numbers of the posts.
    private var unanswered: [UInt64: InwardMessage] = [:]
    private var lastPost: UInt64 = 0
    /// The values of which neither the service nor the bus has said whether they were posted, by the numbers of the
    /// posts.
    private var uncertain: [UInt64: InwardMessage] = [:]
    /// The last post of each value that has an unanswered or uncertain post.
    private var lastPosts: [InwardMessage.HostValue: UInt64] = [:]
    private enum Phase {
        case open
        /// A message waits for the answer to a comparison, and the inbox behind it.
        case comparing(InwardMessage)
        /// The first message of the inbox waits for another comparison.
        case pausing(EventSource)
        case closed
    }

    /// The name of this machine.
    var host = ""
    private var phase = Phase.open
    private var pause = pauses.lowerBound

    private var compared: InwardMessage? { if case .comparing(let message) = phase { message } else { nil } }
    private var isOpen: Bool { if case .open = phase { true } else { false } }
    private(set) var imported: UInt64 = 0
    /// The number of values that the session already had.
    private(set) var alike: UInt64 = 0
    private(set) var refused: UInt64 = 0
    /// Called with values for which the service has no space at the moment.
    ///
    /// - Returns: whether that is news.
    var foundNoRoom: (InwardMessage) -> Bool = { _ in true }
    /// Called with values that the service has accepted.
    var kept: (InwardMessage) -> Void = { _ in }
    /// Called whenever the number of waiting messages may have changed.
    var changed: () -> Void = {}

    init(
        _ service: any PostingService, context: MainContext, time: @escaping () -> Int64,
        lost: @escaping (UInt64, String?, Origin, LossReason) -> Void
    ) {
        self.service = service
        self.context = context
        self.time = time
        self.lost = lost
    }

    /// Whether every message is posted and answered.
    var isIdle: Bool { count == 0 }

    /// The number of waiting messages, unposted and unanswered.
    var count: Int { inbox.count + unanswered.count + uncertain.count + (compared == nil ? 0 : 1) }

    /// Appends a message to the queue.
    func append(_ message: InwardMessage) { inbox.append(message.waiting(since: time())) }

    /// Removes waiting messages.
    func removeAll(where isUnwanted: (InwardMessage) -> Bool) {
        if inbox.contains(where: isUnwanted) { inbox = Deque(inbox.filter { !isUnwanted($0) }) }
    }

    /// Asks the service, which is there again or is a new one, without a pause.
    func serviceCame() {
        pause = Self.pauses.lowerBound
        if case .pausing = phase { phase = .open }
        pump()
    }

    /// Posts waiting messages while the service is there and answers.
    func pump() {
        defer { changed() }
        while isOpen, service.isThere, unanswered.count < Self.window {
            // Messages behind an uncertain value wait: a later message of that value may be among them.
            guard uncertain.isEmpty || unanswered.isEmpty else { return }
            retryUncertain()
            guard let message = inbox.popFirst() else { return }
            // An expired message is no loss. An expired value is posted with one second left, because it has to replace
            // an earlier one.
            if !message.isKept, message.secondsLeft(at: time()) == 0 { continue }
            if case .notification(let userInfo) = message.content, message.isToldAnew {
                compare(message, userInfo)
            } else {
                carryOut(message)
            }
        }
    }

    // MARK: Posts

    private func carryOut(_ message: InwardMessage) {
        let number = noteUnanswered(message)
        switch message.content {
        case .removal:
            let call = RemoveRetainedFrom(
                host: message.origin.host, user: message.origin.user, name: message.name, object: message.object)
            service.ask(call) { [self] result in
                switch result {
                case .success: answered(number, nil)
                case .failure(let error): answered(number, error)
                }
            }
        case .notification(let userInfo):
            do throws(CenterError) {
                var options = PostOptions()
                options.origin = try OutsideOrigin(host: message.origin.host, user: message.origin.user)
                options.retention = message.isKept ? Retention() : nil
                options.expiresAfter = message.secondsLeft(at: time()).map { max($0, 1) }
                // If the sessions of this machine exchange notifications, this one also arrives from its session.
                if message.origin.host == host, service.knowsAllSessions {
                    options.sameAs = message.properties.identity
                }
                let post = try PostCall(
                    name: message.name, object: message.object, userInfo: userInfo, options: options)
                try service.post(post) { [self] result in
                    switch result {
                    case .success:
                        imported += 1
                        if message.isKept { kept(message) }
                        answered(number, nil)
                    case .failure(let error): answered(number, error)
                    }
                }
            } catch {
                settle(number, .refused(BusError(error)))
            }
        }
    }

    private func noteUnanswered(_ message: InwardMessage) -> UInt64 {
        lastPost += 1
        unanswered[lastPost] = message
        if message.isKept { lastPosts[message.value] = lastPost }
        return lastPost
    }

    private func answered(_ number: UInt64, _ error: ServiceError?) {
        settle(number, error)
        pump()
    }

    private func settle(_ number: UInt64, _ error: ServiceError?) {
        // After the end of the bridge no post is unanswered.
        guard let message = unanswered.removeValue(forKey: number) else { return }
        if let error { failed(message, number, error) }
        if uncertain.isEmpty, lastPosts[message.value] == number { lastPosts[message.value] = nil }
    }

    private func failed(_ message: InwardMessage, _ number: UInt64, _ error: ServiceError) {
        if case .refused(let refusal) = error {
            Log.info("\(message.name) of \(message.origin.text) was refused: \(error)")
            guard message.isKept else { return lose(message, .refused) }
            let reason = Refusal(refusal)
            if reason == .busy {
                uncertain[number] = message
                if isOpen { askLater() }
                return
            }
            guard case .notification = message.content else { return lose(message, .refused) }
            // The session may have an earlier value, which the host has no longer.
            if lastPosts[message.value] == number, compared?.value != message.value { inbox.prepend(message.removal) }
            if reason == .value || foundNoRoom(message) { lose(message, .refused) }
        } else if message.isKept {
            // It is known which value there has to be.
            uncertain[number] = message
        } else {
            // The message may have been posted. Nothing is posted twice, so it is announced as a possible loss.
            lose(message, .uncertain)
        }
    }

    /// The reason why the service rejects a value.
    private enum Refusal {
        /// The service has no space at the moment.
        case room
        /// The service is overloaded at the moment.
        case busy
        /// The service never accepts this value.
        case value

        init(_ error: BusError) {
            guard error.centerError == .limitExceeded else {
                self = .value
                return
            }
            self =
                switch error.exceededLimit {
                case .userInfoBytes, .userInfoDepth, .nameLength, .objectLength: .value
                case .waitingCallBytes: .busy
                default: .room
                }
        }
    }

    private func lose(_ message: InwardMessage, _ reason: LossReason) {
        refused += 1
        lost(1, message.name, message.origin, reason)
    }

    /// Puts values and removals with an unknown outcome ahead of the waiting messages. A message that a later one of
    /// the same value supersedes is not posted again.
    private func retryUncertain() {
        guard !uncertain.isEmpty else { return }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.oldValueAgain) {
                lastPosts = uncertain.reduce(into: [:]) { $0[$1.value.value] = $1.key }
            }
        #endif
        let waiting = Set(inbox.lazy.filter(\.isKept).map(\.value))
        for (number, message) in uncertain.sorted(by: { $0.key > $1.key }) {
            if lastPosts[message.value] == number, !waiting.contains(message.value) {
                inbox.prepend(message.told(anew: true))
            } else {
                lose(message, .uncertain)
            }
        }
        (uncertain, lastPosts) = ([:], [:])
    }

    // MARK: Comparisons

    /// Posts a value that existed before only if the session does not have it: after a new connection the broker sends
    /// all values, although nothing has happened.
    private func compare(_ message: InwardMessage, _ userInfo: [String: PropertyList]) {
        phase = .comparing(message)
        service.ask(Get(name: message.name, object: message.object)) { [self] result in
            guard compared != nil else { return }
            phase = .open
            switch result {
            case .success(let kept):
                pause = Self.pauses.lowerBound
                take(message, isHere: kept.contains { message.isKept(as: $0, userInfo, now: time()) })
            // The service can't answer the question.
            case .failure(.refused(let refusal)) where Refusal(refusal) != .busy: take(message, isHere: false)
            case .failure:
                inbox.prepend(message)
                askLater()
            }
            pump()
        }
    }

    private func take(_ message: InwardMessage, isHere: Bool) {
        guard isHere else { return carryOut(message) }
        alike += 1
        // An earlier post of the value is superseded, regardless of its outcome.
        if lastPosts[message.value] != nil {
            lastPost += 1
            lastPosts[message.value] = lastPost
        }
    }

    private func askLater() {
        phase = .pausing(
            .once(milliseconds: pause, on: context) { [unowned self] in
                phase = .open
                pump()
            })
        pause = min(pause * 2, Self.pauses.upperBound)
    }

    // MARK: Shutdown

    /// Closes the queue with the process: unanswered posts may be lost, which is announced.
    ///
    /// - Returns: the unposted messages, in order.
    func close() -> [InwardMessage] {
        if let compared { inbox.prepend(compared) }
        phase = .closed
        let left = unanswered.sorted { $0.key < $1.key }
        unanswered = [:]
        for (number, message) in left { failed(message, number, .disconnected("the bridge ends")) }
        retryUncertain()
        defer { inbox.removeAll() }
        return Array(inbox)
    }
}
