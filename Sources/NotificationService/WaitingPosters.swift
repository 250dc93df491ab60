import Collections
import DBus
import NotificationCore
import NotificationWire

/// Posts that were accepted and whose answers wait for the turn of their deliveries.
///
/// So an answer stands behind the notification, as it always did, and a poster that waits for answers is slowed to the
/// pace at which deliveries leave, instead of filling the lines.
struct WaitingPosters {
    private struct Waiting {
        let answer: MethodCall.Answer
        let receivers: Int
        let mark: SendingMark
    }

    /// By lane, in the order of their marks.
    private var lines: [Deque<Waiting>] = DeliveryLane.allCases.map { _ in Deque() }
    private var count = 0

    mutating func append(_ answer: MethodCall.Answer, receivers: Int, behind mark: SendingMark) {
        lines[mark.lane.rawValue].append(Waiting(answer: answer, receivers: receivers, mark: mark))
        count += 1
    }

    /// Takes one whose mark has been passed out; nil when there is none.
    mutating func popPassed(
        hasPassed: (SendingMark) -> Bool
    ) -> (answer: MethodCall.Answer, receivers: Int)? {
        guard count > 0 else { return nil }
        for line in lines.indices {
            guard let waiting = lines[line].first, hasPassed(waiting.mark) else { continue }
            lines[line].popFirst()
            count -= 1
            return (waiting.answer, waiting.receivers)
        }
        return nil
    }
}
