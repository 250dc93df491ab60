// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The status of the bridge, for `carillon bridge status` and the D-Bus methods.
extension BridgeInstance {
    /// The present state and the counts of a ``BridgeInstance``. ``Bridge`` adds the state of the configuration files.
    var status: BridgeStatus {
        var status = BridgeStatus()
        status.version = Wire.softwareVersion
        status.state = broker.state.name
        status.reason = reason
        status.broker = configuration.brokerText
        status.usesTLS = configuration.tls != nil
        status.realm = configuration.realm
        (status.host, status.user) = (configuration.origin.host, configuration.origin.user)
        status.exports = configuration.exports.map(\.description)
        status.imports = configuration.imports.map(\.description)
        status.subscriptions = UInt32(importer.filters.count)
        status.queued = UInt32(exporter.queuedCount)
        status.queuedBytes = UInt64(exporter.queuedBytes)
        status.inFlight = UInt32(exporter.inFlightCount)
        status.exported = exporter.exported
        status.imported = posts.imported
        status.lostOutwards = losses.outwardsCount
        status.lostInwards = losses.inwardsCount
        // Both the checks and the service refuse messages, and both find repeated ones.
        status.refused = importer.totals.refused + posts.refused
        status.repeated = importer.totals.repeated + posts.alreadyPresent
        status.acknowledgement = exporter.acknowledgement.map { UInt64(clamping: $0.microseconds) } ?? 0
        let known = importer.gate.hosts.hosts.sorted { $0.key.text < $1.key.text }
        status.stripped = known.filter(\.value.isStripped).map(\.key.text)
        status.hosts = known.map { origin, host in
            .init(host: origin.host, user: origin.user, isOnline: host.isOnline, software: host.software)
        }
        return status
    }

    /// Whether the broker has accepted the connection.
    var isConnected: Bool { broker.isConnected }

    /// Whether another host is online, by its last presence message.
    func isOnline(_ origin: Origin) -> Bool { importer.gate.hosts[origin]?.isOnline == true }

    /// The reason why there is no connection. With a connection: the reason why some names are not exported, or why the
    /// broker does not grant all requests. Empty for none.
    var reason: String {
        switch broker.state {
        case .waiting(let reason): reason
        case .takenOver: "another bridge has connected with the same realm, host and user"
        case .held: "the session has no notification center"
        case .starting, .connecting, .stopped: ""
        case .connected: center.refusal ?? broker.missingGrant ?? ""
        }
    }
}
