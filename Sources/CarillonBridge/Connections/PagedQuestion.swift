// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonWire

/// A service that can be asked, and that may be absent.
protocol AskedService: AnyObject {
    var isThere: Bool { get }
    /// - Parameter completion: called on the loop's thread, not before this returns.
    func ask<Method: CenterMethod>(
        _ method: Method, completion: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void)
}

/// A question to the service, asked whenever the answer may have changed. The answer arrives in pages (G4, G5).
///
/// If the service is there and does not answer, the question is asked again from the beginning: after one second, and
/// then with growing pauses. A timer runs only while such a question is open. A new service is asked when it appears,
/// without this timer.
final class PagedQuestion<Method: CenterMethod>: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// The pauses of a question, in milliseconds.
    struct Pauses {
        /// The pause before the question, which merges changes in a row.
        var calm: UInt32 = 0
        /// The pause before the question is asked again; it doubles each time.
        var first: UInt32 = 1_000
        var longest: UInt32 = 60_000
    }

    private let subject: String
    private unowned let service: any AskedService
    private let context: MainContext
    private let pauses: Pauses
    private let first: Method
    private let further: (Method.Reply) -> Method?
    private let began: () -> Void
    private let answered: ([Method.Reply]) -> Void
    private var pieces: [Method.Reply] = []
    /// The number of the present question: answers to earlier ones are ignored.
    private var number = 0
    private var timer: EventSource?
    private enum State {
        case idle
        /// The timer before the question runs.
        case due
        /// An answer is pending.
        case asking
        /// An answer is pending, and the question is asked again after it.
        case askingAgain
    }

    private var state = State.idle
    private var pause: UInt32
    private var isRefusalLogged = false

    /// - Parameters:
    ///   - subject: the subject of the question, for the log.
    ///   - further: returns the call for the page behind a page; nil behind the last one.
    ///   - began: called whenever the question is asked from the beginning.
    ///   - answered: receives all pages.
    init(
        _ subject: String, of service: any AskedService, on context: MainContext, pauses: Pauses = Pauses(),
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

    /// Asks the question, because the answer may have changed. A pending question is answered first, so that continuous
    /// changes do not keep it from being answered.
    ///
    /// - Parameter isAnew: whether a new service is asked, which does not know the pending question.
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

    private func begin() {
        timer = nil
        number += 1
        pieces = []
        state = .asking
        began()
        call(first, number)
    }

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

    private func end() {
        let all = pieces
        pieces = []
        let isAskedAgain = state == .askingAgain
        // The answer to an earlier question counts, although another question is due.
        if state != .due { state = .idle }
        answered(all)
        if isAskedAgain, state == .idle { ask() }
    }

    private func askLater(because error: ServiceError) {
        if state != .due { state = .idle }
        // Only the first failure of several in a row is logged.
        if !isRefusalLogged { Log.notice("the service does not list \(subject): \(error)") }
        isRefusalLogged = true
        // A program that lacks the method never answers.
        if case .refused(let refusal) = error, refusal.meansAnotherProgram { return }
        guard service.isThere, state == .idle else { return }
        timer = .once(milliseconds: pause, on: context) { [unowned self] in
            timer = nil
            if service.isThere { begin() }
        }
        pause = min(pause * 2, pauses.longest)
    }
}
