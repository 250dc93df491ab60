// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// A service that dies, and the next one.
@Suite("E3: survival of the service's death", .serialized, .limited)
struct RecoveryTests {
    @Test("E3: a service killed ten times under load loses no registration and no held notification")
    func killedUnderLoad() throws {
        // Activation by the bus, as in real life.
        let bus = try PrivateBus(.dbusDaemon, activations: [try .service()])
        let observer = try Client(on: bus)
        let id = try observer.addObserver("Ding", behavior: .hold)
        for index in 0..<100 { try observer.addObserver("Other \(index)", behavior: .drop) }
        try observer.setSuspended(true)

        let poster = try Client(on: bus)
        var accepted: [Int64] = []
        var number: Int64 = 0
        for round in 1...10 {
            try poster.call(ListClients())  // starts the next one
            let victim = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
            let killAt = number + Int64(20 * round)
            while true {
                number += 1
                if number == killAt { kill(victim, SIGKILL) }
                guard let receivers = try poster.post("Ding", number: number) else { break }
                if receivers == 1 { accepted.append(number) }
                // Posts behind the kill reach the next service, which is as good a moment to go on.
                if number > killAt + 50 { break }
            }
        }
        let last = number + 1
        let receivers = try poster.post("Ding", number: last)
        #expect(receivers == 1, "\(bus.log)")
        accepted.append(last)

        try observer.setSuspended(false)
        try observer.run("the last of what was held") { observer.numbers.last == last }
        #expect(observer.numbers == observer.numbers.sorted())
        #expect(Set(observer.numbers).count == observer.numbers.count, "nothing comes twice")
        #expect(Set(accepted).subtracting(observer.numbers).isEmpty, "all that was accepted arrived")
        #expect(observer.signals.allSatisfy { $0.observers == [id] })
        #expect(observer.signals.map(\.sequence) == (1...UInt64(observer.signals.count)).map { $0 })
        #expect(try observer.call(RemoveObservers(name: "", object: "")) == 101)
    }

    @Test("E3, D6: sequence numbers and serials continue after a crash, and no observer's number is reused")
    func numbersGoOn() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let first = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        let id = try client.addObserver("Ding")
        for number in 1...150 { _ = try client.post("Ding", number: Int64(number)) }
        try client.run("what was posted") { client.signals.count == 150 }
        let removed = try client.addObserver("Dong")
        try client.call(RemoveObserver(removed))
        try first.kill()

