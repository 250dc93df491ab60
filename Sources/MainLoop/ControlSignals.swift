// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The signals by which an administrator controls a service, as long as this value lives: SIGHUP to read the
/// configuration again, SIGTERM and SIGINT to end.
package struct ControlSignals {
    private let sources: [EventSource]

    /// - Parameters:
    ///   - reload: called on the thread of the default main context.
    ///   - end: called on the same thread with the signal, for each of these signals.
    package init(reload: @escaping () -> Void, end: @escaping (Int32) -> Void) {
        let hangUp = EventSource.unixSignal(SIGHUP, on: .default) {
            reload()
            return .keep
        }
        let ends = [SIGTERM, SIGINT].map { signal in
            EventSource.unixSignal(signal, on: .default) {
                end(signal)
                return .keep
            }
        }
        sources = [hangUp] + ends
    }
}
