// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonWire

/// The replies of accepted posts that wait for their deliveries.
///
/// A reply therefore follows the notification. A poster that waits for replies is slowed to the rate of deliveries, and
/// does not fill the queues.
struct PendingReplies {
    /// A waiting reply and its content.
    struct Waiting {
        fileprivate let poster: ClientName
        fileprivate let answer: Asker
        fileprivate let receivers: Int
        /// The outcomes for a call of many posts; nil for a call of one post.
        fileprivate var outcomes: [PostOutcome]?
        fileprivate var mark: Watermark
        /// Further watermarks that have to be passed, in other lanes.
        fileprivate var marks: [Watermark] = []

        /// Answers a call.
        ///
        /// - Returns: the answer to a post on a channel; nil for a call.
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

    /// One queue per lane, in the order of watermarks.
    private var lines: [Deque<Waiting>] = DeliveryLane.allCases.map { _ in Deque() }
    private var posters: [ClientName: Poster] = [:]

    /// The pending replies of one poster.
    private struct Poster {
        var count = 0
        /// The watermark of its last reply.
        var last: Watermark

        mutating func note(_ mark: Watermark) {
            count += 1
            last = mark
        }
    }

    var isEmpty: Bool { posters.isEmpty }

    /// Returns the watermark of the last pending reply to `poster`; nil when there is none. A later reply comes no
    /// earlier, so that posts of one client are answered in order as far as they are delivered in order.
    func lastMark(of poster: ClientName) -> Watermark? { isEmpty ? nil : posters[poster]?.last }

    mutating func append(_ call: MethodCall, receivers: Int, behind mark: Watermark) {
        append(Waiting(poster: call.sender, answer: .call(call.answer), receivers: receivers, mark: mark))
    }

    mutating func append(_ post: ChannelPost, receivers: Int, behind mark: Watermark) {
        post.channel.outcomesDue += 1
        append(Waiting(poster: post.channel.client, answer: .channel(post), receivers: receivers, mark: mark))
    }

    /// - Parameter marks: the watermarks of posts in one call; not empty, at most one per lane.
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

    /// Removes and returns a reply whose watermarks have been passed; nil when there is none.
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
