// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The property `Policy`: the access rules that concern its reader (P2, P3).
public struct ShownPolicy: Equatable, Sendable {
    /// Names that are open to all clients; a name that ends in `.*` is a prefix.
    public var openNames: [String]
    /// The configured rule for calls of connections that left before the service could identify them.
    public var unidentified: String
    /// Whether such a call is now judged as a call from a sandbox.
    public var confinesUnidentified: Bool
    /// The lists of applications, by their ids: `post` and `observe`, and lists of a later service.
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

    private enum Key {
        static let openNames = "open-names"
        static let unidentified = "unidentified"
        static let confinesUnidentified = "unidentified-confined"
        static let applications = "applications"
    }

    /// A missing key gets the value of a service without that rule.
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
