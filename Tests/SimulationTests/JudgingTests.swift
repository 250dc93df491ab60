// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonSimulation

/// Judges of the simulation, on cases of which the verdict is known.
@Suite("Verdicts of the simulation", .limited)
struct JudgingTests {
    private final class Stage {
        let world = World(seed: 1)
        let bus: Bus
        let ledger: Ledger
        let windows: WindowWatch
        let main: Peer
        let control: Peer
        let client: Peer

        init() {
            bus = Bus(world, id: "0f", manner: Bus.Manner())
            ledger = Ledger(world)
            windows = WindowWatch(world, ledger)
            bus.onDelivered = { [windows] sender, receiver in windows.delivered(from: sender, to: receiver) }
            bus.onRead = { [windows] message, sender, reader in windows.read(message, from: sender, by: reader) }
            main = bus.connect(processID: 1)
            control = bus.connect(processID: 1)
            client = bus.connect(processID: 2)
            for peer in [main, control, client] {
                let hello = Message.methodCall(
                    to: AnyBusName("org.freedesktop.DBus"), path: "/org/freedesktop/DBus",
                    interface: "org.freedesktop.DBus", member: "Hello")
                _ = peer.send(hello)
            }
            pass()
            ledger.services.insert(main.name!)
        }

        func pass() { world.run(until: world.now + 100_000) }

        func read(_ peer: Peer) { while peer.receive() != nil {} }

        func notify(_ count: Int) {
            for _ in 0..<count {
                _ = main.send(.signal(to: client.name, path: "/", interface: "com.example.A", member: "Ding"))
            }
            pass()
        }

        /// The client answers a Ping of the service.
        func answer() {
            read(client)
            _ = client.send(.forgedReply(to: control.name!, serial: 1))
            pass()
            read(control)
        }
    }

    @Test("E3: an observer ID from before a loss of state may belong to another observer, and otherwise not")
    func reusedNumbers() {
        for (isLost, isAnswered) in [(false, true), (true, true), (true, false)] {
            let stage = Stage()
            let witness = Witness(stage.client.name!, ledger: stage.ledger, mode: .default, isLibrary: false)
            let old = witness.register(name: 0, object: nil, .hold, .default)
            witness.acknowledge(old, id: ObserverID(rawValue: 1))
            stage.pass()
            if isLost { stage.ledger.loseState() }
            stage.pass()
            let (new, other) = (
                witness.register(name: nil, object: nil, .hold, .default),
                witness.register(name: 1, object: nil, .hold, .default)
            )
            if isAnswered { witness.acknowledge(new, id: ObserverID(rawValue: 1)) }
            witness.acknowledge(other, id: ObserverID(rawValue: 2))
            witness.remove(old)
            witness.remove(everythingWith: ObserverID(rawValue: 1))
            stage.pass()
            if !isAnswered { witness.acknowledge(new, id: ObserverID(rawValue: 1)) }
            #expect(witness.kept.map(\.name) == (isLost ? [1] : [nil, 1]))
            // What is asked for later is not touched.
            let last = witness.register(name: 2, object: nil, .hold, .default)
            witness.acknowledge(last, id: ObserverID(rawValue: 1))
            #expect(witness.kept.last?.name == 2)
        }
    }

    private static func value(of name: Int, whileConnected: Bool = false, expiresAfter: UInt32? = nil) -> PostPlan {
        var plan = PostPlan(name: name)
        plan.options.retention = Retention(whileConnected: whileConnected)
        plan.options.expiresAfter = expiresAfter
        return plan
    }

    /// Posts a value, which is accepted a while later.
    private func post(_ plan: PostPlan, _ stage: Stage) -> Int {
        let number = stage.ledger.post(plan, from: stage.client.name!)
        stage.pass()
        stage.ledger.settle(number, .accepted(receivers: 0, at: stage.world.now))
        stage.pass()
        return number
    }

    /// What there is to say against what is kept; nil when nothing is.
    private func verdict(of kept: [Int?], _ stage: Stage) -> String? {
        stage.ledger.values.judge(kept, of: nil, asked: stage.world.now)
        return stage.world.violation?.rule
    }

    @Test("R1: the last of several successive values, and no other, has to be retained", arguments: 0..<4)
    func lastValue(kept: Int) {
        let stage = Stage()
        let (first, last) = (post(Self.value(of: 0), stage), post(Self.value(of: 0), stage))
        let all: [[Int?]] = [[last], [first], [], [first, last]]
        #expect(verdict(of: all[kept], stage) == (kept == 0 ? nil : "R1"))
    }

