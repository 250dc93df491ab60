// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The first of several answers to a task: an answer of the service, of a timer, or of the task's cancellation.
final class PendingAnswer<Value: Sendable>: Sendable {
    private enum State {
        case nothing
        case awaited(CheckedContinuation<Value, Never>)
        case early(Value)
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
