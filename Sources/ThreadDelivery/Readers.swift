// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The readers of one asynchronous sequence of notifications: each iterator gets a reader with its own buffer and its
/// own registration (C7). Thus every iterator receives all elements, and a cancelled one ends only itself.
///
/// Threads: any.
package final class Readers<Element: Sendable>: Sendable {
    package typealias Reader = ReaderBuffer<Element>.Reader

    /// The first reader. It exists from the creation of the sequence, so that no element before the first iteration is
    /// missed. Nil once an iterator uses it.
    private let first: Locked<Reader?>
    private let make: @Sendable () -> Reader?

    /// - Parameter make: creates a reader; returns nil when the center is gone.
    package init(_ make: @escaping @Sendable () -> Reader?) {
        self.make = make
        first = Locked(make())
    }

    /// Returns a reader for a new iterator; when the center is gone, a reader that ends at once.
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
