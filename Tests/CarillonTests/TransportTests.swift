// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The library's channels (F2), with the real service on real buses.
@Suite("F2: channels of the Swift library", .serialized, .limited)
struct TransportTests {
    private static func center(
        on bus: PrivateBus, _ transport: DistributedNotificationCenter.Transport = .channel
    ) -> DistributedNotificationCenter {
        let center = DistributedNotificationCenter(busAddress: bus.address)
        center.defaultDelivery = .ownQueue
        center.transport = transport
        return center
    }

    /// Puts the numbers that it hears into an inbox.
    private static func listen(_ center: DistributedNotificationCenter, _ name: String = "Ding") -> Inbox<Int> {
        let inbox = Inbox<Int>()
        center.addObserver(forName: .init(name), object: nil, suspensionBehavior: .hold, queue: nil) {
            inbox.add($0.userInfo?["number"] as? Int ?? -1)
        }
        return inbox
    }

    private static func wait(
        for transport: DistributedNotificationCenter.Transport, of center: DistributedNotificationCenter
    ) throws {
        try eventually("\(transport) is in use") { center.transportInUse == transport }
    }

    @Test(
        "All notifications posted and received over channels arrive in order, and posts have outcomes",
        arguments: BusKind.available)
    func works(kind: BusKind) async throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (center, poster) = (Self.center(on: bus), Self.center(on: bus))
        #expect(center.transport == .channel && center.transportInUse == .bus)
        let inbox = Self.listen(center)
        #expect(await center.flush())
        try await onOwnThread { try Self.wait(for: .channel, of: center) }
        #expect(try await poster.postAndWait(named: .init("Ding"), userInfo: ["number": 0]) == 1)
        #expect(poster.transportInUse == .channel)
        for number in 1..<5000 { poster.post("Ding", number: number) }
        await #expect(throws: DistributedNotificationError.self) {
            try await poster.postAndWait(named: .init(String(repeating: "x", count: 100_000)))
        }
        #expect(await poster.flush())
        #expect(try await onOwnThread { try inbox.wait(for: 5000) } == Array(0..<5000))
        #expect(try gdbusCall("ListClients", on: bus).contains("'channel': <true>"))
        #expect(center.statistics.missed == 0 && poster.statistics.failedPosts == 0)
        // Suspension is said on the bus, between posts.
        center.suspended = true
        #expect(await center.flush())
        for number in 5000..<5010 { poster.post("Ding", number: number) }
        #expect(await poster.flush())
        #expect(inbox.all.count == 5000)
        center.suspended = false
        #expect(try await onOwnThread { try inbox.wait(for: 5010) } == Array(0..<5010))
        withExtendedLifetime(service) {}
    }

    @Test("A center that registers and then posts receives its post during the change to a channel")
    func own() async throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let center = Self.center(on: bus)
        try await onOwnThread {
            for round in 0..<50 {
                let inbox = Self.listen(center, "Ding\(round)")
                center.post("Ding\(round)", number: round)
                let heard = try inbox.wait(for: 1)
                #expect(heard == [round])
            }
        }
        #expect(center.transportInUse == .channel)
        withExtendedLifetime(service) {}
    }

    @Test("E3: channels are opened again after each kill of the service, without repeated or reordered notifications")
    func killed() async throws {
        let bus = try PrivateBus()
        let (center, poster) = (Self.center(on: bus), Self.center(on: bus))
        var service = try ServiceProcess(on: bus)
        let inbox = Self.listen(center)
        #expect(await center.flush())
        var last = 0
        for _ in 0..<5 {
            try await onOwnThread { try Self.wait(for: .channel, of: center) }
            for _ in 0..<200 {
                last += 1
                poster.post("Ding", number: last)
            }
            try service.kill()
            service = try ServiceProcess(on: bus)
            last = try await onOwnThread { [last] in
                var number = last
                try eventually("\(number) is heard", every: .milliseconds(50)) {
                    number += 1
                    poster.post("Ding", number: number)
                    return inbox.all.contains { $0 > last }
                }
                return number
            }
        }
        try await onOwnThread { try Self.wait(for: .channel, of: center) }
        let heard = inbox.all
        #expect(heard == Array(Set(heard)).sorted())
        withExtendedLifetime(service) {}
    }

    @Test(
        "No notification is lost when the configuration forbids channels and allows them again",
        arguments: BusKind.available)
    func forbidden(kind: BusKind) async throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (center, poster) = (Self.center(on: bus), Self.center(on: bus))
        let inbox = Self.listen(center)
        #expect(await center.flush())
        #expect(try await poster.postAndWait(named: .init("Ding"), userInfo: ["number": 0]) == 1)
        try await onOwnThread { try Self.wait(for: .channel, of: center) }
        try bus.configure("[Channels]\nchannels=false\n")
        _ = try gdbusCall("ReloadConfiguration", on: bus)
        try await onOwnThread {
            try Self.wait(for: .bus, of: center)
            try Self.wait(for: .bus, of: poster)
        }
        for number in 1..<100 { poster.post("Ding", number: number) }
        #expect(await poster.flush())
        #expect(try await onOwnThread { try inbox.wait(for: 100) } == Array(0..<100))
        try bus.configure("")
        _ = try gdbusCall("ReloadConfiguration", on: bus)
        let last = try await onOwnThread {
            var number = 99
            try eventually("both have channels", every: .milliseconds(100)) {
                number += 1
                poster.post("Ding", number: number)
                return center.transportInUse == .channel && poster.transportInUse == .channel
            }
            return number
        }
        let heard = try await onOwnThread { try inbox.wait(for: last + 1) }
        #expect(heard == Array(0...last))
        #expect(center.statistics.missed == 0 && poster.statistics.failedPosts == 0)
        withExtendedLifetime(service) {}
    }

    @Test("Changes of the transport during posts cause no loss, repetition or reordering")
    func changed() async throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (center, poster) = (Self.center(on: bus, .bus), Self.center(on: bus, .bus))
        let inbox = Self.listen(center)
        #expect(await center.flush())
        var last = 0
        for transport in [DistributedNotificationCenter.Transport.channel, .bus, .channel, .bus] {
            for other in [center, poster] { other.transport = transport }
            last = try await onOwnThread { [last] in
                var number = last
                try eventually("both use \(transport)", every: .milliseconds(10)) {
                    for _ in 0..<100 {
                        number += 1
                        poster.post("Ding", number: number)
                    }
                    return center.transportInUse == transport && poster.transportInUse == transport
                }
                return number
            }
        }
        let all = last
        let heard = try await onOwnThread { try inbox.wait(for: all) }
        #expect(heard == Array(1...all))
        #expect(center.statistics.missed == 0 && poster.statistics.failedPosts == 0)
        withExtendedLifetime(service) {}
    }

    @Test(
        "The environment variable CARILLON_TRANSPORT selects the transport in every loop style",
        arguments: LoopStyle.allCases)
    func environment(style: LoopStyle) throws {
        let stage = try Stage()
        let program = try RunningCommand(
            try Executables.path(of: style.example),
            environment: stage.bus.environment.merging(["CARILLON_TRANSPORT": "channel"]) { $1 })
        _ = try program.nextLine(within: .start) { $0.hasPrefix("observing") }
        try eventually("a channel: \(program.transcript)") {
            try gdbusCall("ListClients", on: stage.bus).contains("'channel': <true>")
        }
        try stage.post("com.example.Saved", "--object", "report.txt", "bytes=4711")
        #expect(try program.nextLine() == LoopStyle.saved, "\(program.transcript)")
        program.terminate()
    }
}
