// SPDX-License-Identifier: Apache-2.0
import Foundation

/// Lets a thread wait until another one rings.
public final class Doorbell: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    public init() {}

    public func ring() {
        semaphore.signal()
    }

    /// - Parameter what: names what is waited for in the error.
    /// - Throws: ``NotInTime`` when nobody rings.
    public func wait(_ what: String = "a ring", within patience: Patience = .event) throws {
        var wait = Wait(patience)
        while semaphore.wait(timeout: .now() + wait.pause.timeInterval) != .success { try wait.look(for: what) }
    }
}

extension DispatchGroup {
    /// Waits until all have left.
    ///
    /// - Parameter what: names what they do in the error.
    /// - Throws: ``NotInTime``.
    public func wait(for what: String, within patience: Patience = .event) throws {
        var wait = Wait(patience)
        while self.wait(timeout: .now() + wait.pause.timeInterval) != .success { try wait.look(for: what) }
    }
}
