// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Values that stay (R1 to R3), on real buses.
@Suite("R1 to R3: retained values, on the bus", .serialized, .limited)
struct BusRetainedTests {
    private func post(
        _ name: String, _ object: String = "", n: Int64 = 0, whileConnected: Bool = false, expiresAfter: UInt32? = nil,
        from client: Client
    ) throws {
        var options = PostOptions()
        options.retention = Retention(whileConnected: whileConnected)
        options.expiresAfter = expiresAfter
        try client.call(try PostCall(name: name, object: object, userInfo: ["n": .int64(n)], options: options))
    }

    private func observe(_ name: String, from client: Client, details: Bool = false) throws -> ObserverID {
        if details {
            try client.call(SetClientOptions(ClientOptionsChange(batches: true, details: [.retained, .time])))
        }
        return try client.call(AddObserver(name: name, object: "", options: ObserverOptions(wantsRetained: true)))
    }

    @Test(
        "A late observer gets the values and then newer posts, and any client can read and remove values",
        arguments: BusKind.available)
    func late(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (poster, reader) = (try Client(on: bus), try Client(on: bus))
        for n in 1...3 { try post("Battery", "BAT0", n: Int64(n), from: poster) }
        try post("Battery", "BAT1", n: 4, from: poster)
        let late = try Client(on: bus)
        let id = try observe("Battery", from: late, details: true)
        try post("Battery", "BAT0", n: 5, from: poster)
        try late.run("all: \(service.transcript)") { late.signals.count == 3 }
        #expect(late.signals.map(\.number) == [3, 4, 5] && late.signals.map(\.serial) == [3, 4, 5])
        #expect(late.signals.map(\.sequence) == [1, 2, 3] && late.signals.allSatisfy { $0.observers == [id] })
        #expect(late.signals.map { $0.details["retained"] } == [true, true, false].map { .boolean($0) })

        let values = try reader.call(Get(name: "Battery"))
        #expect(values.map(\.object) == ["BAT1", "BAT0"] && values.map(\.serial) == [4, 5])
        #expect(values[1].userInfo == ["n": .int64(5)] && values[1].poster == poster.name)
        #expect(values[1].details["uid"] == .uint32(getuid()))
        #expect(try reader.call(RemoveRetained(name: "Battery", object: "BAT0")) == 1)
        #expect(try reader.call(Get(name: "")).map(\.object) == ["BAT1"])
        #expect(try reader.call(Get(name: "Nothing")).isEmpty)
    }

