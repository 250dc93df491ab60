// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonActivity
@testable import CarillonService

/// Who it is that policy is asked about.
@Suite("P2: identification of callers for policy", .limited)
struct PolicyGateTests {
    /// A bus that knows the processes of some connections, and has forgotten the others.
    private final class Bus: MessageBus {
        let context = MainContext()
        var processes: [String: UInt32] = [:]
        /// Whether it has no room for questions.
        var isFull = false

        func send(_: Message) {}

        func call(_ message: Message, timeout _: ReplyTimeout, completion: (Result<Message, BusError>) -> Void) {
            guard !isFull else {
                return completion(.failure(BusError(name: BusError.limitsExceededName, message: "no room")))
            }
            var reader = MessageReader(message)
            guard let name = try? reader.readString(), let process = processes[name] else {
                return completion(.failure(BusError(name: BusError.nameHasNoOwnerName, message: "it left")))
            }
            let reply = Wire.methodCall("Reply")
            var writer = MessageWriter(reply)
            writer.array(of: "{sv}") { writer in
                writer.dictEntry { writer in
                    writer.append("ProcessID")
                    writer.variant(of: "u") { $0.append(process) }
                }
            }
            completion(.success(reply))
        }
    }

    private final class Processes: ProcessTable {
        var confinements: [UInt32: Confinement] = [:]
        /// What all run in.
        var unit: String?
        let now: UInt64 = 0

        func name(of _: UInt32) -> String { "" }
        func confinement(of processID: UInt32) -> Lookup<Confinement> {
            .known(confinements[processID] ?? .unknown)
        }
        func facts(of processID: UInt32) -> Lookup<ProcessFacts?> {
            var facts = ProcessFacts(identity: ProcessIdentity(id: processID, start: 0))
            facts.unit = unit
            return .known(facts)
        }
        func environment(of _: UInt32) -> Lookup<SessionEnvironment?> { .known(nil) }
    }

    private let bus = Bus()
    private let processes = Processes()
    private let callers: Callers

    init() {
        callers = Callers(bus: bus, table: processes, lookups: ProcessLookups(on: bus.context))
    }

    private func gate(maySandboxesCall: Bool = false) -> PolicyGate {
        let gate = PolicyGate(callers: callers) { maySandboxesCall }
        callers.onKnown = { _, caller in gate.learned(caller) }
        return gate
    }

    /// A connection that has called, of a process that is in `confinement`; nil when it had left by then.
    private func call(_ name: UniqueName, _ confinement: Confinement?) {
        if let confinement {
            let process = UInt32(processes.confinements.count + 1)
            processes.confinements[process] = confinement
            bus.processes[name.rawValue] = process
        }
        callers.identify(name)
    }

    private func isRefused(_ name: UniqueName, by gate: PolicyGate, _ need: PolicyGate.Need) -> Bool {
        do throws(BusError) {
            try gate.check(name) { need }
            return false
        } catch {
            return error.centerError == .notAllowed
        }
    }

    @Test("P2: policy applies the sandbox of the process that the bus reports")
    func sandbox() {
        let gate = gate()
        call(":1.1", Confinement.none)
        call(":1.2", .sandbox("org.x.Y"))
        for need in [PolicyGate.Need.post(name: "Ding"), .observe(name: ""), .session("do it"), .nothing] {
            #expect(!isRefused(":1.1", by: gate, need))
            let isOwn = if case .nothing = need { true } else { false }
            #expect(isRefused(":1.2", by: gate, need) != isOwn)
        }
        #expect(!isRefused(":1.2", by: gate, .post(name: "org.x.Y.Ding")))
        #expect(!isRefused(":1.2", by: gate, .observe(name: "org.x.Y.Ding")))
    }

    @Test("P2: an unidentified caller counts as part of the session only if no sandbox could have called")
    func unidentified() {
        let gate = gate()
        call(":1.1", nil)
        call(":1.2", .unknown)
        for name: UniqueName in [":1.1", ":1.2", ":1.3"] {
            #expect(!isRefused(name, by: gate, .post(name: "Ding")))
            #expect(isRefused(name, by: self.gate(maySandboxesCall: true), .post(name: "Ding")))
        }
        // One has called: from now on it could have been one.
        let aware = self.gate()
        call(":1.4", .sandbox("org.x.Y"))
        #expect(isRefused(":1.1", by: aware, .post(name: "Ding")))
        #expect(!isRefused(":1.1", by: aware, .nothing))
    }

