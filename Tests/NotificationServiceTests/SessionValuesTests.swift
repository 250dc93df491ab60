// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Testing

@testable import CarillonCore
@testable import CarillonService

/// Values that cross from session to session, and end where they came from (R8).
@Suite("R8: retained values between sessions", .limited)
struct SessionValuesTests {
    private typealias Scene = SystemBusScene

    private static let other: UniqueName = ":1.2"

    private func scene() -> Scene {
        let scene = Scene()
        var rules = SessionRules()
        rules.imports = [Scene.user: [.all]]
        rules.retained = [Scene.user: [.all]]
        rules.export = [NamePattern("com.example.*")!]
        scene.sessions.use(rules)
        scene.join(Self.other)
        return scene
    }

    private func understands(_ scene: Scene, _ session: UniqueName = other) {
        scene.arrive(UnderstandsSignal(["values", "losses", "later"]).message(to: ":1.1"), from: session)
    }

    /// The objects of the values from others, in order.
    private func kept(_ scene: Scene) -> [String] { scene.center.kept.keys.map(\.object).sorted() }

    // MARK: What comes

    @Test("A value ends when its session removes it, and a repeated value is posted only if it is missing")
    func removed() {
        let scene = scene()
        understands(scene)
        scene.arrive(ValuesSignal(1, isBeginning: true).message(to: ":1.1"), from: Self.other)
        scene.value(2, object: "a", kept: true, from: Self.other)
        scene.value(3, object: "b", kept: true, from: Self.other)
        scene.arrive(ValuesSignal(4, isBeginning: false).message(to: ":1.1"), from: Self.other)
        #expect(kept(scene) == ["a", "b"] && scene.posted.count == 2)
        scene.value(5, object: "a", kept: true, from: Self.other)
        #expect(scene.posted.count == 2, "it is here")
        scene.value(6, object: "a", from: Self.other)
        #expect(scene.posted.count == 3, "it was posted again")
        scene.arrive(RemovedSignal(7, name: "Ding", object: "a").message(to: ":1.1"), from: Self.other)
        #expect(kept(scene) == ["b"])
        scene.value(8, object: "a", kept: true, from: Self.other)
        #expect(kept(scene) == ["a", "b"] && scene.posted.count == 4)
        scene.bus.pass(milliseconds: 1)
        #expect(scene.confirmed(to: Self.other).last == 8)
    }

    @Test("Values that are missing in a session's complete list are removed")
    func omitted() {
        let scene = scene()
        understands(scene)
        func tell(_ objects: [String], from first: UInt64) {
            scene.arrive(ValuesSignal(first, isBeginning: true).message(to: ":1.1"), from: Self.other)
            for (index, object) in objects.enumerated() {
                scene.value(first + UInt64(index) + 1, object: object, kept: true, from: Self.other)
            }
            scene.bus.pass(milliseconds: 2000)
            scene.arrive(ValuesSignal(first + 10, isBeginning: false).message(to: ":1.1"), from: Self.other)
            scene.bus.pass(milliseconds: 1000)
        }
        tell(["a", "b", "c"], from: 1)
        #expect(kept(scene) == ["a", "b", "c"])
        tell(["c"], from: 20)
        #expect(kept(scene) == ["c"])
        tell([], from: 40)
        #expect(kept(scene).isEmpty)
    }

    @Test("A while-connected value ends some seconds after its session has left, and other values remain")
    func sessionEnds() {
        let scene = scene()
        understands(scene)
        scene.arrive(ValuesSignal(1, isBeginning: true).message(to: ":1.1"), from: Self.other)
        scene.arrive(ValuesSignal(2, isBeginning: false).message(to: ":1.1"), from: Self.other)
        scene.value(3, object: "bound", whileConnected: true, from: Self.other)
        scene.value(4, object: "free", from: Self.other)
        scene.bus.pass(milliseconds: 30_000)
        #expect(kept(scene) == ["bound", "free"])
        scene.leave(Self.other)
        scene.bus.pass(milliseconds: 4000)
        #expect(kept(scene) == ["bound", "free"], "its service may come again")
        scene.bus.pass(milliseconds: 2000)
        #expect(kept(scene) == ["free"])
    }

