// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The notification service, as ``InwardPosts`` uses it: ``CenterLink``, or a substitute in tests.
protocol PostingService: CallableService {
    /// Whether the service supports notifications for all sessions of the machine (G1).
    var knowsAllSessions: Bool { get }

    /// Posts a notification.
    ///
    /// - Parameter completion: receives the number of matching clients or the error. Called on the loop's thread, not
    ///   before this returns.
    /// - Throws: an error for an invalid post.
    func post(
        _ post: PostCall, completion: @escaping @Sendable (Result<Int, ServiceError>) -> Void
    ) throws(CenterError)
}

/// The queue of other hosts' messages that are to be posted in the session, in order. At most ``window`` posts are
/// unanswered at a time. It lives as long as the bridge, so that a reload neither loses nor repeats a message.
///
/// Nothing is posted twice. If it is unknown whether the service has accepted a post, an ordinary notification counts
/// as lost. A retained value is *uncertain* then: the bridge asks the service for its value, and posts again only if it
/// differs.
final class InwardPosts: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// The maximum number of unanswered posts.
    static let window = 64
    /// The pauses before the service is asked again after a question without an answer, in milliseconds; they double
    /// each time.
    private static let pauses: ClosedRange<UInt32> = 1_000...60_000

    private let service: any PostingService
    private let context: MainContext
    /// Returns the wall-clock time, in microseconds since 1970 in UTC.
    private let time: () -> Int64
    /// Reports losses: their number, name, origin and reason.
    private let lost: (UInt64, String?, Origin, LossReason) -> Void
    /// The messages that are not posted, in order.
    private var inbox = Deque<InwardMessage>()
    /// The messages whose posts have no answer, by the number of the post.
    private var unanswered: [UInt64: InwardMessage] = [:]
    /// The number of the last post.
    private var lastPost: UInt64 = 0
    /// The values and removals whose outcome is unknown, by the number of the post: the service ended or was
    /// overloaded.
    private var uncertain: [UInt64: InwardMessage] = [:]
    /// The number of the last post of each value, as long as a post of it is unanswered, or any post is uncertain. By
    /// it ``retryUncertain()`` recognizes superseded posts.
    private var lastPosts: [InwardMessage.HostValueKey: UInt64] = [:]
    /// The state of the queue.
    private enum Phase {
        /// Messages may be posted.
        case open
        /// The service is asked for its value, to compare it with that of the message. The inbox waits.
        case comparing(InwardMessage)
        /// The timer runs before the service is asked again or values are posted again. The inbox waits.
        case pausing(EventSource)
        /// The bridge has ended.
        case closed
    }

    /// The name of this machine in the configuration.
    var host = ""
    /// The present state.
    private var phase = Phase.open
    /// The length of the next pause, in milliseconds.
    private var pause = pauses.lowerBound

    /// The message that is being compared.
    private var compared: InwardMessage? { if case .comparing(let message) = phase { message } else { nil } }
    private var isOpen: Bool { if case .open = phase { true } else { false } }
    /// The number of accepted posts.
    private(set) var imported: UInt64 = 0
    /// The number of values that the session already had.
    private(set) var alreadyPresent: UInt64 = 0
    /// The number of lost messages: refused by the service, or with an unknown outcome.
    private(set) var refused: UInt64 = 0
    /// Called with a value for which the service has no space at the moment.
    ///
    /// - Returns: whether the loss is to be reported.
    var noteNoSpace: (InwardMessage) -> Bool = { _ in true }
    /// Called with values that the service has accepted.
    var kept: (InwardMessage) -> Void = { _ in }
    /// Called whenever the number of waiting messages may have changed.
    var changed: () -> Void = {}

    /// Creates an empty queue.
    ///
    /// - Parameter lost: reports losses.
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

    /// The number of messages that are not posted, or not answered.
    var count: Int { inbox.count + unanswered.count + uncertain.count + (compared == nil ? 0 : 1) }

    /// Appends a message to the queue.
    func append(_ message: InwardMessage) { inbox.append(message.waiting(since: time())) }

    /// Removes messages that are not posted yet.
    func removeAll(where isUnwanted: (InwardMessage) -> Bool) {
        if inbox.contains(where: isUnwanted) { inbox = Deque(inbox.filter { !isUnwanted($0) }) }
    }

    /// Continues without a pause, because the service is there again or is a new one.
    func serviceAppeared() {
        pause = Self.pauses.lowerBound
        if case .pausing = phase { phase = .open }
        pump()
    }

    /// Posts messages while the service is there and the window of unanswered posts allows it.
    func pump() {
        defer { changed() }
        while isOpen, service.isThere, unanswered.count < Self.window {
            // While a value is uncertain, the bridge waits for all answers: a later post of the same value may be among
            // the unanswered ones.
            guard uncertain.isEmpty || unanswered.isEmpty else { return }
            retryUncertain()
            guard let message = inbox.popFirst() else { return }
            // An expired notification is discarded, which is no loss. An expired value is posted with one second left,
            // because it has to replace the earlier value.
            if !message.isRetainedValue, message.secondsLeft(at: time()) == 0 { continue }
            if case .notification(let userInfo) = message.content, message.mayBeOld {
                compare(message, userInfo)
            } else {
                perform(message)
            }
        }
    }

    // MARK: Posts

    /// Posts a notification, or removes a value from the service.
    private func perform(_ message: InwardMessage) {
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
                options.retention = message.isRetainedValue ? Retention() : nil
                options.expiresAfter = message.secondsLeft(at: time()).map { max($0, 1) }
                // A notification for all sessions of this machine also arrives directly from its session. The service
                // recognizes the duplicate by the identity.
                if message.origin.host == host, service.knowsAllSessions {
                    options.deduplicationID = message.properties.identity
                }
                let post = try PostCall(
                    name: message.name, object: message.object, userInfo: userInfo, options: options)
                try service.post(post) { [self] result in
                    switch result {
                    case .success:
                        imported += 1
                        if message.isRetainedValue { kept(message) }
                        answered(number, nil)
                    case .failure(let error): answered(number, error)
                    }
                }
            } catch {
                settle(number, .refused(BusError(error)))
            }
        }
    }

    /// Registers a post that is about to be made.
    ///
    /// - Returns: its number.
    private func noteUnanswered(_ message: InwardMessage) -> UInt64 {
        lastPost += 1
        unanswered[lastPost] = message
        if message.isRetainedValue { lastPosts[message.value] = lastPost }
        return lastPost
    }

    /// Handles the answer of the service, and posts further messages.
    private func answered(_ number: UInt64, _ error: ServiceError?) {
        settle(number, error)
        pump()
    }

    /// Ends a post.
    ///
    /// - Parameters:
    ///   - number: the number of the post, by which its message is found.
    ///   - error: nil if the service has accepted it.
    private func settle(_ number: UInt64, _ error: ServiceError?) {
        // After the end of the bridge no post is unanswered.
        guard let message = unanswered.removeValue(forKey: number) else { return }
        if let error { failed(message, number, error) }
        if uncertain.isEmpty, lastPosts[message.value] == number { lastPosts[message.value] = nil }
    }

    /// Handles a failed post: reports the loss, schedules another attempt, or removes the earlier value.
    private func failed(_ message: InwardMessage, _ number: UInt64, _ error: ServiceError) {
        if case .refused(let refusal) = error {
            Log.info("\(message.name) of \(message.origin.text) was refused: \(error)")
            guard message.isRetainedValue else { return lose(message, .refused) }
            let reason = Refusal(refusal)
            if reason == .busy {
                uncertain[number] = message
                if isOpen { askLater() }
                return
            }
            guard case .notification = message.content else { return lose(message, .refused) }
            // The session may have an earlier value, which is no longer that of the host. A later post or comparison
            // of the same value makes the removal unnecessary.
            if lastPosts[message.value] == number, compared?.value != message.value { inbox.prepend(message.removal) }
            if reason == .value || noteNoSpace(message) { lose(message, .refused) }
        } else if message.isRetainedValue {
            // The message may have been posted. A comparison with the service's value will show it.
            uncertain[number] = message
        } else {
            // The message may have been posted. Nothing is posted twice, so it is reported as a possible loss.
            lose(message, .uncertain)
        }
    }

    /// The reason why the service rejects a value.
    private enum Refusal {
        /// A quota of the service has no space for the value at the moment.
        case space
        /// The service is overloaded at the moment, and did not process the post.
        case busy
        /// The service never accepts this value, because it is invalid or too large.
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
                default: .space
                }
        }
    }

    /// Reports the loss of a message.
    private func lose(_ message: InwardMessage, _ reason: LossReason) {
        refused += 1
        lost(1, message.name, message.origin, reason)
    }

    /// Puts uncertain values and removals ahead of the inbox. They are compared before they are posted. A message is
    /// not posted again if a later one of the same value supersedes it.
    private func retryUncertain() {
        guard !uncertain.isEmpty else { return }
        // A fault of test builds (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.staleValueReposted) {
                lastPosts = uncertain.reduce(into: [:]) { $0[$1.value.value] = $1.key }
            }
        #endif
        let waiting = Set(inbox.lazy.filter(\.isRetainedValue).map(\.value))
        for (number, message) in uncertain.sorted(by: { $0.key > $1.key }) {
            if lastPosts[message.value] == number, !waiting.contains(message.value) {
                inbox.prepend(message.marked(anew: true))
            } else {
                lose(message, .uncertain)
            }
        }
        (uncertain, lastPosts) = ([:], [:])
    }

    // MARK: Comparisons

    /// Posts a value that may have existed before only if the session does not have it. After a new connection the
    /// broker sends all values again, although nothing has happened.
    private func compare(_ message: InwardMessage, _ userInfo: [String: PropertyList]) {
        phase = .comparing(message)
        service.ask(Get(name: message.name, object: message.object)) { [self] result in
            guard compared != nil else { return }
            phase = .open
            switch result {
            case .success(let kept):
                pause = Self.pauses.lowerBound
                take(message, isHere: kept.contains { message.isRetainedValue(as: $0, userInfo, now: time()) })
            // The service refuses to show the value, so the message is posted.
            case .failure(.refused(let refusal)) where Refusal(refusal) != .busy: take(message, isHere: false)
            case .failure:
                inbox.prepend(message)
                askLater()
            }
            pump()
        }
    }

    /// Handles the result of a comparison.
    private func take(_ message: InwardMessage, isHere: Bool) {
        guard isHere else { return perform(message) }
        alreadyPresent += 1
        // An earlier post of the value is superseded, regardless of its outcome.
        if lastPosts[message.value] != nil {
            lastPost += 1
            lastPosts[message.value] = lastPost
        }
    }

    /// Pauses the queue; the pause doubles each time.
    private func askLater() {
        phase = .pausing(
            .once(milliseconds: pause, on: context) { [unowned self] in
                phase = .open
                pump()
            })
        pause = min(pause * 2, Self.pauses.upperBound)
    }

    // MARK: Shutdown

    /// Closes the queue at the end of the process. An unanswered post may be lost, which is reported.
    ///
    /// - Returns: the messages for the next process: the inbox, with uncertain values ahead of it.
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
