// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The readers of a sequence, each with its own buffer (C7). A cancelled reader ends only itself, and no reader takes
/// elements from another.
///
/// Threads: any.
package final class Readers<Element: Sendable>: Sendable {
    package typealias Reader = ReaderBuffer<Element>.Reader

    /// The first reader, which exists from the creation of the sequence; nil once it is in use.
    private let first: Locked<Reader?>
    private let make: @Sendable () -> Reader?

    /// - Parameter make: creates a reader; returns nil when the center is gone.
    package init(_ make: @escaping @Sendable () -> Reader?) {
        self.make = make
        first = Locked(make())
    }

    /// Returns another reader; an empty one when the center is gone.
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
