// SPDX-License-Identifier: Apache-2.0
import CCarillonMainQueue
import CarillonMainLoop
import Foundation

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The source that runs the blocks of `DispatchQueue.main` on a GLib loop, and with them `@MainActor` and
/// `OperationQueue.main` (M5). Without the source, this work would wait for a `RunLoop.main` or a `dispatchMain()`, and
/// a program with a GLib loop runs neither.
///
/// The source belongs to the common modes and has GLib's default priority, as timers and GDK's events have.
///
/// In a program in which another loop serves the main queue, the source does nothing: it acts only while the main
/// thread runs the default context.
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
            // The handle is an eventfd that is readable while blocks wait. It is read before the blocks run, so that a
            // block that is added from here on makes it readable again.
            var count: UInt64 = 0
            _ = read(handle, &count, MemoryLayout.size(ofValue: count))
            _dispatch_main_queue_callback_4CF(nil)
        }
        // Blocks that were added before the handle existed could not signal it; this block does.
        DispatchQueue.main.async {}
        return source
    }()
}
