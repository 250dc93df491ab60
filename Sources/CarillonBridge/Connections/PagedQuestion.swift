// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop
import CarillonWire

/// Whoever is asked, which may not be there.
protocol AskedService: AnyObject {
    var isThere: Bool { get }
    /// - Parameter completion: called on the loop's thread, not before this returns.
    func ask<Method: CenterMethod>(
        _ method: Method, completion: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void)
}

/// A question to the service, asked whenever the answer may be different, which comes piece by piece (G4, G5).
///
/// Where the service, though it is there, does not answer, it is asked again from the beginning: after a second, and then
/// more and more seldom. There is a timer only while such a question is open. Another service is asked when it comes,
/// without this.
final class PagedQuestion<Method: CenterMethod>: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    /// In milliseconds.
    struct Pauses {
        /// Before it is asked: what comes in a row is asked for once.
        var calm: UInt32 = 0
        /// Before it is asked again, each time twice as long.
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
    /// Of the questions: an answer to an earlier one counts for nothing.
    private var number = 0
    private var timer: EventSource?
    private enum State {
        case idle
        /// The timer is that before the question.
        case due
        /// An answer is on its way.
        case asking
        /// The same, and the question is asked again behind it.
        case askingAgain
    }

    private var state = State.idle
    private var pause: UInt32
    private var isRefusalLogged = false

    /// - Parameters:
    ///   - subject: what the service is asked, as the log says it.
    ///   - further: the call for what comes behind a piece; nil behind the last.
    ///   - began: called whenever it is asked from the beginning.
    ///   - answered: gets all pieces.
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

    /// The answer may be different from what was told last. A question that is under way is answered first: changes that come
    /// all the time do not keep it from being answered.
    ///
    /// - Parameter isAnew: whether another service is asked, which knows nothing of that question.
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
        // An answer to a question before one that is due is an answer all the same.
        if state != .due { state = .idle }
        answered(all)
        if isAskedAgain, state == .idle { ask() }
    }

    private func askLater(because error: ServiceError) {
        if state != .due { state = .idle }
        // The first of many in a row.
        if !isRefusalLogged { Log.notice("the service does not tell \(subject): \(error)") }
        isRefusalLogged = true
        // Whoever has no such method never will.
        if case .refused(let refusal) = error, refusal.meansAnotherProgram { return }
        guard service.isThere, state == .idle else { return }
        timer = .once(milliseconds: pause, on: context) { [unowned self] in
            timer = nil
            if service.isThere { begin() }
        }
        pause = min(pause * 2, pauses.longest)
    }
}
