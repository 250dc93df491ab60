// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import LocalNotifications
import Testing

@Suite("Notification queues in front of the center", .limited)
struct QueuedPostingTests {
    @Test("B13: a local notification queue coalesces similar notifications for the distributed center")
    func queued() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", tag: "a")
        let context = MainContext()
        context.asThreadDefault {
            let queue = LocalNotifications.NotificationQueue(notificationCenter: poster)
            for number in 1...3 {
                queue.enqueue(
                    Notification(name: .init("a"), userInfo: ["number": number]), postingStyle: .asap,
                    coalesceMask: .onName)
            }
            context.iterate(mayBlock: false)
        }
        #expect(try ear.everything(from: poster) == ["a 3"])
    }
}
