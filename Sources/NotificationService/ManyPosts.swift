// SPDX-License-Identifier: Apache-2.0
import BusNames
import DBus
import NotificationCore
import NotificationWire

/// Calls that bring many posts at once, taken up piece by piece (F1, E4): each post is checked, counted and posted as one
/// that came alone, and however many there are, others have their turns in between.
///
/// Until the last piece the call counts as waiting; what the caller sends behind it waits as well (`CallQueue`).
final class ManyPosts {
    /// A call of which some posts were taken.
    private final class Work {
        let call: MethodCall
        var posts: ArrivedPosts
        var outcomes: [PostOutcome] = []
        /// The place among all that were begun.
        let number: Int
        /// Behind the last of its deliveries in each lane.
        var marks: [DeliveryLane: SendingMark] = [:]

        init(_ number: Int, _ call: MethodCall, _ posts: ArrivedPosts) {
            self.number = number
            self.call = call
            self.posts = posts
        }
    }

    private unowned let driver: CenterDriver
    private unowned let turns: DeliveryTurns
    private unowned let gate: PolicyGate
    private unowned let refusals: Refusals
    /// By the call's message, which lives as long.
    private var begun: [ObjectIdentifier: Work] = [:]
    private var count = 0
    /// Posts that were taken since somebody asked.
    private var taken = 0
    /// Whether somebody goes on with what has been begun: otherwise nothing is left over.
    var isContinued = false

    init(driver: CenterDriver, turns: DeliveryTurns, gate: PolicyGate, refusals: Refusals) {
        self.driver = driver
        self.turns = turns
        self.gate = gate
        self.refusals = refusals
    }

    /// Takes the first posts of a call of ``PostMany``.
    ///
    /// - Throws: what concerns all of it.
    func begin(_ call: MethodCall) throws(BusError) {
        let posts = try ArrivedPosts(call.message, limits: driver.center.limits)
        try call.expectNoDescriptors()
        count += 1
        let work = Work(count, call, posts)
        begun[ObjectIdentifier(call.message)] = work
        goOn(work, isContinued ? nextPiece : Piece(most: .max))
    }

    /// Whether some posts of a call were taken, and not all.
    func hasBegun(_ message: Message) -> Bool {
        !begun.isEmpty && begun[ObjectIdentifier(message)] != nil
    }

    /// Takes the next posts of a call that was begun.
    ///
    /// - Returns: false for another call.
    func goOn(_ message: Message) -> Bool {
        guard !begun.isEmpty, let work = begun[ObjectIdentifier(message)] else { return false }
        goOn(work, nextPiece)
        return true
    }

    /// Takes all posts of the calls that were begun: there will be no later.
    ///
    /// - Returns: these calls.
    func finishAll() -> [Message] {
        let works = begun.values.sorted { $0.number < $1.number }
        for work in works { goOn(work, Piece(most: .max)) }
        return works.map(\.call.message)
    }

    /// How many posts were taken since the last time, besides the one that each call has that is no call of many.
    func takeCount() -> Int {
        defer { taken = 0 }
        return max(0, taken - 1)
    }

    private var nextPiece: Piece { Piece(isCrowded: driver.center.isCrowded, at: driver.context.now) }

    private func goOn(_ work: Work, _ piece: Piece) {
        var piece = piece
        var refused: [(String, BusError)] = []
        var waitsForIdleness = false
        driver.perform { effects in
            while !work.posts.isAtEnd, piece.hasRoom(at: driver.context.now) {
                piece.take()
                driver.noteServing()
                let (name, post) = work.posts.next(limits: driver.center.limits) { name, object throws(BusError) in
                    // That a name is missing is for the post's own check to say.
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
                taken += 1
                do throws(BusError) {
                    let post = try post.get()
                    try gate.check(post.options, ofPost: post.name, work.call.sender, isOfMany: true)
                    let receipt = try mappingCenterErrors { () throws(CenterError) in
                        try driver.center.post(
                            name: post.name, object: post.object, userInfo: post.userInfo, options: post.options,
                            from: work.call.sender, effects: &effects)
                    }
                    if post.options.postingStyle == .whenIdle { waitsForIdleness = true }
                    if let mark = receipt.mark { work.marks[mark.lane] = mark }
                    work.outcomes.append(PostOutcome(receivers: receipt.receivers))
                } catch {
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
        guard work.posts.isAtEnd else { return }
        begun[ObjectIdentifier(work.call.message)] = nil
        driver.answer(work.call, with: work.outcomes, behind: work.marks.sorted { $0.key < $1.key }.map(\.value))
    }
}
