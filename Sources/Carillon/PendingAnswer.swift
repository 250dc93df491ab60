// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The first of several answers to a task: the service's, that of a timer, or the word that the task is cancelled.
final class PendingAnswer<Value: Sendable>: Sendable {
    private enum State {
        case nothing
        case awaited(CheckedContinuation<Value, Never>)
        case early(Value)
        case over
    }

    private let state = Locked(State.nothing)

    private init() {}

    /// Threads: any.
    ///
    /// - Returns: whether it is the first.
    @discardableResult
    func answer(_ value: Value) -> Bool {
        let (isFirst, continuation): (Bool, CheckedContinuation<Value, Never>?) = state.withLock { state in
            switch state {
            case .nothing:
                state = .early(value)
                return (true, nil)
            case .awaited(let continuation):
                state = .over
                return (true, continuation)
            case .early, .over: return (false, nil)
            }
        }
        continuation?.resume(returning: value)
        return isFirst
    }

    private func wait(_ continuation: CheckedContinuation<Value, Never>) {
        let value: Value? = state.withLock { state in
            if case .early(let value) = state {
                state = .over
                return value
            }
            state = .awaited(continuation)
            return nil
        }
        if let value { continuation.resume(returning: value) }
    }

    /// Asks for something, and waits for the answer as long as the task is not cancelled.
    ///
    /// - Parameters:
    ///   - isolation: of the caller, on whose executor it goes on.
    ///   - cancelled: the answer where the task is cancelled. Nothing is asked for where it is so before.
    ///   - ask: is called at once.
    static func of(
        isolation: isolated (any Actor)?, orCancelled cancelled: Value,
        _ ask: (_ answer: PendingAnswer) -> Void
    ) async -> Value {
        guard !Task.isCancelled else { return cancelled }
        let answer = PendingAnswer()
        return await withTaskCancellationHandler(
            operation: {
                await withCheckedContinuation(isolation: isolation) { continuation in
                    answer.wait(continuation)
                    ask(answer)
                }
            }, onCancel: { answer.answer(cancelled) }, isolation: isolation)
    }
}
