// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

@main
@MainActor
enum Program {
    static let appearance = Appearance()

    static func main() async {
        if CommandLine.arguments.count > 1 {
            await save(CommandLine.arguments[1])
            return
        }
        appearance.onChange = { log("theme \($0)") }
        appearance.start()
        let archive = Archive()
        let archiving = Task { await archive.follow(path: "/a") }
        let counting = Task { @MainActor in
            var count = 0
            for await document in savedDocuments() {
                count += 1
                log("saved \(document.path) \(count)")
            }
        }
        log("ready")
        for await notification in DistributedNotificationCenter.default().notifications(named: .quit) {
            log("quit \(notification.name.rawValue)")
            break
        }
        appearance.stop()
        archiving.cancel()
        counting.cancel()
        await archiving.value
        await counting.value
        log("done")
    }

    /// Posts from a thread that is not the main one, and returns.
    static func save(_ path: String) async {
        await Task.detached {
            DistributedNotificationCenter.default().postNotificationName(
                .documentSaved, object: path, userInfo: ["bytes": 42, "digest": Data([1, 2, 3])],
                deliverImmediately: true)
        }.value
    }
}
