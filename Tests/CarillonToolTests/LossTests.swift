// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// B3: no loss, of notifications or of output, without a word on standard error, in the JSON, and in the exit status.
@Suite("B3: reports of lost notifications and lost output", .serialized, .limited)
struct LossTests {
    /// A bus whose service keeps four notifications for a client that does not read.
    private struct Stage {
        let bus: PrivateBus
        let service: ServiceProcess
        private let directory: TemporaryDirectory

        init(_ kind: BusKind = .dbusDaemon) throws {
            directory = try TemporaryDirectory()
            let configuration = directory.path + "/carillon"
            try FileManager.default.createDirectory(atPath: configuration, withIntermediateDirectories: true)
            try "[Limits]\nqueued-per-client=4\n".write(
                toFile: configuration + "/carillon.conf", atomically: true, encoding: .utf8)
            bus = try PrivateBus(kind)
            service = try ServiceProcess(on: bus, environment: ["XDG_CONFIG_HOME": directory.path])
        }

        func observe(_ arguments: String...) throws -> RunningCommand {
            let observer = try RunningCommand(
                try Bell.path(), ["observe"] + arguments, environment: bus.environment)
            _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
            return observer
        }

        /// Posts so much that the service can't keep it all for an observer that is stopped.
        func post(_ count: Int) throws {
            let lines = (1...count).map { "n=\($0)" }.joined(separator: "\n")
            let result = try Command.run(
                "sh", ["-c", "printf '%s\\n' \"$1\" | \"$0\" post Ding --lines", try Bell.path(), lines],
                environment: bus.environment)
            try #require(result.exitCode == 0, "\(result)")
        }
    }

    @Test("S4: observe reports the service's losses on standard error, in --json, and by exit status 4")
    func dropped() throws {
        let stage = try Stage()
        let observer = try stage.observe("Ding", "--json")
        try ProcessState.stop(observer.pid)
        try stage.post(600)
        observer.signal(SIGCONT)
        let line = try observer.nextErrorLine { $0.contains("dropped") }
        let count = try #require(line.firstMatch(of: /the service dropped (\d+) notifications \(queue-full\)/)?.1)
        let event = try observer.nextLine { $0.contains(#""event""#) }
        #expect(event == #"{"event": "dropped", "count": \#(count), "reason": "queue-full"}"#)
        _ = try observer.nextLine { $0.contains(#""n": 600"#) }
        observer.signal(SIGTERM)
        #expect(try observer.waitForExit() == .exited(4), "\(observer.transcript)")
        // All that did not arrive is in that number.
        let arrived = observer.standardOutput.split(separator: "\n").filter { $0.contains(#""name""#) }.count
        let lost = observer.standardOutput.matches(of: /"event": "dropped", "count": (\d+)/).reduce(0) {
            $0 + Int($1.1)!
        }
        #expect(arrived + lost == 600)
    }

    @Test("Without a loss, observe reports none and exits with status 0")
    func nothingLost() throws {
        let bell = try Bell()
        let observer = try bell.observe("Ding", "--json", "--count", "3")
        for _ in 0..<3 { try bell.post("Ding") }
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(!observer.standardOutput.contains("event") && observer.standardError == "observing Ding\n")
    }

    @Test(
        "A command whose standard output is full ends with status 5 and names the cause",
        arguments: ["observe", "--version", "status"])
    func fullOutput(command: String) throws {
        let bell = try Bell()
        let observer = try RunningCommand(
            "sh", ["-c", "exec \"$0\" \(command) >/dev/full", try Bell.path()], environment: bell.bus.environment)
        if command == "observe" {
            _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
            try bell.post("Ding")
        }
        #expect(try observer.waitForExit() == .exited(5), "\(observer.transcript)")
        #expect(observer.standardError.contains("carillon: standard output: No space left on device"))
    }

    @Test("A non-blocking pipe that is read slowly loses no line of output")
    func nonBlockingPipe() throws {
        let bell = try Bell()
        let script = """
            import os, subprocess, sys, time
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            observer = subprocess.Popen(
                [sys.argv[1], "observe", "Ding", "--count", "3000"], stdout=writer, stderr=subprocess.PIPE)
            observer.stderr.readline()
            os.close(writer)
            print("ready", flush=True)
            time.sleep(0.5)
            lines = 0
            while chunk := os.read(reader, 4096):
                lines += chunk.count(b"\\n")
            print(lines, observer.wait())
            """
        let slow = try RunningCommand(
            "/usr/bin/python3", ["-c", script, try Bell.path()], environment: bell.bus.environment)
        _ = try slow.nextLine(within: .start) { $0 == "ready" }
        let post = try Command.run(
            "sh",
            [
                "-c", "yes text=\(String(repeating: "x", count: 100)) | head -n 3000 | \"$0\" post Ding --lines",
                try Bell.path(),
            ],
            environment: bell.bus.environment, within: .event)
        try #require(post.exitCode == 0, "\(post)")
        #expect(try slow.nextLine() == "3000 0")
    }
}
