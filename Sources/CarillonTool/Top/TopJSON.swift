// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonWire

/// The output of `carillon top --json`: each sample as one JSON object with exact numbers, for programs.
enum TopJSON {
    /// Returns the JSON object of a sample.
    ///
    /// - Parameter bus: the address of the bus.
    static func text(of sample: TopSample, rates: TopRates, bus: String) -> String {
        let properties = sample.properties
        var service = [("version", JSON.quoted(properties.version))]
        if let process = sample.process {
            service += [
                ("pid", "\(process.id)"), ("uptime", number(process.age)), ("memory", "\(process.memory)"),
            ]
        }
        var members = [
            ("time", "\(sample.time)"), ("bus", JSON.quoted(bus)), ("service", PropertyListJSON.object(service)),
            (
                "activity",
                PropertyListJSON.object([
                    ("source", JSON.quoted(properties.activitySource)),
                    ("state", JSON.quoted(properties.activityState)),
                    ("reason", JSON.quoted(properties.activityReason)),
                ])
            ),
            ("posted-per-second", number(rates.perSecond(.posted))),
            ("delivered-per-second", number(rates.perSecond(.delivered))),
            ("dropped-per-second", number(rates.perSecond(.dropped))),
            ("statistics", object(properties.statistics.entries)), ("limits", object(properties.limits.entries)),
            ("clients", array(sample.clients.map { text(of: $0, rates) })),
        ]
        switch sample.values {
        case .success(let values)?: members.append(("values", array(values.map(text))))
        case .failure(let error)?: members.append(("values-error", JSON.quoted(error.reason)))
        case nil: break
        }
        switch sample.bridge {
        case .success(let bridge)?: members.append(("bridge", text(of: bridge)))
        case .failure(let error)?: members.append(("bridge-error", JSON.quoted(error.message)))
        case nil: break
        }
        return PropertyListJSON.object(members)
    }

    private static func text(of bridge: BridgeSample) -> String {
        PropertyListJSON.object(
            bridge.status.entries.sorted { $0.key < $1.key }.map { ($0.key, PropertyListJSON.text($0.value)) } + [
                ("exported-per-second", number(bridge.outPerSecond)),
                ("imported-per-second", number(bridge.inPerSecond)),
            ])
    }

    private static func text(of client: ListedClient, _ rates: TopRates) -> String {
        PropertyListJSON.object(
            client.entries.map { ($0.key, PropertyListJSON.text($0.value)) } + [
                ("posted-per-second", number(rates.perSecond(\.posted, of: client))),
                ("delivered-per-second", number(rates.perSecond(\.delivered, of: client))),
            ])
    }

    private static func text(of value: RetainedValueInfo) -> String {
        PropertyListJSON.object([
            ("name", JSON.quoted(value.name)), ("object", JSON.quoted(value.object)), ("size", "\(value.byteCount)"),
            ("details", PropertyListJSON.text(.dictionary(value.details))),
        ])
    }

    private static func object(_ entries: [(key: String, value: UInt64)]) -> String {
        PropertyListJSON.object(entries.map { ($0.key, "\($0.value)") })
    }

    private static func array(_ texts: [String]) -> String { "[" + texts.joined(separator: ", ") + "]" }

    /// Returns null for an unknown number, as before the second sample.
    private static func number(_ number: Double?) -> String {
        number.map { PropertyListJSON.text(.double($0)) } ?? "null"
    }
}
