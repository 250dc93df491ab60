// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Who posted, as programs are told it (P1).
@Suite("P1: identity of posters in the library", .limited)
struct PosterTests {
    private let name = Notification.Name("a")

    @Test("A notification carries exactly the requested details of its poster")
    func asked() async throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        center.details = [.userID, .processID, .process, .time]
        #expect(center.details == [.userID, .processID, .process, .time])
        let heard = Inbox<Poster?>()
        let dates = Inbox<Date?>()
        let token = center.addObserver(forName: name, object: nil, queue: nil) { notification in
            dates.add(Origin.current?.date)
            heard.add(notification.poster)
        }
        try center.settle()
        let before = Date()
        poster.post("a", number: 1)
        try poster.settle()
        try eventually("it") { heard.all.count == 1 }
        let who = try #require(heard.all[0])
        #expect(who.userID == getuid() && who.processID == getpid())
        #expect(who.name != nil && who.application == nil)
        let date = try #require(dates.all[0])
        #expect(abs(date.timeIntervalSince(before)) < 60)

        center.details = []
        try center.settle()
        poster.post("a", number: 2)
        try eventually("the second") { heard.all.count == 2 }
        #expect(heard.all[1] == Poster(), "nothing was asked for")
        #expect(Notification(name: name).poster == nil, "nowhere else")
        withExtendedLifetime(token) {}
    }

    @Test("A sequence with origins returns each notification with its origin", arguments: BusKind.available)
    func sequence(kind: BusKind) async throws {
        let desk = try Desk(kind)
        let (center, poster) = (desk.center(), desk.center())
        center.details = [.processID]
        let notifications = center.notifications(named: name).withOrigins
        #expect(await center.flush())
        for number in 1...3 { poster.post("a", number: number) }
        var count = 0
        for await (notification, origin) in notifications {
            count += 1
            #expect(notification.userInfo?["number"] as? Int == count && origin.sequence == UInt64(count))
            #expect(origin.process.processID == getpid() && origin.process.userID == nil)
            if count == 3 { break }
        }
    }

    @Test(
        "The request for details is repeated to the next service, and applies to a channel",
        arguments: DistributedNotificationCenter.Transport.allCases)
    func nextService(transport: DistributedNotificationCenter.Transport) throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        center.transport = transport
        center.details = [.processID]
        let heard = Inbox<Int32?>()
        let token = center.addObserver(forName: name, object: nil, queue: nil) { heard.add($0.poster?.processID) }
        try center.settle()
        try eventually("its way") { center.transportInUse == transport }
        poster.post("a", number: 1)
        try eventually("the first") { heard.all.count == 1 }
        desk.service.signal(SIGKILL)
        _ = try desk.service.waitForExit()
        try FileManager.default.removeItem(atPath: #require(desk.bus.environment["XDG_RUNTIME_DIR"]) + "/carillon")
        let second = try ServiceProcess(on: desk.bus)
        try eventually("the second: \(second.transcript)") {
            poster.post("a", number: 2)
            return heard.all.count > 1
        }
        #expect(Set(heard.all) == [getpid()])
        withExtendedLifetime(token) {}
    }
}
