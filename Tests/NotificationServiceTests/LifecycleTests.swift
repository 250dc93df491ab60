// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// How carillond starts, and how it ends: its exit codes, and what it says.
@Suite("Start and end of the service", .serialized, .limited)
struct LifecycleTests {
    @Test(
        "D1: a second service on a bus logs that the name has an owner and exits with 3", arguments: BusKind.available)
    func startedTwice(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let second = try ServiceProcess(on: bus, waitUntilReady: false)
        #expect(try second.waitForExit() == .exited(3), "\(second.transcript)")
        #expect(second.log.contains("org.carillon.NotificationCenter1 is owned by another process"))
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == first.pid)
        #expect(first.isRunning)
    }

    @Test(
        "A service that is ending exits cleanly even if the bus ends meanwhile",
        arguments: BusKind.available)
    func busEndsMeanwhile(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        // Nothing of the bus is answered, and then there is none.
        try ProcessState.stop(bus.pid)
        service.signal(SIGTERM)
        _ = try service.nextLogLine { $0.contains("ended by signal") }
        kill(bus.pid, SIGKILL)
        #expect(try service.waitForExit() == .exited(0), "\(service.transcript)")
    }

    @Test("D1: a new service can start after the first one has ended", arguments: BusKind.available)
    func startedAgain(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        #expect(try first.terminate() == .exited(0))
        let second = try ServiceProcess(on: bus)
        #expect(try second.terminate() == .exited(0))
    }

    @Test(
        "The end of the bus ends the service with exit status 4 and a log line, not by a signal",
        arguments: BusKind.available, [SIGTERM, SIGKILL])
    func busEnds(kind: BusKind, signal: Int32) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        kill(bus.pid, signal)
        #expect(try service.waitForExit() == .exited(4), "\(service.transcript)")
        #expect(service.log.contains("the bus closed the connection"))
    }

    @Test("SIGTERM and SIGINT end the service with 0", arguments: BusKind.available, [SIGTERM, SIGINT])
    func signals(kind: BusKind, signal: Int32) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        service.signal(signal)
        #expect(try service.waitForExit() == .exited(0), "\(service.transcript)")
        #expect(service.log.contains("ended by signal \(signal)"))
        #expect(try bus.processID(ofOwner: ServiceProcess.busName) == nil)
    }

    @Test(
        "A missing bus ends the service with exit status 2 and a log line",
        arguments: [
            "unix:path=/nonexistent/bus",
            "unix:abstract=/carillon/nobody/listens/here",
            "tcp:host=127.0.0.1,port=1",
            "no address",
            "unix:",
            "unix:path=/nonexistent;unix:path=/nonexistent2",
            "wrongtransport:path=/tmp",
        ])
    func noBus(address: String) throws {
        let directory = try TemporaryDirectory()
        let result = try run([], environment: environment(in: directory, address: address))
        #expect(result.status == .exited(2), "\(result)")
        #expect(result.standardError.contains("no bus: "), "\(result)")
    }

    @Test(
        "Without DBUS_SESSION_BUS_ADDRESS and without a socket in XDG_RUNTIME_DIR, the service exits with 2",
        arguments: [nil, ""])
    func noAddress(address: String?) throws {
        let directory = try TemporaryDirectory()
        // A file is no socket.
        try directory.write("", to: "bus")
        let result = try run([], environment: environment(in: directory, address: address))
        #expect(result.status == .exited(2), "\(result)")
        #expect(result.standardError.contains("there is no session bus"), "\(result)")
    }

    @Test("Without DBUS_SESSION_BUS_ADDRESS the socket `bus` in XDG_RUNTIME_DIR is used")
    func runtimeDirectory() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(
            on: bus, environment: ["DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": bus.directory.path])
        #expect(try service.terminate() == .exited(0))
    }

    @Test(
        "Wrong usage ends the service with exit status 1 and a hint, without a connection to the bus",
        arguments: [
            (["--no-such-option"], "--no-such-option"),
            (["-x"], "-x"),
            (["argument"], "unexpected argument 'argument'"),
            (["--", "argument"], "unexpected argument 'argument'"),
            (["--verbose", "Glöckner"], "unexpected argument 'Glöckner'"),
        ])
    func usage(arguments: [String], message: String) throws {
        let directory = try TemporaryDirectory()
        let result = try run(arguments, environment: environment(in: directory, address: nil))
        #expect(result.status == .exited(1), "\(result)")
        #expect(result.standardError.hasPrefix("carillond: "), "\(result)")
        #expect(result.standardError.contains(message), "\(result)")
        #expect(result.standardError.contains("Try 'carillond --help'"), "\(result)")
        #expect(result.standardOutput.isEmpty, "\(result)")
    }

    @Test("An argument that is not UTF-8 is wrong usage")
    func notUTF8() throws {
        let directory = try TemporaryDirectory()
        let result = try Command.run(
            "sh", ["-c", "exec \"$0\" \"$(printf '\\377')\"", try Executables.path(of: "carillond")],
            environment: environment(in: directory, address: nil))
        #expect(result.status == .exited(1), "\(result)")
        #expect(result.standardError.contains("not valid UTF-8"), "\(result)")
    }

    @Test("--help prints the options on standard output")
    func help() throws {
        let directory = try TemporaryDirectory()
        let result = try run(["--help"], environment: environment(in: directory, address: nil))
        #expect(result.status == .exited(0), "\(result)")
        for text in ["carillond", "--version", "--verbose", "distributed notification center"] {
            #expect(result.standardOutput.contains(text), "\(result)")
        }
        #expect(result.standardError.isEmpty, "\(result)")
    }

    @Test("--version prints one line on standard output")
    func version() throws {
        let directory = try TemporaryDirectory()
        let result = try run(["--version"], environment: environment(in: directory, address: nil))
        #expect(result.status == .exited(0), "\(result)")
        #expect(result.standardOutput.wholeMatch(of: /carillond [0-9]+\.[0-9]+\.[0-9]+\n/) != nil, "\(result)")
        #expect(result.standardError.isEmpty, "\(result)")
    }

    @Test("The log states the served bus name, and standard output remains empty", arguments: BusKind.available)
    func log(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus, arguments: ["--verbose"])
        let line = try service.nextLogLine { $0.contains("serving") }
        #expect(line.contains("org.carillon.NotificationCenter1 as :1."), "\(line)")
        #expect(try service.terminate() == .exited(0))
        #expect(!service.transcript.contains("standard output"), "\(service.transcript)")
    }

    private func run(_ arguments: [String], environment: [String: String]) throws -> CommandResult {
        try Command.run(try Executables.path(of: "carillond"), arguments, environment: environment)
    }

    private func environment(in directory: TemporaryDirectory, address: String?) -> [String: String] {
        var environment = ["PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": directory.path]
        environment["DBUS_SESSION_BUS_ADDRESS"] = address
        environment["LD_LIBRARY_PATH"] = ProcessInfo.processInfo.environment["LD_LIBRARY_PATH"]
        return environment
    }
}
