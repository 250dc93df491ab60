// SPDX-License-Identifier: Apache-2.0
import CarillonCore

@testable import CarillonSimulation

/// A simulated session that a test moves step by step: a bus, a service and the clients that join.
class Stage {
    let world = World(seed: 1)
    let bus: Bus
    let ledger: Ledger
    let host: ServiceHost
    private let streams: Streams
    private var clients: [PlainClient] = []

    /// - Parameters:
    ///   - servingTime: of a call, in microseconds.
    ///   - channelBytes: what a channel holds; nil for a number of the seed's.
    init(
        manner: Bus.Manner = .init(), limits: Limits = .init(), isSupervised: Bool = true, servingTime: Int64 = 0,
        channelBytes: Int? = nil
    ) {
        bus = Bus(world, id: "0f", manner: manner)
        ledger = Ledger(world)
        streams = Streams(world, capacity: channelBytes)
        host = ServiceHost(
            world, bus, Disk(world), ledger, limits: limits, isSupervised: isSupervised, servingTime: servingTime,
            streams: streams)
        ledger.witnesses = { [unowned self] in clients.compactMap(\.witness) }
    }

    deinit {
        for client in clients { client.leave(abruptly: true) }
        host.tearDown()
    }

    func join(_ role: Plan.Role = .init()) -> PlainClient {
        let client = PlainClient(world, bus, ledger, streams, role: role, processID: 101 + UInt32(clients.count))
        clients.append(client)
        return client
    }

    func pass(seconds: Double) { world.run(until: world.now + Int64(seconds * 1_000_000)) }
}
