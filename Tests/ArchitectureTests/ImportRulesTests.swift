// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestLimits
import Testing

/// What each target may import; what it does import stands in `docs/architecture.md`.
private enum ImportRules {
    /// One row for every folder of `Sources/`.
    static let table: [String: Set<String>] = [
        "CDBus": [],
        "CGLib": [],
        "CMosquitto": [],
        "CCBOR": [],
        "CMainQueue": [],
        "CXCB": [],
        "CNcurses": [],
        "CSystem": [],
        "Collections": [],
        "BusNames": [],
        "JSON": [],
        "MainLoop": system.union(["CGLib"]),
        "DBus": system.union(["CDBus", "BusNames", "Collections", "MainLoop"]),
        "CBOR": ["CCBOR"],
        "MQTT": system.union(["CMosquitto", "MainLoop"]),
        // The rules know nothing of the machine that they run on, not even its clock.
        "NotificationCore": ["Collections", "BusNames"],
        "NotificationWire": system.union(["Collections", "NotificationCore", "DBus", "BusNames", "JSON"]),
        // Of the core only the clients' names and what activity is.
        "DesktopActivity": system.union([
            "Collections", "NotificationCore", "DBus", "BusNames", "JSON", "MainLoop", "CXCB",
        ]),
        "NotificationService": system.union([
            "Collections", "NotificationCore", "NotificationWire", "DesktopActivity", "DBus", "BusNames", "MainLoop",
            "CSystem",
        ]),
        // The names on the wire are in its messages; what it reaches through the service it need not name.
        "carillond": system.union(["NotificationService", "NotificationWire", "DBus", "MainLoop"]),
        "ServiceClient": system.union([
            "Collections", "NotificationCore", "NotificationWire", "DBus", "BusNames", "MainLoop",
        ]),
        "ThreadDelivery": system.union(foundation).union(["Collections", "MainLoop", "CMainQueue"]),
        "LocalNotifications": system.union(foundation).union(["ThreadDelivery", "Collections", "MainLoop"]),
        // With Swift's Observation, for programs that draw what they observe.
        "Carillon": system.union(foundation).union([
            "ThreadDelivery", "ServiceClient", "Collections", "NotificationCore", "NotificationWire", "DBus",
            "BusNames", "MainLoop", "Observation",
        ]),
        "CarillonTool": system.union([
            "Collections", "NotificationCore", "NotificationWire", "ServiceClient", "DBus", "BusNames", "JSON",
            "MainLoop", "CNcurses",
        ]),
        "CarillonBridge": system.union([
            "Collections", "NotificationCore", "NotificationWire", "ServiceClient", "MQTT", "CBOR", "DBus", "BusNames",
            "JSON", "MainLoop",
        ]),
        "carillon-bridge": system.union(["CarillonBridge", "NotificationWire", "DBus", "MainLoop"]),
    ]

    /// The C library.
    static let system: Set<String> = ["Glibc", "Musl"]
    /// What comes with the compiler's standard library and adds nothing to a process.
    static let standardLibrary: Set<String> = ["Swift", "Synchronization"]
    /// Foundation and what comes with it.
    static let foundation: Set<String> = [
        "Foundation", "FoundationEssentials", "FoundationInternationalization", "FoundationNetworking",
        "FoundationXML", "Dispatch",
    ]

    /// The rows that can be reached from one, itself included.
    static func closure(of folder: String) -> Set<String> {
        var reached: Set<String> = []
        var pending = [folder]
        while let next = pending.popLast() {
            guard reached.insert(next).inserted else { continue }
            pending += table[next, default: []]
        }
        return reached
    }
}