    @Test("A session that rejoins within seconds keeps its while-connected values, without another post")
    func comesAgain() {
        let scene = scene()
        understands(scene)
        scene.value(1, object: "bound", whileConnected: true, from: Self.other)
        scene.leave(Self.other)
        scene.bus.pass(milliseconds: 1000)
        scene.join(":1.3")
        understands(scene, ":1.3")
        scene.arrive(ValuesSignal(1, isBeginning: true).message(to: ":1.1"), from: ":1.3")
        scene.value(2, object: "bound", kept: true, whileConnected: true, from: ":1.3")
        scene.arrive(ValuesSignal(3, isBeginning: false).message(to: ":1.1"), from: ":1.3")
        scene.bus.pass(milliseconds: 30_000)
        #expect(kept(scene) == ["bound"] && scene.posted.count == 1)
        scene.leave(":1.3")
        scene.bus.pass(milliseconds: 10_000)
        #expect(kept(scene).isEmpty)
    }

    @Test("A removal or a complete list from one session of a user does not end the value of another session")
    func others() {
        let scene = scene()
        understands(scene)
        scene.join(":1.3")
        understands(scene, ":1.3")
        scene.value(1, object: "a", from: Self.other)
        scene.arrive(RemovedSignal(1, name: "Ding", object: "a").message(to: ":1.1"), from: ":1.3")
        scene.arrive(ValuesSignal(2, isBeginning: true).message(to: ":1.1"), from: ":1.3")
        scene.arrive(ValuesSignal(3, isBeginning: false).message(to: ":1.1"), from: ":1.3")
        scene.bus.pass(milliseconds: 10_000)
        #expect(kept(scene) == ["a"])
    }

    @Test("A value of one session replaces that of another, which returns when the newer value ends, and not before")
    func twoOfOneUser() {
        let scene = scene()
        understands(scene)
        scene.join(":1.3")
        understands(scene, ":1.3")
        func tell(_ session: UniqueName, _ first: UInt64, _ padding: String) {
            scene.arrive(ValuesSignal(first, isBeginning: true).message(to: ":1.1"), from: session)
            scene.value(first + 1, object: "a", padding: padding, kept: true, from: session)
            scene.arrive(ValuesSignal(first + 2, isBeginning: false).message(to: ":1.1"), from: session)
            scene.bus.pass(milliseconds: 1000)
        }
        func asked(_ session: UniqueName) -> Int { scene.sent(WantsSignal.member, to: session).count }
        var posted: Int { scene.posted.count }
        tell(Self.other, 1, "first")
        scene.value(1, object: "a", padding: "second", from: ":1.3")
        #expect(posted == 2)
        tell(Self.other, 10, "first")
        #expect(posted == 2, "the other one is newer")
        // Its value ends: the other's is there again.
        var before = asked(Self.other)
        scene.arrive(RemovedSignal(2, name: "Ding", object: "a").message(to: ":1.1"), from: ":1.3")
        #expect(kept(scene) == ["a"] && asked(Self.other) == before + 1)
        tell(Self.other, 20, "first")
        #expect(posted == 3)
        scene.value(3, object: "a", padding: "third", whileConnected: true, from: ":1.3")
        before = asked(Self.other)
        scene.leave(":1.3")
        scene.bus.pass(milliseconds: 7000)
        #expect(kept(scene) == ["a"] && asked(Self.other) == before + 1)
        tell(Self.other, 30, "first")
        #expect(posted == 5 && kept(scene) == ["a"])
        scene.arrive(RemovedSignal(40, name: "Ding", object: "a").message(to: ":1.1"), from: Self.other)
        #expect(kept(scene).isEmpty)
    }

    @Test("Values of a first-version session outlast that session, and end when the rules no longer retain them")
    func firstVersion() {
        let scene = scene()
        scene.value(1, object: "a", from: Self.other)
        scene.leave(Self.other)
        scene.join(":1.3")
        scene.bus.pass(milliseconds: 60_000)
        #expect(kept(scene) == ["a"])
        var rules = scene.sessions.rules
        rules.retained = [Scene.user: [NamePattern("Dong")!]]
        scene.sessions.use(rules)
        scene.bus.pass(milliseconds: 1000)
        #expect(kept(scene).isEmpty)
    }

    @Test("After a gap in its numbers a session is asked for its values again, a bounded number of times")
    func hole() {
        let scene = scene()
        understands(scene)
        func asked() -> Int { scene.sent(WantsSignal.member, to: Self.other).count }
        #expect(asked() == 1)
        scene.value(1, object: "a", from: Self.other)
        #expect(asked() == 1)
        scene.value(3, object: "b", from: Self.other)
        #expect(asked() == 2)
        for number in 2...50 as ClosedRange<UInt64> { scene.value(2 * number + 1, object: "b", from: Self.other) }
        #expect(asked() < 10)
    }

