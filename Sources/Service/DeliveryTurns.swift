// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The event sources that send scheduled messages, one for each lane at the priority of its mode (M6), and that post
/// the queued posts (Q7).
///
/// The loop asks the sources before each poll whether they are ready. They need no arming, and an idle service is not
/// woken.
final class DeliveryTurns {
    /// The maximum of messages that one dispatch of a source sends. Then more urgent sources are asked again.
    private static let perDispatch = 32
    /// The maximum of messages read before the default mode may send. A flood that nobody observes must not delay
    /// earlier notifications. The core also bounds a flood that has observers.
    private static let maxReadAhead = 128
    /// The number of calls taken at a glance that count as one read message. Each call counts as one when it is served.
    private static let glancesInMessage: UInt64 = 8
    /// The number of messages that a part of a large call counts as; a part takes some milliseconds.
    private static let messagesInPart = 64
    /// The number of receivers from which a post counts as a part.
    private static let manyReceivers = 512
    /// The time without a message from the bus after which the loop counts as idle. It exceeds the gaps between
    /// messages of a burst, in which the loop has nothing to do either.
    private static let quietMilliseconds: UInt32 = 50
    /// While there are messages to read, one share of the time is for posts of the style asap, and this many shares are
    /// for reading.
    private static let partOfReading = 4
    /// The number of checks after which the next idle moment suffices, so that a trickle of messages can't delay posts
    /// of the style whenIdle for more than 2 s.
    private static let maxLooks = 40

    private unowned let driver: CenterDriver
    private let context: MainContext
    private var sources: [ReadySource] = []
    private var activity: UInt64 = 0
    private var activityWhenIdle: UInt64 = 0
    /// The number of messages that were read while the default mode waited.
    private var readAhead = 0
    private var quietTimer: EventSource?
    private var looks = 0
    private var isIdle = false
    /// The time until which posts of the style asap yield to reading.
    private var endOfRest: SuspendingClock.Instant

    init(of driver: CenterDriver, on context: MainContext) {
        self.driver = driver
        self.context = context
        endOfRest = context.now
        for lane in DeliveryLane.allCases {
            sources.append(
                ReadySource(
                    on: context, priority: .of(lane: lane),
                    isReady: { [unowned driver] in
                        driver.center.isReady(lane)
                    },
                    run: { [unowned self] in send(upTo: lane) }))
        }
        sources.append(
            ReadySource(
                on: context, priority: .of(.reading), isReady: { [unowned driver] in driver.center.isOverMemory },
                run: { [unowned driver] in driver.perform { _ in } }))
        sources.append(
            ReadySource(
                on: context, priority: .of(.queuedAsap),
                isReady: { [unowned self] in
                    driver.center.hasQueuedPosts(.asap) && context.now >= endOfRest
                },
                run: { [unowned self] in postAsap() }))
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

    /// Notes that a message came from the bus, which is handled next.
    func noteActivity() {
        activity += 1
        _ = goAhead(of: 1)
    }

    /// Notes that a call was taken at a glance, as it has to wait or is lost.
    func noteGlance() {
        activity += 1
        guard activity % Self.glancesInMessage == 0 else { return }
        _ = goAhead(of: 1)
    }

    /// Notes that a part of a large call was served.
    ///
    /// - Parameter posts: the number of posts in it, each of which counts as one message; 0 for a part of another call.
    /// - Returns: whether messages were sent, because the default mode had waited too long.
    func notePart(posts: Int) -> Bool { goAhead(of: posts > 0 ? posts : Self.messagesInPart) }

    /// Notes a post with this number of receivers: with very many, it takes milliseconds.
    func notePost(receivers: Int) {
        if receivers >= Self.manyReceivers { _ = goAhead(of: Self.messagesInPart) }
    }

    private func goAhead(of messages: Int) -> Bool {
        guard driver.center.isReady(.standard) else { return false }
        readAhead += messages
        guard readAhead > Self.maxReadAhead else { return false }
        send(upTo: .standard)
        return true
    }

    private func send(upTo lane: DeliveryLane) {
        if lane == .standard { readAhead = 0 }
        driver.perform { effects in
            driver.center.sendReady(upTo: lane, limit: Self.perDispatch, effects: &effects)
        }
    }

    /// Starts to wait for idleness, because posts are queued for it.
    func expectIdleness() {
        guard quietTimer?.isPending != true, !isIdle else { return }
        looks = 0
        startQuietTimer()
    }

    private func startQuietTimer() {
        let seen = activity
        quietTimer = .once(
            milliseconds: Self.quietMilliseconds, on: context, priority: .of(.queuedWhenIdle)
        ) { [unowned self] in
            // At this priority the timer is dispatched only when nothing else is ready.
            looks += 1
            if seen == activity || looks >= Self.maxLooks { beginIdleness() } else { startQuietTimer() }
        }
    }

    private func beginIdleness() {
        isIdle = driver.center.hasQueuedPosts(.whenIdle)
        activityWhenIdle = activity
    }

    private func postWhileIdle() {
        guard isIdle else { return }
        // A message that arrived meanwhile ends this idle period, and the remaining posts wait for the next.
        let isInterrupted = activity != activityWhenIdle && looks < Self.maxLooks
        if !isInterrupted { post(.whenIdle) }
        guard isInterrupted || !driver.center.hasQueuedPosts(.whenIdle) else { return }
        isIdle = false
        if driver.center.hasQueuedPosts(.whenIdle) { startQuietTimer() }
    }

    private func postAsap() {
        let start = context.now
        post(.asap)
        let now = context.now
        endOfRest = now + (now - start) * Self.partOfReading
    }

    private func post(_ style: PostingStyle) {
        driver.perform { effects in
            driver.center.postQueued(style, limit: Self.perDispatch, effects: &effects)
        }
    }
}
