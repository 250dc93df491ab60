// SPDX-License-Identifier: Apache-2.0
import Carillon
import Foundation

let center = DistributedNotificationCenter.default()
let saved = Notification.Name("com.example.Saved")
center.addObserver(forName: saved, object: nil, queue: .main) { note in
    print("saved:", note.object ?? "", note.userInfo?["bytes"] ?? "")
    exit(0)
}
center.postNotificationName(saved, object: "report.txt", userInfo: ["bytes": 4711])
RunLoop.main.run()
