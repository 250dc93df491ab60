// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// Notices that a source tells no more while its desktop lives, without a wake-up while nothing happens.
///
/// It matters only to who is suspended, and only when something is posted or asked. So each use of the service is a
/// reason to ask the source for a sign of life; there is one question in ``interval`` at most, and one that is not
/// answered within ``limit`` means that the source is silent. A use is never without a question behind it: a source that
/// is silent when the service is used is found out after their sum at the latest.
/// Threads: all members on the thread that runs the context.
final class LivenessCheck {
    /// Between signs and the next question, in milliseconds.
    static let interval = 2000
    /// For an answer, in milliseconds. A desktop that is busy for longer than that loses nothing but its suspensions.
    static let limit: UInt32 = 8000

    private let context: MainContext
    private let ask: () -> Void
    private let onSilence: () -> Void
    private var lastSign: SuspendingClock.Instant
    /// Until it asks, or until the answer is late.
    private var timer: EventSource?

    /// - Parameters:
    ///   - ask: asks the source, whose answer comes to ``noteSign()``.
    ///   - onSilence: called when there was none. The check is over then.
    init(context: MainContext, ask: @escaping () -> Void, onSilence: @escaping () -> Void) {
        self.context = context
        self.ask = ask
        self.onSilence = onSilence
        lastSign = context.now
    }

    /// The service is used, and somebody is suspended by the source's word.
    func noteUse() {
        guard timer == nil else { return }
        let pause = lastSign + .milliseconds(Self.interval) - context.now
        guard pause > .zero else { return askNow() }
        timer = .once(milliseconds: UInt32(pause / .milliseconds(1)) + 1, on: context) { [unowned self] in askNow() }
    }

    /// The source told something, or answered.
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
