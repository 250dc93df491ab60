// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The readers of a sequence, each with a stream of its own (C7): one that is cancelled ends for itself, and none takes from
/// another what arrives.
///
/// Threads: any.
package final class Readers<Element: Sendable>: Sendable {
    /// That of the first, from the making of the sequence on; nil when it has that.
    private let first: Locked<AsyncStream<Element>?>
    private let make: @Sendable () -> AsyncStream<Element>?

    /// - Parameter make: begins a stream; nil where the center is gone.
    package init(_ make: @escaping @Sendable () -> AsyncStream<Element>?) {
        self.make = make
        first = Locked(make())
    }

    /// The stream of one more.
    package func next() -> AsyncStream<Element> {
        let first = first.withLock { first in
            defer { first = nil }
            return first
        }
        return first ?? make() ?? AsyncStream { $0.finish() }
    }
}
