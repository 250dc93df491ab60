// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The event sources of the service's loop that send scheduled messages and post queued posts. ``CenterObject`` has
/// one.
///
/// - One source for each lane sends due messages, at the loop priority of the lane's run-loop mode (M6).
/// - Further sources post the queued posts of the styles *asap* (as soon as possible) and *whenIdle* (Q7).
/// - One source reduces the memory of the core while it exceeds its limit.
///
/// The loop checks before each wait whether a source is ready, so no timer wakes an idle service.
///
/// Two rules keep reading and sending in balance. Reading has a higher priority than the default mode, so a flood of
/// arriving messages would stop its deliveries; after ``maxReadAhead`` messages one portion is sent nevertheless. Posts
/// of the style *asap* have the priority of reading, so after each portion they pause for four times its duration.
final class DeliverySources {
    /// The maximum number of messages, or of queued posts, in one dispatch of a source. Then the loop checks more
    /// urgent sources again.
    private static let perDispatch = 32
    /// The maximum number of messages that are read while deliveries of the default mode are due. A flood that nobody
    /// observes must not delay earlier notifications. The core bounds a flood that has observers.
    private static let maxReadAhead = 128
    /// The number of calls put into the call queue without decoding that count as one read message, because that takes
    /// little time. Each of them counts as a message again when it is served.
    private static let undecodedCallsPerMessage: UInt64 = 8
    /// The number of messages that a slice of a large call counts as, because a slice takes some milliseconds.
    private static let messagesInPart = 64
    /// The number of receivers from which a post counts as such a slice.
    private static let manyReceivers = 512
    /// The time without an arriving message after which the service counts as idle. It is longer than the gaps between
    /// the messages of a burst.
    private static let quietMilliseconds: UInt32 = 50
    /// The pause of *asap* posts after a portion, as a multiple of the time that the portion took. While messages
    /// arrive, *asap* posts therefore get a fifth of the time.
    private static let asapPauseFactor = 4
    /// The number of checks for idleness after which *whenIdle* posts are made although messages arrived between the
    /// checks. A trickle of messages thus delays them by at most 2 s (40 checks of 50 ms).
    private static let maxIdleChecks = 40

    private unowned let driver: CenterDriver
    private let context: MainContext
    private var sources: [ReadySource] = []
    /// The number of messages that have arrived from the bus; a change shows that the service is not idle.
    private var activity: UInt64 = 0
    /// The value of ``activity`` at the beginning of the current idle period.
    private var activityWhenIdle: UInt64 = 0
    /// The number of messages that were read since deliveries of the default mode were last sent.
    private var readAhead = 0
    /// The timer of the next check for idleness.
    private var quietTimer: EventSource?
    /// The number of checks since ``expectIdleness()``.
    private var idleChecks = 0
    /// Whether an idle period has begun in which *whenIdle* posts are made.
    private var isIdle = false
    /// The end of the pause of *asap* posts.
    private var asapPauseEnd: SuspendingClock.Instant

    init(of driver: CenterDriver, on context: MainContext) {
        self.driver = driver
        self.context = context
        asapPauseEnd = context.now
        for lane in DeliveryLane.allCases {
            sources.append(
                ReadySource(
                    on: context, priority: .of(lane: lane),
                    isReady: { [unowned driver] in
                        driver.center.isReady(lane)
                    },
                    run: { [unowned self] in send(upTo: lane) }))
        }
        // An event without content suffices, because the driver reduces the memory after each event.
        sources.append(
            ReadySource(
                on: context, priority: .of(.reading), isReady: { [unowned driver] in driver.center.isOverMemory },
                run: { [unowned driver] in driver.perform { _ in } }))
        // Beside reading, except in the pause.
        sources.append(
            ReadySource(
                on: context, priority: .of(.queuedAsap),
                isReady: { [unowned self] in
                    driver.center.hasQueuedPosts(.asap) && context.now >= asapPauseEnd
                },
                run: { [unowned self] in postAsap() }))
        // Also in the pause while there is nothing to read.
        sources.append(
            ReadySource(
                on: context, priority: .of(.waitingCalls),
                isReady: { [unowned driver] in
                    driver.center.hasQueuedPosts(.asap)
                },
                run: { [unowned self] in postAsap() }))
        sources.append(
            ReadySource(
                on: context, priority: .of(.queuedWhenIdle), isReady: { [unowned self] in isIdle },
                run: { [unowned self] in postWhileIdle() }))
    }

