// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

@Suite("B3: carillon observe --exec and --popup", .serialized, .limited)
struct ExecTests {
    @Test(
        "--exec runs a command for each notification, in order, with its fields as variables and its JSON as input",
        arguments: BusKind.available)
    func fields(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe(
            "--exec", #"echo "$CARILLON_NAME|$CARILLON_OBJECT|$CARILLON_INFO_a|$CARILLON_USER_INFO"; cat"#,
            "--count", "2")
        try bell.post("Ding", "--object", "x y", "a=two words")
        try bell.post("Dong", "--json", #"{"no name": 1, "a": {"b": 2}}"#)
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        let lines = observer.standardOutput.split(separator: "\n").map(String.init)
        try #require(lines.count == 4, "\(lines)")
        #expect(lines[0] == #"Ding|x y|two words|{"a": "two words"}"#)
        #expect(try ObservedLine(lines[1]).members["name"] as? String == "Ding")
        #expect(lines[2] == #"Dong||{"b": 2}|{"a": {"b": 2}, "no name": 1}"#)
        #expect(try ObservedLine(lines[3]).userInfoText == #"{"a": {"b": 2}, "no name": 1}"#)
    }

    @Test("--exec runs one command at a time; later notifications wait in order and are processed before the exit")
    func order() throws {
        let bell = try Bell()
        let directory = try TemporaryDirectory()
        let observer = try bell.observe(
            "Ding", "--count", "40", "--exec", #"mkdir lock || echo both; echo $CARILLON_INFO_n; rmdir lock"#,
            environment: ["PWD": directory.path])
        let lines = (1...40).map { "n=\($0)\n" }.joined()
        let poster = try RunningCommand(
            try Bell.path(), ["post", "Ding", "--lines"], environment: bell.bus.environment)
        poster.write(lines)
        poster.closeInput()
        #expect(try poster.waitForExit() == .exited(0))
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(observer.standardOutput == (1...40).map { "\($0)\n" }.joined())
    }

    @Test("A failed --exec command is reported, the next one runs, and the exit status is 7")
    func failing() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--count", "3", "--exec", #"test $CARILLON_INFO_n != 2 || exit 5"#)
        for n in 1...3 { try bell.post("Ding", "n=\(n)") }
        #expect(try observer.waitForExit() == .exited(7), "\(observer.transcript)")
        #expect(observer.standardError.contains("it ended with status 5"))
    }

