// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMQTT
import CarillonMainLoop

/// The resources that a bridge takes from its machine: buses, broker client, configuration, saved state, wall clock and
/// random numbers. ``Bridge`` gets timers from its context. A simulation replaces both (E7).
package struct BridgeEnvironment {
    /// Opens a connection to the session bus for the bridge's own name. `Hello` has not been called on it.
    var connect: (MainContext) throws(BusError) -> Connection
    /// The session bus for the client of the notification service, which connects by itself.
    var sessionBus: any SessionBus
    /// Creates a client of the broker, which is not connected.
    var makeBrokerClient: (MQTTClient.Settings, MainContext) throws(MQTTError) -> any BrokerClient
    /// Reads the configuration files.
    var readConfiguration: () -> BridgeConfiguration.Reading
    /// The storage of the state between two processes.
    var state: any StateStore
    /// Returns the wall-clock time, in microseconds since 1970 in UTC.
    var time: () -> Int64
    /// Returns 64 unguessable random bits.
    var random: () -> UInt64

    package init(
        connect: @escaping (MainContext) throws(BusError) -> Connection, sessionBus: any SessionBus,
        makeBrokerClient: @escaping (MQTTClient.Settings, MainContext) throws(MQTTError) -> any BrokerClient,
        readConfiguration: @escaping () -> BridgeConfiguration.Reading, state: any StateStore,
        time: @escaping () -> Int64, random: @escaping () -> UInt64
    ) {
        self.connect = connect
        self.sessionBus = sessionBus
        self.makeBrokerClient = makeBrokerClient
        self.readConfiguration = readConfiguration
        self.state = state
        self.time = time
        self.random = random
    }

    /// Returns the resources of this machine.
    ///
    /// - Parameter address: the address of the session bus.
    static func own(address: String, context: MainContext) -> BridgeEnvironment {
        BridgeEnvironment(
            connect: { context throws(BusError) in try Connection(address: address, context: context) },
            sessionBus: LoopBus(address: { address }, context: context),
            makeBrokerClient: { settings, context throws(MQTTError) in try MQTTClient(settings, context: context) },
            readConfiguration: { .ofMachine() }, state: StateFile(), time: WallClock.microseconds,
            random: { .random(in: .min ... .max) })
    }

    /// Returns an unguessable token, which identifies a run of the bridge, a challenge or a test message.
    func makeToken() -> String { String(random(), radix: 36) }
}
