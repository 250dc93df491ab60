// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The registration of an observer. It ends when this object is released, or with ``cancel()`` (C7).
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

    /// Ends the registration now. Has no effect when it has ended. Notifications that already wait on the observer's
    /// thread are no longer delivered.
    public func cancel() {
        let end = end.withLock { end in
            defer { end = nil }
            return end
        }
        end?()
    }
}