    @Test("P2: the possibility of calls from a sandbox is remembered after the sandbox has ended")
    func remembered() {
        var may = false
        let gate = PolicyGate(callers: callers) { may }
        #expect(!gate.confinesUnidentified)
        may = true
        #expect(gate.confinesUnidentified)
        may = false
        #expect(gate.confinesUnidentified)
    }

    @Test("P3: a program of the session is identified by its unit, and restricted only by its own list")
    func application() {
        processes.unit = "app-gnome-org.x.Y-4711.scope"
        let gate = gate()
        gate.policy.applications = ["org.x.Y": [.post: [.exactly("Ding")]]]
        call(":1.1", Confinement.none)
        #expect(!isRefused(":1.1", by: gate, .post(name: "Ding")))
        #expect(isRefused(":1.1", by: gate, .post(name: "Dong")))
        for need in [PolicyGate.Need.post(name: "org.x.Y.Ding"), .observe(name: ""), .session("do it")] {
            #expect(!isRefused(":1.1", by: gate, need))
        }
        gate.policy.applications = ["org.x.Z": [.post: []]]
        #expect(!isRefused(":1.1", by: gate, .post(name: "Dong")))
    }

    @Test("G3: only a program without restrictions may set the origin of a notification")
    func origin() throws {
        processes.unit = "app-gnome-org.x.Y-4711.scope"
        let gate = gate()
        call(":1.1", Confinement.none)
        call(":1.2", .sandbox("org.x.Z"))
        gate.policy.applications = ["org.x.Z": [.post: [.all]]]
        func refusal(_ poster: UniqueName, _ options: PostOptions) -> BusError? {
            do throws(BusError) {
                try gate.check(options, ofPost: "Ding", poster)
                return nil
            } catch { return error }
        }
        var options = PostOptions()
        options.origin = try OutsideOrigin(host: "alpha", user: nil)
        #expect(refusal(":1.1", options) == nil)
        let sandboxed = refusal(":1.2", options)
        #expect(sandboxed?.centerError == .notAllowed)
        #expect(sandboxed?.message.contains("org.x.Z may not set") == true)
        #expect(sandboxed?.message.hasSuffix("no application in a sandbox may") == true)
        #expect(refusal(":1.2", PostOptions()) == nil)
        // A list of its own confines a program of the session; one that has all does not.
        gate.policy.applications = ["org.x.Y": [.post: [.exactly("Ding")]]]
        #expect(refusal(":1.1", options)?.message.hasSuffix("post in [Policy org.x.Y] restricts it") == true)
        #expect(refusal(":1.1", PostOptions()) == nil)
        gate.policy.applications = ["org.x.Y": [.post: [.all], .observe: []]]
        #expect(refusal(":1.1", options) == nil)
        // Nor one of which nobody knows whose it is.
        gate.policy.unidentified = .refuse
        #expect(refusal(":1.9", options)?.centerError == .notAllowed)
    }

    @Test("G1, P2: a post to all sessions is refused to sandboxes, and to all posters if export lacks the name")
    func allSessions() {
        let gate = gate()
        call(":1.1", Confinement.none)
        call(":1.2", .sandbox("org.x.Y"))
        gate.policy.applications = ["org.x.Y": [.post: [.all]]]
        gate.sessions.export = [.exactly("Ding")]
        var options = PostOptions()
        options.goesToAllSessions = true
        func refusal(_ poster: UniqueName, _ name: String) -> BusError? {
            do throws(BusError) {
                try gate.check(options, ofPost: name, poster)
                return nil
            } catch { return error }
        }
        #expect(refusal(":1.1", "Ding") == nil)
        #expect(refusal(":1.1", "Dong")?.centerError == .notAllowed)
        #expect(refusal(":1.1", "Dong")?.message.contains("export in [Sessions]") == true)
        #expect(refusal(":1.2", "Ding")?.message.contains("org.x.Y may not post to all sessions") == true)
    }

    @Test("P3: the option unidentified decides about unidentified callers, whether or not sandboxes can call")
    func unidentifiedByWord() {
        for (word, isRefused) in [(Policy.Unidentified.allow, false), (.refuse, true)] {
            for maySandboxesCall in [false, true] {
                let gate = gate(maySandboxesCall: maySandboxesCall)
                gate.policy.unidentified = word
                gate.policy.openNames = [.exactly("Open")]
                #expect(self.isRefused(":1.1", by: gate, .post(name: "Ding")) == isRefused)
                #expect(!self.isRefused(":1.1", by: gate, .post(name: "Open")))
            }
        }
    }

