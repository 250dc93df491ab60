// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonTestLimits
import Testing

/// What is written for a later process: what has to survive, and nothing else.
@Suite("E3: changes written to the recovery log", .limited)
struct RememberingTests {
    /// An event that changes nothing that has to survive.
    struct Case: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let event: @Sendable (Scenario) throws -> Void

        init(_ description: String, _ event: @escaping @Sendable (Scenario) throws -> Void) {
            testDescription = description
            self.event = event
        }
    }

    static let cases: [Case] = [
        Case("suspending who is suspended") { try $0.suspend(one) },
        Case("resuming who is resumed") { try $0.resume(two) },
        Case("following activity again") { try $0.followActivity(three) },
        Case("removing an observer that there is not") { center in
            #expect(throws: CenterError.unknownObserver(ObserverID(rawValue: 99))) {
                try center.remove(ObserverID(rawValue: 99), of: one)
            }
        },
        Case("removing observers of which there are none") { $0.removeAll(of: one, name: "none") },
        Case("a stranger who leaves") { $0.disappear(client(50)) },
        Case("an answer") { $0.answer(one) },
        Case("a finding that nobody asked for") { $0.backlogProbe(one, hasRead: true) },
        Case("an answer to a call") { _ = $0.answer(to: one) },
        Case("who is behind a connection") { $0.identify(one, as: 7) },
        Case("the end of a moment of inactivity that was another") { $0.endInactivityTimer(three, epoch: 99) },
        Case("an application that is active, again") { $0.tell(.active, of: three) },
        Case("the configuration as it was") { $0.setAutomaticSuspension(true) },
        Case("a post that nobody matches") { try $0.post("none") },
        Case("a post that is delivered at once") { try $0.post("two") },
        Case("a post that its observer wants dropped") { try $0.post("drop") },
        Case("a post in whose place there is none") { try $0.post("none", coalescing: [.name]) },
        Case("posting what is queued, which is nothing") { $0.postQueued(.asap) },
        Case("a refused post") { center in
            #expect(throws: CenterError.invalidName) { try center.post("") }
        },
        Case("the end of restoring, with nobody") { center in
            var effects: [Effect] = []
            center.center.finishRestoring(effects: &effects)
            #expect(effects.isEmpty)
        },
    ]

    @Test("An event that changes no persistent state is not written", arguments: cases)
    func nothing(_ event: Case) throws {
        let center = Scenario()
        center.center.remembersChanges = true
        try center.observe(one, "one", "", .hold)
        try center.observe(one, "drop", "", .drop)
        try center.suspend(one)
        try center.observe(two, "two")
        try center.resume(two)
        try center.observe(three, "three")
        center.tell(.active, of: three)
        let before = center.changes.count
        try event.event(center)
        let written = center.changes.dropFirst(before)
        #expect(written.isEmpty, "\(written)")
    }

    /// The kinds of what was written.
    private static func kinds(_ changes: some Sequence<Change>) -> [String] {
        changes.map { "\($0)".prefix { $0 != "(" }.split(separator: ".").last.map(String.init) ?? "" }
    }

    @Test("E3: a queued post is written as due before it is written as taken from its queue")
    func taken() throws {
        let center = Scenario()
        center.center.remembersChanges = true
        try center.observe(one, "A")
        center.isBusy = true
        try center.post("A", style: .asap)
        var before = center.changes.count
        center.postQueued(.asap)
        #expect(Self.kinds(center.changes.dropFirst(before)) == ["queuedDue", "postTaken", "popped"])
        before = center.changes.count
        try center.post("A")
        center.send()
        #expect(center.changes.count == before, "what was not accepted before is on its way")
    }

    @Test("E3: a coalescing post is written as a replacement of queued posts, then as due, then as sent")
    func replaced() throws {
        let center = Scenario()
        center.center.remembersChanges = true
        try center.observe(one, "A")
        try center.post("A", style: .asap)
        var before = center.changes.count
        try center.post("A", coalescing: [.name])
        #expect(Self.kinds(center.changes.dropFirst(before)) == ["postsReplaced", "queuedDue", "popped"])
        before = center.changes.count
        try center.post("A")
        #expect(center.changes.count == before)
    }

    @Test("Resuming a client without held notifications writes a single change")
    func resuming() throws {
        let center = Scenario()
        center.center.remembersChanges = true
        try center.observe(one, "A")
        try center.suspend(one)
        let before = center.changes.count
        try center.resume(one)
        #expect(center.changes.count == before + 1, "no queue is flushed that is empty")
    }
}
