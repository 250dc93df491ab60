// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMQTT
import CarillonMainLoop

/// The resources that a bridge takes from its machine: buses, broker client, configuration, state, wall clock and
/// random numbers. Timers come from its context. A simulation replaces the environment (E7).
package struct BridgeEnvironment {
    /// Opens a connection to the session bus, on which Hello has not been called.
    var connect: (MainContext) throws(BusError) -> Connection
    /// The session bus, as the client of the service uses it.
    var sessionBus: any SessionBus
    var makeBrokerClient: (MQTTClient.Settings, MainContext) throws(MQTTError) -> any BrokerClient
    var readConfiguration: () -> BridgeConfiguration.Reading
    var state: any StateStore
    /// Returns the wall-clock time, in microseconds since 1970 in UTC.
    var time: () -> Int64
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

    /// Returns the environment of the machine itself.
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

    /// Returns an unguessable token for a run or a challenge.
    func makeToken() -> String { String(random(), radix: 36) }
}
