// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// A second launch hands its document to the instance that runs already.
enum SingleInstance {
    static func forward(_ url: URL, window: Int?) {
        var userInfo: [AnyHashable: Any] = ["url": url.absoluteString, "launched": Date()]
        if let window = window {
            userInfo["window"] = window
        }
        DistributedNotificationCenter.default().postNotificationName(
            .openURL, object: Bundle.main.bundleIdentifier, userInfo: userInfo, deliverImmediately: true)
    }

    static func answer(_ url: URL, in window: NSNumber) {
        DistributedNotificationCenter.default().postNotificationName(
            .openedURL, object: nil, userInfo: ["url": url.absoluteString as NSString, "window": window],
            options: [.deliverImmediately])
    }
}

/// The instance that runs.
class Reader {
    private var observers = [NSObjectProtocol]()
    private let center: DistributedNotificationCenter
    private(set) var opened: [URL] = []
    var onOpen: (URL, Int, Bool) -> Void = { _, _, _ in }

    init(center: DistributedNotificationCenter = .default()) {
        self.center = center
        let observer = center.addObserver(forName: .openURL, object: nil, queue: nil) { [weak self] in
            self?.open($0)
        }
        observers.append(observer)
    }

    private func open(_ notification: Notification) {
        guard
            let text = notification.userInfo?["url"] as? String,
            let url = URL(string: text),
            let launched = notification.userInfo?["launched"] as? Date
        else { return }
        opened.append(url)
        let window = notification.userInfo?["window"] as? Int ?? -1
        onOpen(url, window, abs(launched.timeIntervalSinceNow) < 60 && Thread.isMainThread)
        SingleInstance.answer(url, in: NSNumber(value: window))
    }

    deinit {
        for observer in observers { center.removeObserver(observer) }
    }
}
