import DBus
import NotificationCore
import NotificationWire

/// Posts that were accepted and whose answers wait for the turn of their deliveries.
///
/// So an answer stands behind the notification, as it always did, and a poster that waits for answers is slowed to the
/// pace at which deliveries leave, instead of filling the lines.
struct WaitingPosters {
    private struct Waiting {
        let call: MethodCall
        let receivers: Int
        let mark: SendingMark
    }

    /// By lane, in the order of their marks.
    private var lines: [[Waiting]] = DeliveryLane.allCases.map { _ in [] }
    private var count = 0

    mutating func append(_ call: MethodCall, receivers: Int, behind mark: SendingMark) {
        lines[mark.lane.rawValue].append(Waiting(call: call, receivers: receivers, mark: mark))
        count += 1
    }

    /// Answers those whose marks have been passed.
    mutating func answer(hasPassed: (SendingMark) -> Bool) {
        guard count > 0 else { return }
        for line in lines.indices where !lines[line].isEmpty {
            let passed = lines[line].prefix { hasPassed($0.mark) }
            for waiting in passed { waiting.call.reply(to: PostCall.self, waiting.receivers) }
            count -= passed.count
            lines[line].removeFirst(passed.count)
        }
    }
}
