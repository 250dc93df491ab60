import Foundation
import TestSupport

/// Lets a thread wait until another one rings.
final class Doorbell: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func ring() {
        semaphore.signal()
    }

    /// - Throws: ``NotInTime`` when nobody rings for ten seconds.
    func wait(_ what: String = "a ring") throws {
        guard semaphore.wait(timeout: .now() + 90) == .success else { throw NotInTime("nobody rang for \(what)") }
    }
}
