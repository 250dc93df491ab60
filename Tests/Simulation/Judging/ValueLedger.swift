// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonWire

/// What the service has to keep (R1, R3, R6), as far as it is certain: answers come late, and some never.
final class ValueLedger {
    private struct Removal {
        enum Scope {
            /// Wherever they are from; nil for all names.
            case name(Int?)
            /// One alone.
            case kind(ValueKind)
        }

        let scope: Scope
        let asked: Int64
        /// When it was known to be done.
        var acknowledged: Int64?

        func covers(_ post: PostPlan) -> Bool {
            switch scope {
            case .name(let name): name == nil || name == post.name
            case .kind(let kind): kind == post.kind
            }
        }
    }

    private unowned let ledger: Ledger
    /// The posts that are to be kept.
    private var made: [Int] = []
    private var removals: [Removal] = []

    /// A value expires for whoever looks then, which may be a moment later.
    private static let second: Int64 = 1_000_000

    init(_ ledger: Ledger) {
        self.ledger = ledger
    }

    func noteMade(_ number: Int) {
        made.append(number)
    }

    /// Somebody asks for the removal of the values of a name; nil means all.
    ///
    /// - Returns: the number of the removal.
    func remove(_ name: Int?) -> Int {
        removals.append(Removal(scope: .name(name), asked: ledger.world.now))
        return removals.count - 1
    }

    /// The same for the one value of a kind.
    func remove(only kind: ValueKind) -> Int {
        removals.append(Removal(scope: .kind(kind), asked: ledger.world.now))
        return removals.count - 1
    }

    func acknowledgeRemoval(_ number: Int) {
        removals[number].acknowledged = ledger.world.now
    }

    /// G3: who asked for the removal of the one value of a kind is told whether there was one.
    func judgeRemoval(_ removal: Int, of kind: ValueKind, count: Int) {
        let asked = removals[removal].asked
        let candidates = made.filter { ledger.posts[$0].plan.kind == kind }
        // A library asks the next service again when one has ended before it answered.
        let wasThere = ledger.incarnations == 1 && candidates.contains { isCurrent($0, at: asked, besides: removal) }
        guard count < (wasThere ? 1 : 0) || count > (mayBeThere(kind, at: asked) ? 1 : 0) else { return }
        ledger.world.violate("G3", "\(count) values are removed where one was to be: \(kind)")
    }

    /// R6: a value is refused for want of room, which what is over takes from nobody.
    func judgeRoom(for number: Int, _ error: BusError) {
        let post = ledger.posts[number]
        let others = made.filter { $0 != number && sharesRoom($0, post) }
        let kinds = Set(others.filter { !isOver($0, at: post.time) }.map { ledger.posts[$0].plan.kind })
        guard UInt64(kinds.count) < ledger.limits[.retainedPerClient] else { return }
        ledger.world.violate(
            "R6", "post \(number) of \(post.poster) is refused, which has \(kinds.count) values: \(error.message)")
    }

    /// Whether a post's value may take the room of another one's: of its poster, or for the same machine, whose poster may have left.
    private func sharesRoom(_ number: Int, _ post: Ledger.PostRecord) -> Bool {
        let other = ledger.posts[number]
        let host = post.plan.options.origin?.host
        return other.poster == post.poster || host != nil && other.plan.options.origin?.host == host
    }

    /// Whether a post is to leave no value, or its poster has made values of so few kinds that each had room.
    func surelyHadRoom(_ number: Int) -> Bool {
        let post = ledger.posts[number]
        guard post.plan.options.retention != nil else { return true }
        let own = made.filter { sharesRoom($0, post) }
        let kinds = Set(own.map { ledger.posts[$0].plan.kind })
        return UInt64(kinds.count) <= ledger.limits[.retainedPerClient]
    }

    /// Whether the time of a value was over when somebody asked (R1).
    func hadExpired(_ number: Int, at time: Int64) -> Bool {
        let post = ledger.posts[number]
        guard let seconds = post.plan.options.expiresAfter, let accepted = accepted(post) else { return false }
        return time > accepted + (Int64(seconds) + 1) * Self.second
    }

    /// Whether a post was surely the value of its kind at a time, and has been since.
    ///
    /// - Parameter removal: one that does not count.
    func isCurrent(_ number: Int, at time: Int64, besides removal: Int? = nil) -> Bool {
        let post = ledger.posts[number]
        guard let retention = post.plan.options.retention, post.plan.options.expiresAfter == nil,
            let accepted = accepted(post), accepted <= time, !retention.whileConnected || post.posterStayed,
            !ledger.wasStateLost(since: post.time), post.posterStayed || !mayGiveWay, isStillImported(post)
        else { return false }
        let isRemoved = removals.indices.contains { index in
            index != removal && removals[index].covers(post.plan)
                && !(removals[index].acknowledged.map { $0 <= post.time } ?? false)
        }
        return !isRemoved && rivals(of: number).allSatisfy { isSurelyBefore($0, post) }
    }

