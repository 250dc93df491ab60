// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// Tells posters that want no answers of posts that were refused (E10): of many at once, and of all before an answer that the
/// poster waits for.
///
/// A poster that waits for no answer may read nothing. It is told more and more seldom: what the bus has for it stays small.
final class RefusalNotices {
    private struct Notice {
        /// Those that are not told.
        var count: UInt32 = 0
        var error: BusError
        var due: SuspendingClock.Instant
        /// The time to the next word behind this one.
        var pause = RefusalNotices.pauses.lowerBound
    }

    /// Between the first refusal and the word of it, and between two words.
    private static let pauses = Duration.milliseconds(50)...Duration.seconds(60)
    /// The maximum of posters. Refusals of others are logged.
    private static let maxPosters = 1_024
    /// The maximum of an error's text, in bytes: it waits here.
    private static let maxBytes = 512

    private unowned let bus: any MessageBus
    private var notices: [UniqueName: Notice] = [:]
    private var timer: EventSource?

    /// - Parameter bus: the caller keeps it.
    init(bus: any MessageBus) {
        self.bus = bus
    }

    /// Posts were refused that wanted no answer.
    func note(_ count: Int, _ error: BusError, of poster: UniqueName) {
        guard count > 0, notices[poster] != nil || notices.count < Self.maxPosters else { return }
        let soon = bus.context.now + Self.pauses.lowerBound
        var notice = notices[poster] ?? Notice(error: error, due: soon)
        let isFirst = notice.count == 0
        if isFirst { notice.due = max(notice.due, soon) }
        let (sum, overflow) = notice.count.addingReportingOverflow(UInt32(clamping: count))
        notice.count = overflow ? .max : sum
        notice.error = BusError(
            name: error.name, message: String(decoding: error.message.utf8.prefix(Self.maxBytes), as: UTF8.self))
        notices[poster] = notice
        if isFirst { wait() }
    }

    /// The poster waits for an answer, which is behind what it is told here.
    func tellNow(_ poster: UniqueName) {
        guard !notices.isEmpty, let notice = notices.removeValue(forKey: poster) else { return }
        tell(notice, poster)
    }

    /// The poster has left the bus.
    func forget(_ poster: UniqueName) { notices[poster] = nil }

    /// The service ends.
    func tellAll() {
        for (poster, notice) in notices.sorted(by: { $0.key < $1.key }) { tell(notice, poster) }
        (notices, timer) = ([:], nil)
    }

    private func tell(_ notice: Notice, _ poster: UniqueName) {
        guard notice.count > 0 else { return }
        bus.send(PostsRefusedSignal(count: notice.count, error: notice.error).message(to: poster))
    }

    private func wait() {
        guard let next = notices.values.lazy.map(\.due).min() else { return }
        let left = max(.zero, next - bus.context.now) / .milliseconds(1)
        timer = .once(milliseconds: UInt32(left.rounded(.up)), on: bus.context) { [unowned self] in
            timer = nil
            tellDue()
            wait()
        }
    }

    private func tellDue() {
        let now = bus.context.now
        for (poster, notice) in notices.filter({ $0.value.due <= now }).sorted(by: { $0.key < $1.key }) {
            tell(notice, poster)
            if notice.count > 0 {
                let pause = min(notice.pause * 2, Self.pauses.upperBound)
                notices[poster] = Notice(error: notice.error, due: now + notice.pause, pause: pause)
            } else if notice.pause > Self.pauses.lowerBound {
                // Less seldom again, as there was nothing to tell.
                notices[poster]!.pause /= 2
                notices[poster]!.due = now + notice.pause
            } else {
                notices[poster] = nil
            }
        }
    }
}