    @Test(
        "R1, R6: a removed or expired value must end, and may be retained until the removal is known", arguments: 0..<4)
    func noValue(which: Int) {
        let stage = Stage()
        let number = post(Self.value(of: 0, expiresAfter: which == 3 ? 1 : nil), stage)
        if which == 3 {
            #expect(verdict(of: [number], stage) == nil)
            stage.world.run(until: stage.world.now + 3_000_000)
        } else {
            let removal = stage.ledger.values.remove(which == 2 ? 1 : nil)
            #expect(verdict(of: [number], stage) == nil)
            stage.pass()
            if which > 0 { stage.ledger.values.acknowledgeRemoval(removal) }
            stage.pass()
        }
        #expect(verdict(of: [], stage) == (which == 2 ? "R1" : nil), "what another name has is not removed")
        guard which != 2 else { return }
        #expect(verdict(of: [number], stage) == (which == 0 ? nil : "R1"))
    }

    @Test("R6: a while-connected value must end when its poster leaves")
    func connected() {
        let stage = Stage()
        let number = post(Self.value(of: 0, whileConnected: true), stage)
        stage.ledger.values.judgeLeft([number])
        #expect(stage.world.violation == nil)
        stage.ledger.leave(stage.client.name!)
        stage.ledger.values.judgeLeft([number])
        #expect(stage.world.violation?.rule == "R6")
    }

    private static func value(from place: Int?) -> PostPlan {
        var plan = value(of: 0)
        plan.options.origin = place.map { Names.origins[$0] }
        return plan
    }

    @Test("G3: the last value of each origin has to be retained, beside the values of other origins", arguments: 0..<4)
    func places(kept: Int) {
        let stage = Stage()
        let numbers = [nil, 0, 1, 0].map { post(Self.value(from: $0), stage) }
        let all = [[0, 2, 3], [0, 1, 2], [2, 3], [0, 2]][kept].map { numbers[$0] }
        #expect(verdict(of: all, stage) == (kept == 0 ? nil : "R1"))
    }

    @Test(
        "G3: the removal of one origin's value must remove exactly that value, and return the right count",
        arguments: [0, 1, 2])
    func oneRemoval(count: Int) {
        let stage = Stage()
        stage.ledger.incarnations = 1
        let (here, castle) = (post(Self.value(from: nil), stage), post(Self.value(from: 0), stage))
        let kind = Self.value(from: 0).kind
        let removal = stage.ledger.values.remove(only: kind)
        stage.pass()
        stage.ledger.values.acknowledgeRemoval(removal)
        stage.ledger.values.judgeRemoval(removal, of: kind, count: count)
        #expect(stage.world.violation?.rule == (count == 1 ? nil : "G3"))
        guard count == 1 else { return }
        stage.pass()
        #expect(verdict(of: [here], stage) == nil)
        let again = stage.ledger.values.remove(only: kind)
        stage.ledger.values.judgeRemoval(again, of: kind, count: 0)
        #expect(verdict(of: [here], stage) == nil)
        #expect(verdict(of: [here, castle], stage) == "R1")
    }

    @Test("G3: a value that disappears with the value of another origin violates R1")
    func removedBeside() {
        let stage = Stage()
        _ = (post(Self.value(from: nil), stage), post(Self.value(from: 0), stage))
        stage.ledger.values.acknowledgeRemoval(stage.ledger.values.remove(only: Self.value(from: 0).kind))
        #expect(verdict(of: [], stage) == "R1")
    }

    /// Where one is told to be from that is from the castle, or that is from here.
    @Test(
        "G3: a client that asked for details must get the right origin, and no client may get a wrong one",
        arguments: [true, false])
    func told(hasAsked: Bool) {
        for (place, told, isRight) in [
            (0, "castle", true), (0, nil, !hasAsked), (0, "harbour", false), (nil, nil, true), (nil, "castle", false),
        ] {
            let stage = Stage()
            let witness = Witness(":1.91", ledger: stage.ledger, mode: .default, isLibrary: false)
            witness.acknowledge(witness.register(name: nil, object: nil, .hold, .default))
            if hasAsked { witness.acknowledgeDetails(asked: stage.world.now) }
            stage.pass()
            var plan = PostPlan(name: 0)
            plan.options.origin = place.map { Names.origins[$0] }
            let number = post(plan, stage)
            var signal = NotificationSignal(
                name: Names.name(0), object: "", userInfo: [Ledger.numberKey: .uint64(UInt64(number))],
                observers: [ObserverID(rawValue: 1)], poster: stage.client.name!, serial: 1, sequence: 1)
            signal.details = told.map { ["host": .string($0)] } ?? [:]
            witness.received(Receipt(signal, hasDetails: true))
            #expect(stage.world.violation?.rule == (isRight ? nil : "G3"))
        }
    }

