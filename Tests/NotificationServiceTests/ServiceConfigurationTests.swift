// SPDX-License-Identifier: Apache-2.0
import DesktopActivity
import MainLoop
import NotificationCore
import TestLimits
import TestSupport
import Testing

@testable import NotificationService

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
        // There is one directory more than files.
        return try Configuration(directories: (0...files.count).map { directory.entry("\($0)") })
    }

    private func fault(_ text: String) throws -> (line: Int?, reason: String) {
        let fault = try #require(throws: KeyFile.Fault.self) { _ = try read(text) }
        #expect(fault.path.hasSuffix("0/carillon/carillon.conf"))
        return (fault.line, fault.reason)
    }

    @Test("Without files everything is as the standard has it")
    func nothing() throws {
        let standard = try Configuration(directories: [])
        #expect(try standard == .standard && read() == standard && read("") == standard)
        #expect(standard.limits == Limits() && standard.suspendsAutomatically && standard.allowsChannels)
        #expect(standard.activitySource == .automatic && standard.activityChoice == .automatic)
        #expect(standard.inactivity == InactivityRules() && standard.policy == Policy() && !standard.sessions.areNeeded)
    }

    @Test("Each group has its keys")
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

    @Test("The user's own file counts before the system's, key by key")
    func order() throws {
        let configuration = try read("[Limits]\nclients=7\n", "[Limits]\nclients=8\nobservers=9\n")
        #expect(configuration.limits[.clients] == 7 && configuration.limits[.observers] == 9)
    }

    @Test("Without automatic suspension there is no source of activity")
    func noSuspension() throws {
        let configuration = try read("[Activity]\nautomatic-suspension=false\nsource=x11\n")
        #expect(configuration.activitySource == .kind(.x11) && configuration.activityChoice == .none)
    }

    @Test("A limit is from 1 to its hard maximum", arguments: Limits.Key.allCases)
    func bounds(_ key: Limits.Key) throws {
        let most = Limits.row(key).hardMaximum
        for value in [1, most] { #expect(try read("[Limits]\n\(key.rawValue)=\(value)").limits[key] == value) }
        for value in [0, most + 1] { #expect(try fault("[Limits]\n\(key.rawValue)=\(value)").line == 2) }
    }

    @Test(
        "A mistake is refused with its line and a reason",
        arguments: [
            ("[Sound]\nvolume=1", "there is no group [Sound], only [Limits]"),
            ("[Limits]\nclient=1", "there is no limit 'client', only: clients, "),
            ("[Channels]\nchannel=true", "there is no key 'channel' in [Channels], only: channels"),
            ("[Channels]\nchannels=1", "'1' is neither true nor false"),
            ("[Activity]\nsources=x11", "there is no key 'sources' in [Activity]"),
            ("[Activity]\nsource=ouija", "'ouija' is no source of activity; there are: auto, none"),
            ("[Activity]\ninactive-when=tired", "'tired' is not when an application is inactive"),
            ("[Activity  ]\ninactive-when=hidden", "[Activity  ] names no application"),
            ("[Activity A]\ninactive=hidden", "there is no key 'inactive' in [Activity A], only: inactive-when"),
            ("[Activity A]\ninactive-when=tired", "'tired' is not when an application is inactive"),
        ])
    func mistakes(_ text: String, _ reason: String) throws {
        let fault = try fault(text)
        #expect(fault.line == 2 && fault.reason.hasPrefix(reason), "\(fault.reason)")
    }

    @Test("A reading with a fault changes nothing, and is thrown on; one without is announced with what was before")
    func keeper() throws {
        var next = Result<Configuration, KeyFile.Fault>.success(try read("[Limits]\nclients=7"))
        let keeper = ConfigurationKeeper { () throws(KeyFile.Fault) in try next.get() }
        var before: [UInt64] = []
        keeper.onRead = { before.append($0.limits[.clients]) }
        try keeper.read()
        #expect(keeper.current.limits[.clients] == 7)
        let fault = try #require(throws: KeyFile.Fault.self) { _ = try read("[Sound]\nvolume=1") }
        next = .failure(fault)
        #expect(throws: fault) { try keeper.read() }
        #expect(keeper.current.limits[.clients] == 7)
        next = .success(try read("[Limits]\nclients=9"))
        try keeper.read()
        #expect(keeper.current.limits[.clients] == 9)
        #expect(before == [Limits()[.clients], 7])
    }
}
