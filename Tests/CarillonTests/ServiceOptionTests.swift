// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("Options of the service for posters and observers of the Swift library", .limited)
struct ServiceOptionTests {
    private func centers(_ bus: PrivateBus) -> (DistributedNotificationCenter, DistributedNotificationCenter) {
        let centers = (
            DistributedNotificationCenter(busAddress: bus.address),
            DistributedNotificationCenter(busAddress: bus.address)
        )
        centers.0.defaultDelivery = .ownQueue
        return centers
    }

    @Test("Q7: when-idle posts that coalesce by name arrive as one notification, the last")
    func coalesced() async throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (center, poster) = centers(bus)
        let inbox = Inbox<Int>()
        center.addObserver(forName: .init("progress"), object: nil, queue: nil) {
            inbox.add($0.userInfo?["n"] as? Int ?? -1)
        }
        #expect(await center.flush())
        @Sendable func post(_ number: Int) throws {
            try poster.post(
                named: .init("progress"), userInfo: ["n": number], style: .whenIdle, coalescing: [.onName])
        }
        // Connected, and the service is known to take several posts together, so that no answer of it is needed.
        poster.addObserver(forName: .init("other"), object: nil, queue: nil) { _ in }
        #expect(await poster.flush())
        try await onOwnThread {
            try service.whileStopped(untilPosts: 100) { for number in 1...100 { try post(number) } }
            #expect(try inbox.wait(for: 1) == [100])
        }
        // Behind what waits, and answered with 0, as nobody was matched yet.
        #expect(try await poster.postAndWait(named: .init("progress"), userInfo: ["n": 0], style: .asap) == 0)
        #expect(try await onOwnThread { try inbox.wait(for: 2) } == [100, 0])
        withExtendedLifetime(service) {}
    }

    @Test("M6, A2: observers with known run-loop modes are registered, and an unknown mode is refused")
    func options() async throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (center, _) = centers(bus)
        let events = Inbox<String>()
        let handle = center.observeEvents { event in
            if case .observerRefused(_, _, let error) = event { events.add("\(error)") }
        }
        center.allowsAutomaticSuspension = false
        #expect(!center.allowsAutomaticSuspension)
        let urgent = center.observe(.init("x"), runLoopMode: .eventTracking) { _ in }
        let ordinary = center.observe(.init("x")) { _ in }
        let refused = center.observe(.init("x"), runLoopMode: "custom") { _ in }
        #expect(await center.flush())
        try expectObserverCounts([2], on: bus)
        let refusals = try await onOwnThread { try events.wait(for: 1) }
        #expect(refusals.first?.contains("'custom'") == true)
        #expect(center.statistics.refusedObservers == 1)
        withExtendedLifetime((handle, urgent, ordinary, refused, service)) {}
    }

    @Test("D6: an observer can read the origin of a notification, and other code reads none")
    func origin() async throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (center, poster) = centers(bus)
        let origins = Inbox<Origin?>()
        center.addObserver(forName: .init("x"), object: nil, queue: nil) { _ in origins.add(Origin.current) }
        #expect(await center.flush())
        for _ in 0..<2 { try await poster.postAndWait(named: .init("x")) }
        let received = try await onOwnThread { try origins.wait(for: 2) }
        #expect(received.map { $0?.sequence } == [1, 2])
        #expect(received[0]?.poster == received[1]?.poster && received[0]?.poster.hasPrefix(":") == true)
        #expect(received[0].map { $0.serial + 1 } == received[1]?.serial)
        #expect(Origin.current == nil)
        withExtendedLifetime(service) {}
    }
}