    @Test(
        "G4: FollowInterest must list the names that others surely want, and none that surely no other wants",
        arguments: [
            (["0", "1"], true, true), (["0"], true, true), (["1"], true, false), (["0", "1"], false, false),
            (["1", "0"], true, false), (["0", "2"], true, false), (["0", "3"], true, false),
        ])
    func interest(names: [String], any: Bool, isRight: Bool) {
        let stage = Stage()
        let (follower, other) = (
            Witness(":1.91", ledger: stage.ledger, mode: .default, isLibrary: false),
            Witness(":1.92", ledger: stage.ledger, mode: .default, isLibrary: false)
        )
        stage.ledger.witnesses = { [follower, other] }
        func register(_ witness: Witness, _ name: Int?) -> Int {
            witness.register(name: name, object: nil, .hold, .default)
        }
        // Its own does not count.
        follower.acknowledge(register(follower, 3))
        for name in [0, nil] { other.acknowledge(register(other, name)) }
        _ = register(other, 1)
        let former = register(other, 2)
        other.acknowledge(former)
        other.remove(former)
        other.acknowledgeRemoval(former)
        stage.pass()
        let reply = FollowInterest.Reply(names: names.map { "com.example.Name" + $0 }, any: any)
        stage.ledger.judgeInterest([.init(reply: reply, asked: stage.world.now)], of: follower.client)
        #expect(stage.world.violation?.rule == (isRight ? nil : "G4"))
    }

    @Test("G5: FollowValues must list each existing value once, in order, and no other", arguments: 0..<6)
    func listed(which: Int) {
        let stage = Stage()
        for place in [nil, 0] { _ = post(Self.value(from: place), stage) }
        func value(_ place: Int?, _ serial: UInt64) -> FollowValues.Listed {
            let origin = place.map { Names.origins[$0] }
            return FollowValues.Listed(
                name: Names.name(0), object: "", serial: serial, host: origin?.host, user: origin?.user)
        }
        // In one piece, in two, without one, another in its place, twice, in no order.
        let pieces = [
            [[value(nil, 1), value(0, 2)]], [[value(nil, 1)], [value(0, 2)]], [[value(nil, 1)]],
            [[value(nil, 1), value(1, 2)]], [[value(nil, 1), value(0, 2), value(0, 3)]],
            [[value(0, 2), value(nil, 1)]],
        ][which]
        stage.ledger.values.judgeListed(pieces.map { .init(reply: $0, asked: stage.world.now) })
        #expect(stage.world.violation?.rule == (which < 2 ? nil : "G5"))
    }

    @Test("S1, G3: a suspended coalescing observer must receive the newest notification of each origin")
    func coalescing() {
        let stage = Stage()
        let witness = Witness(":1.91", ledger: stage.ledger, mode: .default, isLibrary: false)
        witness.acknowledge(witness.register(name: nil, object: nil, .coalesce, .default))
        witness.acknowledgeWord(witness.say(true))
        stage.pass()
        let numbers = [nil, 0, 0, 1].map { place in
            var plan = PostPlan(name: 0)
            plan.options.origin = place.map { Names.origins[$0] }
            return post(plan, stage)
        }
        #expect(witness.missing() == [numbers[0], numbers[2], numbers[3]])
    }

    @Test("R2: a late observer that wants values must receive them, unless newer posts replaced them")
    func lateValues() {
        let stage = Stage()
        let (first, second) = (post(Self.value(of: 0), stage), post(Self.value(of: 1), stage))
        var witnesses: [Witness] = []
        for values in [true, false] {
            let witness = Witness(values ? ":1.91" : ":1.92", ledger: stage.ledger, mode: .default, isLibrary: false)
            witness.acknowledge(witness.register(name: nil, object: nil, .hold, .default, values: values))
            witnesses.append(witness)
        }
        #expect(witnesses.map { $0.missing() } == [[first, second], []])
        let newer = post(Self.value(of: 0), stage)
        #expect(witnesses.map { $0.missing() } == [[second, newer], [newer]])
    }

