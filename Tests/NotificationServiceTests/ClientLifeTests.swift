// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Clients that come and go.
@Suite("D8: clients that leave", .serialized, .limited)
struct ClientLifeTests {
    @Test("D8: a killed client is forgotten with its observers", arguments: BusKind.available)
    func killed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Dong")
        let victim = try RunningCommand(
            try Executables.path(of: "carillon"), ["observe", "Ding"], environment: bus.environment)
        _ = try victim.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        #expect(try Set(client.listClients().values) == [UInt32(getpid()), UInt32(victim.pid)])
        #expect(try client.post("Ding") == 1)

        victim.kill()
        try eventually("the killed client is forgotten") {
            try Array(client.listClients().values) == [UInt32(getpid())]
        }
        #expect(try client.post("Ding") == 0)
        #expect(try client.post("Dong") == 1)
        #expect(try service.terminate() == .exited(0))
    }

    @Test(
        "D8: a closed connection is forgotten, and another connection of its process is not",
        arguments: BusKind.available)
    func closed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let stays = try Client(on: bus)
        try stays.addObserver("Ding")
        var leaves: Client? = try Client(on: bus)
        try leaves?.addObserver("Ding")
        #expect(try stays.post("Ding") == 2)
        leaves = nil
        try eventually("the client that left is forgotten") {
            try Array(stays.listClients().keys) == [stays.name]
        }
        #expect(try stays.post("Ding") == 1)
        #expect(service.isRunning)
    }

    @Test(
        "E4: the memory used for a client is returned to the system when the client leaves",
        arguments: BusKind.available)
    func memory(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let stays = try Client(on: bus)
        try stays.addObserver("Other")
        var leaves: Client? = try Client(on: bus)
        try leaves?.addObserver("Ding", behavior: .hold)
        try leaves?.setSuspended(true)
        let object = String(repeating: "x", count: 4000)
        for number in 0..<1000 { #expect(try stays.post("Ding", "\(number)" + object) == 1) }
        let before = try service.residentBytes()
        for number in 1000..<5000 { #expect(try stays.post("Ding", "\(number)" + object) == 1) }
        #expect(try service.residentBytes() > before + 8 << 20)
        try stays.addObserver("Other", "that stands above what goes")
        leaves = nil
        try eventually("it has given the memory back") { try service.residentBytes() < before }
    }

    @Test("D8: a client that posts and observes nothing is never listed", arguments: BusKind.available)
    func posterOnly(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        #expect(try client.post("Ding") == 0)
        #expect(try client.listClients().isEmpty)
        #expect(service.isRunning)
    }

    @Test(
        "D8, E2: a thousand clients that connect, register and disconnect leave no state behind",
        arguments: BusKind.available)
    func thousand(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let stays = try Client(on: bus)
        try stays.addObserver("Ding")
        for _ in 0..<20 {
            // Fifty at a time, so that the test needs no more descriptors than it may have.
            let crowd = try (0..<50).map { _ in try Client(on: bus) }
            for client in crowd { try client.addObserver("Ding") }
            #expect(try crowd[0].post("Ding") >= 51)
        }
        try eventually("all are forgotten") { try Array(stays.listClients().keys) == [stays.name] }
        #expect(try stays.post("Ding") == 1)
        #expect(try service.terminate() == .exited(0))
    }

    @Test(
        "E2: clients that disconnect with calls in flight are forgotten, and the service runs on",
        arguments: BusKind.available)
    func vanishAtOnce(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let stays = try Client(on: bus)
        for index in 0..<100 {
            let client = try Client(on: bus)
            // Sent, and the connection closed, before the service can answer.
            client.connection.send(observerCall("Ding \(index)"))
            client.connection.send(observerCall("Dong \(index)"))
        }
        // Numbers of observers are given out one by one, so this tells when all have been registered.
        try eventually("all calls have arrived") { try stays.addObserver("").rawValue > 200 }
        try eventually("all are forgotten") { try Array(stays.listClients().keys) == [stays.name] }
        #expect(try stays.post("Ding 0") == 1)
        #expect(service.isRunning, "\(service.transcript)")
    }

    private func observerCall(_ name: String) -> Message {
        AddObserver(name: name, object: "").message()
    }
}
