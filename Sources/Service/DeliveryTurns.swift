// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The sources through which what is due goes out, one for each lane at the priority of its mode (M6), and those that
/// post what waits in posters' queues (Q7).
///
/// They are asked before each poll whether there is anything to do. So there is nothing to arm and nothing to forget,
/// and a service at rest is not woken.
final class DeliveryTurns {
    /// Turns that one dispatch of a source takes. Then more urgent sources are asked again.
    private static let perDispatch = 32
    /// Messages that are read ahead of the default mode before that gets a turn: a flood that nobody observes must not
    /// hold up what was posted before it. One that somebody does is bounded by the core too.
    private static let maxReadAhead = 128
    /// So many calls that were not looked at are one message. Each is one of its own when it is served.
    private static let glancesInMessage: UInt64 = 8
    /// So many messages is a part of something large, which takes some milliseconds.
    private static let messagesInPart = 64
    private static let manyReceivers = 512
    /// The loop counts as idle when so long nothing came from the bus: between two messages of a burst it has nothing
    /// to do either.
    private static let quietMilliseconds: UInt32 = 50
    /// While there is something to read, posts of the style asap take one part of the time, and reading so many.
    private static let partOfReading = 4
    /// After so many looks the next moment in which nothing else is ready will do, so that a trickle of messages can't
    /// hold up what waits for idleness for ever: 2 s.
    private static let maxLooks = 40

    private unowned let driver: CenterDriver
    private let context: MainContext
    private var sources: [ReadySource] = []
    private var activity: UInt64 = 0
    private var activityWhenIdle: UInt64 = 0
    /// Messages that were read while the default mode waited.
    private var readAhead = 0
    private var quietTimer: EventSource?
    private var looks = 0
    private var isIdle = false
    /// Until then posts of the style asap leave what there is to read its time.
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

    /// A message came from the bus, and is handled next.
    func noteActivity() {
        activity += 1
        _ = goAhead(of: 1)
    }

    /// A call came and was not looked at, as it has to wait or is lost.
    func noteGlance() {
        activity += 1
        guard activity % Self.glancesInMessage == 0 else { return }
        _ = goAhead(of: 1)
    }

    /// A part of something large was served.
    ///
    /// - Parameter posts: the posts in it, each of which is as one that came alone; 0 for a part of something else.
    /// - Returns: whether something was sent, as the default mode has waited for long.
    func notePart(posts: Int) -> Bool { goAhead(of: posts > 0 ? posts : Self.messagesInPart) }

    /// A post was made that matched so many clients: to very many it takes milliseconds, too.
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

    /// Something waits for the loop to be idle.
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
            // At this priority it is dispatched only when nothing else is ready.
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
        // What came meanwhile belongs to the next pass, and what is left waits for that too.
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
