// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// The signal PropertiesChanged after the configuration was read again.
@Suite("P3: announced changes of properties", .limited)
struct PropertyNewsTests {
    @Test(
        "A change of the configuration announces exactly the changed properties",
        arguments: [[], ["Limits"], ["Policy"], ["Limits", "Policy"]])
    func changed(names: [String]) throws {
        let stage = try ServiceStage()
        stage.settle()
        let before = stage.main.sent.count
        stage.configure { configuration in
            if names.contains("Limits") { configuration.limits[.clients] = 7 }
            if names.contains("Policy") { configuration.policy.openNames = [NamePattern("Ding")!] }
        }
        stage.settle()
        let news = try stage.main.sent[before...].filter { $0.hasMember("PropertiesChanged") }.map { signal in
            var reader = MessageReader(signal)
            #expect(try reader.readString() == Wire.interface.rawValue)
            var changed = try reader.readContainer(.array)
            var found: [String] = []
            while !changed.isAtEnd {
                var entry = try changed.readContainer(.dictEntry)
                found.append(try entry.readString())
            }
            var invalidated = try reader.readContainer(.array)
            while !invalidated.isAtEnd { found.append(try invalidated.readString()) }
            return found.sorted()
        }
        #expect(news == (names.isEmpty ? [] : [names]))
    }
}
