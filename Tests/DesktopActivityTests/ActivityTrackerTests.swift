// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonActivity

/// Whose window it is, and who is never suspended.
@Suite("A1, A2: activity of clients, derived from windows", .limited)
struct ActivityTrackerTests {
    let desktop = TrackedDesktop()

    @Test("A1: the client of the active window is active, and the client of a formerly active window is inactive")
    func switching() {
        desktop.client("a", 10)
        desktop.client("b", 20)
        desktop.focus("w1", process: 10)
        #expect(desktop.activity("a") == .active)
        #expect(desktop.activity("b") == .unknown, "no window of it was seen active")
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("a") == .inactive)
        #expect(desktop.activity("b") == .active)
        desktop.focus("w1", process: 10)
        #expect(desktop.activity("a") == .active)
        #expect(desktop.activity("b") == .inactive)
    }

    @Test("A1: without an active window, a client whose window was active is inactive")
    func nobody() {
        desktop.client("a", 10)
        desktop.focus("w1", process: 10)
        desktop.focus(nil)
        #expect(desktop.activity("a") == .inactive)
    }

    @Test("A1: a new connection of an inactive process is inactive, until the process becomes active")
    func connectionsMeanwhile() {
        desktop.client("a", 10)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 20)
        desktop.client("b", 10)
        #expect(desktop.activity("a") == .inactive && desktop.activity("b") == .inactive)
        // It was moved into a unit meanwhile.
        desktop.processes.processes[10]?.unit = "app-org.example.App-1.scope"
        desktop.client("c", 10)
        #expect(desktop.activity("c") == .inactive && desktop.tracker.isAnyoneInactive)
        desktop.tracker.forget(.labelled("a"))
        desktop.tracker.forget(.labelled("c"))
        #expect(desktop.tracker.isAnyoneInactive)
        desktop.focus("w1", process: 10)
        #expect(desktop.activity("b") == .active && !desktop.tracker.isAnyoneInactive)
        desktop.focus(nil)
        #expect(desktop.activity("b") == .inactive && desktop.tracker.isAnyoneInactive)
        desktop.tracker.forget(.labelled("b"))
        #expect(!desktop.tracker.isAnyoneInactive)
        desktop.client("d", 10)
        #expect(desktop.activity("d") == .inactive)
    }

    @Test("B3: the tracker names the application of the active window, as far as the source reports it")
    func told() {
        #expect(desktop.tracker.activeApplication == nil)
        desktop.client("a", 10)
        desktop.focus("w1", process: 10)
        #expect(desktop.tracker.activeApplication == .process(10, name: "simulated"))
        desktop.focus("w2", application: "org.example.App")
        #expect(desktop.tracker.activeApplication == .application("org.example.App"))
        desktop.focus("w3")
        #expect(desktop.tracker.activeApplication == .unknown)
        desktop.focus(nil)
        #expect(desktop.tracker.activeApplication == .nobody)
        desktop.tracker.handle(.ended(reason: ""))
        #expect(desktop.tracker.activeApplication == nil)
    }

    @Test("E4: beyond 4,096 windows all are forgotten, and later windows count again")
    func tooMany() {
        desktop.client("a", 10)
        desktop.client("b", 20)
        desktop.focus("w", process: 10)
        // With that one there are as many as are kept.
        for number in 1..<4096 { desktop.focus("w\(number)", process: 20) }
        desktop.focus(nil)
        #expect(desktop.activity("a") == .inactive && desktop.activity("b") == .inactive)
        desktop.focus("more", process: 20)
        #expect(desktop.activity("a") == .unknown && desktop.activity("b") == .active)
    }

    /// What can be seen, as a source tells it.
    private func show(_ window: WindowID, of process: UInt32, _ isHidden: Bool, application: String? = nil) {
        desktop.tracker.handle(
            .window(ActivityWindow(id: window, processID: process, application: application), isHidden: isHidden))
    }

    @Test("A1: with inactive-when=hidden, a client with a visible window is active, with or without the focus")
    func hidden() {
        desktop.tracker.rules.general = .hidden
        desktop.client("a", 10)
        desktop.client("b", 20)
        desktop.client("c", 30)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("a") == .active, "nobody told that it is hidden")
        show("w1", of: 10, true)
        #expect(desktop.activity("a") == .inactive)
        show("w3", of: 10, false)
        #expect(desktop.activity("a") == .active, "another of its windows, which never had the focus")
        show("w3", of: 10, true)
        #expect(desktop.activity("a") == .inactive)
        desktop.focus(nil)
        #expect(desktop.activity("b") == .active)
        desktop.tracker.isLocked = true
        #expect(desktop.activity("b") == .inactive)
        desktop.tracker.isLocked = false
        desktop.tracker.handle(.closed("w1"))
        desktop.tracker.handle(.closed("w3"))
        #expect(desktop.activity("a") == .unknown)
        #expect(desktop.activity("c") == .unknown, "it has no window")
        desktop.tracker.handle(.ended(reason: ""))
        #expect(desktop.activity("b") == .unknown)
    }

    @Test("A1: a visible window that never had the focus leaves its client unknown")
    func seen() {
        desktop.client("a", 10)
        desktop.focus("w2", process: 20)
        show("w1", of: 10, false)
        #expect(desktop.activity("a") == .unknown)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("a") == .inactive)
    }

    @Test("A1: rules for single applications match by the name of the unit, the window or the program")
    func rules() {
        desktop.processes.start(10, unit: "app-org.example.Unit-7.scope")
        desktop.processes.start(20)
        desktop.processes.start(30)
        for (label, process) in [("a", 10), ("b", 20), ("c", 30)] as [(String, UInt32)] {
            desktop.client(label, process)
            desktop.focus(
                ActivityWindow(id: label, processID: process, application: process == 20 ? "org.example.Window" : nil))
        }
        desktop.focus(nil)
        func inactive() -> String { ["a", "b", "c"].filter { desktop.activity($0) == .inactive }.joined() }
        #expect(inactive() == "abc")
        for (name, expected) in [
            ("org.example.Unit", "bc"), ("org.example.Window", "ac"), ("simulated", ""), ("org.example.None", "abc"),
        ] {
            desktop.tracker.rules = InactivityRules(applications: [name: .hidden])
            #expect(inactive() == expected, "\(name)")
            desktop.tracker.rules = InactivityRules(general: .hidden, applications: [name: .unfocused])
            #expect(inactive() == "abc".filter { !expected.contains($0) }, "\(name)")
        }
        desktop.tracker.rules = InactivityRules(applications: ["org.example.Unit": .unfocused, "simulated": .hidden])
        #expect(inactive() == "a", "what is said of the application counts before the program")
    }

    @Test("A1: every connection of a process has the activity of the process, also a later connection")
    func connections() {
        desktop.client("a1", 10)
        desktop.focus("w1", process: 10)
        desktop.client("a2", 10)
        #expect(desktop.activity("a2") == .active)
        desktop.focus("w2", process: 99)
        desktop.client("a3", 10)
        for client in ["a1", "a2", "a3"] { #expect(desktop.activity(client) == .inactive) }
    }

    @Test("A1: an active window without a known process makes other clients inactive, and no client active")
    func strangers() {
        desktop.client("a", 10)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 4711)
        #expect(desktop.activity("a") == .inactive)
        desktop.focus("w1", process: 10)
        desktop.focus("w3")
        #expect(desktop.activity("a") == .inactive)
    }

    @Test("A1: a client that becomes active is reported before a client that becomes inactive")
    func order() {
        for number in 1...9 {
            desktop.client("c\(number)", UInt32(number) * 10)
            desktop.focus("w\(number)", process: UInt32(number) * 10)
        }
        let before = desktop.history.count
        desktop.focus("w1", process: 10)
        #expect(Array(desktop.history.dropFirst(before)) == ["c1 active", "c9 inactive"])
    }

    @Test("A2: a process without a window is never suspended, whichever window is active")
    func windowless() {
        desktop.client("a", 10)
        for window in 1...3 { desktop.focus("w\(window)", process: UInt32(window)) }
        desktop.focus(nil)
        #expect(desktop.history == [])
    }

    @Test("A2: a client that closes its last window becomes unknown, and is not suspended")
    func closing() {
        desktop.client("a", 10)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 10)
        desktop.focus("w3", process: 20)
        desktop.tracker.handle(.closed("w1"))
        #expect(desktop.activity("a") == .inactive, "another one is left")
        desktop.tracker.handle(.closed("w2"))
        #expect(desktop.activity("a") == .unknown)
        desktop.focus("w4", process: 10)
        #expect(desktop.activity("a") == .active)
        desktop.tracker.handle(.closed("w4"))
        #expect(desktop.activity("a") == .unknown, "also when it was the active one")
    }

    @Test(
        "A2: a lost or undecided source makes all activity unknown, and earlier observations are forgotten",
        arguments: [ActivityEvent.ended(reason: ""), .undecided(reason: "")])
    func lost(event: ActivityEvent) {
        desktop.client("a", 10)
        desktop.client("b", 20)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 20)
        desktop.tracker.handle(event)
        #expect(desktop.activity("a") == .unknown)
        #expect(desktop.activity("b") == .unknown)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("a") == .unknown, "the new source never saw it active")
        #expect(desktop.activity("b") == .active)
    }

    @Test("A2: the compositor is never suspended")
    func compositor() {
        desktop.client("shell", 10)
        desktop.client("a", 20)
        desktop.tracker.handle(.compositor(10))
        desktop.focus("overview", process: 10)
        desktop.focus("w1", process: 20)
        #expect(desktop.activity("shell") == .unknown)
        desktop.focus(nil)
        #expect(desktop.activity("a") == .inactive)
    }

    @Test("A2: session services and background services are never suspended, even with a window")
    func services() {
        desktop.processes.start(10)
        desktop.processes.processes[10]?.isPartOfSession = true
        desktop.client("panel", 10)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("panel") == .unknown)
    }

    // MARK: Reuse of ids

    @Test("A window of another process that reuses the client's process id does not belong to the client")
    func reusedByAWindow() {
        desktop.client("a", 10)
        desktop.focus("w1", process: 10)
        // The client's connection is still there (a child has it, say), but its process is gone, and another has its id.
        desktop.processes.start(10)
        desktop.focus("w2", process: 10)
        #expect(desktop.activity("a") == .inactive, "w2 is another process's")
        desktop.tracker.handle(.closed("w1"))
        #expect(desktop.activity("a") == .unknown)
    }

    @Test("A process that started after the client was seen, with a reused id, is not the client's process")
    func reusedByTheTimeItIsRead() {
        let seen = desktop.processes.now
        desktop.processes.start(10)
        desktop.client("a", 10, seen: seen)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 20)
        #expect(desktop.history == [])
    }

    @Test("A window whose id is reused by another process belongs to that process only")
    func reusedWindow() {
        desktop.client("a", 10)
        desktop.client("b", 20)
        desktop.focus("w1", process: 10)
        desktop.focus("w1", process: 20)
        #expect(desktop.activity("a") == .unknown)
        #expect(desktop.activity("b") == .active)
    }

    @Test("A client that has left is forgotten, and gets no further activity")
    func forgotten() {
        desktop.client("a", 10)
        desktop.focus("w1", process: 10)
        desktop.tracker.forget(":a")
        desktop.focus("w2", process: 20)
        #expect(desktop.history == ["a active"])
    }

    // MARK: Helpers, sandboxes, terminals

    @Test("A2: a helper that the window's process started in its unit and session has the window's activity")
    func helpers() {
        desktop.processes.start(10, unit: "app-gnome-editor-10.scope")
        desktop.processes.start(11, parent: 10, unit: "app-gnome-editor-10.scope")
        desktop.processes.start(12, parent: 11, unit: "app-gnome-editor-10.scope")
        desktop.client("helper", 11)
        desktop.client("helpers' helper", 12)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 99)
        #expect(desktop.activity("helper") == .inactive)
        #expect(desktop.activity("helpers' helper") == .inactive)
    }

    @Test(
        "A2: children in another unit, or in none, are not the application's helpers",
        arguments: ["app-gnome-other-20.scope", nil])
    func notHelpers(unit: String?) {
        desktop.processes.start(10, unit: unit == nil ? nil : "app-gnome-editor-10.scope")
        desktop.processes.start(11, parent: 10, unit: unit)
        desktop.client("child", 11)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 99)
        #expect(desktop.activity("child") == .unknown)
    }

    @Test("A2: programs in a terminal are not suspended with the window of the terminal")
    func terminals() {
        let unit = "app-gnome-org.gnome.Terminal-10.scope"
        desktop.processes.start(10, unit: unit)
        // The shell makes a session of its own; what it starts is in it.
        desktop.processes.start(11, parent: 10, session: 11, unit: unit)
        desktop.processes.start(12, parent: 11, unit: unit)
        // A program that gave its terminal up, and whose parent ended.
        desktop.processes.start(13, session: 13, unit: unit)
        for (name, process) in [("terminal", 10), ("shell", 11), ("program", 12), ("daemon", 13)] {
            desktop.client(name, UInt32(process))
        }
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 99)
        #expect(desktop.activity("terminal") == .inactive)
        for name in ["shell", "program", "daemon"] { #expect(desktop.activity(name) == .unknown, "\(name)") }
    }

    @Test("A2: a program with a window of its own is an application, also when it was started in a terminal")
    func windowFromATerminal() {
        desktop.processes.start(10)
        desktop.processes.start(11, parent: 10, session: 11)
        desktop.client("editor", 11)
        desktop.focus("terminal", process: 10)
        desktop.focus("editor", process: 11)
        desktop.focus("terminal", process: 10)
        #expect(desktop.activity("editor") == .inactive)
    }

    @Test("A2: a parent without a window is not suspended because of the window of its child")
    func parents() {
        desktop.processes.start(10, unit: "app-x-1.scope")
        desktop.processes.start(11, parent: 10, unit: "app-x-1.scope")
        desktop.client("script", 10)
        desktop.focus("dialog", process: 11)
        #expect(desktop.activity("script") == .unknown)
        desktop.focus("w2", process: 99)
        #expect(desktop.activity("script") == .unknown)
        // With a window of its own it is active while its child's is.
        desktop.focus("own", process: 10)
        desktop.focus("dialog", process: 11)
        #expect(desktop.activity("script") == .active)
        desktop.focus("w2", process: 99)
        #expect(desktop.activity("script") == .inactive)
    }

    @Test("A1: processes of one sandbox instance share their activity, and another instance has its own")
    func sandboxes() {
        let first = ProcessFacts.Sandbox(application: "org.example.App", instance: "1")
        desktop.processes.start(10, sandbox: first)
        desktop.processes.start(11, sandbox: first)
        desktop.processes.start(20, sandbox: .init(application: "org.example.App", instance: "2"))
        desktop.client("proxy", 11)
        desktop.client("other", 20)
        desktop.focus("w1", process: 10)
        #expect(desktop.activity("proxy") == .active)
        #expect(desktop.activity("other") == .unknown)
        desktop.focus("w2", process: 99)
        #expect(desktop.activity("proxy") == .inactive)
        #expect(desktop.activity("other") == .unknown)
    }

    @Test("A1: facts about the process of a client or window count also if they are found later")
    func foundLater() throws {
        let sandbox = ProcessFacts.Sandbox(application: "org.example.App", instance: "1")
        for process in [10, 11] as [UInt32] {
            desktop.processes.start(process, sandbox: sandbox)
            desktop.processes.answersLate.insert(process)
        }
        desktop.client("proxy", 11)
        desktop.focus("w", process: 10)
        #expect(desktop.activity("proxy") == .unknown)
        try desktop.context.run("it is known whose window it is") { desktop.activity("proxy") == .active }
        desktop.focus("other", process: 20)
        #expect(desktop.activity("proxy") == .inactive)
        // News of a window whose process is known already leave it what it was.
        desktop.focus("w", process: 10)
        #expect(desktop.activity("proxy") == .active)
        desktop.tracker.handle(.closed("w"))
        #expect(desktop.activity("proxy") == .unknown)
        try desktop.context.run("nothing more is found out") { desktop.lookups.isIdle }
        #expect(desktop.activity("proxy") == .unknown)
    }

    @Test("A1: a client that leaves during the lookup of its process leaves no state behind")
    func leavesMeanwhile() throws {
        desktop.processes.start(10)
        desktop.processes.answersLate = [10]
        desktop.client("a", 10)
        desktop.tracker.forget(.labelled("a"))
        try desktop.context.run("it is found out") { desktop.lookups.isIdle }
        desktop.focus("w", process: 10)
        try desktop.context.run("it is found out") { desktop.lookups.isIdle }
        #expect(desktop.history.isEmpty)
    }

    @Test("A2: clients in a sandbox without an instance id are not suspended")
    func sandboxesWithoutInstance() {
        let sandbox = ProcessFacts.Sandbox(application: "org.example.App", instance: "")
        desktop.processes.start(10, sandbox: sandbox)
        desktop.processes.start(11, sandbox: sandbox)
        desktop.client("a", 11)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 99)
        #expect(desktop.activity("a") == .unknown)
    }

    // MARK: Windows of which only the application's id is known

    @Test("A1: an application id matches the sandbox's application, the unit, or a bus name of the client's process")
    func byID() {
        desktop.processes.start(10, sandbox: .init(application: "org.example.Sandboxed", instance: "1"))
        desktop.processes.start(20, unit: "app-gnome-org.example.Unit-20.scope")
        desktop.processes.start(30)
        desktop.owners["org.example.Named"] = 30
        desktop.client("sandboxed", 10)
        desktop.client("unit", 20)
        desktop.client("named", 30)
        desktop.client("windowless", 40)
        for (window, application) in [("1", "Sandboxed"), ("2", "Unit"), ("3", "Named"), ("4", "Unknown")] {
            desktop.focus(window, application: "org.example.\(application)")
        }
        #expect(
            desktop.history == [
                "sandboxed active", "unit active", "sandboxed inactive", "named active", "unit inactive",
                "named inactive",
            ])
    }

    @Test("A2: after the loss of a source, the owner of a bus name counts only after a new answer from the bus")
    func nameAskedAgain() {
        let (processes, client) = (SimulatedProcesses(), ClientName.labelled("a"))
        var told: [ClientName: Activity] = [:]
        var answers: [(UInt32?) -> Void] = []
        let tracker = ActivityTracker(
            processes: processes, lookups: ProcessLookups(on: MainContext()), tell: { told[$0] = $1 },
            ownerOfName: { answers.append($1) })
        processes.start(10)
        tracker.clientIdentified(client, processID: 10, seen: processes.now)
        let focused = ActivityEvent.focused(ActivityWindow(id: "w", application: "org.example.Named"))
        tracker.handle(focused)
        answers.removeFirst()(10)
        #expect(told[client] == .active)
        tracker.handle(.ended(reason: ""))
        tracker.handle(focused)
        #expect(told[client] == .unknown && answers.count == 1)
        answers.removeFirst()(10)
        #expect(told[client] == .active)
    }

    @Test("A2: two instances of an application with one id are not suspended")
    func ambiguous() {
        desktop.processes.start(10, unit: "app-editor-1.scope")
        desktop.processes.start(20, unit: "app-editor-2.scope")
        desktop.client("a", 10)
        desktop.focus("w1", application: "editor")
        #expect(desktop.activity("a") == .active)
        desktop.client("b", 20)
        desktop.focus("w2", application: "other")
        #expect(desktop.activity("a") == .unknown)
        #expect(desktop.activity("b") == .unknown)
        desktop.tracker.forget(":b")
        desktop.focus(nil)
        #expect(desktop.activity("a") == .inactive)
    }

    // MARK: Kinds of windows, and windows that belong to others

    @Test("A2: a process with a dock, a panel or the background is never inactive, also by its other windows")
    func shell() {
        desktop.client("panel", 10)
        desktop.client("b", 20)
        desktop.focus(ActivityWindow(id: "dock", processID: 10, kind: .shell))
        #expect(desktop.activity("panel") == .active)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("panel") == .unknown)
        desktop.focus("settings", process: 10)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("panel") == .unknown)
        // Without its dock it is an application as others are.
        desktop.tracker.handle(.closed("dock"))
        #expect(desktop.activity("panel") == .inactive)
        // One that is there, and never active, is one as well.
        desktop.tracker.handle(.shell(ActivityWindow(id: "dock", processID: 10, kind: .shell)))
        #expect(desktop.activity("panel") == .unknown)
    }

    @Test("A2: a short-lived window such as a splash screen does not make its process an application")
    func passing() {
        desktop.client("a", 10)
        desktop.focus(ActivityWindow(id: "splash", processID: 10, kind: .passing))
        #expect(desktop.activity("a") == .active)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("a") == .unknown)
    }

    @Test(
        "A1: an application is active while a window of another process is focused that is transient for its own"
    )
    func transient() {
        desktop.client("a", 10)
        desktop.client("portal", 30)
        desktop.focus("w1", process: 10)
        desktop.focus(ActivityWindow(id: "chooser", processID: 30, transientFor: [.init(processID: 10)]))
        #expect(desktop.activity("a") == .active)
        #expect(desktop.activity("portal") == .active)
        desktop.focus("w2", process: 20)
        #expect(desktop.activity("a") == .inactive)
        desktop.focus(ActivityWindow(id: "chooser", processID: 30, transientFor: [.init(processID: 10)]))
        #expect(desktop.activity("a") == .active)
        desktop.tracker.handle(.closed("chooser"))
        #expect(desktop.activity("a") == .inactive)
        #expect(desktop.activity("portal") == .unknown)
        // A dialog of a dialog.
        desktop.focus(
            ActivityWindow(id: "overwrite", processID: 40, transientFor: [.init(processID: 30), .init(processID: 10)]))
        #expect(desktop.activity("a") == .active)
        desktop.focus(nil)
        #expect(desktop.activity("a") == .inactive)
    }

    @Test("A1: a transient window counts for its parent application, also where only application ids are reported")
    func transientByID() {
        desktop.processes.start(10, unit: "app-editor-1.scope")
        desktop.client("a", 10)
        desktop.focus("w1", application: "editor")
        desktop.focus(ActivityWindow(id: "2", application: "portal", transientFor: [.init(application: "editor")]))
        #expect(desktop.activity("a") == .active)
        desktop.focus("3", application: "portal")
        #expect(desktop.activity("a") == .inactive)
    }

    @Test("isAnyoneInactive is true exactly while a client is inactive")
    func anyone() {
        desktop.client("a", 10)
        desktop.client("b", 20)
        #expect(!desktop.tracker.isAnyoneInactive)
        desktop.focus("w1", process: 10)
        desktop.focus("w2", process: 20)
        #expect(desktop.tracker.isAnyoneInactive)
        desktop.focus(nil)
        desktop.tracker.forget(.labelled("a"))
        #expect(desktop.tracker.isAnyoneInactive)
        desktop.tracker.forget(.labelled("b"))
        #expect(!desktop.tracker.isAnyoneInactive)
        desktop.client("c", 30)
        desktop.focus("w3", process: 30)
        desktop.focus(nil)
        desktop.tracker.handle(.ended(reason: "gone"))
        #expect(!desktop.tracker.isAnyoneInactive)
    }

    @Test("After rapid switching, the last active window determines the activity")
    func rapid() {
        desktop.client("a", 10)
        desktop.client("b", 20)
        for _ in 0..<1000 {
            desktop.focus("w1", process: 10)
            desktop.focus(nil)
            desktop.focus("w2", process: 20)
        }
        #expect(desktop.activity("a") == .inactive)
        #expect(desktop.activity("b") == .active)
    }
}