    @Test("Losses that a session reports by name reach observers of imported names, with a bounded count")
    func losses() {
        let scene = scene()
        var rules = scene.sessions.rules
        rules.imports = [Scene.user: [NamePattern("Ding")!]]
        scene.sessions.use(rules)
        understands(scene)
        let entries: [LostSignal.Entry] = [
            .init(name: "Ding", object: "a", count: 7), .init(name: "Secret", object: "", count: 1),
            .init(name: "", object: "", count: .max),
            .init(name: "Ding", object: "b", count: .max),
        ]
        scene.arrive(LostSignal(1, entries).message(to: ":1.1"), from: Self.other)
        // No more than anybody can have lost.
        #expect(scene.center.lost == [entries[0], .init(name: "Ding", object: "b", count: 999_993)])
        #expect(scene.sessions.counts.lost == .max)
        let many = Array(repeating: entries[0], count: 100)
        scene.arrive(LostSignal(2, many).message(to: ":1.1"), from: Self.other)
        #expect(scene.center.lost.count == 2 && scene.sessions.counts.refused == 1)
    }

    @Test("A session that waits for confirmations is slowed to the accepted rate and loses no notification")
    func paced() {
        let scene = scene()
        var (sent, confirmed): (UInt64, UInt64) = (0, 0)
        var milliseconds = 0
        while scene.posted.count < 6000, milliseconds < 60_000 {
            while sent < confirmed + 64, sent < 6000 {
                sent += 1
                scene.send(sent, from: Self.other)
            }
            scene.bus.pass(milliseconds: 10)
            milliseconds += 10
            confirmed = scene.confirmed(to: Self.other).last ?? 0
        }
        #expect(scene.posted.count == 6000 && scene.sessions.counts.lost == 0)
        #expect(milliseconds > 6000, "it is 500 a second beyond the first 2,000")
    }

    // MARK: What goes

    private func value(_ object: String, _ serial: UInt64, name: String = "com.example.Ding") -> (
        value: ExportedNotification, serial: UInt64
    ) {
        (
            ExportedNotification(
                name: name, object: object, userInfo: Scene.userInfo(name, object), retention: Retention(),
                expiry: nil), serial
        )
    }

    /// What was sent to the other session, with numbers, since the last look, in words.
    private final class Heard {
        private var count = 0

        func take(_ scene: Scene) -> [String] {
            let all = scene.bus.sent.filter { $0.destination == AnyBusName(SessionValuesTests.other) }
            defer { count = all.count }
            return all.dropFirst(count).compactMap { message in
                if let values = message.hasMember(ValuesSignal.member) ? try? ValuesSignal(message) : nil {
                    return "\(values.number) \(values.isBeginning ? "values" : "end")"
                }
                if let removed = message.hasMember(RemovedSignal.member) ? try? RemovedSignal(message) : nil {
                    return "\(removed.number) removed \(removed.object)"
                }
                if let lost = message.hasMember(LostSignal.member) ? try? LostSignal(message) : nil {
                    return "\(lost.number) lost \(lost.entries.map { "\($0.object)x\($0.count)" })"
                }
                guard message.hasMember(SessionNotification.member),
                    let notification = try? SessionNotification(message, limits: Limits(), checking: { _, _ in })
                else { return nil }
                let options = notification.options
                return "\(options.number) \(notification.object)" + (options.isKept ? " kept" : "")
                    + (options.lost > 0 ? " lost \(options.lost)" : "")
            }
        }
    }

    private func want(_ scene: Scene, _ names: [String] = ["com.example.Ding"]) {
        scene.arrive(WantsSignal(names).message(to: ":1.1"), from: Self.other)
    }

    private func confirm(_ number: UInt64, _ scene: Scene) {
        scene.arrive(TakenSignal(upTo: number).message(to: ":1.1"), from: Self.other)
    }

    @Test(
        "A later session gets its imported values and their ends, unless it is of the first version"
    )
    func told() {
        let scene = scene()
        let heard = Heard()
        scene.center.own = [
            value("a", 1), value("x", 2, name: "com.example.Other"), value("y", 3, name: "secret"), value("b", 4),
        ]
        scene.center.newestSerial = 4
        want(scene)
        #expect(heard.take(scene).isEmpty)
        scene.systemBusSession.exportEnded(NotificationKey(name: "com.example.Ding", object: "a"))
        #expect(heard.take(scene).isEmpty)
        understands(scene)
        want(scene)
        #expect(heard.take(scene) == ["1 values", "2 a kept", "3 b kept", "4 end"])
        scene.systemBusSession.exportEnded(NotificationKey(name: "com.example.Ding", object: "a"))
        scene.systemBusSession.exportEnded(NotificationKey(name: "com.example.Other", object: "x"))
        #expect(heard.take(scene) == ["5 removed a"])
    }

