// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

/// A value of the program's own, taken out of a notification where it arrives.
struct SavedDocument: Sendable, Equatable {
    var path: String
    var byteCount: Int
    var digest: Data

    init?(_ notification: Notification) {
        guard
            let path = notification.object as? String,
            let byteCount = notification.userInfo?["bytes"] as? Int,
            let digest = notification.userInfo?["digest"] as? Data
        else { return nil }
        self.path = path
        self.byteCount = byteCount
        self.digest = digest
    }
}

/// Reads notifications in order and keeps what it saw.
actor Archive {
    private var saved: [SavedDocument] = []
    private let center: DistributedNotificationCenter

    init(center: DistributedNotificationCenter = .default()) {
        self.center = center
    }

    func follow(path: String) async {
        for await notification in center.notifications(named: .documentSaved, object: path as NSString) {
            guard let document = SavedDocument(notification) else { continue }
            saved.append(document)
            log("archived \(document.path) \(document.byteCount) \(document.digest.count) \(saved.count)")
        }
    }
}

/// An AsyncStream round a block, as code from before `notifications(named:)` has it.
func savedDocuments(
    _ makeCenter: @escaping @Sendable () -> DistributedNotificationCenter = { .default() }
) -> AsyncStream<SavedDocument> {
    AsyncStream { continuation in
        let center = makeCenter()
        let observer = center.addObserver(forName: .documentSaved, object: nil, queue: nil) { notification in
            if let document = SavedDocument(notification) { continuation.yield(document) }
        }
        let box = Token(observer)
        continuation.onTermination = { _ in
            center.removeObserver(box.value)
        }
    }
}

final class Token: @unchecked Sendable {
    // Sendable: the center may be told to remove it on any thread.
    let value: any NSObjectProtocol

    init(_ value: any NSObjectProtocol) {
        self.value = value
    }
}

/// A line of output, at once.
func log(_ line: String) {
    print(line)
    fflush(nil)
}
