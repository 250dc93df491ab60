// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The machines whose quota of values at the service is exhausted (R1, E4).
///
/// A broker shows all its values again and again. The service is asked for space once, and not for each value:
/// otherwise one machine with too many values would delay the messages of all.
struct FullHosts {
    /// The machines, each with whether the quota is exhausted now, or was so before ``tryAgain()``.
    private var hosts: [String: Bool] = [:]
    /// The hash values of the machines' values that the service has, which may be replaced; nil until the service has
    /// listed its values.
    private var kept: Set<Int>?

    /// The maximum number of machines. For further machines the service is asked for each value.
    static let maxHosts = 4_096

    /// Notes that the service had no space for a value of a machine.
    ///
    /// - Returns: whether it is news, so that the service is to be asked for its values.
    mutating func insert(_ host: String) -> Bool {
        guard hosts[host] != nil || hosts.count < Self.maxHosts else { return false }
        guard hosts.updateValue(true, forKey: host) != true else { return false }
        kept = nil
        return true
    }

    /// Assumes that there may be space again: the next shown value tests it.
    mutating func tryAgain() { hosts = hosts.filter(\.value).mapValues { _ in false } }

    /// Whether the service certainly has no space for a value that the broker shows.
    func hasNoRoom(for message: InwardMessage) -> Bool {
        guard hosts[message.origin.host] == true, let kept else { return false }
        return !kept.contains(message.value.hashValue)
    }

    /// Notes that the service has accepted a value.
    mutating func keeps(_ message: InwardMessage) {
        if hosts[message.origin.host] != nil { kept?.insert(message.value.hashValue) }
    }

    /// Processes the service's list of its values.
    mutating func found(_ values: some Sequence<FollowValues.Listed>) {
        guard !hosts.isEmpty else { return kept = nil }
        var found: Set<Int> = []
        for value in values {
            guard let host = value.host, hosts[host] != nil, let origin = Origin(host: host, user: value.user ?? "")
            else {
                continue
            }
            found.insert(InwardMessage.HostValue(origin: origin, kind: ValueKind(value.name, value.object)).hashValue)
        }
        kept = found
    }
}