    @Test("Values are sent within the window, behind notifications that waited and before later posts")
    func window() {
        let scene = scene()
        let heard = Heard()
        understands(scene)
        want(scene)
        #expect(heard.take(scene) == ["1 values", "2 end"])
        for number in 1...70 { scene.systemBusSession.export(value("live \(number)", 0).value) }
        #expect(heard.take(scene).count == 62)
        scene.center.own = (1...100).map { value("\($0)", UInt64($0)) }
        scene.center.newestSerial = 100
        want(scene)
        #expect(heard.take(scene).isEmpty)
        confirm(64, scene)
        scene.systemBusSession.export(value("later", 101).value)
        let next = heard.take(scene)
        #expect(Array(next.prefix(9)) == (63...70).map { "\($0 + 2) live \($0)" } + ["73 values"])
        #expect(next.count == 64 && next.last == "128 55 kept")
        confirm(128, scene)
        #expect(heard.take(scene).suffix(3) == ["173 100 kept", "174 end", "175 later"])
    }

    @Test("Outgoing losses are reported by name, and a lost value makes the service send all values again")
    func lost() {
        let scene = scene()
        let heard = Heard()
        understands(scene)
        want(scene)
        confirm(2, scene)
        _ = heard.take(scene)
        func post(_ object: String, retention: Retention? = nil) {
            let name = "com.example.Ding"
            scene.systemBusSession.export(
                ExportedNotification(
                    name: name, object: object, userInfo: Scene.userInfo(name, object),
                    retention: retention, expiry: nil))
        }
        for number in 1...64 { post("\(number)") }
        for _ in 1...3 { post("plain") }
        for _ in 1...4096 { post("live") }
        #expect(heard.take(scene).count == 64 && scene.sessions.counts.lost == 3)
        confirm(66, scene)
        #expect(heard.take(scene).first == "67 lost [\"plainx3\"]")
        for _ in 1...70 { confirm(scene.lastNumber(to: Self.other), scene) }
        #expect(heard.take(scene).allSatisfy { !$0.contains("values") })
        for number in 1...64 { post("\(number)") }
        post("value", retention: Retention())
        for _ in 1...4096 { post("live") }
        scene.center.own = [value("value", 5)]
        scene.center.newestSerial = 5
        var next: [String] = []
        for _ in 1...80 {
            next += heard.take(scene)
            confirm(scene.lastNumber(to: Self.other), scene)
        }
        next += heard.take(scene)
        #expect(next.contains { $0.hasSuffix("lost [\"valuex1\"]") })
        #expect(
            next.suffix(3).map { $0.split(separator: " ").dropFirst().joined(separator: " ") } == [
                "values", "value kept", "end",
            ])
    }

    @Test("At an orderly end, waiting notifications are reported as lost, behind all that are in flight")
    func lastWord() {
        let scene = scene()
        let heard = Heard()
        understands(scene)
        want(scene)
        confirm(2, scene)
        _ = heard.take(scene)
        for number in 1...70 {
            let name = "com.example.Ding"
            scene.systemBusSession.export(
                ExportedNotification(
                    name: name, object: number < 68 ? "a" : "b", userInfo: Scene.userInfo(name, ""), retention: nil,
                    expiry: nil))
        }
        #expect(heard.take(scene).count == 64)
        scene.sessions.end()
        #expect(heard.take(scene) == ["67 lost [\"ax3\", \"bx3\"]"])
        #expect(scene.sessions.counts.lost == 6 && scene.center.bytesForSessions == 0)
    }

    @Test("The bytes of notifications that wait for other sessions are bounded for all sessions together")
    func bytes() {
        let scene = scene()
        for number in 10...30 {
            let name = UniqueName(rawValue: ":1.\(number)")!
            scene.join(name, user: 2000 + UInt32(number))
            scene.arrive(WantsSignal(["*"]).message(to: ":1.1"), from: name)
        }
        let name = "com.example.Ding"
        let large = Scene.userInfo(name, "", String(repeating: "x", count: 500_000))
        for _ in 0..<12 {
            scene.systemBusSession.export(
                ExportedNotification(name: name, object: "", userInfo: large, retention: nil, expiry: nil))
            #expect(scene.center.bytesForSessions <= 16 << 20)
        }
        #expect(scene.center.bytesForSessions > 15 << 20 && scene.sessions.counts.lost > 0)
        for number in 10...30 { scene.leave(UniqueName(rawValue: ":1.\(number)")!) }
        #expect(scene.systemBusSession.waitingBytes == 0 && scene.center.bytesForSessions == 0)
    }
}
