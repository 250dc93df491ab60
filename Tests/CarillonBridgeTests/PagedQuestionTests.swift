// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

@testable import CarillonBridge

/// What the bridge asks the service, with a service that answers as the test says.
@Suite("G4, G5: paged requests to the service", .limited)
struct PagedQuestionTests {
    /// Answers in its order; the last answer again and again.
    private final class Service: CallableService {
        var isThere = true
        var asked: [FollowInterest] = []
        var answers: [Result<[String], ServiceError>] = []
        var waiting: [() -> Void] = []

        func ask<Method: CenterMethod>(
            _ method: Method, completion: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void
        ) {
            guard let question = method as? FollowInterest else {
                Issue.record("\(method) was asked")
                return
            }
            asked.append(question)
            let answer = answers.count > 1 ? answers.removeFirst() : answers[0]
            let reply = answer.map { FollowInterest.Reply(names: $0, any: false) as! Method.Reply }
            waiting.append { completion(reply) }
        }

        /// Lets it answer all that was asked, and what is asked because of that.
        func answer() {
            while !waiting.isEmpty { waiting.removeFirst()() }
        }
    }

    private let service = Service()
    private let context = MainContext()
    private static let refusal = ServiceError.refused(BusError(.limitExceeded, message: "too much"))

    private func question(_ answered: @escaping ([String]) -> Void) -> PagedQuestion<FollowInterest> {
        PagedQuestion(
            "wanted names", of: service, on: context, pauses: .init(first: 5, longest: 20),
            first: FollowInterest(most: 2), further: { $0.names.last.map { FollowInterest(after: $0, most: 2) } }
        ) { answered($0.flatMap(\.names)) }
    }

    private var isTimerLeft: Bool {
        letPass(.milliseconds(30), because: "the longest pause is shorter")
        return context.iterate(mayBlock: false)
    }

    /// Runs the loop, with answers, until so many questions were asked.
    ///
    /// - Returns: the milliseconds that each took to come.
    private func pauses(untilAsked count: Int) throws -> [Duration] {
        var pauses: [Duration] = []
        while service.asked.count < count {
            let start = ContinuousClock.now
            service.answer()
            let before = service.asked.count
            try context.run("question \(before + 1)") { service.asked.count > before }
            pauses.append(ContinuousClock.now - start)
        }
        return pauses
    }

    @Test("All pages form one answer, and each page is requested behind the last item of the previous one")
    func pieces() {
        service.answers = [.success(["a", "b"]), .success(["c"]), .success([])]
        var told: [[String]] = []
        let question = question { told.append($0) }
        question.ask()
        service.answer()
        #expect(told == [["a", "b", "c"]])
        #expect(service.asked.map(\.after) == ["", "b", "c"])
        #expect(!isTimerLeft)
    }

    @Test("An answer to a request is ignored after the request was restarted")
    func overtaken() {
        service.answers = [.success(["old"]), .success(["new"]), .success([])]
        var told: [[String]] = []
        let question = question { told.append($0) }
        question.ask()
        question.ask(anew: true)
        service.answer()
        #expect(told == [["new"]])
    }

    @Test("Continuous changes do not prevent an answer")
    func floods() {
        service.answers = [.success(["a"]), .success([]), .success(["b"]), .success([])]
        var told: [[String]] = []
        let question = question { told.append($0) }
        question.ask()
        for _ in 0..<3 { question.ask() }
        service.waiting.removeFirst()()
        for _ in 0..<3 { question.ask() }
        #expect(service.asked.count == 2)
        service.answer()
        #expect(told == [["a"], ["b"]] && service.asked.map(\.after) == ["", "a", "", "b"])
    }

    @Test("Repeated requests cause one call within the pause before it")
    func calm() throws {
        service.answers = [.success([])]
        let question = PagedQuestion(
            "wanted names", of: service, on: context, pauses: .init(calm: 20), first: FollowInterest(most: 2),
            further: { $0.names.last.map { FollowInterest(after: $0, most: 2) } }
        ) { _ in }
        let start = ContinuousClock.now
        while service.asked.isEmpty, ContinuousClock.now - start < .seconds(10) {
            question.ask()
            _ = context.iterate(mayBlock: false)
        }
        #expect(service.asked.count == 1)
    }

    @Test("A refused request starts again from the first page at growing intervals, until it is answered")
    func refused() throws {
        service.answers =
            [.success(["a"])] + Array(repeating: .failure(Self.refusal), count: 5) + [.success(["b"]), .success([])]
        var told: [[String]] = []
        let question = question { told.append($0) }
        question.ask()
        let pauses = try pauses(untilAsked: 7)
        for (pause, least) in zip(pauses.suffix(5), [5, 10, 20, 20, 20]) {
            #expect(pause >= .milliseconds(least - 1))
        }
        service.answer()
        #expect(told == [["b"]])
        #expect(service.asked.map(\.after) == ["", "a", "", "", "", "", "", "b"])
        // From the first pause on again.
        service.answers = [.failure(Self.refusal)]
        question.ask()
        service.answer()
        let next = try self.pauses(untilAsked: service.asked.count + 2)
        #expect(next[0] >= .milliseconds(4) && next[1] >= .milliseconds(9))
    }

    @Test("A request is not repeated if the service has no such method or has ended")
    func notAgain() {
        for error in [
            ServiceError.refused(BusError(name: "org.freedesktop.DBus.Error.UnknownMethod", message: "what?")),
            ServiceError.disconnected("gone"),
        ] {
            service.isThere = error != .disconnected("gone")
            service.answers = [.failure(error)]
            let question = question { _ in Issue.record("there is no answer") }
            let before = service.asked.count
            question.ask()
            service.answer()
            #expect(service.asked.count == before + 1)
            #expect(!isTimerLeft)
        }
    }
}
