// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonActivity

/// How a source is chosen, lost, and tried again.
@Suite("A3: choosing a source and keeping it", .limited)
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

    @Test("The session's source is started, followed when it tells, and shown")
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
        "A1: a source watches which windows can be seen where that matters to any application, and only there",
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

    @Test("Nothing is started where there is nothing, or nothing is wanted")
    func nothing() {
        for stage in [Stage(SessionEnvironment()), Stage(Self.x11, .none)] {
            stage.follower.start()
            stage.client("a", 10)
            stage.iterate()
            #expect(stage.sources.isEmpty)
            #expect(stage.follower.kind == nil && stage.follower.state == .off)
        }
    }

    @Test("A source by its name is taken whatever the session offers")
    func named() {
        let stage = Stage(Self.x11, .kind(.sway))
        stage.follower.start()
        #expect(stage.sources.map(\.kind) == [.sway])
    }

    @Test("A2: a lost source makes everybody active, and is tried again after a pause, not at once")
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

    @Test("A source that fails while it is started takes nothing down")
    func failsAtOnce() {
        let stage = Stage(Self.x11)
        stage.first = .ended(reason: "nothing there")
        let start = ContinuousClock.now
        stage.follower.start()
        #expect(stage.follower.state == .lost)
        stage.iterate()
        #expect(stage.sources.count == 1 || ContinuousClock.now - start >= .milliseconds(999))
    }

    @Test("Where the best one fails the next one is tried at once")
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

    @Test("A service that was started before the desktop learns of it from its first client with a window")
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

    @Test("A desktop that was started again, elsewhere, is learned of in the same way; a second one beside it is not")
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

    @Test("The configuration chooses anew, also nothing, while it runs")
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

    @Test("While nobody is followed the reason stands with what a person can do; while somebody is, none")
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

    @Test("A screen that is locked has no active window; unlocked it has the one that the source told last")
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
