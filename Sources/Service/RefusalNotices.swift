// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The reports of refused posts to posters that wanted no reply: one `PostsRefused` signal for many refusals (E10).
///
/// The first refusal is reported after 50 ms. Further refusals are collected, and reported at intervals that double up
/// to 60 s, because a poster that wants no reply may not read its messages, and the bus would keep them. Without
/// refusals the interval is halved again. Before a reply to the same poster all its refusals are reported, so that the
/// reply shows that earlier posts are accounted for. ``RejectionLog`` notes the refusals here.
final class RefusalNotices {
    /// The state of one poster.
    private struct Notice {
        let account: AccountID
        /// The number of refusals that were not reported yet.
        var count: UInt32 = 0
        /// The error of the last refusal.
        var error: BusError
        /// The time of the next signal.
        var due: SuspendingClock.Instant
        /// The time from that signal to the one after it.
        var pause = RefusalNotices.pauses.lowerBound
    }

    /// The range of the time between two signals.
    private static let pauses = Duration.milliseconds(50)...Duration.seconds(60)
    /// The maximum number of posters. Refusals of further posters are only logged.
    private static let maxPosters = 4_096
    /// The maximum number of posters of one account, so that other accounts find space.
    private static let maxOfAccount = 64
    /// The maximum size of a kept error text, in bytes. A longer text is shortened.
    private static let maxBytes = 512

    private unowned let bus: any MessageBus
    private var notices: [UniqueName: Notice] = [:]
    /// The number of posters of each account in ``notices``.
    private var counts: [AccountID: Int] = [:]
    /// The timer of the earliest signal, with its time.
    private var timer: (source: EventSource, due: SuspendingClock.Instant)?
    /// Returns the account of a connection.
    var account: (UniqueName) -> AccountID = { .connection($0) }

    /// - Parameter bus: the bus on which signals are sent; the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Notes a number of refused posts, whose poster wanted no reply.
    func note(_ count: Int, _ error: BusError, of poster: UniqueName) {
        let soon = bus.context.now + Self.pauses.lowerBound
        guard count > 0, var notice = notices[poster] ?? begin(poster, error, due: soon) else { return }
        let isFirst = notice.count == 0
        // The first refusal after a signal is reported 50 ms later at the earliest, so that the next ones go with it.
        if isFirst { notice.due = max(notice.due, soon) }
        let (sum, overflow) = notice.count.addingReportingOverflow(UInt32(clamping: count))
        notice.count = overflow ? .max : sum
        notice.error = error.shortened(to: Self.maxBytes)
        notices[poster] = notice
        if isFirst, timer.map({ notice.due < $0.due }) ?? true { startTimer() }
    }

    /// Makes the state of a poster.
    ///
    /// - Returns: nil if the maximum number of posters is reached.
    private func begin(_ poster: UniqueName, _ error: BusError, due: SuspendingClock.Instant) -> Notice? {
        let account = account(poster)
        guard notices.count < Self.maxPosters, counts[account, default: 0] < Self.maxOfAccount else { return nil }
        counts[account, default: 0] += 1
        return Notice(account: account, error: error, due: due)
    }

    /// Removes and returns the state of a poster.
    private func remove(_ poster: UniqueName) -> Notice? {
        guard let notice = notices.removeValue(forKey: poster) else { return nil }
        counts[notice.account]! -= 1
        if counts[notice.account] == 0 { counts[notice.account] = nil }
        return notice
    }

    /// Reports refusals to a poster that waits for a reply, before that reply.
    func reportNow(_ poster: UniqueName) {
        guard !notices.isEmpty, let notice = remove(poster) else { return }
        sendNotice(notice, poster)
    }

    /// Forgets a poster that has left the bus.
    func forget(_ poster: UniqueName) { _ = remove(poster) }

    /// Reports all refusals at the end of the service.
    func reportAll() {
        for (poster, notice) in notices.sorted(by: { $0.key < $1.key }) { sendNotice(notice, poster) }
        (notices, counts, timer) = ([:], [:], nil)
    }

    /// Sends the signal, if there are refusals.
    private func sendNotice(_ notice: Notice, _ poster: UniqueName) {
        guard notice.count > 0 else { return }
        bus.send(PostsRefusedSignal(count: notice.count, error: notice.error).message(to: poster))
    }

    /// Starts the timer of the earliest signal.
    private func startTimer() {
        guard let next = notices.values.lazy.map(\.due).min() else { return }
        let left = max(.zero, next - bus.context.now) / .milliseconds(1)
        let source = EventSource.once(milliseconds: UInt32(left.rounded(.up)), on: bus.context) { [unowned self] in
            timer = nil
            sendDueNotices()
            startTimer()
        }
        timer = (source, next)
    }

    /// Sends the signals that are due, and sets the time of each poster's next one.
    private func sendDueNotices() {
        let now = bus.context.now
        for (poster, notice) in notices.filter({ $0.value.due <= now }).sorted(by: { $0.key < $1.key }) {
            sendNotice(notice, poster)
            if notice.count > 0 {
                notices[poster]!.count = 0
                notices[poster]!.due = now + notice.pause
                notices[poster]!.pause = min(notice.pause * 2, Self.pauses.upperBound)
            } else if notice.pause > Self.pauses.lowerBound {
                // There was nothing to report, so the interval becomes shorter.
                notices[poster]!.pause /= 2
                notices[poster]!.due = now + notice.pause
            } else {
                // After an interval of the shortest length without refusals the state is no longer needed.
                _ = remove(poster)
            }
        }
    }
}
