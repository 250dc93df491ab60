// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The PostsRefused signals to posters that wanted no reply (E10): one signal for many refused posts, always sent
/// before a reply that the poster waits for.
///
/// A poster that waits for no reply may read nothing. It is notified at growing intervals, so that the bus holds few
/// messages for it.
final class RefusalNotices {
    private struct Notice {
        let account: AccountID
        /// The number of refusals that were not reported yet.
        var count: UInt32 = 0
        var error: BusError
        var due: SuspendingClock.Instant
        /// The time from the next signal to the one after it.
        var pause = RefusalNotices.pauses.lowerBound
    }

    /// The times between the first refusal and its signal, and between two signals.
    private static let pauses = Duration.milliseconds(50)...Duration.seconds(60)
    /// The maximum of posters, and of posters of one account. Refusals of further posters are only logged.
    private static let maxPosters = 4_096
    private static let maxOfAccount = 64
    /// The maximum size of an error's text, in bytes, as it is kept until it is sent.
    private static let maxBytes = 512

    private unowned let bus: any MessageBus
    private var notices: [UniqueName: Notice] = [:]
    private var counts: [AccountID: Int] = [:]
    private var timer: (source: EventSource, due: SuspendingClock.Instant)?
    /// Returns the account of a connection.
    var account: (UniqueName) -> AccountID = { .connection($0) }

    /// - Parameter bus: the bus on which signals are sent; the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Notes refused posts that wanted no reply.
    func note(_ count: Int, _ error: BusError, of poster: UniqueName) {
        let soon = bus.context.now + Self.pauses.lowerBound
        guard count > 0, var notice = notices[poster] ?? begin(poster, error, due: soon) else { return }
        let isFirst = notice.count == 0
        if isFirst { notice.due = max(notice.due, soon) }
        let (sum, overflow) = notice.count.addingReportingOverflow(UInt32(clamping: count))
        notice.count = overflow ? .max : sum
        notice.error = error.shortened(to: Self.maxBytes)
        notices[poster] = notice
        if isFirst, timer.map({ notice.due < $0.due }) ?? true { wait() }
    }

    /// - Returns: nil where the maximum of notices is reached.
    private func begin(_ poster: UniqueName, _ error: BusError, due: SuspendingClock.Instant) -> Notice? {
        let account = account(poster)
        guard notices.count < Self.maxPosters, counts[account, default: 0] < Self.maxOfAccount else { return nil }
        counts[account, default: 0] += 1
        return Notice(account: account, error: error, due: due)
    }

    private func remove(_ poster: UniqueName) -> Notice? {
        guard let notice = notices.removeValue(forKey: poster) else { return nil }
        counts[notice.account]! -= 1
        if counts[notice.account] == 0 { counts[notice.account] = nil }
        return notice
    }

    /// Reports refusals to a poster that waits for a reply, before that reply.
    func reportNow(_ poster: UniqueName) {
        guard !notices.isEmpty, let notice = remove(poster) else { return }
        tell(notice, poster)
    }

    /// Forgets a poster that has left the bus.
    func forget(_ poster: UniqueName) { _ = remove(poster) }

    /// Reports all refusals at the end of the service.
    func reportAll() {
        for (poster, notice) in notices.sorted(by: { $0.key < $1.key }) { tell(notice, poster) }
        (notices, counts, timer) = ([:], [:], nil)
    }

    private func tell(_ notice: Notice, _ poster: UniqueName) {
        guard notice.count > 0 else { return }
        bus.send(PostsRefusedSignal(count: notice.count, error: notice.error).message(to: poster))
    }

    private func wait() {
        guard let next = notices.values.lazy.map(\.due).min() else { return }
        let left = max(.zero, next - bus.context.now) / .milliseconds(1)
        let source = EventSource.once(milliseconds: UInt32(left.rounded(.up)), on: bus.context) { [unowned self] in
            timer = nil
            tellDue()
            wait()
        }
        timer = (source, next)
    }

    private func tellDue() {
        let now = bus.context.now
        for (poster, notice) in notices.filter({ $0.value.due <= now }).sorted(by: { $0.key < $1.key }) {
            tell(notice, poster)
            if notice.count > 0 {
                notices[poster]!.count = 0
                notices[poster]!.due = now + notice.pause
                notices[poster]!.pause = min(notice.pause * 2, Self.pauses.upperBound)
            } else if notice.pause > Self.pauses.lowerBound {
                // Halves the interval again, as there was nothing to report.
                notices[poster]!.pause /= 2
                notices[poster]!.due = now + notice.pause
            } else {
                _ = remove(poster)
            }
        }
    }
}
