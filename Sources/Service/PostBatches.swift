// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The service of `PostMany` calls, each of which carries a batch of posts (F1).
///
/// The posts of a call are made in work slices, and other calls are served between two slices (``SlicedCalls``). Each
/// post is checked, counted and made like a single post. A refused post does not affect the others. The reply has one
/// outcome for each post, and is sent after the deliveries of all of them.
final class PostBatches {
    /// The progress of a call.
    private final class Work {
        let call: MethodCall
        /// The posts of the call, which are decoded one after the other.
        var posts: ArrivedPosts
        /// The outcomes of the posts so far.
        var outcomes: [PostOutcome] = []
        /// The next post, which was decoded and checked in an earlier slice. It replaces more queued posts than one
        /// event may remove.
        var next: (name: String, post: Result<Post<WireUserInfo>, BusError>)?
        /// The watermark of the last delivery of this call in each lane.
        var marks: [DeliveryLane: Watermark] = [:]

        init(_ call: MethodCall, _ posts: ArrivedPosts) {
            self.call = call
            self.posts = posts
        }

        var isAtEnd: Bool { posts.isAtEnd && next == nil }
    }

    private unowned let driver: CenterDriver
    private unowned let deliverySources: DeliverySources
    private unowned let gate: PolicyGate
    private unowned let refusals: RejectionLog
    private unowned let parts: SlicedCalls

    init(
        driver: CenterDriver, deliverySources: DeliverySources, gate: PolicyGate, refusals: RejectionLog,
        parts: SlicedCalls
    ) {
        self.driver = driver
        self.deliverySources = deliverySources
        self.gate = gate
        self.refusals = refusals
        self.parts = parts
    }

    /// Makes the first posts of a call of ``PostMany``.
    ///
    /// - Throws: an error of the whole call, of which no post is made.
    func begin(_ call: MethodCall) throws(BusError) {
        let posts = try ArrivedPosts(call.message, limits: driver.center.limits)
        try call.expectNoDescriptors()
        let work = Work(call, posts)
        parts.begin(call) { [unowned self] slice in serve(work, slice) }
    }

    /// Makes posts within a work slice, in one event of the core, and replies after the last one.
    ///
    /// Each post is decoded and checked, replaces queued posts if it coalesces, is posted, and gets its outcome.
    ///
    /// - Returns: whether these were the last posts.
    private func serve(_ work: Work, _ slice: WorkSlice) -> Bool {
        var slice = slice
        var refused: [(String, BusError)] = []
        var waitsForIdleness = false
        driver.perform { effects in
            while !work.isAtEnd, slice.hasRoom(at: driver.context.now) {
                slice.take()
                driver.noteServing()
                let next = work.next.take()
                let (name, post) =
                    next
                    ?? work.posts.next(limits: driver.center.limits) { name, object throws(BusError) in
                        // An empty name is refused by the core's check below.
                        #if CARILLON_PLANTED
                            let isPoliced = !name.isEmpty && !PlantedFault.strikes(.batchWithoutPolicy)
                        #else
                            let isPoliced = !name.isEmpty
                        #endif
                        if isPoliced { try gate.check(work.call.sender) { .post(name: name) } }
                        try mappingCenterErrors { () throws(CenterError) in
                            try driver.center.checkPost(name: name, object: object)
                        }
                    }
                do throws(BusError) {
                    let post = try post.get()
                    // A post from an earlier slice was checked there.
                    if next == nil { try gate.check(post.options, ofPost: post.name, work.call.sender, isOfMany: true) }
                    guard try driver.removeCoalesced(for: post, from: work.call.sender, effects: &effects) else {
                        // This slice ends, and the next one begins with this post.
                        work.next = (name, .success(post))
                        break
                    }
                    parts.notePosts(1)
                    let receipt = try mappingCenterErrors { () throws(CenterError) in
                        try driver.center.post(
                            name: post.name, object: post.object, userInfo: post.userInfo, options: post.options,
                            from: work.call.sender, effects: &effects)
                    }
                    if post.options.postingStyle == .whenIdle { waitsForIdleness = true }
                    if let mark = receipt.mark { work.marks[mark.lane] = mark }
                    work.outcomes.append(PostOutcome(receivers: receipt.receivers))
                } catch {
                    parts.notePosts(1)
                    refused.append((name, error))
                    work.outcomes.append(PostOutcome(error))
                    #if CARILLON_PLANTED
                        if !work.posts.isAtEnd, PlantedFault.strikes(.refusedPostTakesNext) {
                            _ = work.posts.next(limits: driver.center.limits) { _, _ in }
                            work.outcomes.append(PostOutcome(receivers: 0))
                        }
                    #endif
                }
            }
        }
        // Refusals are noted after the event, because noting is an event of the core too.
        for (name, error) in refused { refusals.note(work.call, error, post: name) }
        if waitsForIdleness { deliverySources.expectIdleness() }
        guard work.isAtEnd else { return false }
        driver.answer(work.call, with: work.outcomes, behind: work.marks.sorted { $0.key < $1.key }.map(\.value))
        return true
    }
}
