import Collections
import DBus
import NotificationCore
import NotificationWire

/// Posts that were accepted and whose answers wait for the turn of their deliveries.
///
/// So an answer stands behind the notification, as it always did, and a poster that waits for answers is slowed to the
/// pace at which deliveries leave, instead of filling the lines.
struct WaitingPosters {
    /// An answer, and what it says.
    struct Waiting {
        fileprivate let answer: Asker
        fileprivate let receivers: Int
        /// Of a call that brought many posts; nil for one that is a post.
        fileprivate var outcomes: [PostOutcome]?
        fileprivate let mark: SendingMark
        /// Which have to be passed as well, in other lanes.
        fileprivate var marks: [SendingMark] = []

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
    private var count = 0

    var isEmpty: Bool { count == 0 }

    mutating func append(_ answer: MethodCall.Answer, receivers: Int, behind mark: SendingMark) {
        lines[mark.lane.rawValue].append(Waiting(answer: .call(answer), receivers: receivers, mark: mark))
        count += 1
    }

    mutating func append(_ post: ChannelPost, receivers: Int, behind mark: SendingMark) {
        post.channel.outcomesDue += 1
        lines[mark.lane.rawValue].append(Waiting(answer: .channel(post), receivers: receivers, mark: mark))
        count += 1
    }

    /// - Parameter marks: of posts that came together; not empty, none of them in the lane of another.
    mutating func append(_ answer: MethodCall.Answer, outcomes: [PostOutcome], behind marks: [SendingMark]) {
        var marks = marks
        let mark = marks.removeFirst()
        lines[mark.lane.rawValue].append(
            Waiting(answer: .call(answer), receivers: 0, outcomes: outcomes, mark: mark, marks: marks))
        count += 1
    }

    /// Takes one whose marks have been passed out; nil when there is none.
    mutating func popPassed(hasPassed: (SendingMark) -> Bool) -> Waiting? {
        guard count > 0 else { return nil }
        for line in lines.indices {
            while let waiting = lines[line].first, hasPassed(waiting.mark) {
                lines[line].popFirst()
                count -= 1
                let marks = waiting.marks.filter { !hasPassed($0) }
                guard !marks.isEmpty, let outcomes = waiting.outcomes, case .call(let answer) = waiting.answer else {
                    return waiting
                }
                append(answer, outcomes: outcomes, behind: marks)
            }
        }
        return nil
    }
}