    @Test("--exec tolerates a command that reads no input, and userInfo that is too large for the environment")
    func large() throws {
        let bell = try Bell()
        let observer = try bell.observe(
            "Ding", "--count", "2", "--exec",
            #"echo "${CARILLON_USER_INFO-none} ${#CARILLON_INFO_a}"; test -n "$CARILLON_INFO_a" || wc -c"#)
        let poster = try RunningCommand(
            try Bell.path(), ["post", "Ding", "--json", "-"], environment: bell.bus.environment)
        poster.write("{\"a\": \"" + String(repeating: "x", count: 300_000) + "\"}")
        poster.closeInput()
        #expect(try poster.waitForExit() == .exited(0), "\(poster.transcript)")
        try bell.post("Ding", "a=1")
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        let lines = observer.standardOutput.split(separator: "\n")
        try #require(lines.count == 3, "\(lines.map { $0.prefix(200) })")
        #expect(lines[0] == "none 0" && Int(lines[1]) ?? 0 > 300_000 && lines[2] == #"{"a": 1} 1"#)
    }

    @Test("Notifications beyond the queue of a slow --exec command are dropped and reported, with exit status 4")
    func tooSlow() throws {
        let bell = try Bell()
        let directory = try TemporaryDirectory()
        let gate = directory.path + "/gate"
        let observer = try bell.observe(
            "Ding", "--count", "1500",
            "--exec", "echo $CARILLON_INFO_n; while ! test -e '\(gate)'; do sleep 0.05; done")
        let poster = try RunningCommand(
            try Bell.path(), ["post", "Ding", "--lines"], environment: bell.bus.environment)
        poster.write((1...1500).map { "n=\($0)\n" }.joined())
        poster.closeInput()
        #expect(try poster.waitForExit() == .exited(0))
        _ = try observer.nextErrorLine { $0.contains("is too slow") }
        // All 1500 have arrived before the gate opens: a barrier that the command itself can see.
        try eventually("all have arrived: \(observer.transcript.suffix(1000))") {
            try bell.run("clients", "--json").standardOutput.contains(#""delivered": 1500"#)
        }
        try "".write(toFile: gate, atomically: true, encoding: .utf8)
        let shells = Patience.work(.seconds(600), because: "a thousand shells are run one after the other")
        #expect(try observer.waitForExit(within: shells) == .exited(4), "\(observer.transcript)")
        let numbers = observer.standardOutput.split(separator: "\n").compactMap { Int($0) }
        #expect(numbers.count == 1001 && numbers.first == 1 && numbers.last == 1500)
        #expect(numbers == numbers.sorted())
    }

    @Test("An interrupted observe reports the number of unprocessed notifications, and exits with status 4")
    func interrupted() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--exec", "echo $CARILLON_INFO_n; sleep 600 & echo $!; wait")
        for n in 1...3 { try bell.post("Ding", "n=\(n)") }
        #expect(try observer.nextLine() == "1")
        let sleeper = try #require(pid_t(try observer.nextLine()))
        try eventually("all three have come") {
            try bell.run("clients", "--json").standardOutput.contains(#""delivered": 3"#)
        }
        observer.signal(SIGINT)
        #expect(try observer.waitForExit() == .exited(4), "\(observer.transcript)")
        #expect(observer.standardError.contains("2 notifications were not processed by --exec or --popup"))
        kill(sleeper, SIGKILL)
    }

    // MARK: On the desktop

    /// Shows nothing, and keeps what it was asked to show.
    private final class Desktop: @unchecked Sendable {
        // Sendable: the connection is used on the thread alone, once that runs.
        struct Popup: Equatable, Sendable {
            let replaces: UInt32
            let title: String
            let body: String
        }

        private let popups = Locked<[Popup]>([])
        private let came = Doorbell()
        private let isOver = Locked(false)
        private let context = MainContext()
        private let ended = Doorbell()

        init(on bus: PrivateBus) throws {
            let ready = Doorbell()
            let address = bus.address
            Thread { [self] in
                defer { ended.ring() }
                guard let connection = try? Connection(address: address, context: context) else { return }
                connection.onMessage = { message in self.take(message, connection) }
                connection.hello { _ in
                    connection.requestName("org.freedesktop.Notifications") { _ in ready.ring() }
                }
                while !isOver.withLock({ $0 }) { context.iterate(mayBlock: true) }
            }.start()
            try ready.wait("the desktop's name")
        }

        private func take(_ message: Message, _ connection: Connection) -> Bool {
            guard message.kind == .methodCall, message.member?.rawValue == "Notify" else { return false }
            var reader = MessageReader(message)
            guard (try? reader.readString()) == "carillon", let replaces = try? reader.read(UInt32.self),
                (try? reader.readString()) != nil, let title = try? reader.readString(),
                let body = try? reader.readString()
            else { return false }
            let id = popups.withLock { popups in
                popups.append(Popup(replaces: replaces, title: title, body: body))
                return UInt32(popups.count)
            }
            came.ring()
            let reply = message.methodReturn()
            var writer = MessageWriter(reply)
            writer.append(id)
            connection.send(reply)
            return true
        }

        func shown(_ count: Int) throws -> [Popup] {
            while popups.withLock({ $0.count }) < count { try came.wait("\(count) popups") }
            return popups.withLock { $0 }
        }

        func leave() throws {
            isOver.withLock { $0 = true }
            context.wakeUp()
            try ended.wait("the end of the desktop")
        }
    }

    @Test(
        "--popup shows notifications on the desktop, and one of an equal name and object replaces the previous one",
        arguments: BusKind.available)
    func popups(kind: BusKind) throws {
        let bell = try Bell(kind)
        let desktop = try Desktop(on: bell.bus)
        let observer = try bell.observe("--popup", "--count", "3")
        try bell.post("Ding", "--object", "a<b>", "n=1", "text=<i>&</i>")
        #expect(
            try desktop.shown(1).last
                == .init(replaces: 0, title: "Ding", body: "a&lt;b&gt;\nn: 1\ntext: &lt;i&gt;&amp;&lt;/i&gt;"))
        try bell.post("Ding", "--object", "other")
        #expect(try desktop.shown(2).last == .init(replaces: 0, title: "Ding", body: "other"))
        try bell.post("Ding", "--object", "a<b>")
        #expect(try desktop.shown(3).last == .init(replaces: 1, title: "Ding", body: "a&lt;b&gt;"))
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(observer.standardOutput.isEmpty)
        try desktop.leave()
    }

    @Test("Without a notification server, --popup reports the reason and exits with status 2")
    func noPopups() throws {
        let bell = try Bell()
        let observer = try bell.observe("--popup")
        try bell.post("Ding")
        #expect(try observer.waitForExit() == .exited(2), "\(observer.transcript)")
        #expect(observer.standardError.contains("no notification server in this session"), "\(observer.transcript)")
    }
}
