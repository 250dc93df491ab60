// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// What the bus does to the service (E5): it closes its connections, refuses signals and match rules.
@Suite("E5: actions of the bus against the service", .serialized, .limited)
struct BusTroubleTests {
    /// A service that reaches its bus through a relay.
    private struct Stage {
        let bus: PrivateBus
        let relay: BusRelay
        let service: ServiceProcess
        let client: Client

        init(_ kind: BusKind) throws {
            bus = try PrivateBus(kind)
            relay = try BusRelay(to: bus)
            service = try ServiceProcess(
                on: bus, environment: ["DBUS_SESSION_BUS_ADDRESS": relay.address], waitUntilReady: false)
            client = try Client(on: bus)
            try waitForService()
        }

        func waitForService() throws {
            try eventually("the service answers: \(service.transcript)") {
                (try? client.listClients()) != nil
            }
        }

        func waitForReconnection(_ times: Int = 1, within patience: Patience = .event) throws {
            try eventually("the service is back: \(service.transcript)", within: patience) {
                service.log.components(separatedBy: "reconnected to the bus").count == times + 1
            }
        }
    }

    @Test(
        "A4, E4: calls to the service's control connection are answered, and counted like all others",
        arguments: BusKind.available)
    func strayCalls(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        let other = try #require(try client.otherConnections(of: service.pid).first)
        func call(_ interface: InterfaceName, _ member: MemberName) -> Message {
            .methodCall(to: other, path: "/", interface: interface, member: member)
        }
        _ = try client.send(call("org.freedesktop.DBus.Peer", "Ping"))
        #expect(throws: BusError.self) {
            _ = try client.send(call("org.freedesktop.DBus.Introspectable", "Introspect"))
        }
        // Nobody runs the loop of this one, so it reads nothing.
        let deaf = try Client(on: bus)
        for _ in 0..<1000 {
            deaf.connection.send(call("org.freedesktop.DBus.Introspectable", "Introspect"))
            deaf.connection.send(call("org.freedesktop.DBus.Peer", "Ping"))
        }
        try eventually("it is known not to read") {
            try client.call(ListClients()).contains { $0.name.rawValue == deaf.name && $0.flow != "open" }
        }
        #expect(service.isRunning)
    }

    @Test(
        "E5: registrations and held notifications survive disconnections of the service by the bus",
        arguments: BusKind.available)
    func cut(kind: BusKind) throws {
        let stage = try Stage(kind)
        let client = stage.client
        let id = try client.addObserver("Ding", behavior: .hold)
        try client.setSuspended(true)
        for number in 1...5 { #expect(try client.post("Ding", number: Int64(number)) == 1) }
        for time in 1...3 {
            stage.relay.cut()
            try stage.waitForReconnection(time)
        }
        #expect(stage.service.isRunning)
        #expect(try client.listClients().count == 1)
        #expect(try client.post("Ding", number: 6) == 1)
        #expect(try client.addObserver("Dong") > id, "no number is given twice")
        try client.setSuspended(false)
        try client.run("what was held") { client.numbers.count == 6 }
        #expect(client.numbers == Array(1...6))
        #expect(client.signals.map(\.sequence) == Array(1...6))
        #expect(Set(client.signals.map(\.serial)).count == 6)
    }

    @Test(
        "E5, F1: if the bus disconnects during a PostMany, either all of its posts are made once, or none",
        arguments: BusKind.available)
    func cutAmongMany(kind: BusKind) throws {
        let stage = try Stage(kind)
        let client = stage.client
        try client.addObserver("Ding", behavior: .hold)
        try client.setSuspended(true)
        let (calls, each) = (16, 500)
        let (poster, watcher) = (try Client(on: stage.bus), try Client(on: stage.bus))
        try watcher.addObserver("Ding")
        for call in 0..<calls {
            let posts = try (0..<each).map { number in
                try PostCall(name: "Ding", userInfo: ["number": .int64(Int64(call * each + number))])
            }
            poster.connection.send(PostMany(posts).message(wantsAnswer: false))
        }
        func posted() throws -> Int {
            Int(try client.call(ListClients()).first { $0.name.rawValue == client.name }?.queued ?? 0)
        }
        // Whatever this process calls now waits behind its posts.
        try watcher.run("some of them are posted") { !watcher.signals.isEmpty }
        stage.relay.cut()
        // One that goes on counting is never back.
        try stage.waitForReconnection(within: .start)
        #expect(stage.service.isRunning)
        let last = try posted()
        #expect(last > 0 && last % each == 0, "what was begun is ended")
        try client.setSuspended(false)
        try client.run("what was held") { client.numbers.count >= last }
        #expect(client.numbers == Array(0..<Int64(last)))
        #expect(client.signals.map(\.sequence) == Array(1...UInt64(last)))
    }

    @Test(
        "E5: a service without state on disk keeps its observers when the bus disconnects it",
        arguments: BusKind.available)
    func cutWithoutDisk(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let relay = try BusRelay(to: bus)
        let service = try ServiceProcess(
            on: bus,
            environment: ["DBUS_SESSION_BUS_ADDRESS": relay.address, "XDG_RUNTIME_DIR": "/nonexistent/directory"],
            waitUntilReady: false)
        let client = try Client(on: bus)
        try eventually("the service answers") { (try? client.listClients()) != nil }
        try client.addObserver("Ding")
        relay.cut()
        try eventually("it is back: \(service.transcript)") { service.log.contains("reconnected to the bus") }
        #expect(try client.post("Ding") == 1)
    }

    @Test("E5, D8: a client that left while the service was disconnected is forgotten", arguments: BusKind.available)
    func leftMeanwhile(kind: BusKind) throws {
        let stage = try Stage(kind)
        try stage.client.addObserver("Ding")
        var leaves: Client? = try Client(on: stage.bus)
        try leaves?.addObserver("Ding")
        stage.relay.cut(refusing: true)
        try eventually("the service noticed") { stage.service.log.contains("connecting again") }
        leaves = nil
        stage.relay.cut()
        try stage.waitForReconnection()
        try eventually("it is forgotten") { try Array(stage.client.listClients().keys) == [stage.client.name] }
        #expect(try stage.client.post("Ding") == 1)
    }

    @Test(
        "E5: after a disconnection, Dropped reports the possible losses, and no more than these are missing",
        arguments: BusKind.available)
    func onTheWay(kind: BusKind) throws {
        let stage = try Stage(kind)
        let client = stage.client
        try client.addObserver("Ding")
        var drops: [DroppedSignal] = []
        let onMessage = client.connection.onMessage
        client.connection.onMessage = { message in
            if let signal = try? DroppedSignal(message) { drops.append(signal) }
            return onMessage?(message) ?? false
        }
        let poster = try Client(on: stage.bus)
        for _ in 1...10 { try poster.post("Ding") }
        stage.relay.cut()
        try stage.waitForReconnection()
        try client.run("the announcement") { !drops.isEmpty }
        #expect(drops.map(\.reason) == ["bus-disconnected"])
        #expect(drops[0].count <= 10)
        try poster.post("Ding")
        try client.run("the next") { client.signals.last?.sequence == 11 }
        let missing = 11 - UInt64(client.signals.count)
        #expect(missing <= drops[0].count)
    }

    @Test(
        "E3, E5: a service that loses its name ends with exit status 3, and the next service has its state",
        arguments: BusKind.available)
    func nameLost(kind: BusKind) throws {
        let stage = try Stage(kind)
        let client = stage.client
        try client.addObserver("Ding", behavior: .hold)
        try client.setSuspended(true)
        for number in 1...5 { #expect(try client.post("Ding", number: Int64(number)) == 1) }
        // A name is taken away by releasing it, which only its owner's connection can do.
        try stage.relay.inject(Self.busCall("ReleaseName", ServiceProcess.busName))
        #expect(try stage.service.waitForExit() == .exited(3), "\(stage.service.transcript)")
        #expect(stage.service.log.contains("took org.carillon.NotificationCenter1 away"))
        let next = try ServiceProcess(on: stage.bus)
        #expect(try client.post("Ding", number: 6) == 1, "\(next.transcript)")
        try client.setSuspended(false)
        try client.run("what was held") { client.numbers.count == 6 }
        #expect(client.numbers == Array(1...6))
        #expect(client.lost == 0)
    }

    /// A call of the bus's method with one text, as it goes over the wire.
    private static func busCall(_ member: String, _ text: String) -> [UInt8] {
        var bytes: [UInt8] = []
        func append(_ number: UInt32) { withUnsafeBytes(of: number.littleEndian) { bytes += $0 } }
        func append(_ text: String) {
            append(UInt32(text.utf8.count))
            bytes += text.utf8 + [0]
        }
        func align(to alignment: Int) { while bytes.count % alignment != 0 { bytes.append(0) } }
        for (code, type, value) in [
            (1, "o", "/org/freedesktop/DBus"), (2, "s", "org.freedesktop.DBus"), (3, "s", member),
            (6, "s", "org.freedesktop.DBus"),
        ] {
            align(to: 8)
            bytes += [UInt8(code), 1] + type.utf8 + [0]
            append(value)
        }
        align(to: 8)
        bytes += [8, 1] + "g".utf8 + [0, 1] + "s".utf8 + [0]
        let fields = bytes
        // Little endian, a method call, no flags, version 1; the size of the body; a serial that libdbus is far from.
        bytes = Array("l".utf8) + [1, 0, 1]
        append(UInt32(4 + text.utf8.count + 1))
        append(1_000_000)
        append(UInt32(fields.count))
        bytes += fields
        align(to: 8)
        append(text)
        return bytes
    }

    @Test("E5: a service whose bus no longer listens exits with 4 and removes its state", arguments: BusKind.available)
    func gone(kind: BusKind) throws {
        let stage = try Stage(kind)
        try stage.client.addObserver("Ding")
        let directory = try #require(stage.bus.environment["XDG_RUNTIME_DIR"]) + "/carillon"
        #expect(try !FileManager.default.contentsOfDirectory(atPath: directory).isEmpty)
        stage.relay.close()
        #expect(try stage.service.waitForExit() == .exited(4), "\(stage.service.transcript)")
        #expect(stage.service.log.contains("is gone"))
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory).filter { $0.contains(".log") } == [])
    }

    @Test(
        "E5: a service that the bus no longer accepts ends with exit status 4, and its state is kept",
        arguments: BusKind.available)
    func refused(kind: BusKind) throws {
        let stage = try Stage(kind)
        try stage.client.addObserver("Ding")
        stage.relay.cut(refusing: true)
        #expect(try stage.service.waitForExit() == .exited(4), "\(stage.service.transcript)")
        #expect(stage.service.log.contains("the state is kept"))
        let second = try ServiceProcess(on: stage.bus)
        #expect(try stage.client.post("Ding") == 1)
        #expect(second.isRunning)
    }

    // MARK: Room

    /// What a client that reads late got: sequence numbers, and losses with their reasons.
    private final class Reader {
        let client: Client
        private(set) var sequences: [UInt64] = []
        private(set) var drops: [DroppedSignal] = []

        init(on bus: PrivateBus) throws {
            client = try Client(on: bus)
            client.connection.onMessage = { [unowned self] message in
                if let signal = try? NotificationSignal(message) {
                    sequences.append(signal.sequence)
                } else if let signal = try? DroppedSignal(message) {
                    drops.append(signal)
                } else {
                    return false
                }
                return true
            }
        }
    }

    @Test(
        "S4, E5: notifications that the bus has no space for are reported, and the client receives later ones",
        arguments: BusKind.available)
    func noRoom(kind: BusKind) throws {
        let bus =
            switch kind {
            case .dbusDaemon: try PrivateBus(kind, limits: ["max_outgoing_bytes": 50_000])
            case .dbusBroker: try PrivateBus(kind, arguments: ["--max-bytes", "1500000"])
            }
        let service = try ServiceProcess(on: bus)
        let reader = try Reader(on: bus)
        try reader.client.addObserver("Ding")
        // Answers the first probe.
        for _ in 1...3 { _ = try reader.client.listClients() }
        let poster = try Client(on: bus)
        // The reader does not read; each is more than a socket takes.
        let text = String(repeating: "x", count: 300_000)
        var posted: UInt64 = 0
        for _ in 0..<4 {
            do {
                _ = try poster.call(try PostCall(name: "Ding", userInfo: ["text": .string(text)]))
                posted += 1
            } catch let error as BusError {
                // The bus has no room for the post itself.
                #expect(error.name == BusError.limitsExceededName, "\(error)")
            }
        }
        try #require(posted > 0)
        var total = posted
        // From here on it reads. What is small may still find no room behind what is large, and be lost as well.
        try eventually("something newer: \(service.transcript)", every: .milliseconds(50)) {
            _ = try poster.post("Ding")
            total += 1
            try reader.client.run("it, or its loss: \(service.transcript)") {
                UInt64(reader.sequences.count) + reader.drops.reduce(0) { $0 + $1.count } >= total
            }
            return (reader.sequences.last ?? 0) > posted
        }
        let last = try #require(reader.sequences.last)
        let dropped = reader.drops.reduce(0) { $0 + $1.count }
        #expect(reader.sequences == reader.sequences.sorted() && Set(reader.sequences).count == reader.sequences.count)
        #expect(last - UInt64(reader.sequences.count) <= dropped, "\(reader.sequences) \(reader.drops)")
        #expect(reader.drops.allSatisfy { $0.reason == "bus-limits" })
        if kind == .dbusDaemon { #expect(dropped > 0) }
        #expect(service.isRunning, "\(service.transcript)")
    }

    @Test(
        "E5, D8: clients that leave are forgotten even if the bus allows few match rules",
        arguments: [0, 1, 10])
    func fewMatchRules(limit: Int) throws {
        let bus = try PrivateBus(.dbusDaemon, limits: ["max_match_rules_per_connection": limit])
        // To wait for the name takes a rule.
        let service = try ServiceProcess(on: bus, waitUntilReady: false)
        let stays = try Client(on: bus)
        try eventually("the service answers: \(service.transcript)") { (try? stays.listClients()) != nil }
        try stays.addObserver("Ding")
        var crowd = try (0..<30).map { _ in try Client(on: bus) }
        for client in crowd { try client.addObserver("Ding") }
        #expect(try stays.listClients().count == 31)
        crowd = []
        try eventually("all are forgotten: \(service.transcript)") {
            try Array(stays.listClients().keys) == [stays.name]
        }
        try eventually("the log says so: \(service.transcript)") {
            service.log.contains("the bus allows no more match rules")
        }
    }

    @Test("E5: notifications that are too large for the bus cost few connections and are reported as lost")
    func tooLargeForTheBus() throws {
        let bus = try PrivateBus(.dbusDaemon, limits: ["max_message_size": 65_536])
        let service = try ServiceProcess(on: bus)
        let reader = try Reader(on: bus)
        // Their numbers make the notification larger than the post.
        for _ in 0..<200 { try reader.client.addObserver("Ding", behavior: .drop) }
        let poster = try Client(on: bus)
        let text = String(repeating: "x", count: 65_536 - 700)
        for _ in 1...5 {
            _ = try? poster.call(try PostCall(name: "Ding", userInfo: ["text": .string(text)]))
            try eventually("the service answers") { (try? poster.listClients()) != nil }
        }
        #expect(service.isRunning, "\(service.transcript)")
        // It serves while it tests the size.
        try eventually("what the bus carries is known: \(service.transcript)") {
            service.log.contains("the bus rejects notifications of")
        }
        #expect(service.log.components(separatedBy: "connecting again").count <= 3, "\(service.transcript)")
        #expect(try poster.post("Ding") == 1)
        try reader.client.run("the small one") { !reader.sequences.isEmpty }
        let last = try #require(reader.sequences.last)
        #expect(reader.drops.reduce(0) { $0 + $1.count } + UInt64(reader.sequences.count) >= last)
        #expect(reader.drops.contains { $0.reason == "bus-limits" })
    }
}
