// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Carillon

@Suite("Recovery after a change of the service or the bus (E3)", .limited, .serialized)
struct RecoveryTests {
    private static func center(on bus: PrivateBus) -> DistributedNotificationCenter {
        let center = DistributedNotificationCenter(busAddress: bus.address)
        center.defaultDelivery = .ownQueue
        return center
    }

    /// Posts until the observer has it: what is posted to a service that is being killed is lost.
    private static func postUntilReceived(
        _ name: String, by inbox: Inbox<Int>, from poster: DistributedNotificationCenter, marker: Int
    ) throws {
        try eventually("\(marker) of \(name) in \(inbox.all.suffix(5))", every: .milliseconds(50)) {
            poster.post(name: .init(name), object: nil, userInfo: ["marker": marker])
            return inbox.contains { $0 == marker }
        }
    }

    /// What a service has to go on from: its predecessor's state, or nothing.
    enum Memory: String, CaseIterable, CustomTestStringConvertible {
        case recovers
        case forgets
        var testDescription: String { rawValue }
    }

    @Test("All registrations survive ten kills of the service under load", arguments: Memory.allCases)
    func killed(memory: Memory) async throws {
        let service = try PrivateBus.Activation.service()
        let activation =
            switch memory {
            case .recovers: service
            case .forgets:
                PrivateBus.Activation(
                    name: service.name, executable: "/usr/bin/env",
                    arguments: ["-u", "XDG_RUNTIME_DIR", service.executable])
            }
        let bus = try PrivateBus(.dbusDaemon, activations: [activation])
        let (center, poster) = (Self.center(on: bus), Self.center(on: bus))
        let names = ["first", "second", "third"]
        let behaviors: [DistributedNotificationCenter.SuspensionBehavior] = [.coalesce, .hold, .deliverImmediately]
        let inboxes = names.map { _ in Inbox<Int>() }
        let events = Inbox<DistributedNotificationCenter.Gap>()
        let observation = center.observeEvents { event in
            if case .mayHaveMissedNotifications(let gap) = event { events.add(gap) }
        }
        // Two observers share each registration.
        for (index, name) in names.enumerated() {
            for _ in 0..<2 {
                center.addObserver(
                    forName: .init(name), object: nil, suspensionBehavior: behaviors[index], queue: nil
                ) { notification in
                    if let marker = notification.userInfo?["marker"] as? Int { inboxes[index].add(marker) }
                }
            }
        }
        try await onOwnThread {
            let isDone = Atomic(false)
            let load = Thread {
                while !isDone.load(ordering: .relaxed) {
                    for name in names { poster.post(name: .init(name), object: "load", userInfo: ["n": 1]) }
                    letPass(.milliseconds(2), because: "it is a load, and no flood")
                }
            }
            load.start()
            defer { isDone.store(true, ordering: .relaxed) }
            for round in 1...10 {
                for (index, name) in names.enumerated() {
                    try Self.postUntilReceived(name, by: inboxes[index], from: poster, marker: round)
                }
                let pid = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
                kill(pid, SIGKILL)
                try eventually("another service than \(pid)") {
                    let owner = try bus.processID(ofOwner: ServiceProcess.busName)
                    return owner != nil && owner != pid
                }
            }
            for (index, name) in names.enumerated() {
                try Self.postUntilReceived(name, by: inboxes[index], from: poster, marker: 99)
            }
            try eventually("one registration for each name") {
                try observerCounts(on: bus) == [3]
            }
            // Of the two observers of a registration one is called after the other.
            try eventually("both observers of each registration got everything: \(inboxes.map(\.all.count))") {
                inboxes.allSatisfy { inbox in
                    Dictionary(grouping: inbox.all, by: { $0 }).values.allSatisfy { $0.count.isMultiple(of: 2) }
                }
            }
        }
        #expect(events.contains { $0 == .serviceChanged })
        #expect(center.connectionState == .connected)
        #expect(center.statistics.refusedObservers == 0)
        withExtendedLifetime(observation) {}
    }

    @Test("A new service without state receives the suspension before the observers")
    func suspension() async throws {
        let bus = try PrivateBus()
        let environment = ["XDG_RUNTIME_DIR": ""]
        let first = try ServiceProcess(on: bus, environment: environment)
        let (center, poster) = (Self.center(on: bus), Self.center(on: bus))
        let inbox = Inbox<Int>()
        center.addObserver(forName: .init("held"), object: nil, suspensionBehavior: .hold, queue: nil) {
            inbox.add($0.userInfo?["marker"] as? Int ?? -1)
        }
        center.suspended = true
        #expect(await center.flush())
        try first.kill()
        let second = try ServiceProcess(on: bus, environment: environment)
        try await onOwnThread { try eventually("registration") { try observerCounts(on: bus) == [1] } }
        for marker in 1...3 {
            #expect(try await poster.postAndWait(named: .init("held"), userInfo: ["marker": marker]) == 1)
        }
        #expect(await center.flush())
        #expect(inbox.all.isEmpty)
        center.suspended = false
        let received = try await onOwnThread { try inbox.wait(for: 3) }
        #expect(received == [1, 2, 3])
        withExtendedLifetime(second) {}
    }

