// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@testable import CarillonService

/// The files of the service's configuration. The tests in Python see the same on a bus.
@Suite("E1, P3: the configuration of the service", .limited)
struct ServiceConfigurationTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// - Parameter files: the user's own first.
    private func read(_ files: String...) throws(KeyFile.Fault) -> Configuration {
        do {
            for (number, text) in files.enumerated() {
                try directory.write(text, to: "\(number)/carillon/carillon.conf")
            }
        } catch {
            Issue.record(error)
        }
        let reading = reading(files.count)
        if let fault = reading.faults.first { throw fault }
        return reading.configuration
    }

    /// There is one directory more than files.
    private func reading(_ count: Int) -> Configuration.Reading {
        Configuration.Reading(directories: (0...count).map { directory.entry("\($0)") })
    }

    private func fault(_ text: String) throws -> (line: Int?, reason: String) {
        let fault = try #require(throws: KeyFile.Fault.self) { _ = try read(text) }
        #expect(fault.path.hasSuffix("0/carillon/carillon.conf"))
        return (fault.line, fault.reason)
    }

    /// What holds of files one of which has a fault.
    private func restricted(_ files: String...) throws -> Configuration.Reading {
        for (number, text) in files.enumerated() {
            try directory.write(text, to: "\(number)/carillon/carillon.conf")
        }
        let reading = reading(files.count)
        #expect(!reading.faults.isEmpty)
        return reading
    }

    @Test("E9: a faulty file adds only restrictions, and never more rights than a less important file gives")
    func faulty() throws {
        let system = """
            [Policy]
            open-names=org.open.*
            [Policy org.example.A]
            post=org.a.*
            [Limits]
            clients=100
            """
        let user = """
            [Policy]
            open-names=*
            unidentified=refuse
            [Policy org.example.A]
            post=*
            [Policy org.example.B]
            observe=org.b.*
            post=org.b.* !!
            [Policy org.example.C]
            pots=org.c.*
            [Policy org.example.D]
            post
            [Limits]
            clients=200
            observers=7
            [Sessions]
            export=*
            [Channels]
            channels=false
            """
        let reading = try restricted(user, system)
        let configuration = reading.configuration
        #expect(reading.files.map { String($0.split(separator: "/").dropLast(2).last!) } == ["1", "0"])
        #expect(reading.faults.map(\.line) == [8, 10, 12])
        let policy = configuration.policy
        #expect(policy.openNames.isEmpty, "a line without a value may be the name of a group")
        #expect(policy.unidentified == .refuse)
        func lists(_ id: String) -> [String: [String]]? {
            policy.applications[id].map { lists in
                Dictionary(uniqueKeysWithValues: lists.map { ($0.key.rawValue, $0.value.map(\.description)) })
            }
        }
        #expect(lists("org.example.A") == ["post": ["org.a.*"]], "of two lists the names that both have")
        #expect(lists("org.example.B") == ["observe": ["org.b.*"], "post": []])
        #expect(lists("org.example.C") == ["observe": [], "post": []])
        #expect(lists("org.example.D") == ["observe": [], "post": []])
        #expect(configuration.limits[.clients] == 100 && configuration.limits[.observers] == 7)
        #expect(!configuration.sessions.areNeeded && !configuration.allowsChannels)
        // The other way round the user's file holds, whole.
        let other = try restricted("[Policy org.example.A]\npost=*", system + "\n[Polcy]\na=1\n")
        #expect(other.configuration.policy.applications["org.example.A"]?[.post]?.map(\.description) == ["*"])
        #expect(other.faults.count == 1 && other.configuration.policy.openNames.isEmpty)
    }

    @Test(
        "E9: a faulty file still shortens the lists of a less important file",
        arguments: ["oops", "[Limits]\nclients=0", "\u{0}"])
    func takesAway(fault: String) throws {
        let system = """
            [Policy]
            open-names=*
            [Policy org.example.A]
            post=*
            observe=org.a.*;org.c.D
            [Sessions]
            export=*
            import=1:*;2:org.x.*
            """
        let user = """
            [Policy]
            open-names=org.open.*
            [Policy org.example.A]
            post=
            observe=org.a.B;org.c.*
            [Sessions]
            export=org.y.Z
            import=2:org.x.Y
            """
        let configuration = try restricted(user + "\n" + fault, system).configuration
        let lists = try #require(configuration.policy.applications["org.example.A"])
        #expect(
            lists[.post]?.isEmpty == true && Set(lists[.observe]?.map(\.description) ?? []) == ["org.a.B", "org.c.D"])
        // A line without a group of its own may stand for any list of the last one, or be the name of one.
        let isOfSessions = fault != "[Limits]\nclients=0"
        #expect(configuration.policy.openNames.map(\.description) == (isOfSessions ? [] : ["org.open.*"]))
        #expect(configuration.sessions.export.map(\.description) == (isOfSessions ? [] : ["org.y.Z"]))
        #expect(
            configuration.sessions.imports.mapValues { $0.map(\.description) }
                == (isOfSessions ? [:] : [2: ["org.x.Y"]]))
    }

    @Test("E9: a faulty line in an application's group empties all lists of the group, at any position")
    func faultyLineOfApplication() throws {
        for text in ["oops\npost=org.a.*", "post=org.a.*\noops", "post=org.a.*\nobsrve=*"] {
            let lists = try restricted("[Policy org.example.A]\n" + text).configuration.policy.applications[
                "org.example.A"]
            #expect(lists?[.post]?.isEmpty == true && lists?[.observe]?.isEmpty == true, "\(text)")
        }
    }

    @Test(
        "E9: a faulty file opens no names to a sandbox",
        arguments: [
            "[Policy org.sand.Box]\nobserve=*\npost=*\n[Limits]\nnope=1", "before=1\n[Policy org.sand.Box]\nobserve=*",
            "[Nope]\na=1\n[Policy org.sand.Box]\nobserve=*\npost=*", "[Policy org.sand.Box]\nobserve=*\nobserve",
        ])
    func sandboxes(text: String) throws {
        let policy = try restricted(text).configuration.policy
        for action in Policy.Action.allCases {
            #expect(policy.refusal(of: action, "other.Ding", to: .sandbox("org.sand.Box")) != nil)
            #expect(policy.refusal(of: action, "org.sand.Box.Ding", to: .sandbox("org.sand.Box")) == nil)
        }
        // A file without a fault that is more important opens it.
        let other = try restricted("[Policy org.sand.Box]\nobserve=*", text).configuration.policy
        #expect(other.refusal(of: .observe, "other.Ding", to: .sandbox("org.sand.Box")) == nil)
    }

    @Test("E9: a fault that empties all lists also closes the lists that a less important file opens to a sandbox")
    func closedSandboxes() throws {
        let system = "[Policy org.sand.Box]\nobserve=*\n"
        #expect(try read("", system).policy.refusal(of: .observe, "x.Y", to: .sandbox("org.sand.Box")) == nil)
        let policy = try restricted("x=1\n", system).configuration.policy
        #expect(policy.refusal(of: .observe, "x.Y", to: .sandbox("org.sand.Box")) != nil)
    }

    @Test("E9: a misspelled [Channels] forbids channels")
    func misspelledChannels() throws {
        #expect(try !restricted("[Chanels]\nchannels=false").configuration.allowsChannels)
    }

    private static let open = "[Policy]\nopen-names=*\n[Sessions]\nexport=*\n[Limits]\nclients=9\n"

    @Test(
        "E9: a file with a syntax error or an unknown group opens no names and exports none",
        arguments: [
            "[Polcy]\nopen-names=", "[Policy\nopen-names=", "export=\n", "[Sesions]\nexport=", "[Policy ]\npost=",
            "[Policy *]\npost=", "[Limits]\nPolicy]\nopen-names=", "[Activity]\n{Policy}\nopen-names=",
            "[Limits]\n\u{FEFF}[Policy]\nopen-names=", "[Limits]\n[Pol\u{0}icy]\nopen-names=",
            "[Channels]\n[Policy\(String(repeating: "y", count: 5000))]\nopen-names=", "[Activity]\nSessions]\nexport=",
        ])
    func unknownEntries(text: String) throws {
        let configuration = try restricted(text, Self.open).configuration
        #expect(configuration.policy.openNames.isEmpty && configuration.policy.unidentified == .refuse)
        #expect(!configuration.sessions.areNeeded && configuration.limits[.clients] == 9)
    }

    @Test(
        "E9: a misspelled group without restrictions on names changes no setting",
        arguments: ["[Limts]\nclients=1", "[Activty]\nsource=none"])
    func harmlessGroup(text: String) throws {
        let plain = try read("", Self.open)
        #expect(try restricted(text, Self.open).configuration == plain)
    }

    @Test("E9: a directory or a dangling link instead of the file counts as an unreadable file")
    func unreadable() throws {
        for isLink in [true, false] {
            let directory = try TemporaryDirectory()
            try directory.write(Self.open, to: "1/carillon/carillon.conf")
            let path = directory.entry("0/carillon")
            if isLink {
                try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
                try FileManager.default.createSymbolicLink(
                    atPath: path + "/carillon.conf", withDestinationPath: "/nowhere/at/all")
            } else {
                try FileManager.default.createDirectory(
                    atPath: path + "/carillon.conf", withIntermediateDirectories: true)
            }
            let reading = Configuration.Reading(directories: [directory.entry("0"), directory.entry("1")])
            #expect(reading.faults.count == 1 && reading.faults[0].line == nil && reading.files.count == 2)
            #expect(reading.configuration.policy.openNames.isEmpty && !reading.configuration.sessions.areNeeded)
            #expect(reading.configuration.limits[.clients] == 9)
        }
    }

    @Test("E9: a file below a regular file or a dangling link counts as unreadable")
    func noDirectory() throws {
        for isLink in [true, false] {
            let directory = try TemporaryDirectory()
            try directory.write(Self.open, to: "1/carillon/carillon.conf")
            try FileManager.default.createDirectory(atPath: directory.entry("0"), withIntermediateDirectories: true)
            let path = directory.entry("0/carillon")
            if isLink {
                try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "/nowhere/at/all")
            } else {
                try Data().write(to: URL(filePath: path))
            }
            let reading = Configuration.Reading(directories: [directory.entry("0"), directory.entry("1")])
            #expect(reading.faults.map(\.reason) == ["\(path) is not a directory"])
            #expect(reading.configuration.policy.openNames.isEmpty && !reading.configuration.sessions.areNeeded)
        }
    }

    @Test("E9: restrictions behind more faults than are reported still take effect")
    func behindManyFaults() throws {
        let text = String(repeating: "oops\n", count: 50)
        let configuration = try restricted("[Activity]\n\(text)[Limits]\nclients=7\n[Channels]\nchannels=false\n")
        #expect(configuration.faults.count == KeyFile.maxFaults)
        #expect(configuration.configuration.limits[.clients] == 7 && !configuration.configuration.allowsChannels)
    }

    @Test("A file reports a bounded number of faults, and none for keys below a faulty group header")
    func faults() throws {
        let lines = (0..<100).map { "wrong\($0)=1" }.joined(separator: "\n")
        #expect(try restricted("[Limits]\n" + lines).faults.count == KeyFile.maxFaults)
        let reading = try restricted("[Limits\nclients=1\n[Limits]\nobservers=2\n= 3\n")
        #expect(reading.faults.map(\.line) == [1, 5])
    }

    @Test("Without files, all configuration values have their defaults")
    func nothing() throws {
        let standard = Configuration.Reading(directories: []).configuration
        #expect(try standard == .standard && read() == standard && read("") == standard)
        #expect(standard.limits == Limits() && standard.suspendsAutomatically && standard.allowsChannels)
        #expect(standard.activitySource == .automatic && standard.activityChoice == .automatic)
        #expect(standard.inactivity == InactivityRules() && standard.policy == Policy() && !standard.sessions.areNeeded)
    }

    @Test("The configuration reads the keys of every group")
    func groups() throws {
        let configuration = try read(
            """
            [Limits]
            clients=7
            observers=1
            [Activity]
            automatic-suspension=true
            source=x11
            inactive-when=hidden
            [Activity org.example.Editor]
            inactive-when=unfocused
            [Channels]
            channels=false
            [Sessions]
            export=org.example.*
            [Policy]
            open-names=org.example.Open
            unidentified=refuse
            [Policy org.example.App]
            post=*
            """)
        #expect(configuration.limits[.clients] == 7 && configuration.limits[.observers] == 1)
        #expect(configuration.suspendsAutomatically)
        #expect(configuration.activitySource == .kind(.x11) && configuration.activityChoice == .kind(.x11))
        #expect(
            configuration.inactivity
                == InactivityRules(general: .hidden, applications: ["org.example.Editor": .unfocused]))
        #expect(!configuration.allowsChannels)
        #expect(configuration.sessions.exports("org.example.Ding"))
        #expect(configuration.policy.openNames == [.exactly("org.example.Open")])
        #expect(configuration.policy.unidentified == .refuse)
        #expect(configuration.policy.applications == ["org.example.App": [.post: [.all]]])
        #expect(try read("[sessions]\nexport=A").sessions.exports("A"), "in lower case as well")
    }

    @Test("The user's file takes precedence over the system's, key by key")
    func order() throws {
        let configuration = try read("[Limits]\nclients=7\n", "[Limits]\nclients=8\nobservers=9\n")
        #expect(configuration.limits[.clients] == 7 && configuration.limits[.observers] == 9)
    }

    @Test("Without automatic suspension, no source of activity is chosen")
    func noSuspension() throws {
        let configuration = try read("[Activity]\nautomatic-suspension=false\nsource=x11\n")
        #expect(configuration.activitySource == .kind(.x11) && configuration.activityChoice == .none)
    }

    @Test(
        "A limit is accepted from its minimum to its hard maximum, and refused outside", arguments: Limits.Key.allCases)
    func bounds(_ key: Limits.Key) throws {
        let (least, most) = (Limits.row(key).minimum, Limits.row(key).hardMaximum)
        for value in [least, most] { #expect(try read("[Limits]\n\(key.rawValue)=\(value)").limits[key] == value) }
        for value in [least - 1, most + 1] { #expect(try fault("[Limits]\n\(key.rawValue)=\(value)").line == 2) }
    }

    @Test(
        "A mistake is refused with its line and a reason",
        arguments: [
            ("[Sound]\nvolume=1", "there is no group [Sound], only [Limits]"),
            ("[Limits]\nclient=1", "there is no limit 'client', only: clients, "),
            ("[Channels]\nchannel=true", "there is no key 'channel' in [Channels], only: channels"),
            ("[Channels]\nchannels=1", "'1' is neither true nor false"),
            ("[Activity]\nsources=x11", "there is no key 'sources' in [Activity]"),
            ("[Activity]\nsource=ouija", "'ouija' is not a source of activity; there are: auto, none"),
            ("[Activity]\ninactive-when=tired", "'tired' is not a value of inactive-when"),
            ("[Activity  ]\ninactive-when=hidden", "[Activity  ] names no application"),
            ("[Activity A]\ninactive=hidden", "there is no key 'inactive' in [Activity A], only: inactive-when"),
            ("[Activity A]\ninactive-when=tired", "'tired' is not a value of inactive-when"),
        ])
    func mistakes(_ text: String, _ reason: String) throws {
        let fault = try fault(text)
        #expect(fault.line == 2 && fault.reason.hasPrefix(reason), "\(fault.reason)")
    }

    @Test("A faulty reload throws and changes nothing; a valid reload is announced with the previous configuration")
    func keeper() throws {
        var next = Configuration.Reading(text: "[Limits]\nclients=7")
        func text(_ text: String) { next = Configuration.Reading(text: text) }
        let keeper = ConfigurationKeeper { next }
        var told: [UInt64] = []
        keeper.onRead = { told.append($0.limits[.clients]) }
        keeper.begin()
        #expect(keeper.current.limits[.clients] == 7 && keeper.files == ["carillon.conf"] && keeper.faults.isEmpty)
        text("[Limits]\nclients=8\n[Sound]\nvolume=1")
        let fault = try #require(throws: KeyFile.Fault.self) { try keeper.read() }
        #expect(fault.line == 4 && keeper.faults == [fault] && keeper.current.limits[.clients] == 7)
        text("[Limits]\nclients=9")
        try keeper.read()
        try keeper.read()
        #expect(keeper.current.limits[.clients] == 9 && keeper.faults.isEmpty)
        #expect(told == [7, 9])
    }

    @Test("E9: a service that starts with a faulty file enforces the restrictions of that file")
    func beginning() throws {
        let keeper = ConfigurationKeeper {
            Configuration.Reading(text: "[Policy org.example.A]\npost=org.a.*\n[Limits]\nclients=many\n")
        }
        keeper.begin()
        #expect(keeper.faults.map(\.line) == [4])
        #expect(keeper.current.policy.applications["org.example.A"]?[.post]?.map(\.description) == ["org.a.*"])
    }
}
