// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonActivity

/// How a source is chosen, lost, and tried again.
@Suite("A3: selection of an activity source, and recovery from its loss", .limited)
struct ActivityFollowerTests {
    final class Stage {
        let context = MainContext()
        let processes = SimulatedProcesses()
        private(set) var sources: [SimulatedSource] = []
        private(set) var told: [String] = []
        private(set) var changes: [String] = []
        /// What a new source says at once.
        var first: ActivityEvent?
        private(set) var follower: ActivityFollower!

        init(
            _ session: SessionEnvironment, _ choice: ActivityChoice = .automatic,
            _ rules: InactivityRules = InactivityRules()
        ) {
            let lookups = ProcessLookups(on: context)
            let tracker = ActivityTracker(processes: processes, lookups: lookups) { [unowned self] client, activity in
                told.append("\(client.rawValue.dropFirst()) \(activity.rawValue)")
            }
            follower = ActivityFollower(
                choice: choice, rules: rules, session: session, context: context, processes: processes,
                lookups: lookups, tracker: tracker
            ) { [unowned self] kind, session in
                let source = SimulatedSource(kind, session)
                source.first = first
                sources.append(source)
                return source
            }
            follower.onChange = { [unowned self] in
                changes.append("\(follower.kind?.rawValue ?? "none") \(follower.state.rawValue)")
            }
        }

        func client(_ label: String, _ processID: UInt32, environment: SessionEnvironment? = nil) {
            let name = ClientName.labelled(label)
            processes.start(processID)
            processes.environments[processID] = environment
            follower.clientAppeared(name)
            follower.clientIdentified(name, processID: processID)
        }

        /// Dispatches what is ready.
        func iterate() {
            exhaust("the loop") { context.iterate(mayBlock: false) }
        }
    }

    private static let x11 = SessionEnvironment([.display: ":0"])
    private static let window = ActivityEvent.focused(ActivityWindow(id: "w", processID: 10))

    @Test("The source of the session is started, and followed while it reports the active window")
    func following() {
        let stage = Stage(Self.x11)
        stage.follower.start()
        #expect(stage.sources.map(\.kind) == [.x11])
        #expect(stage.follower.state == .waiting)
        stage.client("a", 10)
        stage.sources[0].tell(Self.window)
        #expect(stage.told == ["a active"])
        #expect(stage.changes == ["x11 off", "x11 waiting", "x11 following"])
        stage.sources[0].tell(.undecided(reason: "no window manager"))
        #expect(stage.told == ["a active", "a unknown"])
        #expect(stage.follower.state == .waiting)
        stage.sources[0].tell(Self.window)
        #expect(stage.follower.state == .following)
    }

    @Test(
        "A1: a source watches the visibility of windows only if that matters to an application",
        arguments: [
            (InactivityRules(), false), (InactivityRules(general: .hidden), true),
            (InactivityRules(applications: ["a": .unfocused, "b": .hidden]), true),
            (InactivityRules(applications: ["a": .unfocused]), false),
            (InactivityRules(general: .hidden, applications: ["a": .unfocused]), true),
        ])
    func visibility(rules: InactivityRules, isWatched: Bool) {
        let stage = Stage(Self.x11, .automatic, rules)
        stage.follower.start()
        #expect(stage.sources.map(\.watchesVisibility) == [isWatched])
    }

    @Test("No source is started if the session offers none or the configuration selects none")
    func nothing() {
        for stage in [Stage(SessionEnvironment()), Stage(Self.x11, .none)] {
            stage.follower.start()
            stage.client("a", 10)
            stage.iterate()
            #expect(stage.sources.isEmpty)
            #expect(stage.follower.kind == nil && stage.follower.state == .off)
        }
    }

    @Test("A source selected by name is started whatever the session offers")
    func named() {
        let stage = Stage(Self.x11, .kind(.sway))
        stage.follower.start()
        #expect(stage.sources.map(\.kind) == [.sway])
    }

    @Test("A2: after the loss of its source every client counts as active, and a new source starts after a second")
    func lost() throws {
        let stage = Stage(Self.x11)
        stage.follower.start()
        stage.client("a", 10)
        stage.sources[0].tell(Self.window)
        let end = ContinuousClock.now
        stage.sources[0].tell(.ended(reason: "gone"))
        #expect(stage.told == ["a active", "a unknown"])
        #expect(stage.follower.state == .lost)
        #expect(stage.sources.count == 1)
        // What the old one still says is nobody's concern.
        stage.sources[0].tell(Self.window)
        #expect(stage.told.count == 2)
        try stage.context.run("it is tried again") { stage.sources.count > 1 }
        #expect(ContinuousClock.now - end >= .milliseconds(999), "the pause is a second; GLib counts in milliseconds")
        stage.sources[1].tell(Self.window)
        #expect(stage.follower.state == .following)
        #expect(stage.told.last == "a active")
    }

