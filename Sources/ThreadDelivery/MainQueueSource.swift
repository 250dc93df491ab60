// SPDX-License-Identifier: Apache-2.0
import CCarillonMainQueue
import CarillonMainLoop
import Foundation

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The source that serves `DispatchQueue.main`, and with it `@MainActor` and `OperationQueue.main`, while a GLib loop
/// runs the default context on the main thread (M5). Without the source, their work waits for a `RunLoop.main` or a
/// `dispatchMain()` that never runs.
///
/// The source belongs to the common modes and has GLib's default priority, as timers and GDK's events have.
///
/// The source is harmless where another loop serves the main queue: it does nothing unless the main thread runs the
/// default context.
public enum MainQueueSource {
    /// Attaches the source for the rest of the process's life. Further calls have no effect. Threads: any.
    ///
    /// The types of this module that need the main queue call this function themselves.
    public static func install() {
        _ = source
    }

    private static let source: DescriptorSource = {
        let handle = _dispatch_get_main_queue_handle_4CF()
        let source = DescriptorSource(on: .default, descriptor: handle, onMainThreadOnly: true) {
            // The handle is read first, so that work from here on makes it readable again.
            var count: UInt64 = 0
            _ = read(handle, &count, MemoryLayout.size(ofValue: count))
            _dispatch_main_queue_callback_4CF(nil)
        }
        // Earlier work may have signaled a handle that did not exist yet.
        DispatchQueue.main.async {}
        return source
    }()
}
