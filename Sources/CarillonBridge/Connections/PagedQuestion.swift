// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonWire

/// The notification service, which may be absent, as the target of method calls: ``CenterLink``, or a substitute in
/// tests.
protocol CallableService: AnyObject {
    /// Whether the service is connected.
    var isThere: Bool { get }
    /// Calls a method.
    ///
    /// - Parameter completion: called on the loop's thread, not before this returns.
    func ask<Method: CenterMethod>(
        _ method: Method, completion: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void)
}

/// A question to the notification service whose answer is a list in pages, such as the wanted names or the retained
/// values (G4, G5). ``BridgeInstance`` asks it again whenever the list may have changed. It receives the complete list.
///
/// If the service is connected and does not answer, the question is asked again from the beginning: after one second,
/// and then with growing pauses. After the service was absent, the owner has to ask again.
final class PagedQuestion<Method: CenterMethod>: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// The pauses of a question, in milliseconds.
    struct Pauses {
        /// The pause before the question, which merges several changes into one question.
        var calm: UInt32 = 0
        /// The pause before a failed question is asked again. It doubles each time, up to `longest`.
        var first: UInt32 = 1_000
        var longest: UInt32 = 60_000
    }

    /// The subject of the list, for the log.
    private let subject: String
    private unowned let service: any CallableService
    private let context: MainContext
    private let pauses: Pauses
    /// The call for the first page.
    private let first: Method
    /// Returns the call for the page behind a page; nil behind the last one.
    private let further: (Method.Reply) -> Method?
    /// Called whenever the question is asked from the beginning.
    private let began: () -> Void
    /// Receives all pages.
    private let answered: ([Method.Reply]) -> Void
    /// The pages of the present question that have arrived.
    private var pieces: [Method.Reply] = []
    /// The number of the present question: answers to earlier ones are ignored.
    private var number = 0
    /// Runs during a pause.
    private var timer: EventSource?
    /// The state of the question.
    private enum State {
        /// No answer is pending. The timer may run before a failed question is asked again.
        case idle
        /// The timer before the question runs.
        case due
        /// An answer is pending.
        case asking
        /// An answer is pending, and the question is asked again after it.
        case askingAgain
    }

    /// The present state.
    private var state = State.idle
    /// The pause before the next question after a failure, in milliseconds.
    private var pause: UInt32
    /// Whether the present failure is in the log.
    private var isRefusalLogged = false

    /// Creates a question that was not asked yet.
    ///
    /// - Parameters:
    ///   - subject: the subject of the list, for the log.
    ///   - service: the service to ask; not retained.
    ///   - context: the context of the timers.
    ///   - pauses: the pauses before the question, and before a failed question is asked again.
    ///   - first: the call for the first page.
    ///   - further: returns the call for the page behind a page; nil behind the last one.
    ///   - began: called whenever the question is asked from the beginning.
    ///   - answered: receives all pages.
    init(
        _ subject: String, of service: any CallableService, on context: MainContext, pauses: Pauses = Pauses(),
        first: Method, further: @escaping (Method.Reply) -> Method?, began: @escaping () -> Void = {},
        answered: @escaping ([Method.Reply]) -> Void
    ) {
        self.subject = subject
        self.service = service
        self.context = context
        self.pauses = pauses
        self.first = first
        self.further = further
        self.began = began
        self.answered = answered
        pause = pauses.first
    }

    /// Asks the question, because the answer may have changed. If an answer is pending, the question is asked again
    /// after it: continuous changes do not keep the first question from being answered.
    ///
    /// - Parameter isAnew: whether a new service is asked, which does not know the pending question. The question then
    ///   begins again without waiting for the pending answer.
    func ask(anew isAnew: Bool = false) {
        switch state {
        case .asking, .askingAgain:
            guard isAnew else { return state = .askingAgain }
            state = .idle
        case .due: return
        case .idle: break
        }
        guard pauses.calm > 0 else { return begin() }
        state = .due
        timer = .once(milliseconds: pauses.calm, on: context) { [unowned self] in begin() }
    }

    /// Asks from the beginning.
    private func begin() {
        timer = nil
        number += 1
        pieces = []
        state = .asking
        began()
        call(first, number)
    }

    /// Requests one page, and then the further ones.
    ///
    /// - Parameters:
    ///   - method: the call for the page.
    ///   - number: the number of the question to which the page belongs.
    private func call(_ method: Method, _ number: Int) {
        service.ask(method) { [weak self] result in
            guard let self, number == self.number else { return }
            switch result {
            case .success(let piece):
                pause = pauses.first
                isRefusalLogged = false
                pieces.append(piece)
                guard let next = further(piece) else { return end() }
                call(next, number)
            case .failure(let error): askLater(because: error)
            }
        }
    }

    /// Passes the complete answer on.
    private func end() {
        let all = pieces
        pieces = []
        let isAskedAgain = state == .askingAgain
        // The answer to an earlier question counts, although another question is due.
        if state != .due { state = .idle }
        answered(all)
        if isAskedAgain, state == .idle { ask() }
    }

    /// Handles a failure, and schedules the question if the service is connected.
    private func askLater(because error: ServiceError) {
        if state != .due { state = .idle }
        // Only the first failure of several in a row is logged.
        if !isRefusalLogged { Log.notice("the service does not list \(subject): \(error)") }
        isRefusalLogged = true
        // A program that lacks the method will never answer, so it is not asked again.
        if case .refused(let refusal) = error, refusal.meansAnotherProgram { return }
        guard service.isThere, state == .idle else { return }
        timer = .once(milliseconds: pause, on: context) { [unowned self] in
            timer = nil
            if service.isThere { begin() }
        }
        pause = min(pause * 2, pauses.longest)
    }
}
