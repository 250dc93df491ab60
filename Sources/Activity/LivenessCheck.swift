// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A keep-alive check of the activity source: it detects a source that has stopped answering although its desktop is
/// still on the bus or socket. ``ActivityFollower`` owns it while the source reports the active window.
///
/// There is no periodic timer, because it would wake an idle service. A silent source does harm only while clients are
/// suspended and the service is used. Therefore a *use* of the service, a call while clients are suspended, leads to a
/// query of the source, at most once per ``interval``. Without an answer within ``limit``, the source counts as silent.
/// Silence is detected at the latest ``interval`` plus ``limit`` after a use.
///
/// Threads: all members on the thread that runs the context.
final class LivenessCheck {
    /// The minimum time between a sign of life and the next query, in milliseconds.
    static let interval = 2000
    /// The maximum time for an answer, in milliseconds. If a desktop is busy for longer, its clients are only resumed.
    static let limit: UInt32 = 8000

    private let context: MainContext
    private let ask: () -> Void
    private let onSilence: () -> Void
    private var lastAnswer: SuspendingClock.Instant
    /// The timer until the next query, or until the limit of a pending one; nil if no query is scheduled or pending.
    private var timer: EventSource?

    /// - Parameters:
    ///   - ask: Queries the source; the owner calls ``recordAnswer()`` when the answer arrives.
    ///   - onSilence: Called if there was no answer; then the check has ended.
    init(context: MainContext, ask: @escaping () -> Void, onSilence: @escaping () -> Void) {
        self.context = context
        self.ask = ask
        self.onSilence = onSilence
        lastAnswer = context.now
    }

    /// Schedules a query after a use of the service; called while clients are suspended for inactivity.
    func noteUse() {
        guard timer == nil else { return }
        let pause = lastAnswer + .milliseconds(Self.interval) - context.now
        guard pause > .zero else { return askNow() }
        timer = .once(milliseconds: UInt32(pause / .milliseconds(1)) + 1, on: context) { [unowned self] in askNow() }
    }

    /// Called for each event or answer of the source, which shows that it works.
    func recordAnswer() {
        timer = nil
        lastAnswer = context.now
    }

    private func askNow() {
        timer = .once(milliseconds: Self.limit, on: context) { [unowned self] in
            timer = nil
            onSilence()
        }
        ask()
    }
}
