// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Dispatch
import Foundation
import Testing

@testable import Carillon

/// What arrived, on its way to the program's observers: decoded when one looks at it, once for all (F3).
@Suite("F3: decoding of received notifications", .limited)
struct ReceivedNotificationTests {
    private func received(_ userInfo: [String: PropertyList], isShared: Bool) throws -> ReceivedNotification {
        let signal = NotificationSignal(
            name: "Ding", object: "Glocke", userInfo: userInfo, observers: [ObserverID(rawValue: 1)], poster: ":1.7",
            serial: 5, sequence: 2)
        let all = try ArrivedNotification.all(in: signal.message(to: ":1.1"))
        return ReceivedNotification(try #require(all?.first), isShared: isShared)
    }

    @Test("F3: several observers on several threads share one decoded userInfo")
    func once() throws {
        let received = try received(["n": .uint32(4_000_000_000), "text": .string("text")], isShared: true)
        let seen = Locked<[ObjectIdentifier?]>([])
        DispatchQueue.concurrentPerform(iterations: 16) { _ in
            let number = (received.notification.userInfo?["n"] as? NSNumber).map { ObjectIdentifier($0) }
            seen.withLock { $0.append(number) }
        }
        let numbers = seen.withLock { $0 }
        #expect(numbers.count == 16 && Set(numbers).count == 1 && numbers[0] != nil)
        #expect(received.userInfo == ["n": .uint32(4_000_000_000), "text": .string("text")])
    }

    @Test("A notification for a single observer is decoded each time, and no copy is kept")
    func single() throws {
        let received = try received(["n": .uint32(4_000_000_000)], isShared: false)
        let (first, second) = (received.notification, received.notification)
        #expect((first.userInfo?["n"] as? NSNumber) !== (second.userInfo?["n"] as? NSNumber))
        #expect(first.userInfo?["n"] as? Int == 4_000_000_000 && first.object as? String == "Glocke")
        #expect(first.name.rawValue == "Ding")
        #expect(received.userInfo == ["n": .uint32(4_000_000_000)])
        #expect(received.origin == Origin(poster: ":1.7", serial: 5, sequence: 2))
        let empty = try self.received([:], isShared: false)
        #expect(empty.notification.userInfo == nil)
    }

    @Test("T2: a notification counts its bytes on the wire, and for several observers also its decoded values")
    func byteCount() throws {
        let data: [String: PropertyList] = ["data": .data([UInt8](repeating: 1, count: 10_000))]
        let alone = try received(data, isShared: false).byteCount
        #expect((10_000..<10_500).contains(alone))
        #expect((20_000..<21_000).contains(try received(data, isShared: true).byteCount))
        let flags: [String: PropertyList] = ["flags": .array([PropertyList](repeating: .boolean(true), count: 1000))]
        #expect(try received(flags, isShared: true).byteCount > 1000 * 100)
    }
}
