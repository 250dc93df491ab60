// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The readers of a sequence, each with a buffer of its own (C7): one that is cancelled ends for itself, and none takes from
/// another what arrives.
///
/// Threads: any.
package final class Readers<Element: Sendable>: Sendable {
    package typealias Reader = ReaderBuffer<Element>.Reader

    /// The first, from the making of the sequence on; nil when somebody has it.
    private let first: Locked<Reader?>
    private let make: @Sendable () -> Reader?

    /// - Parameter make: begins to read; nil where the center is gone.
    package init(_ make: @escaping @Sendable () -> Reader?) {
        self.make = make
        first = Locked(make())
    }

    /// One more.
    package func next() -> Reader {
        let first = first.withLock { first in
            defer { first = nil }
            return first
        }
        if let reader = first ?? make() { return reader }
        let buffer = ReaderBuffer<Element>(count: 1)
        buffer.finish()
        return Reader(buffer)
    }
}
