// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonWire

/// The replies to accepted posts that wait until the deliveries of the post are sent.
///
/// Deliveries leave in the order of the send schedule. The core returns for each post a watermark, the position of its
/// last delivery in a lane of the schedule, and the reply may be sent when the schedule has passed it. Thus a poster
/// that waits for its replies is slowed to the rate of deliveries, and does not fill the queues of observers.
///
/// ``CenterDriver`` appends a reply for each post, and sends the replies that may be sent after each event.
struct PendingReplies {
    /// A reply with the watermarks that it waits for.
    struct Waiting {
        fileprivate let poster: ClientName
        fileprivate let answer: Recipient
        /// The number of clients that the post matched; its outcome.
        fileprivate let receivers: Int
        /// The outcomes of the posts of `PostMany`; nil for a single post.
        fileprivate var outcomes: [PostOutcome]?
        /// The watermark that it waits for now.
        fileprivate var mark: Watermark
        /// The watermarks that it waits for afterwards, in other lanes.
        fileprivate var marks: [Watermark] = []

        /// Sends the reply to a call. The caller sends the answer to a post on a channel.
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

        /// Whether it is the reply to a method call on the bus, and not the answer to a post on a channel.
        var isCall: Bool { if case .call = answer { true } else { false } }
    }

    /// The receiver of a reply.
    fileprivate enum Recipient {
        case call(MethodCall.Answer)
        case channel(ChannelPost)
    }

    /// One queue per lane, in the order of watermarks.
    private var laneQueues: [Deque<Waiting>] = DeliveryLane.allCases.map { _ in Deque() }
    /// The posters with pending replies.
    private var posters: [ClientName: Poster] = [:]

    /// The pending replies of one poster.
    private struct Poster {
        var count = 0
        /// The watermark of its last pending reply.
        var last: Watermark

        mutating func note(_ mark: Watermark) {
            count += 1
            last = mark
        }
    }

    var isEmpty: Bool { posters.isEmpty }

    /// Returns the watermark of the last pending reply to `poster`; nil if there is none. A post without deliveries
    /// gets its reply at this watermark, so that it does not overtake the earlier replies.
    func lastMark(of poster: ClientName) -> Watermark? { isEmpty ? nil : posters[poster]?.last }

    /// Appends the reply to a call with one post.
    mutating func append(_ call: MethodCall, receivers: Int, behind mark: Watermark) {
        append(Waiting(poster: call.sender, answer: .call(call.answer), receivers: receivers, mark: mark))
    }

    /// Appends the answer to a post on a channel.
    mutating func append(_ post: ChannelPost, receivers: Int, behind mark: Watermark) {
        // The channel counts its pending outcomes, which bound its reading and delay its end.
        post.channel.outcomesDue += 1
        append(Waiting(poster: post.channel.client, answer: .channel(post), receivers: receivers, mark: mark))
    }

    /// Appends the reply to a call of `PostMany`.
    ///
    /// - Parameter marks: the watermarks that all have to be passed; not empty, at most one per lane.
    mutating func append(_ call: MethodCall, outcomes: [PostOutcome], behind marks: [Watermark]) {
        var marks = marks
        let mark = marks.removeFirst()
        append(
            Waiting(
                poster: call.sender, answer: .call(call.answer), receivers: 0, outcomes: outcomes, mark: mark,
                marks: marks))
    }

    private mutating func append(_ waiting: Waiting) {
        laneQueues[waiting.mark.lane.rawValue].append(waiting)
        posters[waiting.poster, default: Poster(last: waiting.mark)].note(waiting.mark)
    }

    private mutating func noteTaken(of poster: ClientName) {
        posters[poster]?.count -= 1
        if posters[poster]?.count == 0 { posters[poster] = nil }
    }

    /// Removes and returns a reply all of whose watermarks have been passed; nil if there is none.
    mutating func popPassed(hasPassed: (Watermark) -> Bool) -> Waiting? {
        guard !isEmpty else { return nil }
        for lane in laneQueues.indices {
            while var waiting = laneQueues[lane].first, hasPassed(waiting.mark) {
                laneQueues[lane].popFirst()
                noteTaken(of: waiting.poster)
                waiting.marks.removeAll(where: hasPassed)
                guard !waiting.marks.isEmpty else { return waiting }
                // It continues to wait in the queue of another lane.
                waiting.mark = waiting.marks.removeFirst()
                append(waiting)
            }
        }
        return nil
    }
}
