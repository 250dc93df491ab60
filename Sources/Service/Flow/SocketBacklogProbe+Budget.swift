// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

extension SocketBacklogProbe {
    /// The budget of system calls and processor time. Processor time is converted to system calls.
    struct Budget {
        /// The maximum number of calls in a burst.
        private static let callsAtOnce = 400
        private var left = Double(Self.callsAtOnce)
        private var last: Instant?

        /// The processor time, in seconds, that counts as a call.
        private static let secondsPerCall =
            SocketBacklogProbe.processorShare / Double(SocketBacklogProbe.systemCallsPerSecond)

        mutating func spend(_ calls: Int, _ time: Duration) {
            left -= max(Double(calls), time.inMilliseconds / 1000 / Self.secondsPerCall)
        }

        /// Returns the wait until a call may be made, in milliseconds; nil when one may be made now.
        mutating func wait(at now: Instant) -> UInt32? {
            let rate = Double(SocketBacklogProbe.systemCallsPerSecond) / 1000
            if let last {
                left = min(Double(Self.callsAtOnce), left + (now - last).inMilliseconds * rate)
            }
            last = now
            return left > 0 ? nil : UInt32(-left / rate) + 1
        }
    }
}

extension Duration {
    fileprivate var inMilliseconds: Double {
        let (seconds, attoseconds) = components
        return Double(seconds) * 1000 + Double(attoseconds) / 1e15
    }
}