        let second = try ServiceProcess(on: bus)
        #expect(try client.post("Ding", number: 151) == 1)
        try client.run("a notification from the next service") { client.signals.count == 151 }
        #expect(client.signals.map(\.sequence) == (1...151).map { $0 })
        #expect(client.signals.last?.observers == [id])
        let serials = client.signals.map(\.serial)
        #expect(serials == serials.sorted() && Set(serials).count == serials.count)
        #expect(try client.addObserver("Dong") > removed)
        #expect(second.isRunning)
    }

    @Test(
        "E3, Q7: queued posts survive a kill of the service in order, or their loss is announced",
        arguments: BusKind.available)
    func queuedPosts(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let observer = try Client(on: bus)
        try observer.addObserver("Ding", behavior: .hold)
        let poster = try Client(on: bus)
        // All of it lies before the service at once, so that it dies before it is idle.
        for number in 1...200 { try poster.postQueued("Ding", number: Int64(number), style: .whenIdle) }
        try poster.postQueued("Ding", number: 201, style: .asap)
        try poster.call(ListClients())
        try first.kill()

        let second = try ServiceProcess(on: bus)
        // What was on its way when the service died may not come, and is announced then.
        try observer.run("what was queued, \(observer.numbers.count), \(observer.lost)") {
            observer.numbers.count + Int(observer.lost) >= 201
        }
        let inOrder = observer.numbers.filter { $0 != 201 }
        #expect(inOrder == inOrder.sorted() && Set(inOrder).count == inOrder.count)
        #expect(observer.holes.isEmpty, "\(observer.holes)")
        #expect(observer.signals.allSatisfy { $0.poster.rawValue == poster.name })
        #expect(second.isRunning)
    }

    @Test(
        "E3: a clean restart keeps registrations, suspension and held notifications, on every bus",
        arguments: BusKind.available)
    func cleanRestart(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding", behavior: .coalesce)
        try client.setSuspended(true)
        for number in 1...5 { _ = try client.post("Ding", number: Int64(number)) }
        #expect(try first.terminate() == .exited(0))
        let second = try ServiceProcess(on: bus)
        _ = try client.post("Ding", number: 6)
        try client.setSuspended(false)
        try client.run("the last that was posted") { client.numbers == [6] }
        #expect(second.isRunning)
    }

    @Test("E3: a client that left while there was no service is forgotten", arguments: BusKind.available)
    func leftMeanwhile(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let stays = try Client(on: bus)
        try stays.addObserver("Ding")
        var leaves: Client? = try Client(on: bus)
        try leaves?.addObserver("Ding")
        #expect(try stays.listClients().count == 2)
        try first.kill()
        leaves = nil
        let second = try ServiceProcess(on: bus)
        try eventually("the one that left is forgotten") { try Array(stays.listClients().keys) == [stays.name] }
        #expect(try stays.post("Ding") == 1)
        #expect(second.isRunning)
    }

    @Test("E3: a service does not use the state of another bus, even for a client with an equal unique name")
    func otherBus() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let first = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        try first.kill()

        let other = try PrivateBus(.dbusDaemon)
        let runtimeDirectory = try #require(bus.environment["XDG_RUNTIME_DIR"])
        let second = try ServiceProcess(on: other, environment: ["XDG_RUNTIME_DIR": runtimeDirectory])
        let stranger = try Client(on: other)
        #expect(stranger.name == client.name, "both buses count from the same number")
        #expect(try stranger.listClients().isEmpty)
        #expect(try stranger.post("Ding") == 0)
        #expect(second.isRunning)
    }

    @Test("E3: a service whose bus ends removes its state")
    func busEnds() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        let directory = try #require(bus.environment["XDG_RUNTIME_DIR"]) + "/carillon"
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory).count == 2)
        kill(bus.pid, SIGTERM)
        #expect(try service.waitForExit() == .exited(4))
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory).isEmpty)
    }

    @Test("E3: a service that can't save its state logs this and runs on")
    func noDirectory() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let service = try ServiceProcess(on: bus, environment: ["XDG_RUNTIME_DIR": "/nonexistent/directory"])
        _ = try service.nextLogLine { $0.contains("state can't be saved") }
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        #expect(try client.post("Ding") == 1)
    }

    @Test(
        "E3: after a kill while held notifications are sent, the next service delivers them or announces the loss",
        arguments: BusKind.available)
    func killedWhileDraining(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        var service = try ServiceProcess(on: bus)
        let observer = try Client(on: bus)
        try observer.addObserver("Ding", behavior: .hold)
        let poster = try Client(on: bus)
        var number: Int64 = 0
        for round in 0..<5 {
            try observer.setSuspended(true)
            let first = number + 1
            for _ in 0..<400 {
                number += 1
                #expect(try poster.post("Ding", number: number) == 1)
            }
            // Resumed, and killed after a part of it.
            let resume = SetSuspended(false).message()
            resume.expectsNoReply = true
            observer.connection.send(resume)
            let seen = observer.signals.count + 40 * round
            try observer.run("a part of it") { observer.signals.count >= seen }
            try service.kill()
            service = try ServiceProcess(on: bus)
            try observer.setSuspended(false)
            #expect(try poster.post("Ding", number: 1_000_000 + Int64(round)) == 1)
            try observer.run("the last") { observer.numbers.last == 1_000_000 + Int64(round) }
            let received = Set(observer.numbers)
            let missing = (first...number).count { !received.contains($0) }
            #expect(UInt64(missing) <= observer.lost, "what did not come was announced")
        }
        #expect(Set(observer.numbers).count == observer.numbers.count, "nothing comes twice")
        let serials = observer.signals.map(\.serial)
        #expect(serials == serials.sorted() && Set(serials).count == serials.count)
        #expect(observer.holes.isEmpty, "no hole is wider than what was announced: \(observer.holes)")
        #expect(service.isRunning)
    }

    @Test("E3: after a kill at any moment under posts without answers, every hole in the sequence is announced")
    func killedAtAnyMoment() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let observer = try Client(on: bus)
        let poster = try Client(on: bus)
        var service = try ServiceProcess(on: bus)
        try observer.addObserver("Ding")
        for round in 0..<12 {
            for number in 0..<300 {
                let message = try PostCall(name: "Ding", object: "\(round) \(number)").message()
                message.expectsNoReply = true
                poster.connection.send(message)
            }
            let seen = observer.signals.count + 7 * round
            try observer.run("a part of it") { observer.signals.count >= seen }
            try service.kill()
            service = try ServiceProcess(on: bus)
            // The last post is answered, so it is delivered, behind the news of what was lost.
            try poster.post("Ding", "last \(round)")
            try observer.run("the last") { observer.signals.last?.object == "last \(round)" }
        }
        let sequences = observer.signals.map(\.sequence)
        #expect(sequences == sequences.sorted() && Set(sequences).count == sequences.count)
        let serials = observer.signals.map(\.serial)
        #expect(serials == serials.sorted() && Set(serials).count == serials.count)
        #expect(observer.holes.isEmpty, "no hole is wider than what was announced: \(observer.holes)")
    }

    @Test(
        "E3: notifications that the bus had not read at a kill are announced as lost, even if the bus delivers them",
        arguments: BusKind.available)
    func killedBeforeTheBusRead(kind: BusKind) throws {
        let stage = try Unread(posts: 12, kind)
        try ProcessState.stop(stage.bus.pid)
        stage.service.goOn()
        try eventually("the service has sent all: \(stage.service.transcript)") {
            try stage.service.notedNumbers().contains { $0.sequence == 13 }
        }
        try stage.service.kill()
        kill(stage.bus.pid, SIGCONT)
        let next = try ServiceProcess(on: stage.bus)
        try stage.poster.post("Ding", "last")
        try stage.observer.run("the last") { stage.observer.signals.last?.object == "last" }
        #expect(stage.observer.lost == 12, "nobody knows of any of them")
        #expect(stage.observer.signals.last?.sequence == 14)
        #expect(stage.observer.holes.isEmpty, "\(stage.observer.holes)")
        #expect(next.isRunning)
    }

    @Test(
        "E3: a service that receives SIGTERM first serves the calls that the bus has delivered",
        arguments: BusKind.available)
    func endedBehindPosts(kind: BusKind) throws {
        let stage = try Unread(posts: 100, kind)
        stage.service.signal(SIGTERM)
        stage.service.goOn()
        #expect(try stage.service.waitForExit() == .exited(0))
        let next = try ServiceProcess(on: stage.bus)
        try stage.poster.post("Ding", "last")
        try stage.observer.run("the last") { stage.observer.signals.last?.object == "last" }
        #expect(stage.observer.signals.map(\.sequence) == Array(1...102))
        #expect(stage.observer.lost == 0)
        #expect(next.isRunning)
    }

    /// A service that is stopped while posts lie before it, in its socket.
    private struct Unread {
        let bus: PrivateBus
        let service: ServiceProcess
        let observer: Client
        let poster: Client

        init(posts: Int, _ kind: BusKind) throws {
            bus = try PrivateBus(kind)
            service = try ServiceProcess(on: bus)
            observer = try Client(on: bus)
            poster = try Client(on: bus)
            try observer.addObserver("Ding")
            try poster.post("Ding")  // it is known who that is, from now on
            let observer = observer
            try observer.run("the first") { observer.signals.count == 1 }
            try service.settle()
            try service.stop()
            for number in 1...posts {
                let message = try PostCall(name: "Ding", object: String(number)).message()
                message.expectsNoReply = true
                poster.connection.send(message)
            }
            // Behind them. dbus-broker writes 16 to a connection at once, and the rest when it comes to it.
            for _ in 0..<2 + posts { _ = try poster.processID(of: "org.freedesktop.DBus") }
        }
    }

    @Test("E5: a file size limit suspends the saving of state, and saving resumes when the limit is lifted")
    func fileSizeLimit() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding", behavior: .hold)
        try client.setSuspended(true)
        try setFileSizeLimit(of: service, to: "9000")
        for number in 1...200 { _ = try client.post("Ding", number: Int64(number)) }
        _ = try service.nextLogLine { $0.contains("state can't be saved") }
        #expect(service.isRunning)
        try setFileSizeLimit(of: service, to: "unlimited")
        var number: Int64 = 200
        let directory = try #require(bus.environment["XDG_RUNTIME_DIR"]) + "/carillon"
        let log = try #require(
            try FileManager.default.contentsOfDirectory(atPath: directory).first { $0.hasSuffix(".log") })
        try eventually("the state is kept again") {
            number += 1
            _ = try client.post("Ding", number: number)
            let size = try FileManager.default.attributesOfItem(atPath: "\(directory)/\(log)")[.size] as? Int
            return (size ?? 0) > 9000
        }
        try service.kill()
        let next = try ServiceProcess(on: bus)
        try client.setSuspended(false)
        try client.run("all that was held") { client.numbers.last == number }
        #expect(client.numbers == Array(1...number))
        #expect(next.isRunning)
    }

    @Test("E5: an orderly end saves the state that could not be saved before, as far as space allows")
    func endWhileSuspended() throws {
        for limit in ["unlimited", "9000"] {
            let bus = try PrivateBus(.dbusDaemon)
            let service = try ServiceProcess(on: bus)
            let client = try Client(on: bus)
            var options = PostOptions()
            options.retention = Retention()
            try client.call(try PostCall(name: "Value", options: options))
            try client.addObserver("Ding", behavior: .hold)
            try client.setSuspended(true)
            try setFileSizeLimit(of: service, to: "9000")
            for number in 1...200 { _ = try client.post("Ding", number: Int64(number)) }
            _ = try service.nextLogLine { $0.contains("state can't be saved") }
            try setFileSizeLimit(of: service, to: limit)
            try service.terminate()
            let next = try ServiceProcess(on: bus)
            #expect(try client.call(Get(name: "")).map(\.name) == ["Value"], "\(limit)")
            try client.setSuspended(false)
            _ = try client.post("Ding", number: 201)
            try client.run("the last: \(next.transcript)") { client.numbers.last == 201 }
            #expect(client.numbers == (limit == "unlimited" ? Array(1...201) : [201]), "\(limit)")
        }
    }

    private func setFileSizeLimit(of service: ServiceProcess, to limit: String) throws {
        let result = try Command.run("prlimit", ["--pid", String(service.pid), "--fsize=\(limit):unlimited"])
        try #require(result.exitCode == 0, "\(result)")
    }

    @Test(
        "E3, D1: exactly one of several services that start at once gets the name and the state",
        arguments: BusKind.available)
    func startedAtOnce(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let client = try Client(on: bus)
        var service = try ServiceProcess(on: bus)
        try client.addObserver("Ding")
        for round in 1...5 {
            try service.kill()
            let starting = try (0..<4).map { _ in try ServiceProcess(on: bus, waitUntilReady: false) }
            try eventually("one has the name") { try bus.processID(ofOwner: ServiceProcess.busName) != nil }
            let owner = try bus.processID(ofOwner: ServiceProcess.busName)
            for other in starting where other.pid != owner { #expect(try other.waitForExit() == .exited(3)) }
            service = try #require(starting.first { $0.pid == owner })
            #expect(try client.post("Ding") == 1, "round \(round): \(service.transcript)")
        }
    }

    @Test("E3: a service waits for the state until another process unlocks the log, and calls wait, too")
    func stateInAnothersHand() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let client = try Client(on: bus)
        let first = try ServiceProcess(on: bus)
        try client.addObserver("Ding")
        try first.kill()
        let directory = try #require(bus.environment["XDG_RUNTIME_DIR"]) + "/carillon"
        let log = try #require(
            try FileManager.default.contentsOfDirectory(atPath: directory).first { $0.hasSuffix(".log") })
        let descriptor = open("\(directory)/\(log)", O_RDWR | O_CLOEXEC)
        defer { close(descriptor) }
        try #require(flock(descriptor, LOCK_EX | LOCK_NB) == 0)
        let second = try ServiceProcess(on: bus)  // has its name
        var receivers: Int?
        client.connection.call(try PostCall(name: "Ding", object: "").message()) { result in
            receivers = (try? result.get()).flatMap { try? PostCall.reply(in: $0) } ?? -1
        }
        // Whoever is not asked for the state is served by the bus meanwhile.
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == second.pid)
        #expect(receivers == nil)
        #expect(flock(descriptor, LOCK_UN) == 0)
        try client.run("the answer") { receivers != nil }
        #expect(receivers == 1)
    }
}
