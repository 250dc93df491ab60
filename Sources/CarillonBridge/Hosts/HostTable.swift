// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMQTT

/// The hosts of the realm, as they say of themselves at the broker.
struct HostTable {
    struct Host: Equatable {
        var isOnline: Bool
        /// Empty for one that does not say, as a plain MQTT client.
        var software = ""
        /// Whether what came of it had lost its properties on the way: a bridge between brokers that speaks MQTT 3.1.1.
        var isStripped = false
        /// The run of its bridge; nil for one that does not say.
        var run: String?
        /// Another one each time when the broker has lacked values of the host, and has them again; nil while it may lack some,
        /// and for a host that does not say.
        var mark: String?
    }

    /// Hosts that are remembered.
    static let most = 4096

    private(set) var hosts: [Origin: Host] = [:]
    private var machines = MachineCounts(max: most)
    /// Hosts that are online by what the broker has said on an earlier connection only.
    private(set) var unconfirmed: Set<Origin> = []

    /// Takes what was published on ``BridgeTopic/Subject/online``.
    ///
    /// - Returns: the host when something is new about it; nil when not, and for what can't be read.
    mutating func take(_ publication: Publication, of origin: Origin) -> Host? {
        unconfirmed.remove(origin)
        guard let host = Self.host(in: publication) else {
            // Its owner took it back.
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

    /// There is a new connection, on which the broker shows all hosts that it knows.
    mutating func beginConfirming() { unconfirmed = Set(hosts.filter(\.value.isOnline).keys) }

    /// The word of an earlier time is taken for them after all, as the broker can't be asked.
    mutating func confirm(_ hosts: some Sequence<Origin>) { unconfirmed.subtract(hosts) }

    /// The broker has had time to show all, and the hosts to connect to it. One that it has forgotten is offline.
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
        // A plain client may say it in JSON or in a word, as is common.
        switch String(decoding: publication.payload.prefix(16), as: UTF8.self).lowercased() {
        case "online", "true", "1", "on": return Host(isOnline: true)
        case "offline", "false", "0", "off": return Host(isOnline: false)
        default: break
        }
        guard let json = try? JSON(publication.payload), case .object = json,
            case .boolean(let isOnline)? = json["online"]
        else { return nil }
        // A bridge says in the payload that it is one, and in a property. The payload comes through everything.
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
