// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// Keeps its tokens in an array and throws them away all at once.
class ScreenLockMonitor: NSObject {
    static let shared = ScreenLockMonitor()

    private var tokens: [Any] = []
    private let queue: OperationQueue = {
        let queue = OperationQueue()
        queue.name = "com.example.screen-lock"
        queue.maxConcurrentOperationCount = 1
        return queue
    }()
    var onChange: ((_ isLocked: Bool, _ isOnQueue: Bool) -> Void)?

    func startMonitoring() {
        let dnc = DistributedNotificationCenter.default()
        tokens.append(
            dnc.addObserver(forName: NSNotification.Name("com.apple.screenIsLocked"), object: nil, queue: queue) { _ in
                self.onChange?(true, OperationQueue.current === self.queue && !Thread.isMainThread)
            })
        tokens.append(
            dnc.addObserver(forName: .screenIsUnlocked, object: nil, queue: queue) { (note: Notification) -> Void in
                self.onChange?(false, OperationQueue.current == self.queue && !Thread.isMainThread)
            })
    }

    func stopMonitoring() {
        tokens.forEach { DistributedNotificationCenter.default().removeObserver($0) }
        tokens.removeAll()
    }
}
