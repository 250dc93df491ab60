// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Posts at the exit of a program (R4), as programs leave them.
@Suite("R4: at-exit posts in the library", .limited)
struct LastWillTests {
    private let name = Notification.Name("org.example.Gone")

    @Test(
        "At-exit posts are made when the center has ended, behind its earlier posts",
        arguments: BusKind.available, [DistributedNotificationCenter.Transport.bus, .channel])
    func left(kind: BusKind, transport: DistributedNotificationCenter.Transport) async throws {
        let desk = try Desk(kind)
        let ear = try Ear(desk)
        try ear.listen(nil, tag: "ear")
        var center: DistributedNotificationCenter? = desk.center()
        center?.transport = transport
        for number in 1...3 {
            try await center?.postAtExit(
                named: name, object: "one", userInfo: ["number": number], coalescing: [.onName, .onSender],
                retention: .untilReplaced)
        }
        try await center?.postAtExit(named: name, object: "two", userInfo: ["number": 4])
        try await center?.postAtExit(named: name, object: "three", userInfo: ["number": 5])
        #expect(try await center?.withdrawPosts(named: name, object: "two") == 1)
        #expect(try await center?.withdrawPosts(named: .init("org.example.Other")) == 0)
        for number in 6...300 { center?.post("org.example.Work", number: number) }
        #expect(await center?.flush() == true)
        #expect(try await ear.center.values(named: name).isEmpty)
        center = nil
        try eventually("all", comesTo: 297) { ear.heard.all.count }
        #expect(ear.heard.all == (6...300).map { "ear \($0)" } + ["ear 3", "ear 5"])
        let value = try await ear.center.value(named: name, object: "one")
        #expect(value?.notification.userInfo?["number"] as? Int == 3)
    }

    @Test("All queued at-exit posts can be withdrawn, and invalid at-exit posts are refused at once")
    func takenBack() async throws {
        let desk = try Desk()
        var center: DistributedNotificationCenter? = desk.center()
        let ear = try Ear(desk)
        try ear.listen(nil, tag: "ear")
        for number in 1...10 { try await center?.postAtExit(named: name, userInfo: ["number": number]) }
        #expect(try await center?.withdrawPosts(named: nil) == 10)
        await #expect(throws: DistributedNotificationError.self) {
            try await center?.postAtExit(named: name, retention: .whileConnected)
        }
        await #expect(throws: DistributedNotificationError.self) { try await center?.postAtExit(named: .init("")) }
        await #expect(throws: DistributedNotificationError.self) { try await center?.withdrawPosts(named: .init("")) }
        center = nil
        ear.center.post("last", number: 11)
        try eventually("the last: \(ear.heard.all)") { !ear.heard.all.isEmpty }
        #expect(ear.heard.all == ["ear 11"])
    }
}
