// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import Foundation
import Testing

/// What each target may import; what it does import stands in `docs/architecture.md`.
private enum ImportRules {
    /// One row for every folder of `Sources/`, by the name of its module.
    static let table: [String: Set<String>] = [
        "CCarillonDBus": [],
        "CCarillonGLib": [],
        "CCarillonMosquitto": [],
        "CCarillonCBOR": [],
        "CCarillonMainQueue": [],
        "CCarillonXCB": [],
        "CCarillonNcurses": [],
        "CCarillonSystem": [],
        "CarillonCollections": [],
        "CarillonBusNames": [],
        "CarillonJSON": [],
        "CarillonMainLoop": system.union(["CCarillonGLib"]),
        "CarillonDBus": system.union(["CCarillonDBus", "CarillonBusNames", "CarillonCollections", "CarillonMainLoop"]),
        "CarillonCBOR": ["CCarillonCBOR"],
        "CarillonMQTT": system.union(["CCarillonMosquitto", "CarillonMainLoop"]),
        // The rules know nothing of the machine that they run on, not even its clock.
        "CarillonCore": ["CarillonCollections", "CarillonBusNames"],
        "CarillonWire": system.union([
            "CarillonCollections", "CarillonCore", "CarillonDBus", "CarillonBusNames", "CarillonJSON",
        ]),
        // Of the core only the clients' names and what activity is.
        "CarillonActivity": system.union([
            "CarillonCollections", "CarillonCore", "CarillonDBus", "CarillonBusNames", "CarillonJSON",
            "CarillonMainLoop", "CCarillonXCB",
        ]),
        "CarillonService": system.union([
            "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonActivity", "CarillonDBus",
            "CarillonBusNames", "CarillonMainLoop",
            "CCarillonSystem",
        ]),
        // The names on the wire are in its messages; what it reaches through the service it need not name.
        "carillond": system.union(["CarillonService", "CarillonWire", "CarillonDBus", "CarillonMainLoop"]),
        "CarillonClient": system.union([
            "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonDBus", "CarillonBusNames",
            "CarillonMainLoop",
        ]),
        "CarillonThreadDelivery": system.union(foundation).union([
            "CarillonCollections", "CarillonMainLoop", "CCarillonMainQueue",
        ]),
        "LocalNotifications": system.union(foundation).union([
            "CarillonThreadDelivery", "CarillonCollections", "CarillonMainLoop",
        ]),
        // With Swift's Observation, for programs that draw what they observe.
        "Carillon": system.union(foundation).union([
            "CarillonThreadDelivery", "CarillonClient", "CarillonCollections", "CarillonCore", "CarillonWire",
            "CarillonDBus",
            "CarillonBusNames", "CarillonMainLoop", "Observation",
        ]),
        "CarillonTool": system.union([
            "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonClient", "CarillonDBus", "CarillonBusNames",
            "CarillonJSON",
            "CarillonMainLoop", "CCarillonNcurses",
        ]),
        "CarillonBridge": system.union([
            "CarillonCollections", "CarillonCore", "CarillonWire", "CarillonClient", "CarillonMQTT", "CarillonCBOR",
            "CarillonDBus", "CarillonBusNames",
            "CarillonJSON", "CarillonMainLoop",
        ]),
        "carillon-bridge": system.union(["CarillonBridge", "CarillonWire", "CarillonDBus", "CarillonMainLoop"]),
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
    static func closure(of module: String) -> Set<String> {
        var reached: Set<String> = []
        var pending = [module]
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
        let allowed = try #require(
            ImportRules.table[file.module], "Sources/\(file.folder) has no row in the table")
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
            let module = SourceFile.module(of: folder)
            #expect(ImportRules.table[module] != nil, "Sources/\(folder) has no row in the table")
            #expect(package.contains(#"name: "\#(module)""#), "Package.swift does not declare \(module)")
        }
    }

    @Test("No module re-exports the names of another module")
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
        for (module, allowed) in ImportRules.table {
            #expect(allowed.contains("CCarillonXCB") == (module == "CarillonActivity"), "\(module)")
            #expect(allowed.contains("CCarillonNcurses") == (module == "CarillonTool"), "\(module)")
            #expect(allowed.contains("CCarillonMainQueue") == (module == "CarillonThreadDelivery"), "\(module)")
            #expect(allowed.contains("CCarillonGLib") == (module == "CarillonMainLoop"), "\(module)")
            #expect(allowed.contains("CCarillonDBus") == (module == "CarillonDBus"), "\(module)")
            #expect(allowed.contains("CCarillonCBOR") == (module == "CarillonCBOR"), "\(module)")
            #expect(allowed.contains("CCarillonMosquitto") == (module == "CarillonMQTT"), "\(module)")
        }
    }

    @Test("Only the modules for Swift programs may import Foundation, and the service reaches none of them")
    func foundation() {
        for (module, allowed) in ImportRules.table {
            let mayImport = ["CarillonThreadDelivery", "LocalNotifications", "Carillon"].contains(module)
            #expect(allowed.isDisjoint(with: ImportRules.foundation) == !mayImport, "\(module)")
        }
        #expect(ImportRules.closure(of: "carillond").isDisjoint(with: ImportRules.foundation))
        #expect(ImportRules.closure(of: "carillond").contains("CarillonCore"))
    }

    @Test("The client libraries never import the service, nor the service the client libraries")
    func sides() {
        let client = ImportRules.closure(of: "CarillonTool").union(ImportRules.closure(of: "Carillon"))
        #expect(client.isDisjoint(with: ["CarillonService", "carillond"]))
        #expect(
            ImportRules.closure(of: "carillond").isDisjoint(with: [
                "Carillon", "LocalNotifications", "CarillonThreadDelivery", "CarillonTool",
            ]))
    }

    @Test("Neither the service nor its client libraries import the MQTT client")
    func network() {
        for module in ["carillond", "CarillonTool", "Carillon", "LocalNotifications"] {
            #expect(!ImportRules.closure(of: module).contains("CarillonMQTT"), "\(module)")
        }
    }

    @Test("The libraries for local and for distributed notifications do not import each other")
    func siblings() {
        #expect(!ImportRules.closure(of: "Carillon").contains("LocalNotifications"))
        #expect(!ImportRules.closure(of: "LocalNotifications").contains("Carillon"))
    }

    @Test("The table of imports has no cycles")
    func acyclic() {
        for (module, allowed) in ImportRules.table {
            for other in allowed { #expect(!ImportRules.closure(of: other).contains(module), "\(module), \(other)") }
        }
    }

    // MARK: The reader of imports

    @Test(
        "The check of imports recognizes every form of an import",
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
        "The check of imports ignores text that only resembles an import",
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
