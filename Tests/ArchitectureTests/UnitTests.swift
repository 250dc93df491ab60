// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Testing

@Suite("systemd units of the user manager", .limited)
struct UnitTests {
    /// The settings of a unit's section, in their order.
    private func settings(_ section: String, of unit: String) throws -> [String] {
        let text = try Document("data/\(unit).service.in").text
        let start = try #require(text.firstRange(of: "[\(section)]\n")).upperBound
        let lines = text[start...].split(separator: "\n").prefix { !$0.hasPrefix("[") }
        return lines.filter { !$0.hasPrefix("#") }.map(String.init)
    }

    @Test("The unit of the bridge has the restrictions of the service's unit, except for network access")
    func bounds() throws {
        let first = "NoNewPrivileges=yes"
        func bounds(_ unit: String) throws -> [String] {
            Array(try settings("Service", of: unit).drop { $0 != first })
        }
        let (service, bridge) = (try bounds("carillond"), try bounds("carillon-bridge"))
        #expect(service.count > 10)
        func others(_ settings: [String]) -> [String] {
            settings.filter { !$0.hasPrefix("RestrictAddressFamilies=") }
        }
        #expect(others(bridge) == others(service))
        #expect(bridge.contains("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"))
        #expect(!service.contains { $0.contains("AF_INET") })
    }

    @Test("The unit of the bridge requires a bridge.conf of the user or of the system")
    func conditions() throws {
        let conditions = try settings("Unit", of: "carillon-bridge").filter { $0.hasPrefix("Condition") }
        #expect(
            conditions == [
                "ConditionPathExists=|%E/carillon/bridge.conf",
                "ConditionPathExists=|@xdg_config_dir@/carillon/bridge.conf",
            ])
    }
}
