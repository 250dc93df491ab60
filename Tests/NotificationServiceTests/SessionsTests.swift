// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Sessions of several users on one machine, which meet on a bus with the rules of a system bus.
@Suite("G1: notifications between all sessions of a machine", .serialized, .limited)
struct SessionsTests {
    /// One user's session: a bus, a service, a client.
    private final class Session {
        let bus: PrivateBus
        let user: OtherUser
        private(set) var service: ServiceProcess
        let client: Client
        private let system: SystemBus

        init(of user: String, on system: SystemBus, _ configuration: String) throws {
            self.system = system
            self.user = try OtherUser(user)
            bus = try PrivateBus(user: self.user)
            try bus.configure("[Sessions]\n" + configuration)
            service = try Self.start(on: bus, system)
            client = try Client(on: bus)
            try client.call(
                SetClientOptions(
                    ClientOptionsChange(batches: true, details: Details(Detail.allCases).subtracting(.time))))
        }

        private static func start(on bus: PrivateBus, _ system: SystemBus) throws -> ServiceProcess {
            try ServiceProcess(on: bus, environment: ["DBUS_SYSTEM_BUS_ADDRESS": system.address])
        }

        /// The service dies, and another one comes.
        func restart() throws {
            try service.kill()
            service = try Self.start(on: bus, system)
        }

        func post(_ name: String, _ object: String = "", change: (inout PostOptions) -> Void = { _ in }) throws {
            var options = PostOptions()
            options.goesToAllSessions = true
            change(&options)
            try client.call(try PostCall(name: name, object: object, userInfo: ["n": .int64(7)], options: options))
        }

        var sessions: [String: PropertyList] {
            get throws { try CenterProperties(in: client.send(CenterProperties.getAll())).sessions }
        }

        /// The same, for the comment of a failed expectation.
        var shown: String { "\((try? sessions) ?? [:])" }

        /// Its name on the system bus, which another session knows.
        func name(in other: Session) throws -> String {
            var name: String?
            try eventually("\(other.user.name) knows \(user.name): \(other.shown) \(service.transcript)") {
                let peer = try other.peers.first { $0["uid"] == .uint32(user.id) }
                if case .string(let found)? = peer?["name"] { name = found }
                return name != nil
            }
            return try #require(name)
        }

        var peers: [[String: PropertyList]] {
            get throws {
                guard case .array(let peers)? = try sessions["peers"] else { return [] }
                return peers.compactMap { if case .dictionary(let peer) = $0 { peer } else { nil } }
            }
        }

        func count(_ key: String) throws -> UInt64 {
            guard case .uint64(let count)? = try sessions[key] else { throw NotInTime("\(key): \(shown)") }
            return count
        }

        /// Waits until it knows these names as wanted by a user's session.
        func knows(_ wanted: [String], of user: OtherUser) throws {
            try waits(forPeerOf: user, "with \(wanted)") { $0["wants"] == .array(wanted.map { .string($0) }) }
        }

        /// Waits until a user's session is, to this one, as it shall be: what the other has done may not have come here yet.
        ///
        /// - Returns: what this one says of it.
        @discardableResult
        func waits(
            forPeerOf user: OtherUser, _ what: String, until condition: ([String: PropertyList]) -> Bool
        ) throws -> [String: PropertyList] {
            var found: [String: PropertyList]?
            try eventually("\(self.user.name) knows \(user.name) \(what): \(shown) \(service.transcript)") {
                found = try peers.first { $0["uid"] == .uint32(user.id) && condition($0) }
                return found != nil
            }
            return try #require(found)
        }
    }

    /// Somebody else on the system bus.
    private final class Stranger {
        private let command: RunningCommand

        init(as user: OtherUser, on system: SystemBus) throws {
            let program = try OtherUser.copy(
                Executables.packageRoot + "/Tests/Interop/session_stranger.py", to: system.directory)
            let (executable, arguments) = OtherUser.command("/usr/bin/python3", ["-B", program], of: user)
            command = try RunningCommand(
                executable, arguments,
                environment: ["PATH": "/usr/bin:/bin", "DBUS_SYSTEM_BUS_ADDRESS": system.address])
        }

