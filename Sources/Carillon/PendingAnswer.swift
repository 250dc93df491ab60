// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// A one-shot promise with several sources, of which the first answer counts: the service, a timer, or the cancellation
/// of the waiting task. It makes callbacks of the bus thread available to `async` functions.
final class PendingAnswer<Value: Sendable>: Sendable {
    private enum State {
        /// No task waits, and no answer has arrived.
        case nothing
        /// A task waits for the answer.
        case awaited(CheckedContinuation<Value, Never>)
        /// The answer has arrived before the task waits.
        case early(Value)
        /// The task has received the answer.
        case over
    }

    private let state = Locked(State.nothing)

    private init() {}

    /// Delivers an answer, of which the first one counts. Threads: any.
    ///
    /// - Returns: whether it is the first answer.
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

    /// Registers the waiting task, or resumes it at once with an early answer.
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

    /// Makes a request, and waits for its answer until the task is cancelled.
    ///
    /// - Parameters:
    ///   - isolation: the isolation of the caller, on whose executor the wait continues.
    ///   - cancelled: the answer of a cancelled task. A task that was cancelled before the call makes no request.
    ///   - ask: the closure that makes the request, called at once.
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
