// SPDX-License-Identifier: Apache-2.0
import MainLoop

/// The readers of a sequence, each with a stream of its own (C7): one that is cancelled ends for itself, and none takes from
/// another what arrives.
///
/// Threads: any.
final class Readers: Sendable {
    /// That of the first, from the making of the sequence on; nil when it has that.
    private let first: Locked<AsyncStream<Received>?>
    private let make: @Sendable () -> AsyncStream<Received>?

    /// - Parameter make: begins a stream; nil where the center is gone.
    init(_ make: @escaping @Sendable () -> AsyncStream<Received>?) {
        self.make = make
        first = Locked(make())
    }

    /// The stream of one more.
    func next() -> AsyncStream<Received> {
        let first = first.withLock { first in
            defer { first = nil }
            return first
        }
        return first ?? make() ?? AsyncStream { $0.finish() }
    }
}
