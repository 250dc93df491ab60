// SPDX-License-Identifier: Apache-2.0
import MainLoop
import NotificationWire
import ServiceClient

/// Has a question asked again that the service, though it is there, did not answer: after a second, and then more and more
/// seldom.
///
/// There is a timer only while such a question is open. Another service is asked when it comes, without this.
final class QuestionRetry: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    private static let firstPause: UInt32 = 1_000
    private static let longestPause: UInt32 = 60_000

    private let subject: String
    private let center: CenterLink
    private let context: MainContext
    private var pause = QuestionRetry.firstPause
    private var timer: EventSource?
    private var isLogged = false

    /// - Parameter subject: what the service is asked, as the log says it.
    init(_ subject: String, of center: CenterLink, on context: MainContext) {
        self.subject = subject
        self.center = center
        self.context = context
    }

    /// The question is asked anew, or need not be any more.
    func cancel() { timer = nil }

    func answered() {
        timer = nil
        pause = Self.firstPause
        isLogged = false
    }

    /// Logs it the first time in a row.
    ///
    /// - Parameter ask: called after a while, unless the service has gone by then.
    func failed(because error: ServiceError, thenAsk ask: @escaping () -> Void) {
        if !isLogged { Log.notice("the service does not tell \(subject): \(error)") }
        isLogged = true
        // Whoever has no such method never will.
        if case .refused(let refusal) = error, refusal.meansAnotherProgram { return }
        guard center.isThere else { return }
        timer = .once(milliseconds: pause, on: context) { [weak self] in
            guard let self else { return }
            timer = nil
            if center.isThere { ask() }
        }
        pause = min(pause * 2, Self.longestPause)
    }
}
