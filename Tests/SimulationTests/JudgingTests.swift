import BusNames
import DBus
import MainLoop
import NotificationCore
import Testing

@testable import Simulation

/// Judges of the simulation, on cases of which the verdict is known.
@Suite("Judging", .timeLimit(.minutes(20)))
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

    @Test("E3: a number of an observer from before a loss of the state may be another's by now, and only then")
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

    @Test("A4: more than two windows that lie unread are a violation, once the client has answered")
    func windows() {
        let stage = Stage()
        stage.answer()
        stage.notify(132)
        #expect(stage.world.violation == nil)
        stage.notify(1)
        #expect(stage.world.violation?.rule == "A4")
    }

    @Test("A4: what has been read does not count")
    func reading() {
        let stage = Stage()
        stage.answer()
        for _ in 0..<5 {
            stage.notify(120)
            stage.read(stage.client)
        }
        #expect(stage.world.violation == nil)
    }

    @Test("B6: who has never answered may be sent more, and is bound from when it has answered and has read")
    func silent() {
        let stage = Stage()
        stage.notify(300)
        #expect(stage.world.violation == nil)
        stage.answer()
        stage.notify(128)
        stage.notify(5)
        #expect(stage.world.violation?.rule == "A4")
    }

    @Test("E7: where it is asked for, a process's clock goes on while it does something", arguments: [true, false])
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
