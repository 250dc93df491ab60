// SPDX-License-Identifier: Apache-2.0
import NotificationWire

/// The machines of whose values the service has as many as it has room for (R1, E4).
///
/// A broker shows all that it has of them again and again. The service is asked for room once, and not for each: otherwise one
/// machine with more values than anybody has room for would hold up the messages of all.
struct FullHosts {
    /// With whether it is so at the moment, or was so before ``tryAgain()``.
    private var hosts: [String: Bool] = [:]
    /// Whether there are so many that they are not told apart.
    private var isEvery = false
    /// The hash values of the topics of their values that the service has: those may be replaced.
    private var kept: Set<Int> = []

    static let maxHosts = 4_096

    /// The service had no room for a value of a machine.
    ///
    /// - Returns: whether it is news.
    mutating func insert(_ host: String) -> Bool {
        guard hosts[host] != nil || hosts.count < Self.maxHosts else {
            defer { isEvery = true }
            return !isEvery
        }
        return hosts.updateValue(true, forKey: host) != true
    }

    /// There may be room again: the next value that is shown tells.
    mutating func tryAgain() { (hosts, isEvery) = (hosts.filter(\.value).mapValues { _ in false }, false) }

    /// Whether the service need not be asked for room for a value that the broker shows.
    func hasNoRoom(for message: InwardMessage) -> Bool {
        (isEvery || hosts[message.origin.host] == true) && !kept.contains(message.publication.topic.hashValue)
    }

    /// The service has told which values it has.
    mutating func found(_ values: some Sequence<FollowValues.Listed>, in realm: String) {
        kept = []
        guard isEvery || !hosts.isEmpty else { return }
        for value in values {
            guard let host = value.host, isEvery || hosts[host] != nil,
                let origin = Origin(host: host, user: value.user ?? "")
            else { continue }
            kept.insert(BridgeTopic(value: value.name, value.object, of: origin).text(in: realm).hashValue)
        }
    }
}
