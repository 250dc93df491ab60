// SPDX-License-Identifier: Apache-2.0
/// Lets tasks wait until it is opened, without blocking a thread.
public final class Gate: Sendable {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation

    public init() {
        (stream, continuation) = AsyncStream.makeStream(of: Void.self)
    }

    deinit { open() }

    /// Lets pass who waits, and who comes. Harmless when it is open.
    public func open() {
        continuation.finish()
    }

    /// Returns when the gate is open, or the task is cancelled.
    public func pass() async {
        for await _ in stream {}
    }
}
