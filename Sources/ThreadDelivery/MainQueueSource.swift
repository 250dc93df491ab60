// SPDX-License-Identifier: Apache-2.0
import CCarillonMainQueue
import CarillonMainLoop
import Foundation

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Serves `DispatchQueue.main`, and with it `@MainActor` and `OperationQueue.main`, while a GLib loop runs the default
/// context on the main thread (M5). Without it, they wait for a `RunLoop.main` or a `dispatchMain()` that never comes.
///
/// It belongs to the common modes, and is a source of GLib's default priority: the same as timers and GDK's events.
///
/// It is harmless where something else serves the main queue: while nobody runs the default context on the main
/// thread, it does nothing.
public enum MainQueueSource {
    /// Attaches the source, for the rest of the process's life. Doing it again changes nothing. Threads: any.
    ///
    /// What in this module needs the main queue does this by itself.
    public static func install() {
        _ = source
    }

    private static let source: DescriptorSource = {
        let handle = _dispatch_get_main_queue_handle_4CF()
        let source = DescriptorSource(on: .default, descriptor: handle, onMainThreadOnly: true) {
            // First: what comes from here on makes the handle readable again.
            var count: UInt64 = 0
            _ = read(handle, &count, MemoryLayout.size(ofValue: count))
            _dispatch_main_queue_callback_4CF(nil)
        }
        // What waited already announced itself to a handle that perhaps was not there yet.
        DispatchQueue.main.async {}
        return source
    }()
}
