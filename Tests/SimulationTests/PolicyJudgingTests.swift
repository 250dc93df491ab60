// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonSimulation

/// What the simulation knows of policy, and of what suspends clients, on cases of which the verdict is known.
@Suite("Verdicts about policy and suspension", .limited)
struct PolicyJudgingTests {
    private static let sandboxed = Application(id: "org.example.App", isSandboxed: true)
    private static let free = Application(id: "org.example.App", isSandboxed: false)

    private static func allows(
        _ name: String?, _ application: Application?, list: [String]? = nil, open: [String] = []
    ) -> Bool {
        var file = PolicyFile()
        file.openNames = open
        if let list { file.lists[sandboxed.id] = [.post: list] }
        let subject = application.map(PolicyFile.Subject.application) ?? .process
        return file.allows(.post, name, to: subject, areSandboxesThere: true)
    }

    @Test("P2, P3: own names, open names and lists have the meaning of docs/security.md")
    func names() {
        let own = ["org.example.App", "org.example.App.Saved"]
        let others: [String?] = ["org.example", "org.example.AppStore", "org.example.app", nil]
        for name in own { #expect(Self.allows(name, Self.sandboxed)) }
        for name in others {
            #expect(!Self.allows(name, Self.sandboxed))
            #expect(Self.allows(name, Self.free) && Self.allows(name, nil))
            #expect(!Self.allows(name, Self.free, list: ["com.example.A"]), "a list restricts")
            #expect(Self.allows(name, Self.sandboxed, list: ["*"]))
        }
        #expect(Self.allows("com.example.A", Self.sandboxed, list: ["com.example.*"]))
        #expect(!Self.allows("com.examples", Self.sandboxed, list: ["com.example.*"]))
        #expect(!Self.allows("com.example", Self.sandboxed, list: ["com.example.*"]))
        #expect(Self.allows("com.example.A", Self.sandboxed, open: ["com.example.A"]))
        #expect(!Self.allows("com.example.A.B", Self.sandboxed, open: ["com.example.A"]))
    }

    @Test(
        "P2: an unidentified caller has the open names only, unless no sandbox exists or policy allows all",
        arguments: [true, false])
    func unidentified(areSandboxesThere: Bool) {
        var file = PolicyFile(openNames: ["com.example.A"])
        func allows(_ name: String) -> Bool {
            file.allows(.post, name, to: .unidentified, areSandboxesThere: areSandboxesThere)
        }
        #expect(allows("com.example.A"))
        #expect(allows("com.example.B") != areSandboxesThere)
        file.unidentified = .allow
        #expect(allows("com.example.B"))
        file.unidentified = .refuse
        #expect(allows("com.example.A") && !allows("com.example.B"))
    }

    private final class Case {
        let world = World(seed: 1)
        let ledger: Ledger
        let client = UniqueName(rawValue: ":1.7")!
        var policy: PolicyLedger { ledger.policy }
        private var asked: Int64 = 0

        init() {
            ledger = Ledger(world)
            policy.note(client, PolicyJudgingTests.sandboxed)
        }

        func pass() { world.run(until: world.now + 1000) }
        func ask() { asked = world.now }

        func verdict() -> PolicyLedger.Verdict { policy.verdict(.observe, Names.name(0), of: client, since: asked) }
    }

    private static let opened = PolicyFile(openNames: [Names.name(0)])

    @Test("P3: verdicts are uncertain while a policy changes, and certain afterwards")
    func change() {
        let stage = Case()
        #expect(stage.verdict() == .refused)
        stage.pass()
        let version = stage.policy.change(to: Self.opened)
        #expect(stage.verdict() == .uncertain)
        stage.pass()
        stage.ask()
        #expect(stage.verdict() == .uncertain, "nobody knows whether it was read")
        stage.pass()
        stage.policy.settle(version)
        stage.pass()
        #expect(stage.verdict() == .uncertain, "it was asked before")
        stage.ask()
        #expect(stage.verdict() == .allowed)
    }

    @Test("P2: a result that contradicts the policy is a violation", arguments: [true, false], [true, false])
    func answers(isAllowed: Bool, isDone: Bool) {
        let stage = Case()
        if isAllowed { stage.policy.begin(with: Self.opened) }
        let result: Result<Void, BusError> = isDone ? .success(()) : .failure(BusError(.notAllowed, message: ""))
        stage.policy.judge(.observe, 0, of: stage.client, asked: 0, result)
        #expect(stage.world.violation?.rule == (isAllowed == isDone ? nil : "P2"))
        // What the service has no room for tells nothing.
        let other = Case()
        let failure: Result<Void, BusError> = .failure(BusError(.limitExceeded, message: ""))
        other.policy.judge(.observe, 0, of: other.client, asked: 0, failure)
        #expect(other.world.violation == nil)
    }

    @Test(
        "P2: a list that shows foreign connections to a sandboxed application is a violation", arguments: [true, false])
    func visibility(isOwn: Bool) {
        let stage = Case()
        let other = UniqueName(rawValue: ":1.8")!
        stage.policy.note(other, isOwn ? Self.sandboxed : Self.free)
        stage.policy.judgeSight(of: stage.client, [stage.client, other])
        #expect(stage.world.violation?.rule == (isOwn ? nil : "P2"))
    }

    // MARK: Suspension

    @Test("A2, B3: an override precedes the client's own call, which precedes activity")
    func order() {
        var outside = OutsideSuspension()
        func state(_ word: Bool?) -> Bool? { outside.isSuspended(word: word, at: 10_000_000, by: ":1.1") }
        #expect(state(nil) == false && state(true) == true)
        outside.note(.inactive, at: 0, by: ":1.1")
        #expect(state(nil) == true && state(false) == false)
        let first = outside.override(false, at: 1)
        #expect(state(nil) == nil, "nobody said that it was heard")
        outside.acknowledge(first, at: 2)
        #expect(state(nil) == false && state(true) == false)
        let second = outside.override(nil, at: 3)
        outside.acknowledge(second, at: 4)
        #expect(state(nil) == true)
    }

    @Test("A1: a report of the last moment, or to another service, does not surely suspend a client")
    func reports() {
        var outside = OutsideSuspension()
        outside.note(.inactive, at: 0, by: ":1.1")
        #expect(outside.isSuspended(word: nil, at: 200_000, by: ":1.1") == nil)
        #expect(outside.isSuspended(word: nil, at: 400_000, by: ":1.1") == true)
        #expect(outside.isSuspended(word: nil, at: 400_000, by: ":1.2") == false)
        #expect(!outside.mayCause("override") && outside.mayCause("activity") && outside.mayCause("explicit"))
    }
}
