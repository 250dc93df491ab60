// SPDX-License-Identifier: Apache-2.0
import Foundation
import Glibc

/// A system call that failed: what was being done, and the reason as `errno` gave it.
public struct SystemError: Error, CustomStringConvertible, Sendable {
    public let operation: String
    public let code: Int32

    public init(_ operation: String, code: Int32 = errno) {
        self.operation = operation
        self.code = code
    }

    public var description: String {
        "\(operation): \(String(cString: strerror(code)))"
    }
}

/// Repeats a system call while a signal handler interrupts it.
func retryingOnInterrupt<Result: SignedInteger>(_ call: () -> Result) -> Result {
    while true {
        let result = call()
        if result != -1 || errno != EINTR {
            return result
        }
    }
}
