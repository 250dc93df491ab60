// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonWire

/// Posts that were accepted and whose answers wait for the turn of their deliveries.
///
/// So an answer stands behind the notification, as it always did, and a poster that waits for answers is slowed to the
/// pace at which deliveries leave, instead of filling the lines.
struct PendingReplies {
    /// An answer, and what it says.
    struct Waiting {
        fileprivate let poster: ClientName
        fileprivate let answer: Asker
        fileprivate let receivers: Int
        /// Of a call that brought many posts; nil for one that is a post.
        fileprivate var outcomes: [PostOutcome]?
        fileprivate var mark: Watermark
        /// Which have to be passed as well, in other lanes.
        fileprivate var marks: [Watermark] = []

        /// Answers a call.
        ///
        /// - Returns: what a post on a channel is answered with; nil for others.
        func send() -> ChannelAnswer? {
            switch (answer, outcomes) {
            case (.call(let answer), let outcomes?): answer.reply(toPosts: outcomes)
            case (.call(let answer), nil): answer.reply(toPost: receivers)
            case (.channel(let post), _):
                post.channel.outcomesDue -= 1
                return post.answered(ChannelOutcome(receivers: receivers))
            }
            return nil
        }

        var isCall: Bool { if case .call = answer { true } else { false } }
    }

    fileprivate enum Asker {
        case call(MethodCall.Answer)
        case channel(ChannelPost)
    }

    /// By lane, in the order of their marks.
    private var lines: [Deque<Waiting>] = DeliveryLane.allCases.map { _ in Deque() }
    private var posters: [ClientName: Poster] = [:]

    /// What waits of one poster.
    private struct Poster {
        var count = 0
        /// That of the last one.
        var last: Watermark

        mutating func note(_ mark: Watermark) {
            count += 1
            last = mark
        }
    }

    var isEmpty: Bool { posters.isEmpty }

    /// What the last answer to `poster` waits behind; nil when none does. Its next one comes no earlier, so that posts of
    /// one client are answered in their order as far as they are delivered in it.
    func lastMark(of poster: ClientName) -> Watermark? { isEmpty ? nil : posters[poster]?.last }

    mutating func append(_ call: MethodCall, receivers: Int, behind mark: Watermark) {
        append(Waiting(poster: call.sender, answer: .call(call.answer), receivers: receivers, mark: mark))
    }

    mutating func append(_ post: ChannelPost, receivers: Int, behind mark: Watermark) {
        post.channel.outcomesDue += 1
        append(Waiting(poster: post.channel.client, answer: .channel(post), receivers: receivers, mark: mark))
    }

    /// - Parameter marks: of posts that came together; not empty, none of them in the lane of another.
    mutating func append(_ call: MethodCall, outcomes: [PostOutcome], behind marks: [Watermark]) {
        var marks = marks
        let mark = marks.removeFirst()
        append(
            Waiting(
                poster: call.sender, answer: .call(call.answer), receivers: 0, outcomes: outcomes, mark: mark,
                marks: marks))
    }

    private mutating func append(_ waiting: Waiting) {
        lines[waiting.mark.lane.rawValue].append(waiting)
        posters[waiting.poster, default: Poster(last: waiting.mark)].note(waiting.mark)
    }

    private mutating func noteTaken(of poster: ClientName) {
        posters[poster]?.count -= 1
        if posters[poster]?.count == 0 { posters[poster] = nil }
    }

    /// Takes one whose marks have been passed out; nil when there is none.
    mutating func popPassed(hasPassed: (Watermark) -> Bool) -> Waiting? {
        guard !isEmpty else { return nil }
        for line in lines.indices {
            while var waiting = lines[line].first, hasPassed(waiting.mark) {
                lines[line].popFirst()
                noteTaken(of: waiting.poster)
                waiting.marks.removeAll(where: hasPassed)
                guard !waiting.marks.isEmpty else { return waiting }
                waiting.mark = waiting.marks.removeFirst()
                append(waiting)
            }
        }
        return nil
    }
}