        private func ask(_ request: [Any]) throws -> Any {
            let data = try JSONSerialization.data(withJSONObject: request)
            command.write(String(decoding: data, as: UTF8.self) + "\n")
            let line = try command.nextLine()
            let answer = try JSONSerialization.jsonObject(with: Data(line.utf8), options: .fragmentsAllowed)
            if let failure = answer as? [String: Any] { throw NotInTime("\(request): \(failure)") }
            return answer
        }

        var name: String { get throws { try #require(try ask(["name"]) as? String) } }

        func emit(_ member: String, to receiver: String? = nil, _ arguments: String = "", count: Int = 1) throws {
            _ = try ask(["emit", receiver ?? NSNull(), member, arguments, count])
        }

        /// What it was told until now, as sender, member and arguments. More may be on the way.
        var heard: [[String]] { get throws { try #require(try ask(["heard"]) as? [[String]]) } }

        /// The same, for the comment of a failed expectation.
        var shown: String { "\((try? heard) ?? [])" }

        /// Waits until it was told so many signals of a kind by somebody.
        ///
        /// - Returns: all that it was told of them.
        @discardableResult
        func hears(_ count: Int, _ member: String, from sender: String) throws -> [[String]] {
            var found: [[String]] = []
            try eventually("\(count) \(member) from \(sender): \(shown)", progress: { found.count }) {
                found = try heard.filter { $0[0] == sender && $0[1] == member }
                return found.count >= count
            }
            return found
        }

        /// Says that it is there, and waits until the sessions of these names have answered: each then knows it, and it
        /// knows them.
        func arrive(at sessions: String...) throws {
            try emit("Here")
            for session in sessions { try hears(1, "Here", from: session) }
        }

        /// The same where there is but one session, which nobody else knows.
        ///
        /// - Returns: its name.
        func arriveAtTheOnlyOne() throws -> String {
            try emit("Here")
            var answering: String?
            try eventually("an answer: \(shown)") {
                answering = try heard.first { $0[1] == "Here" }?[0]
                return answering != nil
            }
            return try #require(answering)
        }
    }

    private func requireUsers() throws {
        if let reason = OtherUser.reasonUnavailable { try Test.cancel("\(reason)") }
    }

    private func requireStrangers() throws {
        try requireUsers()
        guard try Command.run("/usr/bin/python3", ["-c", "import gi"]).exitCode == 0 else {
            try Test.cancel("/usr/bin/python3 has no gi")
        }
    }

    private func pair(
        on system: SystemBus, _ first: String = "export=Ding;Both\nimport=bin:Dong;Both\n",
        _ second: String = "export=Dong;Both\nimport=daemon:Ding;Both\n"
    ) throws -> (Session, Session) {
        let one = try Session(of: "daemon", on: system, first)
        let two = try Session(of: "bin", on: system, second)
        return (one, two)
    }

    /// Two sessions, and their names on the system bus, when each knows the other and what it wants.
    private func acquaintedPair(on system: SystemBus) throws -> (Session, Session, names: (String, String)) {
        let (one, two) = try pair(on: system)
        try one.knows(["Ding", "Both"], of: two.user)
        try two.knows(["Dong", "Both"], of: one.user)
        return (one, two, (try one.name(in: two), try two.name(in: one)))
    }

    @Test(
        "Notifications cross in both directions, with the service as poster and the user that the bus verified",
        arguments: BusKind.available)
    func both(kind: BusKind) throws {
        try requireUsers()
        let system = try SystemBus(kind)
        let (one, two, _) = try acquaintedPair(on: system)
        try one.client.addObserver("")
        try two.client.addObserver("")
        try one.post("Ding", "x")
        try two.client.run("Ding: \(two.service.transcript)") { two.client.signals.count == 1 }
        let ding = two.client.signals[0]
        #expect(ding.name == "Ding" && ding.object == "x" && ding.userInfo == ["n": .int64(7)])
        #expect(
            ding.details == [
                "uid": .uint32(one.user.id), "user": .string("daemon"), "retained": .boolean(false),
                "kept": .boolean(false), "while-connected": .boolean(false), "all-sessions": .boolean(false),
            ])
        let poster = AnyBusName(ding.poster)
        #expect(try two.client.processID(of: poster) == UInt32(two.service.pid))
        try two.post("Dong")
        try one.client.run("Dong: \(one.service.transcript)") { one.client.signals.count == 2 }
        // What both let out and take does not go back.
        try one.post("Both")
        try two.client.run("Both: \(two.service.transcript)") { two.client.signals.count == 3 }
        try two.post("Both", "back")
        try one.client.run("Both: \(one.service.transcript)") { one.client.signals.count == 4 }
        #expect(one.client.signals.map(\.name) == ["Ding", "Dong", "Both", "Both"])
        #expect(two.client.signals.map(\.object) == ["x", "", "", "back"])
        #expect(try one.count("sent") == 2 && one.count("received") == 2 && one.count("lost") == 0)
    }

    @Test("A post outside export is refused, and a notification outside import does not arrive")
    func refusals() throws {
        try requireUsers()
        let system = try SystemBus()
        let (one, two) = try pair(on: system, "export=Ding;Dang.*\n", "import=daemon:Ding;Other\n")
        try one.knows(["Ding", "Other"], of: two.user)
        let refusal = #expect(throws: BusError.self) { try one.post("Other") }
        #expect(refusal?.centerError == .notAllowed)
        #expect(refusal?.message.contains("'Other'") == true)
        #expect(refusal?.message.contains("export in [Sessions]") == true)
        #expect(throws: BusError.self) { try two.post("Ding") }
        try two.client.addObserver("")
        try one.post("Dang.A")
        try one.post("Ding", "behind it")
        try two.client.run("Ding: \(two.service.transcript)") { !two.client.signals.isEmpty }
        #expect(two.client.signals.map(\.object) == ["behind it"])
        // Less is let out, and more is taken, without a restart.
        try one.bus.configure("[Sessions]\nexport=Dang.*\n")
        try one.client.call(ReloadConfiguration())
        #expect(throws: BusError.self) { try one.post("Ding") }
        try two.bus.configure("[sessions]\nimport=\(one.user.id):Dang.B\n")
        try two.client.call(ReloadConfiguration())
        try one.knows(["Dang.B"], of: two.user)
        try one.post("Dang.A")
        try one.post("Dang.B")
        try two.client.run("Dang.B: \(two.service.transcript)") { two.client.signals.count == 2 }
        #expect(two.client.signals[1].name == "Dang.B")
        try two.bus.configure("")
        try two.client.call(ReloadConfiguration())
        #expect(try two.sessions["state"] == .string("off"))
        try eventually("it is forgotten: \(one.shown)") { try one.peers.isEmpty }
    }

    @Test(
        "A value is retained in another session only for names in import-retained, and queued posts cross when posted")
    func retained() throws {
        try requireUsers()
        let system = try SystemBus()
        let (one, two) = try pair(
            on: system, "export=A.*\n", "import=daemon:A.*\nimport-retained=daemon:A.Kept\n")
        try one.knows(["A.*"], of: two.user)
        try two.client.addObserver("")
        for name in ["A.Kept", "A.Not"] {
            try one.post(name) {
                $0.retention = Retention()
                $0.expiresAfter = 1000
                $0.postingStyle = .asap
            }
        }
        try two.client.run("both: \(two.service.transcript)") { two.client.signals.count == 2 }
        #expect(try one.client.call(Get(name: "")).map(\.name) == ["A.Kept", "A.Not"])
        // G3: it is beside the other's own.
        var options = PostOptions()
        options.retention = Retention()
        try two.client.call(try PostCall(name: "A.Kept", options: options))
        let kept = try two.client.call(Get(name: ""))
        #expect(kept.map(\.name) == ["A.Kept", "A.Kept"] && kept.last?.details["user"] == nil)
        #expect(kept.first?.details["user"] == .string("daemon") && kept.first?.details["uid"] == .uint32(one.user.id))
    }

    @Test(
        "R8: another session has the same values after removals, restarts, disconnections and a late join",
        arguments: BusKind.available)
    func values(kind: BusKind) throws {
        try requireUsers()
        let system = try SystemBus(kind)
        let one = try Session(of: "daemon", on: system, "export=A.*\n")
        func keep(_ object: String, by client: Client? = nil, whileConnected: Bool = false) throws {
            var options = PostOptions()
            options.goesToAllSessions = true
            options.retention = Retention(whileConnected: whileConnected)
            try (client ?? one.client).call(try PostCall(name: "A.Kept", object: object, options: options))
        }
        var poster: Client? = try Client(on: one.bus)
        for object in ["1", "2", "3"] { try keep(object) }
        for object in ["here 1", "here 2"] { try keep(object, by: poster, whileConnected: true) }
        try one.post("A.Kept", "not kept")
        // It comes later than they were posted.
        let two = try Session(of: "bin", on: system, "import=daemon:A.*\nimport-retained=daemon:A.Kept\n")
        func have(_ objects: [String], _ what: String) throws {
            var found: [String] = []
            try eventually("\(what): \(found) \(two.service.transcript)") {
                found = try two.client.call(Get(name: "A.Kept")).map(\.object).sorted()
                return found == objects
            }
        }
        try have(["1", "2", "3", "here 1", "here 2"], "all of them")
        try one.client.call(RemoveRetained(name: "A.Kept", object: "1"))
        try have(["2", "3", "here 1", "here 2"], "one is removed")
        // The other's service comes again, and has what it had; what ended meanwhile is none any more.
        try two.service.kill()
        try one.client.call(RemoveRetained(name: "A.Kept", object: "2"))
        try keep("4")
        try two.restart()
        try have(["3", "4", "here 1", "here 2"], "after a kill")
        poster = nil
        try have(["3", "4"], "the poster has left")
        poster = try Client(on: one.bus)
        try keep("here 3", by: poster, whileConnected: true)
        try have(["3", "4", "here 3"], "another one")
        try one.restart()
        try have(["3", "4", "here 3"], "the service of its session comes again")
        try one.service.kill()
        try have(["3", "4"], "its session has ended")
        // What may not be kept any more goes.
        try two.bus.configure("[Sessions]\nimport=daemon:A.*\n")
        try two.client.call(ReloadConfiguration())
        try have([], "nothing is to be kept")
    }

    @Test("A burst above the rate limit arrives late, in full and in order")
    func burst() throws {
        try requireUsers()
        let system = try SystemBus()
        let (one, two, _) = try acquaintedPair(on: system)
        try two.client.addObserver("Ding")
        for number in 1...4000 { try one.post("Ding", "\(number)") }
        try two.client.run("all: \(one.shown) \(two.service.transcript)") { two.client.signals.count == 4000 }
        #expect(two.client.signals.map(\.object) == (1...4000).map { "\($0)" }, "in their order")
        #expect(try one.count("lost") == 0 && two.count("lost") == 0)
    }

    @Test(
        "Signals from an unannounced connection or from a user without imports are refused",
        arguments: BusKind.available)
    func forged(kind: BusKind) throws {
        try requireStrangers()
        let system = try SystemBus(kind)
        let (one, two, known) = try acquaintedPair(on: system)
        try two.client.addObserver("")
        let stranger = try Stranger(as: OtherUser("games"), on: system)
        let names = [known.0, known.1]
        let content = "('Ding', 'forged', @a{sv} {}, {'number': <uint64 %d>})"
        for name in names {
            try stranger.emit("Notification", to: name, content)
            try stranger.emit("Taken", to: name, "(uint64 5,)")
            try stranger.emit("Wants", to: name, "(['*'],)")
        }
        // Announced, it is somebody of whom nothing is taken; and it is told no more than that its numbers have come.
        try stranger.arrive(at: known.0, known.1)
        for session in [one, two] {
            try eventually("it is known: \(session.shown)") { try session.peers.count == 2 }
        }
        for name in names {
            try stranger.emit("Notification", to: name, content)
            try stranger.emit("Notification", to: name, "('',)")
            try stranger.emit("Taken", to: name, "(uint64 5,)")
            try stranger.emit("Taken", to: name, "('five',)")
            try stranger.emit(
                "Wants", to: name, "([" + Array(repeating: "'x'", count: 300).joined(separator: ",") + "],)")
        }
        try eventually("all is refused: \(two.shown)") { try two.count("refused") >= 4 }
        try one.post("Ding", "real")
        try two.client.run("the real one: \(two.service.transcript)") { !two.client.signals.isEmpty }
        #expect(two.client.signals.map(\.object) == ["real"])
        #expect(try stranger.heard.allSatisfy { ["Here", "Taken"].contains($0[1]) }, "\(stranger.shown)")
        try two.service.waitForLog("refused a message from")
    }

    @Test("A session that confirms no notification has a bounded queue and does not delay other sessions")
    func unconfirmed() throws {
        try requireStrangers()
        let system = try SystemBus()
        let (one, two, names) = try acquaintedPair(on: system)
        try two.client.addObserver("Ding")
        let stranger = try Stranger(as: OtherUser("games"), on: system)
        try stranger.arrive(at: names.0, names.1)
        for session in [names.0, names.1] { try stranger.emit("Wants", to: session, "(['Ding'],)") }
        let games = try OtherUser("games")
        try one.knows(["Ding"], of: games)
        // The other reads as fast as it can, which need not be as fast as these are posted: so that its queue, which is
        // as bounded, never overflows.
        let all = 5000
        for some in 1...all / 200 {
            for number in 200 * (some - 1) + 1...200 * some { try one.post("Ding", "\(number)") }
            try two.client.run("all until now: \(two.service.transcript)") { two.client.signals.count == 200 * some }
        }
        #expect(two.client.signals.map(\.object) == (1...all).map { "\($0)" }, "in their order")
        // The service has answered all posts: of the queue it knows all that there is to know. Where that took longer than
        // it waits for a confirmation it has tried with another one, each time later.
        let peer = try one.waits(forPeerOf: games, "in any state") { _ in true }
        guard case .uint64(let sent)? = peer["sent"], case .uint64(let lost)? = peer["lost"],
            case .uint32(let queued)? = peer["queued"]
        else { throw NotInTime("\(peer)") }
        #expect(peer["state"] == .string("waiting") && (4086...4096).contains(queued), "\(peer)")
        #expect((64...74).contains(sent) && sent + lost + UInt64(queued) == UInt64(all), "\(peer)")
        #expect(try one.count("lost") >= lost)
        try stranger.hears(Int(sent), "Notification", from: names.0)
        // It goes on where it confirms, and is told what it has not got.
        var heard: [[String]] = []
        try eventually("the rest: \(one.shown)", every: .milliseconds(50), progress: { heard.count }) {
            heard = try stranger.hears(0, "Notification", from: names.0)
            try stranger.emit("Taken", to: names.0, "(uint64 \(heard.count),)")
            return heard.count + Int(lost) >= all
        }
        #expect(heard.count + Int(lost) == all)
        let told = heard.compactMap { $0[2].firstMatch(of: /'lost': <uint64 (\d+)>/).flatMap { UInt64($0.1) } }
        #expect(told.reduce(0, +) == lost && told.count >= 1, "\(told) of \(lost)")
        let objects = heard.compactMap { $0[2].firstMatch(of: /^\('Ding', '(\d+)'/).flatMap { Int($0.1) } }
        #expect(objects.count == heard.count && objects == objects.sorted() && objects.last == all)
    }

    @Test(
        "Notifications that wait for another session are reported to it as lost at an orderly end",
        arguments: BusKind.available
    )
    func lastWord(kind: BusKind) throws {
        try requireStrangers()
        let system = try SystemBus(kind)
        let (one, two, names) = try acquaintedPair(on: system)
        defer { withExtendedLifetime(two) {} }
        let stranger = try Stranger(as: OtherUser("games"), on: system)
        try stranger.arrive(at: names.0, names.1)
        try stranger.emit("Understands", to: names.0, "(['losses'],)")
        try stranger.emit("Wants", to: names.0, "(['Ding'],)")
        try one.knows(["Ding"], of: try OtherUser("games"))
        for number in 1...100 { try one.post("Ding", "\(number % 2)") }
        try stranger.hears(64, "Notification", from: names.0)
        #expect(try one.service.terminate() == .exited(0))
        let words = try stranger.hears(1, "Lost", from: names.0)
        #expect(words.count == 1 && words[0][2] == "(65, [('Ding', '0', 18), ('Ding', '1', 18)])", "\(words)")
    }

    @Test("A flood from another session is limited to the rate, and the dropped notifications are counted")
    func flood() throws {
        try requireStrangers()
        let system = try SystemBus()
        let games = try OtherUser("games")
        let one = try Session(of: "daemon", on: system, "import=games:Ding\n")
        try one.client.addObserver("Ding")
        let stranger = try Stranger(as: games, on: system)
        let name = try stranger.arriveAtTheOnlyOne()
        let count = 6_000
        let start = ContinuousClock.now
        try stranger.emit("Notification", to: name, "('Ding', '', @a{sv} {}, {'number': <uint64 %d>})", count: count)
        func read() throws -> Int { Int(try one.count("received") + one.count("lost")) }
        try eventually("all is read: \(one.shown)", progress: { (try? read()) ?? 0 }) { try read() == count }
        let received = try one.count("received")
        // 2,000 at once, with the windows of a user's sessions, and 500 in a second.
        let most = 2512 + 500 * ((ContinuousClock.now - start) / .seconds(1))
        #expect(received >= 2512 && Double(received) <= most + 1, "\(received) of \(count), and \(most) may be taken")
        try stranger.emit(
            "Notification", to: name,
            "('Ding', '', @a{sv} {}, {'number': <uint64 \(count + 11)>, 'lost': <uint64 5>})")
        try eventually("holes count: \(one.shown)") {
            try one.count("lost") + one.count("received") == UInt64(count) + 16
        }
        if most >= Double(count) { try Test.cancel("skipped: here all is read so slowly that it is no flood") }
        try one.service.waitForLog("above the rate limit")
    }

    @Test(
        "Sessions exchange notifications again after a restart of either service or of the system bus",
        arguments: BusKind.available)
    func restarts(kind: BusKind) throws {
        try requireUsers()
        let system = try SystemBus(kind)
        let (one, two) = try pair(on: system)
        try two.client.addObserver("Ding")
        var expected = 0
        func passes(_ what: String) throws {
            try one.knows(["Ding", "Both"], of: two.user)
            try two.knows(["Dong", "Both"], of: one.user)
            expected += 1
            try one.post("Ding", what)
            try two.client.run("\(what): \(two.service.transcript)") {
                two.client.signals.last?.object == what
            }
        }
        try passes("at first")
        try one.restart()
        try passes("from the next")
        try two.restart()
        try passes("to the next")
        system.stop()
        try eventually("it is noticed: \(one.shown)") { try one.sessions["state"] != .string("joined") }
        try one.post("Ding", "to nobody")
        #expect(try one.client.post("Ding") == 0, "the session goes on")
        try system.start()
        try passes("on the next bus")
        #expect(two.client.signals.count == expected)
        #expect(try one.count("lost") >= 1)
    }

    @Test("E3: an at-exit post reaches other sessions although the service was killed while the post waited")
    func killed() throws {
        try requireUsers()
        let system = try SystemBus()
        let (one, two) = try pair(on: system)
        try two.client.addObserver("Ding")
        var poster: Client? = try Client(on: one.bus)
        var options = PostOptions()
        options.goesToAllSessions = true
        options.postingStyle = .atExit
        try #require(poster).call(try PostCall(name: "Ding", object: "at last", options: options))
        try one.restart()
        try one.knows(["Ding", "Both"], of: two.user)
        poster = nil
        try two.client.run("it: \(two.service.transcript)") { two.client.signals.count == 1 }
        #expect(two.client.signals.map(\.object) == ["at last"])
    }

    @Test("A service without names to export or import does not join the system bus")
    func off() throws {
        try requireUsers()
        let system = try SystemBus()
        let (one, two) = try pair(on: system, "", "import=daemon:Ding\n")
        #expect(try one.sessions["state"] == .string("off"))
        try eventually("it has joined: \(two.shown)") { try two.sessions["state"] == .string("joined") }
        #expect(try two.peers.isEmpty)
        let refusal = #expect(throws: BusError.self) { try one.post("Ding") }
        #expect(refusal?.centerError == .notAllowed)
    }

    @Test("E4: at most eight sessions of one user are accepted, and another user's session still joins")
    func crowd() throws {
        try requireStrangers()
        let system = try SystemBus()
        let one = try Session(of: "daemon", on: system, "export=Ding\n")
        let games = try OtherUser("games")
        let strangers = try (0..<10).map { _ in try Stranger(as: games, on: system) }
        for stranger in strangers { try stranger.emit("Here") }
        try eventually("eight: \(one.shown)") {
            try one.peers.filter { $0["uid"] == .uint32(games.id) }.count == 8
        }
        let two = try Session(of: "bin", on: system, "import=daemon:Ding\n")
        try one.knows(["Ding"], of: two.user)
        try two.client.addObserver("Ding")
        try one.post("Ding")
        try two.client.run("it: \(two.service.transcript)") { two.client.signals.count == 1 }
        #expect(try one.peers.count == 9)
    }
}