    @Test("A source that fails during its start is not started again before a second has passed")
    func failsAtOnce() {
        let stage = Stage(Self.x11)
        stage.first = .ended(reason: "nothing there")
        let start = ContinuousClock.now
        stage.follower.start()
        #expect(stage.follower.state == .lost)
        stage.iterate()
        #expect(stage.sources.count == 1 || ContinuousClock.now - start >= .milliseconds(999))
    }

    @Test("If the best source fails, the next source is started at once")
    func nextBest() {
        let stage = Stage(SessionEnvironment([.swaySocket: "/run/sway", .waylandDisplay: "wayland-0"]))
        stage.first = .ended(reason: "nothing there")
        stage.follower.start()
        stage.iterate()
        #expect(
            stage.sources.map(\.kind)
                == ActivitySourceKind.offered(
                    by: SessionEnvironment([.swaySocket: "/run/sway", .waylandDisplay: "wayland-0"])))
    }

    @Test("A service started before the desktop learns the session from its first client with a display")
    func learned() {
        let stage = Stage(SessionEnvironment())
        stage.follower.start()
        stage.client("daemon", 9, environment: SessionEnvironment([.runtimeDirectory: "/run"]))
        #expect(stage.sources.isEmpty)
        stage.client("a", 10, environment: Self.x11)
        #expect(stage.sources.map(\.kind) == [.x11])
        #expect(stage.sources[0].session == Self.x11)
        stage.sources[0].tell(Self.window)
        #expect(stage.told == ["a active"], "also of those who came before it")
    }

    @Test("A restarted desktop is found through a new client, and a second desktop beside a live one is ignored")
    func relearned() {
        let stage = Stage(Self.x11)
        stage.follower.start()
        stage.sources[0].tell(Self.window)
        stage.client("b", 20, environment: SessionEnvironment([.display: ":1"]))
        #expect(stage.sources.count == 1, "the first one is alive")
        stage.sources[0].tell(.ended(reason: "gone"))
        stage.client("c", 30, environment: SessionEnvironment([.display: ":1"]))
        #expect(stage.sources.count == 2)
        #expect(stage.sources.last?.session[.display] == ":1")
    }

    @Test("A reload of the configuration selects a source anew or none, also if the choice is unchanged")
    func reconfigured() {
        let stage = Stage(Self.x11)
        stage.follower.start()
        stage.client("a", 10)
        stage.sources[0].tell(Self.window)
        stage.follower.choose(.none, InactivityRules())
        #expect(stage.told == ["a active", "a unknown"])
        #expect(stage.follower.kind == nil && stage.follower.state == .off)
        stage.sources[0].tell(Self.window)
        #expect(stage.told.count == 2)
        stage.follower.choose(.automatic, InactivityRules())
        #expect(stage.sources.count == 2)
        stage.sources[1].tell(Self.window)
        #expect(stage.told.last == "a active")
        // Also when it says what it said before: whoever asks for it may have seen the source go wrong.
        stage.follower.choose(.automatic, InactivityRules())
        #expect(stage.sources.count == 3)
        #expect(stage.told.last == "a unknown")
        stage.sources[2].tell(Self.window)
        #expect(stage.follower.state == .following && stage.told.last == "a active")
    }

    @Test("Without a followed source the reason includes advice, and with one the reason is empty")
    func reasons() {
        let stage = Stage(SessionEnvironment([.sessionType: "wayland", .currentDesktop: "GNOME"]))
        #expect(stage.follower.reason.isEmpty)
        stage.follower.start()
        #expect(stage.follower.reason.contains("gnome-extensions enable"))
        stage.sources[0].tell(Self.window)
        #expect(stage.follower.reason.isEmpty)
        stage.sources[0].tell(.ended(reason: "turned off"))
        #expect(stage.follower.reason.hasPrefix("gnome: turned off; "))
        #expect(stage.follower.reason.contains("gnome-extensions enable"))
        stage.follower.choose(.none, InactivityRules())
        #expect(stage.follower.reason == "the configuration selects no source")
        #expect(Set(ActivitySourceKind.allCases.map(\.advice)).count == ActivitySourceKind.allCases.count)
    }

    @Test("A locked screen has no active window, and unlocking restores the window that the source reported last")
    func locked() {
        let stage = Stage(Self.x11)
        stage.follower.start()
        stage.client("a", 10)
        stage.client("b", 20)
        stage.sources[0].tell(Self.window)
        stage.follower.isLocked = true
        #expect(stage.told == ["a active", "a inactive"])
        // What happens behind the lock screen.
        stage.sources[0].tell(.focused(ActivityWindow(id: "v", processID: 20)))
        #expect(stage.told == ["a active", "a inactive"])
        stage.follower.isLocked = false
        #expect(stage.told == ["a active", "a inactive", "b active"])
        stage.follower.isLocked = true
        stage.sources[0].tell(.closed("v"))
        stage.follower.isLocked = false
        #expect(stage.told.last == "b unknown", "its window is gone")
        // One that nobody follows resumes nobody, and is no reason to follow.
        stage.sources[0].tell(.undecided(reason: "no window manager"))
        stage.follower.isLocked = true
        #expect(stage.told.last == "a unknown")
    }
}
