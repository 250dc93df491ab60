// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

@testable import CarillonService

/// Every list of names in the configuration has the same names, whatever it is for.
@Suite("P2, P3, G1: lists of names in each of their uses", .limited)
struct NameListTests {
    /// What a list is for. A new one is one more case.
    enum Use: CaseIterable, Sendable {
        case openNames, post, observe, postBesideOthers
        case export, exportRefusal, imports, importRetained
        /// What is to be sent elsewhere although `export` has it no longer.
        case exportLater

        /// Whether a list has a name.
        func has(_ name: String, _ list: [NamePattern]) -> Bool {
            var policy = Policy()
            var sessions = SessionRules()
            let app = Policy.Subject.sandbox("org.x.App")
            switch self {
            case .openNames:
                policy.openNames = list
                return policy.refusal(of: .post, name, to: app) == nil
                    && policy.refusal(of: .observe, name, to: .unidentified) == nil
            case .post:
                policy.applications = ["org.x.App": [.post: list]]
                return policy.refusal(of: .post, name, to: app) == nil
            case .observe:
                policy.applications = ["org.x.App": [.observe: list]]
                return policy.refusal(of: .observe, name, to: app) == nil
            case .postBesideOthers:
                policy.applications = [
                    "org.x.App": [.post: list, .observe: [.all]], "org.x.Other": [.post: [.all], .observe: [.all]],
                ]
                return policy.refusal(of: .post, name, to: .session(application: "org.x.App")) == nil
            case .export, .exportLater:
                sessions.export = list
                return sessions.exports(name)
            case .exportRefusal:
                sessions.export = list
                return sessions.refusal(toExport: name) == nil
            case .imports:
                sessions.imports = [1000: list, 1001: [.all]]
                return sessions.imports(name, of: 1000)
            case .importRetained:
                sessions.imports = [1000: [.all]]
                sessions.retained = [1000: list, 1001: [.all]]
                return sessions.keeps(name, of: 1000)
            }
        }
    }

    @Test(
        "P3, G1: a list matches its names and the names below its prefixes, and no similar names",
        arguments: Use.allCases)
    func names(use: Use) throws {
        let list = try NamePattern.list("Ding;org.example.*")
        for name in ["Ding", "org.example.Ding", "org.example.a.b"] { #expect(use.has(name, list), "\(name)") }
        for name in [
            "Dong", "Dings", "ding", "Ding.a", "org.example", "org.example.", "org.exampleDing", "org.examples.Ding",
            "org",
            "x.org.example.Ding", "Org.example.Ding", "org.example\u{301}.Ding",
        ] {
            #expect(!use.has(name, list), "\(name)")
        }
    }

    @Test("P3, G1: an empty list matches no name", arguments: Use.allCases)
    func empty(use: Use) {
        for name in ["Ding", "org.example.Ding"] { #expect(!use.has(name, []), "\(name)") }
    }
}
