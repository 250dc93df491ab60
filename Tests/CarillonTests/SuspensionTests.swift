// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Suspension through the library (S1 to S3)", .limited)
struct SuspensionTests {
    typealias Behavior = DistributedNotificationCenter.SuspensionBehavior

    @Test(
        "S1: a suspended client receives three notifications as its suspension behavior requires",
        arguments: Behavior.allCases)
    func behaviors(behavior: Behavior) throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", nil, behavior, tag: "a")
        try ear.suspend(true)
        for number in 1...3 { poster.post("a", number: number) }
        #expect(try ear.arrived(from: poster) == (behavior == .deliverImmediately ? 3 : 0))
        try ear.suspend(false)
        let expected =
            switch behavior {
            case .drop: [] as [String]
            case .coalesce: ["a 3"]
            case .hold, .deliverImmediately: ["a 1", "a 2", "a 3"]
            }
        #expect(try ear.everything(from: poster) == expected)
    }

    @Test("S2, S3: held notifications have one order over all behaviors, and immediate ones flush the queue")
    func together() throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("d", nil, .drop, tag: "d")
        try ear.listen("c", nil, .coalesce, tag: "c")
        try ear.listen("h", nil, .hold, tag: "h")
        try ear.listen("i", nil, .deliverImmediately, tag: "i")
        try ear.suspend(true)
        for (number, name) in ["c", "h", "d", "c", "h"].enumerated() { poster.post(name, number: number) }
        #expect(try ear.arrived(from: poster) == 0)
        poster.post("i", number: 10)
        #expect(try ear.arrived(from: poster) == 4)
        #expect(ear.center.suspended)
        poster.post("h", number: 11)
        #expect(try ear.arrived(from: poster) == 4)
        try ear.suspend(false)
        #expect(try ear.everything(from: poster) == ["h 1", "c 3", "h 4", "i 10", "h 11"])
    }

    @Test("S3: a deliver-immediately post reaches a suspended client by every posting call", arguments: 0..<5)
    func asked(spelling: Int) async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        try ear.listen("a", nil, .hold, tag: "a")
        try ear.suspend(true)
        let userInfo: [AnyHashable: Any] = ["number": 1]
        switch spelling {
        case 0: poster.postNotificationName(.init("a"), object: nil, userInfo: userInfo, deliverImmediately: true)
        case 1: poster.postNotificationName(.init("a"), object: nil, userInfo: userInfo, options: .deliverImmediately)
        case 2: _ = try await poster.postAndWait(named: .init("a"), userInfo: userInfo, options: [.deliverImmediately])
        case 3: try { try poster.post(Number(number: 1), options: .deliverImmediately) }()
        default: _ = try await poster.postAndWait(Number(number: 1), options: .deliverImmediately)
        }
        #expect(try ear.arrived(from: poster) == 1)
        poster.postNotificationName(.init("a"), object: nil, userInfo: ["number": 2], deliverImmediately: false)
        #expect(try ear.arrived(from: poster) == 1)
    }

    private struct Number: DistributedMessage {
        static let name = Notification.Name("a")
        var number: Int
    }

    @Test("The property shows the last set suspension, and changes by the service arrive as events")
    func property() throws {
        let desk = try Desk()
        let ear = try Ear(desk)
        let events = Inbox<String>()
        let observation = ear.center.observeEvents { event in
            if case .suspensionChanged(let isSuspended, let cause) = event { events.add("\(isSuspended) \(cause)") }
        }
        #expect(!ear.center.suspended)
        ear.center.suspended = true
        #expect(ear.center.suspended)
        #expect(try events.wait(for: 1) == ["true explicit"])
        ear.center.followActivity()
        _ = try events.wait(for: 2)
        #expect(!ear.center.suspended && events.all[1].hasPrefix("false"), "\(events.all)")
        withExtendedLifetime(observation) {}
    }

    @Test("S1: the suspension of one client does not affect another client of the process")
    func others() throws {
        let desk = try Desk()
        let (first, second, poster) = (try Ear(desk), try Ear(desk), desk.center())
        for ear in [first, second] { try ear.listen("a", nil, .hold, tag: "a") }
        try first.suspend(true)
        poster.post("a", number: 1)
        #expect(try second.everything(from: poster) == ["a 1"])
        #expect(try first.arrived(from: poster) == 0)
    }
}
