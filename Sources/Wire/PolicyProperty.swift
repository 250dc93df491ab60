// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The value of the D-Bus property `Policy`: the access rules, as far as its reader may see them (P2, P3).
public struct PolicyProperty: Equatable, Sendable {
    /// Names that are open to all clients; a name that ends in `.*` is a prefix.
    public var openNames: [String]
    /// The configured treatment of calls from connections that left the bus before the service could identify them.
    public var unidentified: String
    /// Whether such a call is now treated as a call from a sandbox, whose access is restricted.
    public var confinesUnidentified: Bool
    /// The names that each application may use: by the application's id, and then by the list (`post`, `observe`, or a
    /// list of a later service).
    public var applications: [String: [String: [String]]]

    public init(
        openNames: [String] = [], unidentified: String = "", confinesUnidentified: Bool = false,
        applications: [String: [String: [String]]] = [:]
    ) {
        self.openNames = openNames
        self.unidentified = unidentified
        self.confinesUnidentified = confinesUnidentified
        self.applications = applications
    }

    /// The keys of the property.
    private enum Key {
        static let openNames = "open-names"
        static let unidentified = "unidentified"
        static let confinesUnidentified = "unidentified-confined"
        static let applications = "applications"
    }

    /// Decodes the property. A key that an older service does not have gets the value for the absence of the rule.
    init(_ entries: [String: PropertyList]) throws(BusError) {
        var rest = WireDictionary(entries)
        openNames = try rest.take(Key.openNames, \.strings, orElse: [])
        unidentified = try rest.take(Key.unidentified, \.string, orElse: "")
        confinesUnidentified = try rest.take(Key.confinesUnidentified, \.boolean, orElse: false)
        applications = [:]
        for (id, value) in try rest.take(Key.applications, \.dictionary, orElse: [:]) {
            var lists = WireDictionary(value.dictionary ?? [:])
            for key in lists.entries.keys { applications[id, default: [:]][key] = try lists.take(key, \.strings) }
        }
    }

    /// The value of the property.
    var entries: [String: PropertyList] {
        func list(_ texts: [String]) -> PropertyList { .array(texts.map(PropertyList.string)) }
        return [
            Key.openNames: list(openNames), Key.unidentified: .string(unidentified),
            Key.confinesUnidentified: .boolean(confinesUnidentified),
            Key.applications: .dictionary(applications.mapValues { .dictionary($0.mapValues(list)) }),
        ]
    }
}
