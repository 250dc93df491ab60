// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMQTT

/// The other hosts of the realm, the group of hosts that exchange notifications, by the presence messages that they
/// publish as retained messages at the broker.
struct HostTable {
    /// The presence of a host.
    struct Host: Equatable {
        /// Whether it is connected to the broker, by its message.
        var isOnline: Bool
        /// The software of the host; empty for a host that does not name it, such as a plain MQTT client.
        var software = ""
        /// Whether an intermediary has removed the user properties of its message: a connection between two brokers
        /// that uses MQTT 3.1.1.
        var isStripped = false
        /// The run of the host's bridge, one process; nil if the message names none.
        var run: String?
        /// The token by which the host announces that the broker has all its values. It changes each time the broker
        /// had lacked some values and has them again. Nil while some may be missing, and for a host without tokens.
        var valuesToken: String?
    }

    /// The maximum number of remembered hosts.
    static let maxHosts = 4096

    /// The known hosts.
    private(set) var hosts: [Origin: Host] = [:]
    /// The quota of each machine in `hosts`.
    private var machines = MachineCounts(max: maxHosts)
    /// The hosts that are online only by a presence message of an earlier connection.
    private(set) var unconfirmed: Set<Origin> = []

    /// Processes a presence message, on ``BridgeTopic/Subject/online``.
    ///
    /// - Returns: the new presence if it has changed; nil otherwise, for an unreadable message, and for a new host
    ///   beyond the quota of its machine.
    mutating func take(_ publication: Publication, of origin: Origin) -> Host? {
        unconfirmed.remove(origin)
        guard let host = Self.host(in: publication) else {
            // The host has removed its presence.
            guard publication.payload.isEmpty, hosts[origin] != nil else { return nil }
            forget(origin)
            return Host(isOnline: false)
        }
        guard hosts[origin] != host, hosts[origin] != nil || machines.hasSpace(for: origin) else { return nil }
        if hosts.updateValue(host, forKey: origin) == nil { machines.add(origin) }
        return host
    }

    /// Forgets a host.
    mutating func forget(_ origin: Origin) {
        if hosts.removeValue(forKey: origin) != nil { machines.remove(origin) }
        unconfirmed.remove(origin)
    }

    /// Begins a confirmation (``HostConfirmation``): all hosts that are online become unconfirmed.
    mutating func beginConfirming() { unconfirmed = Set(hosts.filter(\.value.isOnline).keys) }

    /// Confirms hosts by their earlier messages, because the broker did not answer.
    mutating func confirm(_ hosts: some Sequence<Origin>) { unconfirmed.subtract(hosts) }

    /// Sets the unconfirmed ones of some hosts offline, because the broker has forgotten them.
    ///
    /// - Returns: the hosts that are offline now.
    mutating func endConfirming(_ forgotten: [Origin]) -> [Origin] {
        defer { unconfirmed.subtract(forgotten) }
        let forgotten = unconfirmed.intersection(forgotten).sorted { $0.text < $1.text }
        for origin in forgotten { hosts[origin]?.isOnline = false }
        return forgotten
    }

    subscript(origin: Origin) -> Host? { hosts[origin] }

    /// Reads a presence message; nil for an unreadable one.
    static func host(in publication: Publication) -> Host? {
        // A plain client may publish a common keyword instead of JSON.
        switch String(decoding: publication.payload.prefix(16), as: UTF8.self).lowercased() {
        case "online", "true", "1", "on": return Host(isOnline: true)
        case "offline", "false", "0", "off": return Host(isOnline: false)
        default: break
        }
        guard let json = try? JSON(publication.payload), case .object = json,
            case .boolean(let isOnline)? = json["online"]
        else { return nil }
        // A bridge identifies itself in the payload and in a user property. Every intermediary keeps the payload, so a
        // missing property was removed.
        let isBridge = json["protocol"]?.integer != nil
        let hasProperty = publication.userProperties.contains {
            $0.name == MessageProperties.Key.carillon.rawValue
        }
        // A longer text than a token may have counts as none. The key `values` holds the token for complete values.
        func token(_ key: String) -> String? {
            json[key]?.text.flatMap { $0.utf8.count > MessageProperties.maxRunBytes ? nil : $0 }
        }
        return Host(
            isOnline: isOnline, software: String((json["software"]?.text ?? "").prefix(100).filter { $0 != "\0" }),
            isStripped: isBridge && !hasProperty,
            run: token("run"), valuesToken: token("values"))
    }
}