    @Test("P2: a sandbox sees only its own connections")
    func visibility() {
        let gate = gate(maySandboxesCall: true)
        call(":1.1", Confinement.none)
        call(":1.2", .sandbox("org.x.Y"))
        call(":1.3", .sandbox("org.x.Y"))
        call(":1.4", .sandbox("org.x.Z"))
        call(":1.5", nil)
        let all: [UniqueName] = [":1.1", ":1.2", ":1.3", ":1.4", ":1.5"]
        #expect(all.filter(gate.visibility(of: ":1.1").shows) == all)
        #expect(all.filter(gate.visibility(of: ":1.2").shows) == [":1.2", ":1.3"])
        #expect(all.filter(gate.visibility(of: ":1.4").shows) == [":1.4"])
        #expect(all.filter(gate.visibility(of: ":1.5").shows) == [":1.5"])
        #expect(
            all.filter { gate.visibility(of: $0).isWhole } == [":1.1"], "nobody else is told of what is not a client's")
    }

    @Test("P2: the policy shown to a sandbox contains only its own lists and the open names")
    func shown() {
        let gate = gate()
        gate.policy.openNames = [.below("a.")]
        gate.policy.applications = ["org.x.Y": [.post: [.all]], "org.x.Z": [.observe: []]]
        call(":1.1", Confinement.none)
        call(":1.2", .sandbox("org.x.Y"))
        #expect(gate.shown(to: ":1.1").applications == ["org.x.Y": ["post": ["*"]], "org.x.Z": ["observe": []]])
        #expect(gate.shown(to: ":1.2").applications == ["org.x.Y": ["post": ["*"]]])
        #expect(gate.shown(to: ":1.2").openNames == ["a.*"])
    }

    @Test("E9: a list that opens nothing to a sandbox is not shown to the sandbox, and refusals name the mistake")
    func forSessionOnly() {
        let gate = gate()
        gate.policy.applications = ["org.x.Y": [.post: [.all], .observe: [.below("b.")]]]
        gate.policy.forSessionOnly = ["org.x.Y": [.post]]
        call(":1.1", Confinement.none)
        call(":1.2", .sandbox("org.x.Y"))
        #expect(gate.shown(to: ":1.1").applications == ["org.x.Y": ["post": ["*"], "observe": ["b.*"]]])
        #expect(gate.shown(to: ":1.2").applications == ["org.x.Y": ["observe": ["b.*"]]])
        let refusal = gate.policy.refusal(of: .post, "a.B", to: .sandbox("org.x.Y"))
        #expect(
            refusal?.hasSuffix(
                "a configuration file has a mistake, so post in [Policy org.x.Y] allows it no names") == true)
        #expect(gate.policy.refusal(of: .observe, "a.B", to: .sandbox("org.x.Y"))?.contains("mistake") == false)
    }

    @Test("P3: exactly the registrations that policy forbids are found")
    func forbidden() {
        let gate = gate()
        call(":1.1", Confinement.none)
        call(":1.2", .sandbox("org.x.Y"))
        func registrations(of client: UniqueName) -> [Registration] {
            [nil, "Ding", "org.x.Y", "org.x.Y.Ding"].enumerated().map { number, name in
                Registration(
                    id: ObserverID(rawValue: UInt64(number)), client: client, name: name, object: "door",
                    options: ObserverOptions())
            }
        }
        #expect(gate.forbidden(registrations(of: ":1.1"), of: ":1.1").isEmpty)
        #expect(gate.forbidden(registrations(of: ":1.2"), of: ":1.2").map(\.rawValue).sorted() == [0, 1])
        gate.policy.applications = ["org.x.Y": [.observe: [.exactly("Ding")]]]
        #expect(gate.forbidden(registrations(of: ":1.2"), of: ":1.2").map(\.rawValue) == [0])
    }

    @Test("E4, E5: a caller is identified again if the bus refused the first question, and not if the caller left")
    func askedAgain() {
        var learned: [AccountID] = []
        callers.onKnown = { _, caller in learned.append(caller.account) }
        bus.isFull = true
        call(":1.7", .some(.none))
        #expect(callers[":1.7"]?.account == .connection(":1.7"), "served as one of whom nothing is known")
        bus.isFull = false
        callers.identify(":1.7")
        callers.identify(":1.7")
        #expect(learned == [.connection(":1.7"), .process(1)])
        call(":1.8", nil)
        callers.identify(":1.8")
        #expect(learned.count == 3)
    }
}
