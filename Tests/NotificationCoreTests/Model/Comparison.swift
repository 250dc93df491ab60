// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits

/// Where the center does something else than the model.
struct Difference: CustomStringConvertible {
    /// The place of the step in its sequence.
    let step: Int
    let description: String

    /// Runs a sequence on both. Nil when they agree from beginning to end.
    ///
    /// - Parameter name: of the sequence, for the message when one of them does not end.
    static func first(in steps: [Step], name: String = "a sequence") -> Difference? {
        RunningTest.part(name) { begin in first(in: steps, begin: begin) }
    }

    private static func first(in steps: [Step], begin: (Int) -> Void) -> Difference? {
        let restarts = steps.contains { if case .restart = $0 { true } else { false } }
        let subject = Subject(remembersChanges: restarts)
        var model = ModelCenter(remembersChanges: restarts)
        for (place, step) in steps.enumerated() {
            begin(place)
            let actual = subject.run(step, beside: model)
            let expected = model.run(step)
            if actual.0 != expected.0 {
                return Difference(step: place, description: "answer: \(actual.0)\nby the rules: \(expected.0)")
            }
            if actual.1 != expected.1 {
                return Difference(step: place, description: describe(actual.1, expected.1))
            }
            // Not after every step, which would take most of the time: a failure shrinks to its step anyway.
            guard place % 8 == 0 || place == steps.count - 1 else { continue }
            do {
                try subject.checkInvariants()
            } catch {
                return Difference(step: place, description: "broken invariant: \(error)")
            }
            let (view, expectedView) = (subject.currentView, model.currentView)
            if view != expectedView {
                return Difference(step: place, description: "to see: \(view)\nby the rules: \(expectedView)")
            }
        }
        return nil
    }

    private static func describe(_ actual: Outcomes, _ expected: Outcomes) -> String {
        var lines: [String] = []
        for (number, client) in Step.clients.enumerated() {
            for (actual, expected) in [
                (actual.seen[number], expected.seen[number]), (actual.noted[number], expected.noted[number]),
                (actual.timed[number], expected.timed[number]),
            ] where actual != expected {
                lines += ["for \(client):"] + actual.map { "    \($0)" }
                lines += ["by the rules:"] + expected.map { "    \($0)" }
            }
        }
        return lines.joined(separator: "\n")
    }
}

/// Makes a failing sequence small: removes chunks, ever smaller, as long as it fails; then makes bursts single.
///
/// - Parameter tries: how often it asks whether a shorter one fails, at most. A sequence that is short enough to read
///   takes a few hundred.
func shrink(_ steps: [Step], tries: Int = 4000, fails: ([Step]) -> Bool) -> [Step] {
    var steps = steps
    var size = max(1, steps.count / 2)
    var tries = tries
    func stillFails(_ steps: [Step]) -> Bool {
        tries -= 1
        return tries >= 0 && fails(steps)
    }
    while tries > 0 {
        var start = 0
        var hasChanged = false
        while start < steps.count {
            let shorter = Array(steps[..<start] + steps[min(start + size, steps.count)...])
            if stillFails(shorter) {
                steps = shorter
                hasChanged = true
            } else {
                start += size
            }
        }
        if size > 1 { size /= 2 } else if !hasChanged { break }
    }
    for place in steps.indices {
        for simpler in steps[place].simpler {
            var others = steps
            others[place] = simpler
            if stillFails(others) { steps = others }
        }
    }
    return steps
}

extension Step {
    fileprivate var simpler: [Step] {
        switch self {
        case .post(let poster, let name, let object, let bytes, let immediately, let times, let origin):
            func post(bytes: Int, immediately: Bool, times: Int, origin: Int = origin) -> Step {
                .post(
                    poster: poster, name: name, object: object, bytes: bytes, immediately: immediately, times: times,
                    origin: origin)
            }
            return [
                post(bytes: bytes, immediately: immediately, times: times, origin: 0),
                post(bytes: bytes, immediately: immediately, times: 1),
                post(bytes: 0, immediately: immediately, times: times),
                post(bytes: 0, immediately: false, times: times), post(bytes: 0, immediately: false, times: 1),
            ]
        case .answer(let client, _): return [.answer(client: client, times: 1)]
        case .observe(let client, let name, let object, let behavior, let mode):
            return [
                .observe(client: client, name: 0, object: 0, behavior, mode),
                .observe(client: client, name: name, object: object, behavior, .default),
            ]
        default: return []
        }
    }
}
