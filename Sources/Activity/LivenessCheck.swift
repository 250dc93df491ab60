// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A check that detects a silent source while its desktop lives, without wake-ups of an idle service.
///
/// Silence matters only to suspended clients, and only when the service is used. Each use therefore leads to a query of
/// the source, at most once per ``interval``. A query without an answer within ``limit`` means that the source is
/// silent. Each use is followed by a query, so silence is detected at the latest after the sum of both times.
///
/// Threads: all members on the thread that runs the context.
final class LivenessCheck {
    /// The minimum time between a sign of life and the next query, in milliseconds.
    static let interval = 2000
    /// The maximum time for an answer, in milliseconds. A desktop that is busy for longer loses only its suspensions.
    static let limit: UInt32 = 8000

    private let context: MainContext
    private let ask: () -> Void
    private let onSilence: () -> Void
    private var lastSign: SuspendingClock.Instant
    /// The timer of the next query, or of the late answer.
    private var timer: EventSource?

    /// - Parameters:
    ///   - ask: Queries the source, whose answer has to call ``noteSign()``.
    ///   - onSilence: Called if there was no answer; then the check has ended.
    init(context: MainContext, ask: @escaping () -> Void, onSilence: @escaping () -> Void) {
        self.context = context
        self.ask = ask
        self.onSilence = onSilence
        lastSign = context.now
    }

    /// Notes a use of the service while the source keeps clients suspended.
    func noteUse() {
        guard timer == nil else { return }
        let pause = lastSign + .milliseconds(Self.interval) - context.now
        guard pause > .zero else { return askNow() }
        timer = .once(milliseconds: UInt32(pause / .milliseconds(1)) + 1, on: context) { [unowned self] in askNow() }
    }

    /// Notes an event or an answer of the source.
    func noteSign() {
        timer = nil
        lastSign = context.now
    }

    private func askNow() {
        timer = .once(milliseconds: Self.limit, on: context) { [unowned self] in
            timer = nil
            onSilence()
        }
        ask()
    }
}
