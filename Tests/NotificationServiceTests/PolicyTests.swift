// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonService

/// What policy decides, without anybody who asks.
@Suite("P2, P3: rights to post and observe names", .limited)
struct PolicyTests {
    private static let app = Policy.Subject.sandbox("org.example.App")

    private func policy(_ text: String) throws -> Policy {
        let directory = try TemporaryDirectory()
        try directory.write(text, to: "carillon.conf")
        let file = try #require(try KeyFile(path: directory.entry("carillon.conf")))
        var policy = Policy()
        for entry in file.entries {
            if entry.group == "Policy" {
                try policy.apply(entry, of: file)
            } else {
                try policy.applyApplication(entry, of: file)
            }
        }
        return policy
    }

    @Test(
        "P2: an application in a sandbox owns its id, and the names that begin with the id and a dot",
        arguments: [
            ("org.example.App", true), ("org.example.App.Ding", true), ("org.example.App.", true),
            ("org.example.Apparent", false), ("org.example.AppDing", false), ("org.example", false),
            ("org.example.app.Ding", false), ("org.example.App\u{301}.Ding", false), (" org.example.App", false),
            ("", false), ("*", false), ("org.example.*", false),
        ])
    func own(name: String, isAllowed: Bool) {
        for action in Policy.Action.allCases {
            #expect((Policy().refusal(of: action, name, to: Self.app) == nil) == isAllowed, "\(action) '\(name)'")
        }
    }

    @Test("P2: a process of the session may use every name, and an unidentified caller may use none")
    func others() {
        for name in ["", "org.example.App", "Ding"] {
            for action in Policy.Action.allCases {
                #expect(Policy().refusal(of: action, name, to: .session(application: nil)) == nil)
                #expect(Policy().refusal(of: action, name, to: .session(application: "org.example.App")) == nil)
                #expect(Policy().refusal(of: action, name, to: .unidentified) != nil)
            }
        }
    }

    @Test("P2: open names are open to all callers, and never allow a registration for any name")
    func openNames() throws {
        let policy = try policy("[Policy]\nopen-names= org.example.Doorbell ;org.example.Weather.*;\n")
        for subject in [Self.app, .unidentified, .session(application: nil)] {
            for action in Policy.Action.allCases {
                #expect(policy.refusal(of: action, "org.example.Doorbell", to: subject) == nil)
                #expect(policy.refusal(of: action, "org.example.Weather.Rain", to: subject) == nil)
            }
        }
        for name in ["", "org.example.Weather", "org.example.Weather.", "org.example.Doorbell.Ding"] {
            #expect(policy.refusal(of: .observe, name, to: Self.app) != nil, "'\(name)'")
        }
        let everything = try self.policy("[Policy]\nopen-names=*\n")
        #expect(everything.refusal(of: .observe, "Ding", to: .unidentified) == nil)
        #expect(everything.refusal(of: .observe, "", to: Self.app) != nil, "any name is more than every open one")
    }

    @Test("P3: a list applies to its action and its application, beside own names and open names")
    func lists() throws {
        let policy = try policy(
            """
            [Policy]
            open-names=Open
            [Policy org.example.App]
            post=Ding
            observe=*
            [Policy org.example.Quiet]
            post=
            """)
        #expect(policy.refusal(of: .post, "Ding", to: Self.app) == nil)
        #expect(policy.refusal(of: .post, "Dong", to: Self.app) != nil)
        #expect(policy.refusal(of: .observe, "Dong", to: Self.app) == nil)
        #expect(policy.refusal(of: .observe, "", to: Self.app) == nil)
        #expect(policy.refusal(of: .observe, "Dong", to: .sandbox("org.example.Other")) != nil)
        // In no sandbox, it is what keeps the application from the rest.
        let quiet = Policy.Subject.session(application: "org.example.Quiet")
        #expect(policy.refusal(of: .post, "Ding", to: quiet) != nil)
        for name in ["org.example.Quiet", "org.example.Quiet.Ding", "Open"] {
            #expect(policy.refusal(of: .post, name, to: quiet) == nil)
        }
        #expect(policy.refusal(of: .observe, "", to: quiet) == nil)
        #expect(policy.refusal(of: .post, "Ding", to: .session(application: "org.example.Other")) == nil)
    }

    @Test("P2: actions that concern other clients are refused to a sandbox")
    func session() throws {
        let policy = try policy("[Policy org.example.App]\npost=*\nobserve=*\n")
        #expect(policy.refusal(of: "do it", to: Self.app) != nil)
        #expect(policy.refusal(of: "do it", to: .unidentified) != nil)
        #expect(policy.refusal(of: "do it", to: .session(application: "org.example.App")) == nil)
    }

    @Test("P2: a refusal names the caller, the action and the rule, and shortens long names")
    func words() throws {
        let byDefault = try #require(Policy().refusal(of: .post, "Ding", to: Self.app))
        for word in ["org.example.App", "post", "'Ding'", "by default", "open-names", "[Policy]"] {
            #expect(byDefault.contains(word), "\(byDefault)")
        }
        let policy = try policy("[Policy org.example.App]\nobserve=Dong\n")
        let byList = try #require(policy.refusal(of: .observe, "", to: Self.app))
        #expect(byList.contains("any name") && byList.contains("observe in [Policy org.example.App]"), "\(byList)")
        let unidentified = try #require(policy.refusal(of: .post, "Ding", to: .unidentified))
        #expect(unidentified.contains("unidentified in [Policy]"), "\(unidentified)")
        let long = try #require(policy.refusal(of: .post, String(repeating: "x", count: 100_000), to: Self.app))
        #expect(long.utf8.count < 1000)
    }

    @Test(
        "P3: a mistake in a policy is refused with its line",
        arguments: [
            ("[Policy]\n\nopen-name=x", 3, "open-names, unidentified"),
            ("[Policy]\nopen-names=a;b*", 2, "'b*'"),
            ("[Policy]\nopen-names=.*", 2, "'.*'"),
            ("[Policy]\nopen-names=a.*.b", 2, "'a.*.b'"),
            ("[Policy]\nunidentified=maybe", 2, "auto, allow, refuse"),
            ("[Policy org.x.Y]\npost=a\nobserv=b", 3, "post, observe"),
            ("[Policy org.x.Y]\nretained=a", 2, "post, observe"),
            ("[Policy  ]\npost=a", 2, "not the id"),
            ("[Policy org.x.*]\npost=a", 2, "not the id"),
            ("[Policy a b]\npost=a", 2, "not the id"),
        ])
    func mistakes(text: String, line: Int, reason: String) throws {
        let fault = try #require(throws: KeyFile.Fault.self) { try policy(text) }
        #expect(fault.line == line && fault.reason.contains(reason), "\(fault)")
    }

    @Test("P3: the last of two lists with one key counts, and blanks and empty elements are ignored")
    func notation() throws {
        let policy = try policy("[Policy org.x.Y]\npost=a\npost= ;; b ;\tc d; ;\n")
        #expect(policy.applications["org.x.Y"]?[.post]?.map(\.description) == ["b", "c d"])
    }
}