    /// Notes a message from the bus, which is handled next.
    func noteActivity() {
        activity += 1
        _ = noteReadAhead(of: 1)
    }

    /// Notes a call that was put into the call queue, or lost, without being decoded (``CallQueue``).
    func noteUndecodedCall() {
        activity += 1
        guard activity % Self.undecodedCallsPerMessage == 0 else { return }
        _ = noteReadAhead(of: 1)
    }

    /// Notes that a slice of a large call was served.
    ///
    /// - Parameter posts: the number of posts in the slice, each of which counts as one message. 0 means a slice of
    ///   another call, which counts as ``messagesInPart`` messages.
    /// - Returns: whether messages were sent, because too many messages were read ahead.
    func notePart(posts: Int) -> Bool { noteReadAhead(of: posts > 0 ? posts : Self.messagesInPart) }

    /// Notes a post. A post with very many receivers takes milliseconds, so it counts as a slice.
    func notePost(receivers: Int) {
        if receivers >= Self.manyReceivers { _ = noteReadAhead(of: Self.messagesInPart) }
    }

    /// Counts messages that are read ahead of due deliveries, and sends a portion of these when the count exceeds the
    /// maximum. Returns whether it sent.
    private func noteReadAhead(of messages: Int) -> Bool {
        guard driver.center.isReady(.standard) else { return false }
        readAhead += messages
        guard readAhead > Self.maxReadAhead else { return false }
        send(upTo: .standard)
        return true
    }

    /// Sends a portion of the due messages of this lane and of more urgent lanes.
    private func send(upTo lane: DeliveryLane) {
        if lane == .standard { readAhead = 0 }
        driver.perform { effects in
            driver.center.sendReady(upTo: lane, limit: Self.perDispatch, effects: &effects)
        }
    }

    /// Starts to wait for idleness, because *whenIdle* posts are queued.
    func expectIdleness() {
        guard quietTimer?.isPending != true, !isIdle else { return }
        idleChecks = 0
        startQuietTimer()
    }

    private func startQuietTimer() {
        let seen = activity
        quietTimer = .once(
            milliseconds: Self.quietMilliseconds, on: context, priority: .of(.queuedWhenIdle)
        ) { [unowned self] in
            // The timer has the lowest priority, so it runs only when no other source is ready.
            idleChecks += 1
            if seen == activity || idleChecks >= Self.maxIdleChecks { beginIdleness() } else { startQuietTimer() }
        }
    }

    private func beginIdleness() {
        isIdle = driver.center.hasQueuedPosts(.whenIdle)
        activityWhenIdle = activity
    }

    private func postWhileIdle() {
        guard isIdle else { return }
        // A message that arrived meanwhile ends the idle period. The remaining posts wait for the next one.
        let isInterrupted = activity != activityWhenIdle && idleChecks < Self.maxIdleChecks
        if !isInterrupted { post(.whenIdle) }
        guard isInterrupted || !driver.center.hasQueuedPosts(.whenIdle) else { return }
        isIdle = false
        if driver.center.hasQueuedPosts(.whenIdle) { startQuietTimer() }
    }

    private func postAsap() {
        let start = context.now
        post(.asap)
        let now = context.now
        asapPauseEnd = now + (now - start) * Self.asapPauseFactor
    }

    private func post(_ style: PostingStyle) {
        driver.perform { effects in
            driver.center.postQueued(style, limit: Self.perDispatch, effects: &effects)
        }
    }
}
