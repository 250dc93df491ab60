// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The handlers of the Unix signals that control a service: SIGHUP reads the configuration again, SIGTERM and SIGINT
/// end the service. They last as long as this value; the service and the bridge hold one.
package struct ControlSignals {
    private let sources: [EventSource]

    /// - Parameters:
    ///   - reload: called on the thread of the default main context.
    ///   - end: called on the same thread with the signal's number, for each SIGTERM or SIGINT.
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
