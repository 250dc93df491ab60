// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// An observer's registration, which ends when this object goes away, or with ``cancel()`` (C7).
///
/// Threads: any.
public final class Observation: Sendable {
    private let end: Locked<(@Sendable () -> Void)?>

    package init(end: @escaping @Sendable () -> Void) {
        self.end = Locked(end)
    }

    deinit {
        cancel()
    }

    /// Ends it now. Harmless when it has ended. What waits on the observer's thread already is not delivered any more.
    public func cancel() {
        let end = end.withLock { end in
            defer { end = nil }
            return end
        }
        end?()
    }
}