    @Test(
        "G3: values of several origins coexist, survive a SIGKILL, and are removed by origin",
        arguments: BusKind.available)
    func origins(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (poster, bridge) = (try Client(on: bus), try Client(on: bus))
        func bring(_ n: Int64, host: String?, user: String?) throws {
            var options = PostOptions()
            options.retention = Retention()
            options.origin = try OutsideOrigin(host: host, user: user)
            try bridge.call(try PostCall(name: "Volume", object: "x", userInfo: ["n": .int64(n)], options: options))
        }
        func values() throws -> [String] {
            try bridge.call(Get(name: "Volume", object: "x")).map { value in
                guard case .int64(let n)? = value.userInfo["n"] else { return "?" }
                return "\(n) \(value.host ?? "-") \(value.user ?? "-")"
            }
        }
        try post("Volume", "x", n: 1, from: poster)
        try bring(2, host: "alpha", user: "anna")
        try bring(3, host: "alpha", user: nil)
        try bring(4, host: nil, user: "berta")
        try bring(5, host: "alpha", user: "anna")
        let all = ["1 - -", "3 alpha -", "4 - berta", "5 alpha anna"]
        #expect(try values() == all)
        func remove(host: String, user: String, _ name: String = "Volume", _ object: String = "") throws -> Int {
            try bridge.call(RemoveRetainedFrom(host: host, user: user, name: name, object: object))
        }
        try bring(6, host: "beta", user: nil)
        #expect(try remove(host: "beta", user: "") == 0 && remove(host: "beta", user: "", "Volume", "x") == 1)
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        let late = try Client(on: bus)
        _ = try observe("Volume", from: late)
        try late.run("all: \(second.transcript)") { late.signals.count == 4 }
        #expect(late.signals.map(\.number) == [1, 3, 4, 5])
        #expect(try values() == all)
        #expect(try remove(host: "alpha", user: "", "Volume", "x") == 1)
        #expect(try remove(host: "", user: "", "Volume", "x") == 1)
        #expect(try values() == ["4 - berta", "5 alpha anna"])
        let refusal = #expect(throws: BusError.self) {
            _ = try remove(host: String(repeating: "h", count: 256), user: "")
        }
        #expect(refusal?.centerError == .invalidOption)
        #expect(try bridge.call(RemoveRetained(name: "Volume", object: "x")) == 2)
    }

    @Test(
        "P1: the details kept and expiry of held notifications survive a SIGKILL of the service",
        arguments: BusKind.available)
    func told(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (poster, observer) = (try Client(on: bus), try Client(on: bus))
        let before = Int64(Date().timeIntervalSince1970 * 1_000_000)
        try observer.call(SetClientOptions(ClientOptionsChange(batches: true, details: [.kept, .expiry])))
        try observer.addObserver("", behavior: .hold)
        try observer.call(SetSuspended(true))
        try post("Kept", expiresAfter: 7200, from: poster)
        try post("Kept", "for ever", from: poster)
        try poster.post("Ding")
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        let second = try ServiceProcess(on: bus)
        try observer.call(SetSuspended(false))
        try observer.run("all: \(second.transcript)") { observer.signals.count == 3 }
        #expect(observer.signals.map { $0.details["kept"] } == [true, true, false].map { .boolean($0) })
        #expect(observer.signals.map { $0.details["expiry"] != nil } == [true, false, false])
        guard case .int64(let expiry)? = observer.signals[0].details["expiry"] else { throw NotInTime("its expiry") }
        #expect((before + 7_000_000_000...before + 9_000_000_000).contains(expiry))
    }

    @Test(
        "A while-connected value is removed when its poster disconnects, and other values remain",
        arguments: BusKind.available)
    func presence(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let reader = try Client(on: bus)
        var poster: Client? = try Client(on: bus)
        try post("Here", n: 1, whileConnected: true, from: #require(poster))
        try post("Stays", n: 2, from: #require(poster))
        #expect(try reader.call(Get(name: "")).map(\.name) == ["Here", "Stays"])
        poster = nil
        try eventually("it goes: \(service.transcript)") { try reader.call(Get(name: "")).map(\.name) == ["Stays"] }
    }

    @Test(
        "Values survive a SIGKILL of the service, except while-connected values of posters that left meanwhile",
        arguments: BusKind.available)
    func killed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (poster, reader) = (try Client(on: bus), try Client(on: bus))
        var leaver: Client? = try Client(on: bus)
        for n in 1...50 { try post("State", "\(n)", n: Int64(n), from: poster) }
        try post("Here", whileConnected: true, from: poster)
        try post("Gone", whileConnected: true, from: #require(leaver))
        try post("Old", expiresAfter: 1, from: poster)
        try reader.call(RemoveRetained(name: "State", object: "50"))
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        leaver = nil
        let second = try ServiceProcess(on: bus)
        try eventually("who left is noticed: \(second.transcript)") {
            try reader.call(Get(name: "Gone")).isEmpty && reader.call(Get(name: "Old")).isEmpty
        }
        let late = try Client(on: bus)
        _ = try observe("", from: late)
        try late.run("all: \(second.transcript)") { late.signals.count == 50 }
        #expect(late.signals.map(\.serial) == (1...49).map(UInt64.init) + [51])
        #expect(late.signals.last?.name == "Here")
    }

    @Test("A suspended client gets the values on its channel when it is resumed", arguments: BusKind.available)
    func suspendedOnChannel(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let poster = try Client(on: bus)
        for n in 1...300 { try post("State", "\(n)", n: Int64(n), from: poster) }
        let client = try ChannelClient(on: bus)
        try client.client.call(SetSuspended(true))
        _ = try observe("State", from: client.client)
        try post("State", "7", n: 301, from: poster)
        try client.run("nothing") { true }
        #expect(client.notifications.isEmpty)
        try client.client.call(SetSuspended(false))
        try client.run("all: \(service.transcript)") { client.notifications.count == 300 }
        #expect(client.numbers == (1...300).filter { $0 != 7 }.map(Int64.init) + [301])
    }

    @Test("A retained post beyond a limit is refused by the name of the limit and changes no value")
    func limits() throws {
        let bus = try PrivateBus()
        let directory = try #require(bus.environment["XDG_CONFIG_HOME"]) + "/carillon"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        try "[Limits]\nretained-per-client=2\n".write(
            toFile: directory + "/carillon.conf", atomically: true, encoding: .utf8)
        let service = try ServiceProcess(on: bus)
        let (poster, other) = (try Client(on: bus), try Client(on: bus))
        for object in ["1", "2"] { try post("A", object, from: poster) }
        let error = #expect(throws: BusError.self) { try post("A", "3", from: poster) }
        #expect(error?.centerError == .limitExceeded && error?.message.contains("retained-per-client = 2") == true)
        try post("A", "2", n: 7, from: poster)
        try post("A", "3", from: other)
        #expect(try other.call(Get(name: "A")).map(\.object) == ["1", "2", "3"])
        #expect(service.isRunning)
    }
}
