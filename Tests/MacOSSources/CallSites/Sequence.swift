// SPDX-License-Identifier: Apache-2.0
// unchanged
import Carillon
import Foundation

@MainActor
final class Sequence {
    private var task: Task<Void, Never>?
    private(set) var count = 0

    func start() {
        task = Task { [weak self] in
            for await notification in DistributedNotificationCenter.default().notifications(
                named: .init("com.example.x"))
            {
                self?.receive(notification)
            }
        }
    }

    private func receive(_ notification: Notification) { count += 1 }

    func stop() { task?.cancel() }
}
