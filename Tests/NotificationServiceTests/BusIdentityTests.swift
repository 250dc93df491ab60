// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Who posted (P1), on real buses: told with a notification, and asked for.
@Suite("P1: identity of posters, on the bus", .serialized, .limited)
struct BusIdentityTests {
    /// A client that wants to be told all that there is, and observes.
    private func observer(_ details: Details, on bus: PrivateBus) throws -> Client {
        let observer = try Client(on: bus)
        try observer.call(SetClientOptions(ClientOptionsChange(batches: true, details: details)))
        try observer.addObserver("Ding", behavior: .hold)
        return observer
    }

    /// A program that posts and ends at once.
    private func post(_ name: String = "Ding", on bus: PrivateBus) throws -> pid_t {
        let carillon = try Executables.path(of: "carillon")
        let command = try RunningCommand(carillon, ["post", name], environment: bus.environment)
        #expect(try command.waitForExit() == .exited(0))
        return command.pid
    }

    @Test(
        "Details and GetClient name the command and the user of a post after the command has ended",
        arguments: BusKind.available)
    func command(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let observer = try observer(Details(Detail.allCases), on: bus)
        let before = Int64(Date().timeIntervalSince1970 * 1_000_000)
        let process = try post(on: bus)
        try observer.run("it: \(service.transcript)") { observer.signals.count == 1 }
        let signal = try #require(observer.signals.first)
        #expect(signal.details["uid"] == .uint32(getuid()))
        #expect(signal.details["pid"] == .uint32(UInt32(process)))
        #expect(signal.details["process"] == .string("carillon"))
        #expect(signal.details["retained"] == .boolean(false) && signal.details["kept"] == .boolean(false))
        #expect(signal.details["expiry"] == nil, "it never is over")
        guard case .int64(let time)? = signal.details["time"] else { throw NotInTime("the time: \(signal)") }
        #expect((before...before + 60_000_000).contains(time))
        #expect(signal.details["host"] == nil && signal.details["user"] == nil, "it is of this session")

        let known = try observer.call(GetClient(signal.poster.rawValue))
        #expect(known.name == signal.poster)
        #expect(known.identity?.userID == getuid() && known.identity?.processID == UInt32(process))
        #expect(known.identity?.process == "carillon" && known.identity?.sandbox == nil)
        #expect(known.identity?.unit.map(PropertyList.string) == signal.details["unit"])
    }

    @Test("Clients get only the details that they requested, and the last request holds", arguments: BusKind.available)
    func onRequest(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let some = try observer([.processID, .time], on: bus)
        let none = try observer([], on: bus)
        let poster = try Client(on: bus)
        try poster.post("Ding")
        try some.call(SetClientOptions(ClientOptionsChange(details: [.process])))
        try poster.post("Ding")
        for client in [some, none] {
            try client.run("both: \(service.transcript)") { client.signals.count == 2 }
        }
        #expect(some.signals.map { $0.details.keys.sorted() } == [["pid", "time"], ["process"]])
        #expect(none.signals.allSatisfy { $0.details.isEmpty })
        #expect(some.signals[0].details["pid"] == .uint32(UInt32(getpid())))
    }

    @Test(
        "Held notifications keep their poster's identity across a SIGKILL of the service", arguments: BusKind.available)
    func killed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let observer = try observer([.processID, .process], on: bus)
        try observer.call(SetSuspended(true))
        let process = try post(on: bus)
        let carillon = try Executables.path(of: "carillon")
        let queued = try Command.run(
            carillon, ["post", "--posting-style", "when-idle", "Ding"], environment: bus.environment)
        #expect(queued.exitCode == 0)
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        try observer.call(SetSuspended(false))
        try observer.run("both: \(second.transcript)") { observer.signals.count == 2 }
        #expect(observer.signals.map { $0.details["process"] } == [.string("carillon"), .string("carillon")])
        #expect(observer.signals[0].details["pid"] == .uint32(UInt32(process)))
    }

    @Test(
        "G3: live, held and retained notifications keep their origin across a SIGKILL of the service",
        arguments: BusKind.available)
    func outside(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let observer = try observer([.host, .user, .kept], on: bus)
        var bridge: Client? = try Client(on: bus)
        func bring(_ style: PostingStyle, host: String?, user: String?) throws {
            var options = PostOptions()
            options.origin = try OutsideOrigin(host: host, user: user)
            options.postingStyle = style
            options.retention = Retention()
            try #require(bridge).call(try PostCall(name: "Ding", object: user ?? "", options: options))
        }
        try bring(.now, host: "alpha", user: nil)
        try observer.run("it: \(first.transcript)") { observer.signals.count == 1 }
        try observer.call(SetSuspended(true))
        try bring(.now, host: "alpha", user: "anna")
        try bring(.atExit, host: nil, user: "berta")
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        try observer.call(SetSuspended(false))
        let kept = try observer.call(Get(name: "Ding"))
        #expect(kept.map { $0.details["host"] } == [.string("alpha"), .string("alpha")])
        #expect(kept.map { $0.details["user"] } == [nil, .string("anna")])
        bridge = nil
        try observer.run("all: \(second.transcript)") { observer.signals.count == 3 }
        let expected: [[String: PropertyList]] = [
            ["host": .string("alpha")], ["host": .string("alpha"), "user": .string("anna")],
            ["user": .string("berta")],
        ]
        #expect(observer.signals.map(\.details) == expected.map { $0.merging(["kept": .boolean(true)]) { $1 } })
    }

    @Test("Notifications on a channel have the requested details, too", arguments: BusKind.available)
    func channel(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try ChannelClient(on: bus)
        try client.client.call(SetClientOptions(ClientOptionsChange(details: [.processID])))
        try client.client.addObserver("Ding")
        try client.open()
        let process = try post(on: bus)
        try client.run("it: \(service.transcript)") { client.notifications.count == 1 }
        #expect(client.notifications[0].details?.decoded() == ["pid": .uint32(UInt32(process))])
    }

    @Test("GetClient fails for names that never called the service, and unknown details are refused")
    func strangers() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let (client, silent) = (try Client(on: bus), try Client(on: bus))
        for (name, error) in [
            (":1.4711", BusError.nameHasNoOwnerName), (silent.name, BusError.nameHasNoOwnerName),
            ("", BusError.invalidArgsName), (Wire.busName.rawValue, BusError.invalidArgsName),
            ("1.5", BusError.invalidArgsName),
        ] {
            let refusal = #expect(throws: BusError.self) { try client.call(GetClient(name)) }
            #expect(refusal?.name == error, "'\(name)': \(String(describing: refusal))")
        }
        let own = try client.call(GetClient(client.name))
        #expect(own.identity?.processID == UInt32(getpid()))
        for words in [PropertyList.array([.string("uid"), .string("shoe")]), .string("uid")] {
            let call = Wire.methodCall(SetClientOptions.member)
            var writer = MessageWriter(call)
            try UserInfoCoding.append(["details": words], to: &writer)
            let refusal = #expect(throws: BusError.self) { _ = try client.send(call) }
            #expect(refusal?.centerError == .invalidOption)
        }
        #expect(service.isRunning)
    }
}