/// The modules that a file imports, in every form that an import can have.
func imports(in code: String) -> [String] {
    // `import` is a keyword: outside comments and literals nothing else can be spelled so, but `.import` and `import`
    // in backticks.
    let pattern =
        /(?:^|[^\w`.])import\s+(?:(?:typealias|struct|class|actor|enum|protocol|let|var|func|macro)\s+)?`?(\w+)/
    return code.matches(of: pattern).map { String($0.1) }
}

@Suite("Import rules", .limited)
struct ImportRulesTests {
    @Test("A target imports only what its row of the table allows", arguments: SourceFile.all)
    func rows(file: SourceFile) throws {
        let allowed = try #require(ImportRules.table[file.folder], "Sources/\(file.folder) has no row in the table")
        for module in imports(in: file.code) {
            #expect(
                allowed.contains(module) || ImportRules.standardLibrary.contains(module),
                "\(file) imports \(module)")
        }
    }

    @Test("Every folder of Sources has a row in the table and is declared in Package.swift")
    func folders() throws {
        #expect(!SourceFile.folders.isEmpty && !SourceFile.all.isEmpty)
        let manifest = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("Package.swift")
        let package = try String(contentsOf: manifest, encoding: .utf8)
        for folder in SourceFile.folders {
            #expect(ImportRules.table[folder] != nil, "Sources/\(folder) has no row in the table")
            #expect(package.contains(#"name: "\#(folder)""#), "Package.swift does not declare \(folder)")
        }
    }

    @Test("No module hands on another's names: that would go round the table")
    func noReexports() {
        for file in SourceFile.all {
            #expect(!file.code.contains("@_exported"), "\(file)")
            #expect(file.code.firstMatch(of: /\bpublic\s+import\b/) == nil, "\(file)")
        }
    }

    @Test("No target imports another with @testable")
    func noTestable() {
        for file in SourceFile.all { #expect(!file.code.contains("@testable"), "\(file)") }
    }

    // MARK: The table itself

    @Test("Each C library has one importer")
    func wrappers() {
        for (folder, allowed) in ImportRules.table {
            #expect(allowed.contains("CXCB") == (folder == "DesktopActivity"), "\(folder)")
            #expect(allowed.contains("CNcurses") == (folder == "CarillonTool"), "\(folder)")
            #expect(allowed.contains("CMainQueue") == (folder == "ThreadDelivery"), "\(folder)")
            #expect(allowed.contains("CGLib") == (folder == "MainLoop"), "\(folder)")
            #expect(allowed.contains("CDBus") == (folder == "DBus"), "\(folder)")
            #expect(allowed.contains("CCBOR") == (folder == "CBOR"), "\(folder)")
            #expect(allowed.contains("CMosquitto") == (folder == "MQTT"), "\(folder)")
        }
    }

    @Test("Only what is for Swift programs may import Foundation, so the service never reaches it")
    func foundation() {
        for (folder, allowed) in ImportRules.table {
            let mayImport = ["ThreadDelivery", "LocalNotifications", "Carillon"].contains(folder)
            #expect(allowed.isDisjoint(with: ImportRules.foundation) == !mayImport, "\(folder)")
        }
        #expect(ImportRules.closure(of: "carillond").isDisjoint(with: ImportRules.foundation))
        #expect(ImportRules.closure(of: "carillond").contains("NotificationCore"))
    }

    @Test("The client never reaches the service, nor the service the client")
    func sides() {
        let client = ImportRules.closure(of: "CarillonTool").union(ImportRules.closure(of: "Carillon"))
        #expect(client.isDisjoint(with: ["NotificationService", "carillond"]))
        #expect(
            ImportRules.closure(of: "carillond").isDisjoint(with: [
                "Carillon", "LocalNotifications", "ThreadDelivery", "CarillonTool",
            ]))
    }

    @Test("Neither the service nor a client of it reaches the network")
    func network() {
        for folder in ["carillond", "CarillonTool", "Carillon", "LocalNotifications"] {
            #expect(!ImportRules.closure(of: folder).contains("MQTT"), "\(folder)")
        }
    }

    @Test("Notifications within a process and between processes are siblings: neither reaches the other")
    func siblings() {
        #expect(!ImportRules.closure(of: "Carillon").contains("LocalNotifications"))
        #expect(!ImportRules.closure(of: "LocalNotifications").contains("Carillon"))
    }

    @Test("Imports point down only: no row reaches itself")
    func acyclic() {
        for (folder, allowed) in ImportRules.table {
            for module in allowed { #expect(!ImportRules.closure(of: module).contains(folder), "\(folder), \(module)") }
        }
    }

    // MARK: The reader of imports

    @Test(
        "Every form of an import is seen",
        arguments: [
            ("import Foundation", ["Foundation"]),
            ("  import   Foundation  // why", ["Foundation"]),
            ("@_exported import Foundation", ["Foundation"]),
            ("@testable import DBus", ["DBus"]),
            ("@preconcurrency\nimport DBus", ["DBus"]),
            ("@_spi(Testing) internal import DBus", ["DBus"]),
            ("public import Foundation", ["Foundation"]),
            ("import struct Foundation.Data", ["Foundation"]),
            ("import func Glibc.write", ["Glibc"]),
            ("import Foundation.NSString", ["Foundation"]),
            ("import DBus; import Foundation", ["DBus", "Foundation"]),
            (
                "#if canImport(Glibc)\n    import Glibc\n#elseif canImport(Musl)\n    import Musl\n#endif",
                ["Glibc", "Musl"]
            ),
            ("/* a */ import /* b */ DBus", ["DBus"]),
            ("import `DBus`", ["DBus"]),
        ])
    func seen(text: String, modules: [String]) {
        #expect(imports(in: SourceFile(folder: "", name: "", text: text).code) == modules)
    }

    @Test(
        "What only looks like an import is none",
        arguments: [
            "// import Foundation",
            "/// import Foundation",
            "/* a /* nested */ import Foundation */",
            "let a = \"import Foundation\"",
            "let a = \"\"\"\n    import Foundation\n    \"\"\"",
            "let a = #\"\"import Foundation\"#",
            "let a = \"\\\" import Foundation\"",
            "case .import: break",
            "#if canImport(Foundation)",
            "let important = 1",
        ])
    func notSeen(text: String) {
        #expect(imports(in: SourceFile(folder: "", name: "", text: text).code).isEmpty)
    }
}
