// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// Properties and introspection, which the table gives an object for nothing.
@Suite("Exported objects: properties and introspection", .serialized, .limited)
struct ExporterStandardTests {
    @Test("Get returns a property's value in a variant of its type", arguments: BusKind.available)
    func get(kind: BusKind) throws {
        let bell = try Bell(kind)
        let reply = try bell.properties("Get", ["org.example.Bell", "Pitch"])
        #expect(reply.signature == "v")
        var reader = MessageReader(reply)
        var value = try reader.readContainer(.variant)
        #expect(try value.read(Double.self) == 440)
        // The specification allows an empty interface name.
        #expect(try bell.properties("Get", ["", "Pitch"]).signature == "v")
    }

    @Test("GetAll returns every property", arguments: BusKind.available)
    func getAll(kind: BusKind) throws {
        let bell = try Bell(kind)
        for interface in ["org.example.Bell", ""] {
            #expect(try names(in: bell.properties("GetAll", [interface])) == ["Pitch", "Tags"])
        }
        #expect(try names(in: bell.properties("GetAll", ["org.freedesktop.DBus.Peer"])).isEmpty)
        #expect(try names(in: bell.properties("GetAll", ["org.freedesktop.DBus.Properties"])).isEmpty)
    }

    @Test("Set is refused: every property is read-only", arguments: BusKind.available)
    func set(kind: BusKind) throws {
        let bell = try Bell(kind)
        func set(_ interface: String, _ name: String) throws -> BusError {
            try refusal {
                try bell.properties("Set", [interface, name]) { $0.variant(of: "d") { $0.append(442.0) } }
            }
        }
        #expect(try set("org.example.Bell", "Pitch").name == "org.freedesktop.DBus.Error.PropertyReadOnly")
        #expect(try set("org.example.Bell", "Nonsense").name == "org.freedesktop.DBus.Error.UnknownProperty")
        #expect(try set("org.example.Other", "Pitch").name == "org.freedesktop.DBus.Error.UnknownInterface")
    }

    @Test(
        "Unknown properties, unknown interfaces and wrong arguments have distinct errors", arguments: BusKind.available,
        [
            ("Get", ["org.example.Bell", "Nonsense"], "UnknownProperty"),
            ("Get", ["org.example.Other", "Pitch"], "UnknownInterface"),
            ("Get", ["org.example.Bell"], "InvalidArgs"),
            ("Get", [], "InvalidArgs"),
            ("GetAll", ["org.example.Other"], "UnknownInterface"),
            ("GetAll", ["a", "b"], "InvalidArgs"),
            ("Set", ["org.example.Bell", "Pitch"], "InvalidArgs"),
        ])
    func refused(kind: BusKind, call: (member: String, arguments: [String], error: String)) throws {
        let bell = try Bell(kind)
        let error = try refusal {
            try bell.properties(try #require(MemberName(rawValue: call.member)), call.arguments)
        }
        #expect(error.name.rawValue == "org.freedesktop.DBus.Error.\(call.error)", "\(error)")
    }

    @Test(
        "The introspection document is valid, and matches the table of methods, signals and properties",
        arguments: BusKind.available)
    func introspection(kind: BusKind) throws {
        let bell = try Bell(kind)
        let document = try bell.introspect("/org/example/Bell")
        try checkDocument(document)
        let names = try Set(nodes(document, "//interface/@name"))
        #expect(
            names == [
                "org.example.Bell", "org.freedesktop.DBus.Introspectable", "org.freedesktop.DBus.Peer",
                "org.freedesktop.DBus.Properties",
            ])
        let own = "//interface[@name='org.example.Bell']"
        #expect(try nodes(document, "\(own)/method/@name") == ["Add", "Fail", "Later"])
        #expect(try nodes(document, "\(own)/method[@name='Add']/arg[@direction='in']/@type") == ["i", "i"])
        #expect(try nodes(document, "\(own)/method[@name='Add']/arg[@direction='out']/@type") == ["i"])
        #expect(try nodes(document, "\(own)/signal/@name") == ["Rang"])
        #expect(try nodes(document, "\(own)/signal/arg/@type") == ["s", "a{sv}"])
        #expect(try nodes(document, "\(own)/signal/annotation/@name") == ["org.qtproject.QtDBus.QtTypeName.Out1"])
        #expect(try nodes(document, "\(own)/signal/annotation/@value") == ["QVariantMap"])
        #expect(try nodes(document, "\(own)/property/@name") == ["Pitch", "Tags"])
        #expect(try nodes(document, "\(own)/property/@type") == ["d", "as"])
        #expect(try nodes(document, "\(own)/property/@access") == ["read", "read"])
        #expect(try nodes(document, "\(own)/property/annotation/@value") == ["const", "true"])
    }

    @Test("Introspection of each parent path lists its child, from the root down", arguments: BusKind.available)
    func ancestors(kind: BusKind) throws {
        let bell = try Bell(kind)
        for (path, child) in [("/", "org"), ("/org", "example"), ("/org/example", "Bell")] {
            let document = try bell.introspect(try #require(ObjectPath(rawValue: path)))
            try checkDocument(document)
            #expect(try nodes(document, "/node/node/@name") == [child])
        }
    }

    private func names(in reply: Message) throws -> Set<String> {
        #expect(reply.signature == "a{sv}")
        var names: Set<String> = []
        var reader = MessageReader(reply)
        var entries = try reader.readContainer(.array)
        while !entries.isAtEnd {
            var entry = try entries.readContainer(.dictEntry)
            names.insert(try entry.readString())
        }
        return names
    }

    private func checkDocument(_ document: String) throws {
        let dtd = "/usr/share/xml/dbus-1/introspect.dtd"
        let validity = FileManager.default.fileExists(atPath: dtd) ? ["--dtdvalid", dtd] : []
        let result = try Command.run("xmllint", ["--noout", "--nonet"] + validity + ["-"], input: document)
        #expect(result.exitCode == 0, "\(result)\n\(document)")
    }

    /// The values of the attributes that an XPath expression selects, in the order of the document.
    private func nodes(_ document: String, _ expression: String) throws -> [String] {
        let result = try Command.run("xmllint", ["--nonet", "--xpath", expression, "-"], input: document)
        return result.standardOutput.matches(of: /"([^"]*)"/).map { String($0.1) }
    }
}
