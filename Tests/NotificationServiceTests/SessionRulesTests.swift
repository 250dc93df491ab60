// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonService

/// What the configuration says of other sessions.
@Suite("G1: the rules for other sessions", .limited)
struct SessionRulesTests {
    private func rules(_ text: String) throws -> SessionRules {
        let directory = try TemporaryDirectory()
        try directory.write("[Sessions]\n" + text, to: "carillon.conf")
        let file = try #require(try KeyFile(path: directory.entry("carillon.conf")))
        var rules = SessionRules()
        for entry in file.entries { try rules.apply(entry, of: file) }
        return rules
    }

    @Test("By default no name is exported or imported")
    func standard() throws {
        for rules in [SessionRules(), try rules("export=\nimport= ; \n")] {
            #expect(!rules.areNeeded && !rules.exports("Ding") && !rules.imports("Ding", of: 0))
            #expect(rules.refusal(toExport: "Ding")?.contains("'Ding'") == true)
        }
    }

    @Test("Lists accept names and prefixes, and each user, by number or name, has import lists of its own")
    func names() throws {
        let rules = try rules(
            "export=Ding;org.example.*\nimport= 1000:Ding ; org.x.* ;daemon: Dong;1000:More\nimport-retained=1000:*\n")
        #expect(rules.areNeeded)
        #expect(rules.exports("Ding") && rules.exports("org.example.A") && !rules.exports("org.example"))
        #expect(rules.refusal(toExport: "Ding") == nil)
        #expect(rules.imports[1000]?.map(\.description) == ["Ding", "org.x.*", "More"])
        #expect(rules.imports[1]?.map(\.description) == ["Dong"])
        #expect(rules.imports("Dong", of: 1) && !rules.imports("Ding", of: 1) && !rules.imports("Ding", of: 1001))
        #expect(rules.keeps("org.x.Y", of: 1000) && !rules.keeps("Dong", of: 1))
        #expect(!rules.keeps("org.y", of: 1000), "what does not come does not stay")
        #expect(try self.rules("import=1:*").areNeeded && self.rules("export=*").areNeeded)
        #expect(try !self.rules("import-retained=1:*").areNeeded)
    }

    @Test("An import list accepts 256 names for each user")
    func many() throws {
        let names = (1...256).map { "n\($0)" }.joined(separator: ";")
        #expect(try rules("import=1:\(names);2:\(names)").imports.values.map(\.count) == [256, 256])
    }

    @Test(
        "P3: a mistake in [Sessions] is reported with file and line",
        arguments: [
            ("exports=Ding", "there is no key 'exports' in [Sessions], only: export, import, import-retained"),
            ("export=Di*ng", "'Di*ng' for export is neither a name nor a prefix"),
            ("import=Ding", "'Ding' for import follows no user"),
            ("import=1:Ding:Dong", "has a second colon"), ("import=1:Ding,Dong", "has a comma"),
            ("import=1:Ding Dong", "has white space"), ("import-retained=1:Ding;Dong:1", "is not a user"),
            ("import=:Ding", "'' for import is not a user of this machine"),
            ("import=nobody such:Ding", "'nobodysuch' for import is not a user of this machine"),
            ("import=4294967295:Ding", "'4294967295' for import is not a user of this machine"),
            ("import=99999999999:Ding", "'99999999999' for import is not a user of this machine"),
            ("import-retained=1000:", "'' for import-retained is neither a name nor a prefix"),
            ("import=1:" + (0...256).map { "n\($0)" }.joined(separator: ";"), "more than 256 names"),
        ])
    func mistakes(text: String, reason: String) {
        let fault = #expect(throws: KeyFile.Fault.self) { try rules(text) }
        #expect(fault?.description.contains(reason) == true, "\(String(describing: fault))")
        #expect(fault?.line == 2)
    }
}
