// SPDX-License-Identifier: Apache-2.0
#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The signals by which whoever runs a service speaks to it, as long as this lives: SIGHUP to read its configuration anew,
/// SIGTERM and SIGINT to end.
package struct ControlSignals {
    private let sources: [EventSource]

    /// - Parameters:
    ///   - reload: called on the thread of the default main context.
    ///   - end: called there with the signal, each time that one comes.
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
