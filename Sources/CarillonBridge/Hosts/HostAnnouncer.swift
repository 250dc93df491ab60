// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonWire

/// The announcements of the bridge to its session: which hosts of its realm (the group of hosts that exchange
/// notifications) are online, and whether the bridge is connected to the broker. They are retained values that end when
/// the bridge leaves the bus (R1).
final class HostAnnouncer {
    /// The name of the value of each host. Its object is ``Origin/text``.
    static let hostName = "org.carillon.Bridge.Host"
    /// The name of the value with the state of the connection.
    static let connectionName = "org.carillon.Bridge.Connection"

    private let configuration: BridgeConfiguration
    private let center: CenterLink

    init(_ configuration: BridgeConfiguration, center: CenterLink) {
        self.configuration = configuration
        self.center = center
    }

    /// Announces a host whose presence has changed, and logs a host whose messages lack their properties.
    ///
    /// - Parameter before: the presence before; nil for none.
    func announce(_ origin: Origin, _ host: HostTable.Host, before: HostTable.Host?) {
        if host.isStripped, before?.isStripped != true {
            Log.warning(
                "nothing of \(origin.text) is imported: an intermediary between its broker and this one speaks MQTT "
                    + "3.1.1, and removes the properties that reveal losses and duplicates; "
                    + "set bridge_protocol_version mqttv50 in mosquitto.conf")
        }
        if configuration.followsPresence, before?.isOnline != host.isOnline { announce(origin, host) }
    }

    /// Posts the value of a host.
    private func announce(_ origin: Origin, _ host: HostTable.Host) {
        center.announce(
            Self.hostName, about: origin.text,
            ["host": .string(origin.host), "user": .string(origin.user), "online": .boolean(host.isOnline)],
            isValue: true)
    }

    /// Removes the values of all hosts of a table, because the configuration no longer follows their presence.
    func forget(_ table: HostTable) {
        table.hosts.keys.sorted { $0.text < $1.text }.forEach(forget)
    }

    /// Removes the value of a host.
    func forget(_ origin: Origin) {
        center.submit(.call(RemoveRetained(name: Self.hostName, object: origin.text)) { _ in })
    }

    /// Announces the state of the connection.
    ///
    /// - Parameters:
    ///   - broker: the host and port of the broker.
    ///   - reason: the reason why there is no connection; empty for none.
    func announceConnection(_ isConnected: Bool, broker: String, reason: String) {
        center.announce(
            Self.connectionName,
            ["connected": .boolean(isConnected), "broker": .string(broker), "reason": .string(reason)], isValue: true)
    }

    /// Announces all hosts to a service that has appeared and has none of the bridge's values.
    func announceAll(_ table: HostTable) {
        guard configuration.followsPresence else { return }
        for (origin, host) in table.hosts.sorted(by: { $0.key.text < $1.key.text }) { announce(origin, host) }
    }
}
