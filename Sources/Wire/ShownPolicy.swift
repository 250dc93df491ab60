// SPDX-License-Identifier: Apache-2.0
import CarillonDBus

/// The property `Policy`: who may do what, as far as it concerns the one who reads it (P2, P3).
public struct ShownPolicy: Equatable, Sendable {
    /// Names that are open to all; one that ends in `.*` is for all that begin with what is before the star.
    public var openNames: [String]
    /// The configuration's word about calls of connections that left before anybody knew whose they were.
    public var unidentified: String
    /// Whether such a call is judged as one of a sandbox now.
    public var confinesUnidentified: Bool
    /// The lists of applications, by their ids: `post` and `observe`, or what a later service has.
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

    /// Without a key it has the value of a service that has no such rule.
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

    /// The property's value.
    var entries: [String: PropertyList] {
        func list(_ texts: [String]) -> PropertyList { .array(texts.map(PropertyList.string)) }
        return [
            Key.openNames: list(openNames), Key.unidentified: .string(unidentified),
            Key.confinesUnidentified: .boolean(confinesUnidentified),
            Key.applications: .dictionary(applications.mapValues { .dictionary($0.mapValues(list)) }),
        ]
    }
}
