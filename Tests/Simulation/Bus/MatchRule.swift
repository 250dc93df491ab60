// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// A match rule of a connection, as far as this bus knows them: what must be equal.
struct MatchRule: Hashable {
    private var wanted: [String: String] = [:]

    /// Nil when the text is none that the simulation knows.
    init?(_ text: String) {
        var rest = text[...]
        while !rest.isEmpty {
            guard let equals = rest.firstIndex(of: "="), rest[equals...].dropFirst().first == "'" else { return nil }
            let key = String(rest[..<equals])
            let value = rest[equals...].dropFirst(2)
            guard let end = value.firstIndex(of: "'") else { return nil }
            guard ["type", "sender", "path", "interface", "member", "arg0"].contains(key) else { return nil }
            wanted[key] = String(value[..<end])
            rest = value[end...].dropFirst()
            if rest.first == "," { rest = rest.dropFirst() }
        }
    }

    var firstArgument: String? { wanted["arg0"] }

    /// - Parameters:
    ///   - signal: a signal without a destination.
    ///   - senders: the names of who sent it.
    func matches(_ signal: Message, from senders: [String]) -> Bool {
        for (key, value) in wanted {
            let isEqual =
                switch key {
                case "type": value == "signal"
                case "sender": senders.contains(value)
                case "path": signal.path?.rawValue == value
                case "interface": signal.interface?.rawValue == value
                case "member": signal.member?.rawValue == value
                default: firstArgument(of: signal) == value
                }
            guard isEqual else { return false }
        }
        return true
    }

    private func firstArgument(of signal: Message) -> String? {
        var reader = MessageReader(signal)
        return try? reader.readString()
    }
}
