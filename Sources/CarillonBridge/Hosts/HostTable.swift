// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMQTT

/// The hosts of the realm, by the presence that they publish at the broker.
struct HostTable {
    struct Host: Equatable {
        var isOnline: Bool
        /// The software of the host; empty for a host that does not name it, such as a plain MQTT client.
        var software = ""
        /// Whether its message had lost its properties on the way, because a bridge between brokers speaks MQTT 3.1.1.
        var isStripped = false
        /// The run of the host's bridge; nil for a host that does not name one.
        var run: String?
        /// The token by which the host says that the broker has all its values. It changes each time that the broker
        /// has lacked some and has them again. Nil while some may be missing, and for a host without tokens.
        var mark: String?
    }

    /// The maximum number of remembered hosts.
    static let most = 4096

    private(set) var hosts: [Origin: Host] = [:]
    private var machines = MachineCounts(max: most)
    /// The hosts that are online only by a message of an earlier connection.
    private(set) var unconfirmed: Set<Origin> = []

    /// Processes a message on ``BridgeTopic/Subject/online``.
    ///
    /// - Returns: the host if its state has changed; nil otherwise, and for an unreadable message.
    mutating func take(_ publication: Publication, of origin: Origin) -> Host? {
        unconfirmed.remove(origin)
        guard let host = Self.host(in: publication) else {
            // The host has removed its presence.
            guard publication.payload.isEmpty, hosts[origin] != nil else { return nil }
            forget(origin)
            return Host(isOnline: false)
        }
        guard hosts[origin] != host, hosts[origin] != nil || machines.hasRoom(for: origin) else { return nil }
        if hosts.updateValue(host, forKey: origin) == nil { machines.add(origin) }
        return host
    }

    mutating func forget(_ origin: Origin) {
        if hosts.removeValue(forKey: origin) != nil { machines.remove(origin) }
        unconfirmed.remove(origin)
    }

    /// Begins a confirmation at a new connection, on which the broker shows all hosts that it knows.
    mutating func beginConfirming() { unconfirmed = Set(hosts.filter(\.value.isOnline).keys) }

    /// Confirms hosts by their earlier messages, because the broker can't be asked.
    mutating func confirm(_ hosts: some Sequence<Origin>) { unconfirmed.subtract(hosts) }

    /// Ends the confirmation of hosts. The broker has had time to show all hosts, and the hosts to connect to it; a
    /// forgotten host is offline.
    ///
    /// - Returns: the hosts that are offline now.
    mutating func endConfirming(_ forgotten: [Origin]) -> [Origin] {
        defer { unconfirmed.subtract(forgotten) }
        let forgotten = unconfirmed.intersection(forgotten).sorted { $0.text < $1.text }
        for origin in forgotten { hosts[origin]?.isOnline = false }
        return forgotten
    }

    subscript(origin: Origin) -> Host? { hosts[origin] }

    static func host(in publication: Publication) -> Host? {
        // A plain client may publish JSON or a common keyword.
        switch String(decoding: publication.payload.prefix(16), as: UTF8.self).lowercased() {
        case "online", "true", "1", "on": return Host(isOnline: true)
        case "offline", "false", "0", "off": return Host(isOnline: false)
        default: break
        }
        guard let json = try? JSON(publication.payload), case .object = json,
            case .boolean(let isOnline)? = json["online"]
        else { return nil }
        // A bridge identifies itself in the payload and in a property. The payload passes through every intermediary.
        let isBridge = json["protocol"]?.integer != nil
        let hasProperty = publication.userProperties.contains {
            $0.name == MessageProperties.Key.carillon.rawValue
        }
        func token(_ key: String) -> String? {
            json[key]?.text.flatMap { $0.utf8.count > MessageProperties.maxRunBytes ? nil : $0 }
        }
        return Host(
            isOnline: isOnline, software: String((json["software"]?.text ?? "").prefix(100).filter { $0 != "\0" }),
            isStripped: isBridge && !hasProperty,
            run: token("run"), mark: token("values"))
    }
}