    /// R8: a value of another session ends when the configuration keeps it no more.
    private func isStillImported(_ post: Ledger.PostRecord) -> Bool {
        guard let user = post.plan.user else { return true }
        return ledger.policy.verdict(since: post.time) { $0.keeps(post.plan.nameText, of: user) } == .allowed
    }

    /// Whether memory may run out, for which values of posters that have left give way (E4).
    private var mayGiveWay: Bool { ledger.limits[.memoryBytes] < Limits()[.memoryBytes] }

    /// Whether a post is surely no value any more at a time.
    private func isOver(_ number: Int, at time: Int64) -> Bool {
        let post = ledger.posts[number]
        guard post.plan.options.retention != nil, post.outcome != .refused else { return true }
        // A later service may know nothing of what ended it.
        guard let accepted = accepted(post), !ledger.wasStateLost(since: accepted) else { return false }
        if let seconds = post.plan.options.expiresAfter, time > accepted + (Int64(seconds) + 1) * Self.second {
            return true
        }
        if removals.contains(where: { removal in
            removal.covers(post.plan) && removal.asked >= accepted && removal.acknowledged.map { $0 <= time } ?? false
        }) {
            return true
        }
        return rivals(of: number).contains { rival in
            self.accepted(rival).map { $0 <= time } ?? false && isSurelyBefore(post, rival)
        }
    }

    /// When it was known to have been posted; nil where that is not known, or it may be later.
    private func accepted(_ post: Ledger.PostRecord) -> Int64? {
        guard post.plan.options.postingStyle == .now, case .accepted(_, let time) = post.outcome else { return nil }
        return time
    }

    /// Others that are or were the value of the same kind, or may have been.
    private func rivals(of number: Int) -> [Ledger.PostRecord] {
        let kind = ledger.posts[number].plan.kind
        return made.lazy.filter { $0 != number }.map { [ledger] in ledger.posts[$0] }.filter {
            $0.outcome != .refused && $0.plan.kind == kind
        }
    }

    private func isSurelyBefore(_ one: Ledger.PostRecord, _ other: Ledger.PostRecord) -> Bool {
        accepted(one).map { $0 <= other.time } ?? false
    }

    /// R3: holds what somebody was told of the values of a name against what is certain.
    ///
    /// - Parameters:
    ///   - numbers: of the posts that they come from; nil for what comes from none.
    ///   - name: nil for all.
    ///   - asked: when.
    func judge(_ numbers: [Int?], of name: Int?, asked: Int64) {
        for case nil in numbers { return ledger.world.violate("R1", "a value that nobody posted is kept") }
        let numbers = numbers.compactMap { $0 }
        var kinds: Set<ValueKind> = []
        for number in numbers {
            guard number < ledger.posts.count else { return ledger.world.violate("R1", "a value of no post is kept") }
            let post = ledger.posts[number]
            if let name, name != post.plan.name { ledger.world.violate("R3", "the value of another name is given") }
            if !kinds.insert(post.plan.kind).inserted {
                ledger.world.violate("R1", "there are two values of \(post.plan.kind)")
            }
            if isOver(number, at: asked) {
                ledger.world.violate("R1", "post \(number) is kept, and is no value any more: \(post.plan)")
            }
        }
        let known = Set(numbers)
        for number in made where !known.contains(number) {
            let plan = ledger.posts[number].plan
            guard name == nil || name == plan.name, isCurrent(number, at: asked) else { continue }
            ledger.world.violate("R1", "post \(number) is not kept: \(plan)")
        }
    }

    /// G5: holds what somebody was told of the values that there are against what is certain.
    func judgeListed(_ pieces: [FollowedList<FollowValues>.Piece]) {
        var told: Set<ValueKind> = []
        for piece in pieces {
            let serials = piece.reply.map(\.serial)
            if !zip(serials, serials.dropFirst()).allSatisfy({ $0 < $1 }) {
                ledger.world.violate("G5", "values are listed in no order: \(serials)")
            }
            let kinds = piece.reply.map(ValueKind.init)
            if Set(kinds).count < kinds.count { ledger.world.violate("G5", "a value is listed twice: \(kinds)") }
            for kind in kinds where !mayBeThere(kind, at: piece.asked) {
                ledger.world.violate("G5", "a value is listed that there is not: \(kind)")
            }
            told.formUnion(kinds)
        }
        for number in made where isCurrent(number, at: pieces[0].asked) {
            let kind = ledger.posts[number].plan.kind
            if !told.contains(kind) { ledger.world.violate("G5", "post \(number) is kept, and not listed: \(kind)") }
        }
    }

    private func mayBeThere(_ kind: ValueKind, at time: Int64) -> Bool {
        made.contains { ledger.posts[$0].plan.kind == kind && !isOver($0, at: time) }
    }

    /// R6: nothing of a connection that has left is kept.
    func judgeLeft(_ numbers: [Int]) {
        for number in numbers {
            let post = ledger.posts[number]
            if post.plan.options.retention?.whileConnected == true, !post.posterStayed {
                ledger.world.violate("R6", "post \(number) is kept, and its poster has left")
            }
        }
    }
}
