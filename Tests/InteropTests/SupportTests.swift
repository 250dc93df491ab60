// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The tools of the other tests: if one of these fails, look here first.
@Suite("Test support", .limited)
struct SupportTests {
    // MARK: Commands

    @Test("Command.run passes input and environment, and returns output, error output and exit code")
    func command() throws {
        let result = try Command.run(
            "sh", ["-c", "cat; echo \"$NAME\" >&2; exit 7"],
            environment: ["NAME": "Emmanuel", "PATH": "/usr/bin:/bin"],
            input: "hello\n")
        #expect(result.standardOutput == "hello\n")
        #expect(result.standardError == "Emmanuel\n")
        #expect(result.exitCode == 7)
        #expect(try Command.run("sh", ["-c", "kill -TERM $$"]).status == .signalled(SIGTERM))
    }

    @Test("Large output on both pipes and unread input do not block a command")
    func drains() throws {
        let result = try Command.run(
            "sh", ["-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"],
            input: String(repeating: "x", count: 1_000_000))
        #expect(result.standardOutput.utf8.count == 1_000_000)
        #expect(result.standardError.utf8.count == 1_000_000)
    }

    @Test("A command that hangs is killed at its time limit, and its output is kept")
    func timeout() throws {
        // Longer each time, until there is time enough for it to say something.
        for milliseconds in [100, 1_000, 10_000, 100_000] {
            let error = #expect(throws: CommandTimedOut.self) {
                try Command.run(
                    "sh", ["-c", "echo before; exec sleep 1000"],
                    within: .work(.milliseconds(milliseconds), because: "it is to be short"))
            }
            #expect(error?.result.status == .signalled(SIGKILL))
            if error?.result.standardOutput == "before\n" { return }
        }
        Issue.record("it said nothing")
    }

    @Test("Running a command that does not exist throws an error")
    func missing() {
        #expect(throws: SystemError.self) { try Command.run("there-is-no-such-command") }
        #expect(Command.find("there-is-no-such-command") == nil)
        #expect(Command.find("sh") != nil)
    }

    @Test("Children have default signal handling and none of our descriptors")
    func cleanChild() throws {
        let status = try Command.run("grep", ["-E", "^Sig(Blk|Ign):", "/proc/self/status"])
        for line in status.standardOutput.split(separator: "\n") {
            let mask = try #require(UInt64(line.split(separator: "\t")[1], radix: 16))
            // The C library keeps the signals 32 and 33 for itself.
            #expect(mask & ~0x1_8000_0000 == 0, "\(status)")
        }
        // 3 is the directory that ls reads.
        #expect(try Command.run("ls", ["/proc/self/fd"]).standardOutput == "0\n1\n2\n3\n")
    }

    @Test("Lines of a running command are read one by one")
    func lines() throws {
        let command = try RunningCommand("sh", ["-c", "read a; echo \"1 $a\"; read b; echo \"2 $b\"; printf end"])
        #expect(throws: NotInTime.self) {
            try command.nextLine(within: .work(.milliseconds(50), because: "none comes"))
        }
        command.write("ding\ndong\n")
        #expect(try command.nextLine() == "1 ding")
        #expect(try command.nextLine { $0.hasPrefix("2") } == "2 dong")
        #expect(try command.nextLine() == "end")
        #expect(throws: NotInTime.self) { try command.nextLine() }
        #expect(try command.waitForExit() == .exited(0))
        #expect(!command.isRunning)
        #expect(command.standardOutput == "1 ding\n2 dong\nend")
    }

    @Test("A running command without references is killed")
    func dropped() throws {
        var command: RunningCommand? = try RunningCommand("sleep", ["1000"])
        let pid = try #require(command?.pid)
        command = nil
        try eventually("the process \(pid) ends") { kill(pid, 0) != 0 }
    }

    @Test("Many threads can run commands at once")
    func parallel() {
        DispatchQueue.concurrentPerform(iterations: 64) { index in
            let result = try? Command.run("cat", input: "\(index)")
            #expect(result?.standardOutput == "\(index)")
        }
    }

    // MARK: Buses

    @Test("A private bus starts, carries messages, and ends", arguments: BusKind.available)
    func bus(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        #expect(try bus.processID(ofOwner: "org.example.Nobody") == nil)
        #expect(try bus.residentBytes() > 0)
        #expect(bus.environment["DBUS_SESSION_BUS_ADDRESS"] == bus.address)
        #expect(FileManager.default.fileExists(atPath: bus.directory.entry("bus")))

        // What other libraries use when they are told nothing but the environment.
        let names = try Command.run("busctl", ["--user", "list", "--no-legend"], environment: bus.environment)
        #expect(names.exitCode == 0, "\(names)")

        let pid = bus.pid
        bus.stop()
        #expect(kill(pid, 0) != 0)
        bus.stop()
    }

    @Test("A private bus without references ends, and its directory is removed", arguments: BusKind.available)
    func droppedBus(kind: BusKind) throws {
        var bus: PrivateBus? = try PrivateBus(kind)
        let pid = try #require(bus?.pid)
        let directory = try #require(bus?.directory.path)
        bus = nil
        #expect(kill(pid, 0) != 0)
        #expect(!FileManager.default.fileExists(atPath: directory))
    }

    @Test("Activation starts a program with the bus's environment")
    func activation() throws {
        let directory = try TemporaryDirectory()
        let mark = directory.entry("it's started")
        let bus = try PrivateBus(activations: [
            .init(
                name: "org.example.Started", executable: "/bin/sh",
                arguments: ["-c", "echo $XDG_RUNTIME_DIR >\"\(mark)\"; exit 1"])
        ])
        // The program owns no name, so the call fails when it exits.
        _ = try Command.run(
            "gdbus",
            [
                "call", "--address", bus.address, "--dest", "org.freedesktop.DBus", "--object-path",
                "/org/freedesktop/DBus", "--method", "org.freedesktop.DBus.StartServiceByName", "org.example.Started",
                "0",
            ], environment: bus.environment)
        #expect(try String(contentsOfFile: mark, encoding: .utf8) == bus.directory.entry("run") + "\n")
    }
}