    @Test("R4: an at-exit post must arrive after its poster has left, unless withdrawn, and never before")
    func atExit() {
        for (hasLeft, isWithdrawn) in [(false, false), (true, false), (true, true)] {
            let stage = Stage()
            let poster = stage.client.name!
            var plan = PostPlan(name: 0)
            plan.options.postingStyle = .atExit
            let witness = Witness(":1.91", ledger: stage.ledger, mode: .default, isLibrary: false)
            witness.acknowledge(witness.register(name: nil, object: nil, .hold, .default))
            stage.pass()
            let number = post(plan, stage)
            if isWithdrawn { stage.ledger.acknowledgeWithdrawal(stage.ledger.withdraw(0, of: poster)) }
            if hasLeft { stage.ledger.leave(poster) }
            #expect(witness.missing() == (hasLeft && !isWithdrawn ? [number] : []))
            witness.received(
                Receipt(
                    NotificationSignal(
                        name: Names.name(0), object: "", userInfo: [Ledger.numberKey: .uint64(UInt64(number))],
                        observers: [ObserverID(rawValue: 1)], poster: poster, serial: 1, sequence: 1)))
            #expect(stage.world.violation?.rule == (hasLeft && !isWithdrawn ? nil : "R4"))
        }
    }

    @Test("R5: an observer with an interval must receive the last post of each key, and none behind a newer one")
    func intervals() {
        let stage = Stage()
        let (all, some) = (
            Witness(":1.91", ledger: stage.ledger, mode: .default, isLibrary: false),
            Witness(":1.92", ledger: stage.ledger, mode: .default, isLibrary: false)
        )
        let id = ObserverID(rawValue: 1)
        all.acknowledge(all.register(name: nil, object: nil, .hold, .default), id: id)
        some.acknowledge(some.register(name: nil, object: nil, .hold, .default, interval: 200), id: id)
        stage.pass()
        stage.ledger.incarnations = 1
        let numbers = [0, 0, 1].map { post(PostPlan(name: $0), stage) }
        #expect(all.missing() == numbers && some.missing() == Array(numbers.dropFirst()))
        func get(_ place: Int, sequence: UInt64) {
            some.received(
                Receipt(
                    NotificationSignal(
                        name: Names.name(place == 2 ? 1 : 0), object: "",
                        userInfo: [Ledger.numberKey: .uint64(UInt64(numbers[place]))], observers: [id],
                        poster: stage.client.name!, serial: UInt64(place + 1), sequence: sequence)))
        }
        get(2, sequence: 1)
        get(1, sequence: 2)
        #expect(stage.world.violation == nil && some.missing().isEmpty)
        get(0, sequence: 3)
        #expect(stage.world.violation?.rule == "R5")
    }

    @Test("A4: more than two unread windows are a violation, once the client has answered")
    func windows() {
        let stage = Stage()
        stage.answer()
        stage.notify(132)
        #expect(stage.world.violation == nil)
        stage.notify(1)
        #expect(stage.world.violation?.rule == "A4")
    }

    @Test("A4: messages that the client has read do not count as unread")
    func reading() {
        let stage = Stage()
        stage.answer()
        for _ in 0..<5 {
            stage.notify(120)
            stage.read(stage.client)
        }
        #expect(stage.world.violation == nil)
    }

    @Test("B6: a client that never answered may be sent more, until it has answered and has read")
    func silent() {
        let stage = Stage()
        stage.notify(300)
        #expect(stage.world.violation == nil)
        stage.answer()
        stage.notify(128)
        stage.notify(5)
        #expect(stage.world.violation?.rule == "A4")
    }

    @Test(
        "E7: the clock of a simulated process advances during its work if that is requested", arguments: [true, false])
    func clock(isRunning: Bool) {
        let world = World(seed: 1)
        let process = LoopProcess(world, id: 1, name: "test")
        process.isClockRunning = isRunning
        var passed: [Duration] = []
        let source = EventSource.once(milliseconds: 5, on: process.context) {
            let start = process.context.now
            process.spend(700)
            passed.append(process.context.now - start)
        }
        world.run(until: 20_000)
        #expect(passed == [isRunning ? .microseconds(700) : .zero])
        #expect(!source.isPending)
    }
}
