// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Lets a thread wait until another one rings.
public final class Doorbell: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    public init() {}

    public func ring() {
        semaphore.signal()
    }

    /// - Throws: ``NotInTime`` when nobody rings for 90 seconds: so long can others hold a busy machine.
    public func wait(_ what: String = "a ring") throws {
        guard semaphore.wait(timeout: .now() + 90) == .success else { throw NotInTime("nobody rang for \(what)") }
    }
}
