// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Bus activation, which dbus-daemon does by itself (dbus-broker leaves it to systemd).
@Suite("D1: bus activation", .serialized, .limited)
struct ActivationTests {
    @Test("D1: the first AddObserver call starts the service and registers the observer")
    func addObserver() throws {
        let bus = try PrivateBus(activations: [.service()])
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == nil)
        let client = try Client(on: bus)
        let observer = try client.addObserver("Ding")
        let pid = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
        defer { kill(pid, SIGTERM) }

        #expect(try client.post("Ding", "bell") == 1)
        try client.run("the notification") { !client.signals.isEmpty }
        #expect(client.signals.map(\.name) == ["Ding"])
        #expect(client.signals.map(\.observers) == [[observer]])
    }

    @Test("D1: the first Post call starts the service and matches no observer")
    func post() throws {
        let bus = try PrivateBus(activations: [.service()])
        let client = try Client(on: bus)
        #expect(try client.post("Ding") == 0)
        let pid = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
        kill(pid, SIGTERM)
    }

    @Test("D1: the first calls of many clients start one service, and all are answered")
    func many() throws {
        let bus = try PrivateBus(activations: [.service()])
        let clients = try (0..<20).map { _ in try Client(on: bus) }
        for client in clients { #expect(try client.addObserver("Ding").rawValue > 0) }
        let pid = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
        defer { kill(pid, SIGTERM) }
        #expect(try clients[0].post("Ding") == 20)
    }

    @Test("E3: the next call starts a killed service again, with its observers")
    func restarted() throws {
        let bus = try PrivateBus(activations: [.service()])
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        let first = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
        kill(first, SIGKILL)
        try eventually("the bus notices") { try bus.processID(ofOwner: ServiceProcess.busName) == nil }
        // Its observers did not go with it.
        #expect(try client.post("Ding") == 1)
        let second = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
        defer { kill(second, SIGTERM) }
        #expect(second != first)
    }
}
