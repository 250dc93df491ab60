// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

extension SocketBacklogProbe {
    /// The budget of the questions to the kernel, as a token bucket of system calls (``systemCallsPerSecond``).
    /// Processor time is converted to system calls, so that ``processorShare`` is kept too.
    struct Budget {
        /// The capacity of the bucket: the maximum number of calls in a burst, which the rate refills in 40 ms.
        private static let callsAtOnce = 400
        /// The calls that may be made now; negative after an expensive question.
        private var left = Double(Self.callsAtOnce)
        /// The time of the last refill.
        private var last: Instant?

        /// The processor time, in seconds, that counts as a call.
        private static let secondsPerCall =
            SocketBacklogProbe.processorShare / Double(SocketBacklogProbe.systemCallsPerSecond)

        /// Takes the cost of a question: its calls, or its processor time, if that is more.
        mutating func spend(_ calls: Int, _ time: Duration) {
            left -= max(Double(calls), time.inMilliseconds / 1000 / Self.secondsPerCall)
        }

        /// Returns the wait until a question may be asked, in milliseconds; nil when one may be asked now.
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
    /// The duration as a number of milliseconds.
    fileprivate var inMilliseconds: Double {
        let (seconds, attoseconds) = components
        return Double(seconds) * 1000 + Double(attoseconds) / 1e15
    }
}
