// SPDX-License-Identifier: Apache-2.0
import CarillonWire

/// The machines for which the notification service accepts no further retained values, because their quota is exhausted
/// (R1, E4). ``Importer`` uses it.
///
/// The broker shows all retained values repeatedly. A value that the service can't accept is then discarded here.
/// Otherwise one machine with too many values would delay the messages of all, with a refused post for each value.
struct FullHosts {
    /// The machines. True: the quota is exhausted. False: it was exhausted before ``tryAgain()``, and has not been
    /// tested since.
    private var hosts: [String: Bool] = [:]
    /// The hash values of the values of these machines that the service has: a message that replaces one of them needs
    /// no quota. Nil until the service has listed its values.
    private var kept: Set<Int>?

    /// The maximum number of remembered machines. The values of further machines are all posted.
    static let maxHosts = 4_096

    /// Notes that the service had no space for a value of a machine.
    ///
    /// - Returns: whether this is new, so that the service has to list its values.
    mutating func insert(_ host: String) -> Bool {
        guard hosts[host] != nil || hosts.count < Self.maxHosts else { return false }
        guard hosts.updateValue(true, forKey: host) != true else { return false }
        kept = nil
        return true
    }

    /// Assumes that the quotas may have space again: the next value of each machine is posted, which tests it.
    mutating func tryAgain() { hosts = hosts.filter(\.value).mapValues { _ in false } }

    /// Whether the service certainly has no space for a value.
    func hasNoSpace(for message: InwardMessage) -> Bool {
        guard hosts[message.origin.host] == true, let kept else { return false }
        return !kept.contains(message.value.hashValue)
    }

    /// Notes that the service has accepted a value.
    mutating func keeps(_ message: InwardMessage) {
        if hosts[message.origin.host] != nil { kept?.insert(message.value.hashValue) }
    }

    /// Processes the service's list of all its values.
    mutating func found(_ values: some Sequence<FollowValues.Listed>) {
        guard !hosts.isEmpty else { return kept = nil }
        var found: Set<Int> = []
        for value in values {
            guard let host = value.host, hosts[host] != nil, let origin = Origin(host: host, user: value.user ?? "")
            else {
                continue
            }
            found.insert(InwardMessage.HostValueKey(origin: origin, kind: ValueKey(value.name, value.object)).hashValue)
        }
        kept = found
    }
}
