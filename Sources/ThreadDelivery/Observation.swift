// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The handle of an observer's registration. The registration ends when this object is released, or with ``cancel()``
/// (C7). The notification centers return it to programs.
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

    /// Ends the registration now; has no effect when it has ended. Notifications that already wait for the observer's
    /// thread are not delivered.
    public func cancel() {
        let end = end.withLock { end in
            defer { end = nil }
            return end
        }
        end?()
    }
}
