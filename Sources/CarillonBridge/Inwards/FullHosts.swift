// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The machines of whose values the service has as many as it has room for (R1, E4).
///
/// A broker shows all that it has of them again and again. The service is asked for room once, and not for each: otherwise one
/// machine with more values than anybody has room for would hold up the messages of all.
struct FullHosts {
    /// With whether it is so at the moment, or was so before ``tryAgain()``.
    private var hosts: [String: Bool] = [:]
    /// The hash values of their values that the service has, which may be replaced; nil until it has told them.
    private var kept: Set<Int>?

    /// Of more the service is asked for each value.
    static let maxHosts = 4_096

    /// The service had no room for a value of a machine.
    ///
    /// - Returns: whether it is news, so that the service is to be asked which values it has.
    mutating func insert(_ host: String) -> Bool {
        guard hosts[host] != nil || hosts.count < Self.maxHosts else { return false }
        guard hosts.updateValue(true, forKey: host) != true else { return false }
        kept = nil
        return true
    }

    /// There may be room again: the next value that is shown tells.
    mutating func tryAgain() { hosts = hosts.filter(\.value).mapValues { _ in false } }

    /// Whether the service need not be asked for room for a value that the broker shows.
    func hasNoRoom(for message: InwardMessage) -> Bool {
        guard hosts[message.origin.host] == true, let kept else { return false }
        return !kept.contains(message.value.hashValue)
    }

    /// The service has taken a value.
    mutating func keeps(_ message: InwardMessage) {
        if hosts[message.origin.host] != nil { kept?.insert(message.value.hashValue) }
    }

    /// The service has told which values it has.
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
