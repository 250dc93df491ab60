// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// The calls of many posts, taken up in slices (F1, E4): each post is checked, counted and posted like a single post
/// (``CallsInParts``).
final class PostBatches {
    /// A call of which some posts were taken.
    private final class Work {
        let call: MethodCall
        var posts: ArrivedPosts
        var outcomes: [PostOutcome] = []
        /// The next post, for which only coalesced posts were removed so far.
        var next: (name: String, post: Result<Post<WireUserInfo>, BusError>)?
        /// The watermark of the last delivery in each lane.
        var marks: [DeliveryLane: Watermark] = [:]

        init(_ call: MethodCall, _ posts: ArrivedPosts) {
            self.call = call
            self.posts = posts
        }

        var isAtEnd: Bool { posts.isAtEnd && next == nil }
    }

    private unowned let driver: CenterDriver
    private unowned let turns: DeliveryTurns
    private unowned let gate: PolicyGate
    private unowned let refusals: RejectionLog
    private unowned let parts: CallsInParts

    init(driver: CenterDriver, turns: DeliveryTurns, gate: PolicyGate, refusals: RejectionLog, parts: CallsInParts) {
        self.driver = driver
        self.turns = turns
        self.gate = gate
        self.refusals = refusals
        self.parts = parts
    }

    /// Takes the first posts of a call of ``PostMany``.
    ///
    /// - Throws: an error that concerns the whole call.
    func begin(_ call: MethodCall) throws(BusError) {
        let posts = try ArrivedPosts(call.message, limits: driver.center.limits)
        try call.expectNoDescriptors()
        let work = Work(call, posts)
        parts.begin(call) { [unowned self] piece in serve(work, piece) }
    }

    /// - Returns: whether these were the last posts.
    private func serve(_ work: Work, _ piece: WorkSlice) -> Bool {
        var piece = piece
        var refused: [(String, BusError)] = []
        var waitsForIdleness = false
        driver.perform { effects in
            while !work.isAtEnd, piece.hasRoom(at: driver.context.now) {
                piece.take()
                driver.noteServing()
                let next = work.next.take()
                let (name, post) =
                    next
                    ?? work.posts.next(limits: driver.center.limits) { name, object throws(BusError) in
                        // An empty name is reported by the post's own check.
                        #if CARILLON_PLANTED
                            let isPoliced = !name.isEmpty && !PlantedFault.strikes(.batchUnpoliced)
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
                    // A post that was deferred in an earlier part was checked there.
                    if next == nil { try gate.check(post.options, ofPost: post.name, work.call.sender, isOfMany: true) }
                    guard try driver.removeCoalesced(for: post, from: work.call.sender, effects: &effects) else {
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
                        if !work.posts.isAtEnd, PlantedFault.strikes(.refusedTakesNext) {
                            _ = work.posts.next(limits: driver.center.limits) { _, _ in }
                            work.outcomes.append(PostOutcome(receivers: 0))
                        }
                    #endif
                }
            }
        }
        for (name, error) in refused { refusals.note(work.call, error, post: name) }
        if waitsForIdleness { turns.expectIdleness() }
        guard work.isAtEnd else { return false }
        driver.answer(work.call, with: work.outcomes, behind: work.marks.sorted { $0.key < $1.key }.map(\.value))
        return true
    }
}
