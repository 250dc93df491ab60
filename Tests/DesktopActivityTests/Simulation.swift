// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

@testable import CarillonActivity

/// A table of processes that a test writes.
final class SimulatedProcesses: ProcessTable {
    func confinement(of processID: UInt32) -> Lookup<Confinement> {
        .known(processes[processID].map { $0.sandbox.map { .sandbox($0.application) } ?? .none } ?? .unknown)
    }

    var processes: [UInt32: ProcessFacts] = [:]
    var environments: [UInt32: SessionEnvironment] = [:]
    /// Those of which the facts are not known at once.
    var answersLate: Set<UInt32> = []
    var now: UInt64 = 1000

    func name(of processID: UInt32) -> String { processes[processID] == nil ? "" : "simulated" }
    func facts(of processID: UInt32) -> Lookup<ProcessFacts?> {
        let facts = processes[processID]
        return answersLate.contains(processID) ? .mayBlock { facts } : .known(facts)
    }
    func environment(of processID: UInt32) -> Lookup<SessionEnvironment?> { .known(environments[processID]) }

    /// Starts a process.
    func start(
        _ id: UInt32, parent: UInt32? = nil, session: UInt32? = nil, unit: String? = nil,
        sandbox: ProcessFacts.Sandbox? = nil
    ) {
        now += 1
        var facts = ProcessFacts(identity: ProcessIdentity(id: id, start: now))
        if let parent = parent.flatMap({ processes[$0] }) {
            facts.ancestors = [parent.identity] + parent.ancestors
            facts.session = parent.session
        }
        facts.session = session ?? (facts.session == 0 ? id : facts.session)
        facts.unit = unit
        facts.sandbox = sandbox
        processes[id] = facts
        now += 1
    }
}

/// A source that tells what a test says.
final class SimulatedSource: ActivitySource {
    let kind: ActivitySourceKind
    let session: SessionEnvironment
    var onEvent: ((ActivityEvent) -> Void)?
    var watchesVisibility = false
    private(set) var isStarted = false
    /// What it tells at once when it is started.
    var first: ActivityEvent?

    init(_ kind: ActivitySourceKind, _ session: SessionEnvironment) {
        self.kind = kind
        self.session = session
    }

    func start() {
        isStarted = true
        if let first { onEvent?(first) }
    }

    private(set) var questions = 0
    /// Whether it answers when it is asked for a sign of life.
    var isAlive = true

    func requestAnswer() {
        questions += 1
        if isAlive { onEvent?(.alive) }
    }

    func tell(_ event: ActivityEvent) { onEvent?(event) }
}

/// A tracker with its clients, and what it told of each last.
final class TrackedDesktop {
    let processes = SimulatedProcesses()
    private(set) var told: [ClientName: Activity] = [:]
    /// Everything that was told, in order.
    private(set) var history: [String] = []
    /// The owners of bus names.
    var owners: [String: UInt32] = [:]
    private(set) var tracker: ActivityTracker!
    let context = MainContext()
    let lookups: ProcessLookups

    init() {
        lookups = ProcessLookups(on: context, bound: 60_000)
        tracker = ActivityTracker(
            processes: processes, lookups: lookups,
            tell: { [unowned self] client, activity in
                told[client] = activity
                history.append("\(client.rawValue.dropFirst()) \(activity.rawValue)")
            },
            ownerOfName: { [unowned self] name, completion in completion(owners[name]) })
    }

    /// A client of a process, which is started if there is none.
    func client(_ label: String, _ processID: UInt32, seen: UInt64? = nil) {
        if processes.processes[processID] == nil { processes.start(processID) }
        tracker.clientIdentified(.labelled(label), processID: processID, seen: seen ?? processes.now)
    }

    func focus(_ window: WindowID?, process: UInt32? = nil, application: String? = nil) {
        tracker.handle(
            .focused(window.map { ActivityWindow(id: $0, processID: process, application: application) }))
    }

    func focus(_ window: ActivityWindow) { tracker.handle(.focused(window)) }

    func activity(_ label: String) -> Activity { told[.labelled(label)] ?? .unknown }
}

extension ClientName {
    /// A client that a test calls by a label of its own.
    static func labelled(_ label: String) -> ClientName {
        ClientName(rawValue: ":" + String(label.map { $0.isLetter || $0.isNumber ? $0 : "_" }))!
    }
}