    @Test("A client reconnects to a bus that restarts at its address, and registers its observers again")
    func bus() async throws {
        let directory = try TemporaryDirectory()
        let address = "unix:path=\(directory.entry("bus"))"
        let configuration = "--config-file=/usr/share/dbus-1/session.conf"
        @Sendable func startBus() throws -> RunningCommand {
            try? FileManager.default.removeItem(atPath: directory.entry("bus"))
            let bus = try RunningCommand(
                "dbus-daemon",
                [configuration, "--nofork", "--nopidfile", "--address=\(address)", "--print-address=1"],
                environment: ProcessInfo.processInfo.environment)
            _ = try bus.nextLine()
            return bus
        }
        @Sendable func startService() throws -> RunningCommand {
            try RunningCommand(
                try Executables.path(of: "carillond"), [],
                environment: [
                    "DBUS_SESSION_BUS_ADDRESS": address, "XDG_RUNTIME_DIR": directory.path, "PATH": "/usr/bin:/bin",
                ])
        }
        let center = DistributedNotificationCenter(busAddress: address)
        center.defaultDelivery = .ownQueue
        let (inbox, states) = (Inbox<String>(), Inbox<DistributedNotificationCenter.ConnectionState>())
        let observation = center.observeEvents { event in
            if case .connectionStateChanged(let state) = event { states.add(state) }
        }
        // Before there is any bus.
        center.addObserver(forName: .init("x"), object: nil, queue: nil) { inbox.add($0.object as? String ?? "") }
        try await onOwnThread {
            try eventually("no bus is noticed: \(states.all)") {
                states.contains { if case .disconnected = $0 { true } else { false } }
            }
            for round in 1...3 {
                let (bus, service) = (try startBus(), try startService())
                try eventually(
                    "round \(round) arrives: \(center.connectionState)", every: .milliseconds(50)
                ) {
                    center.post(name: .init("x"), object: "\(round)")
                    return inbox.contains { $0 == "\(round)" }
                }
                bus.kill()
                _ = try bus.waitForExit()
                _ = try service.waitForExit()
                try eventually("the end is noticed") {
                    if case .disconnected = center.connectionState { true } else { false }
                }
                #expect(center.flush(timeout: 5) == false)
            }
        }
        #expect(states.contains { $0 == .connected })
        withExtendedLifetime(observation) {}
    }

    @Test("Waiting posts fail with a typed error without a service or without a bus")
    func typedErrors() async throws {
        let bus = try PrivateBus()
        let center = Self.center(on: bus)
        await #expect {
            try await center.postAndWait(named: .init("x"))
        } throws: { error in
            if case .serviceUnavailable = error as? DistributedNotificationError { true } else { false }
        }
        center.post(name: .init("x"), object: nil)
        #expect(await center.flush() == false)
        #expect(center.statistics.failedPosts == 1)
        bus.stop()
        let elsewhere = DistributedNotificationCenter(busAddress: "unix:path=/nonexistent/bus")
        await #expect {
            try await elsewhere.postAndWait(named: .init("x"))
        } throws: { error in
            if case .notConnected = error as? DistributedNotificationError { true } else { false }
        }
    }

    @Test("Gaps in sequence numbers and announced losses are reported, and signals of strangers are ignored")
    func gaps() async throws {
        let bus = try PrivateBus()
        let service = try FakeService(on: bus)
        let center = Self.center(on: bus)
        let (inbox, gaps) = (Inbox<Int>(), Inbox<DistributedNotificationCenter.Gap>())
        let observation = center.observeEvents { event in
            if case .mayHaveMissedNotifications(let gap) = event { gaps.add(gap) }
        }
        center.addObserver(forName: .init("x"), object: nil, queue: nil) { inbox.add($0.userInfo?["n"] as? Int ?? -1) }
        let local = Inbox<String>()
        let token = NotificationCenter.default.addObserver(
            forName: .distributedNotificationsMayHaveBeenMissed, object: center, queue: nil
        ) { local.add("\($0.userInfo?["gap"] ?? "")") }
        try await onOwnThread {
            try service.waitForObserver()
            for (number, sequence) in [(1, 1), (2, 2), (3, 5)] { service.notify(number, sequence: UInt64(sequence)) }
            service.drop(4)
            service.notify(4, sequence: 10)
            service.notify(4, sequence: 10)
            let stranger = try FakeService(on: bus, ownsName: false)
            stranger.notify(66, sequence: 11, to: service.observer)
            try stranger.barrier()
            service.notify(5, sequence: 11)
            _ = try inbox.wait(for: 5)
        }
        #expect(inbox.all == [1, 2, 3, 4, 5])
        #expect(gaps.all == [.missing(count: 2), .dropped(count: 4, reason: "queue-full")])
        #expect(local.all.count == 2)
        #expect(center.statistics.missed == 6)
        NotificationCenter.default.removeObserver(token)
        withExtendedLifetime(observation) {}
    }

    @Test("P3: an observer removed by policy is reported as refused with a typed error")
    func revoked() async throws {
        let bus = try PrivateBus()
        let service = try FakeService(on: bus)
        let center = Self.center(on: bus)
        let (inbox, errors) = (Inbox<Int>(), Inbox<DistributedNotificationError>())
        let observation = center.observeEvents { event in
            if case .observerRefused(_, _, let error) = event { errors.add(error) }
        }
        center.addObserver(forName: .init("x"), object: nil, queue: nil) { inbox.add($0.userInfo?["n"] as? Int ?? -1) }
        let refusals = try await onOwnThread {
            try service.waitForObserver()
            service.notify(1, sequence: 1)
            service.revoke()
            _ = try inbox.wait(for: 1)
            return try errors.wait(for: 1)
        }
        #expect({ if case .notAllowed = refusals[0] { true } else { false } }(), "\(refusals)")
        #expect(inbox.all == [1] && center.statistics.missed == 0)
        withExtendedLifetime(observation) {}
    }
}
