// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Tells posters that want no answers of posts that were refused (E10): of many at once, and of all before an answer that the
/// poster waits for.
///
/// A poster that waits for no answer may read nothing. It is told more and more seldom: what the bus has for it stays small.
final class RefusalNotices {
    private struct Notice {
        let account: AccountID
        /// Those that are not told.
        var count: UInt32 = 0
        var error: BusError
        var due: SuspendingClock.Instant
        /// The time to the next word behind this one.
        var pause = RefusalNotices.pauses.lowerBound
    }

    /// Between the first refusal and the word of it, and between two words.
    private static let pauses = Duration.milliseconds(50)...Duration.seconds(60)
    /// The maximum of posters, and of those of one account. Refusals of others are logged.
    private static let maxPosters = 4_096
    private static let maxOfAccount = 64
    /// The maximum of an error's text, in bytes: it waits here.
    private static let maxBytes = 512

    private unowned let bus: any MessageBus
    private var notices: [UniqueName: Notice] = [:]
    private var counts: [AccountID: Int] = [:]
    private var timer: (source: EventSource, due: SuspendingClock.Instant)?
    /// Whose a connection is.
    var account: (UniqueName) -> AccountID = { .connection($0) }

    /// - Parameter bus: the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Posts were refused that wanted no answer.
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

    /// - Returns: nil where there is no room.
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

    /// The poster waits for an answer, which is behind what it is told here.
    func tellNow(_ poster: UniqueName) {
        guard !notices.isEmpty, let notice = remove(poster) else { return }
        tell(notice, poster)
    }

    /// The poster has left the bus.
    func forget(_ poster: UniqueName) { _ = remove(poster) }

    /// The service ends.
    func tellAll() {
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
                // Less seldom again, as there was nothing to tell.
                notices[poster]!.pause /= 2
                notices[poster]!.due = now + notice.pause
            } else {
                _ = remove(poster)
            }
        }
    }
}
