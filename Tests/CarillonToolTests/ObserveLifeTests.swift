// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// What ends `carillon observe`, and what does not.
@Suite("carillon observe: signals, pipes and restarts", .serialized, .limited)
struct ObserveLifeTests {
    @Test(
        "B3: an interrupted observe exits with 0 without --count, and with 130 before --count is reached",
        arguments: [SIGINT, SIGTERM])
    func interrupted(signal: Int32) throws {
        let bell = try Bell()
        let endless = try bell.observe()
        endless.signal(signal)
        #expect(try endless.waitForExit() == .exited(0))
        let counting = try bell.observe("--count", "2")
        try bell.post("Ding")
        #expect(try counting.nextLine() == "Ding")
        counting.signal(signal)
        #expect(try counting.waitForExit() == .exited(130))
    }

    @Test("B3: observe ends when the reader of its standard output ends")
    func closedOutput() throws {
        let bell = try Bell()
        let pipeline = try RunningCommand(
            "sh", ["-c", "\"$0\" observe | head -n 1", try Bell.path()], environment: bell.bus.environment)
        _ = try pipeline.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        try bell.post("Ding")
        #expect(try pipeline.nextLine() == "Ding")
        try eventually("observe ends: \(pipeline.transcript)") {
            // It learns of it when it writes, which is when something arrives.
            try bell.post("Dong")
            return !pipeline.isRunning
        }
    }

    @Test(
        "E3: observe survives a kill of the service, reports a possible gap, and continues",
        arguments: BusKind.available)
    func restart(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe("Ding", "Dong", "--count", "3")
        try bell.post("Ding", "n=1")
        #expect(try observer.nextLine() == "Ding  {\"n\": 1}")

        try bell.service.settle()
        try bell.service.kill()
        _ = try observer.nextErrorLine { $0.contains("the service went away; notifications may be missing") }
        let second = try ServiceProcess(on: bell.bus)
        try waitUntilRegistered(observer, on: bell.bus)
        try bell.post("Ding", "n=2")
        try bell.post("Dong", "n=3")
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(observer.standardOutput == "Ding  {\"n\": 1}\nDing  {\"n\": 2}\nDong  {\"n\": 3}\n")
        #expect(second.isRunning)
    }

    @Test("E3: observe registers again after an orderly restart of the service", arguments: BusKind.available)
    func orderlyRestart(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe("Ding", "--count", "1")
        #expect(try bell.service.terminate() == .exited(0))
        _ = try observer.nextErrorLine { $0.contains("the service went away; notifications may be missing") }
        let second = try ServiceProcess(on: bell.bus)
        try waitUntilRegistered(observer, on: bell.bus)
        try bell.post("Ding")
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(second.isRunning)
    }

    @Test(
        "E3: after several kills of the service, observe has one registration for each name",
        arguments: BusKind.available)
    func restarts(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        var service = try ServiceProcess(on: bus)
        let observer = try RunningCommand(
            try Bell.path(), ["observe", "Ding", "--json"], environment: bus.environment)
        _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        for _ in 0..<3 {
            try service.settle()
            try service.kill()
            _ = try observer.nextErrorLine { $0.contains("the service went away") }
            service = try ServiceProcess(on: bus)
            try expectReturn(of: observer)
            try expectOneObserver(of: observer, on: bus)
        }
        #expect(service.isRunning)
    }

    @Test("E3: after restarts of the service by bus activation, observe has one registration for each name")
    func activated() throws {
        let bus = try PrivateBus(activations: [.service()])
        let observer = try RunningCommand(
            try Bell.path(), ["observe", "Ding", "--json"], environment: bus.environment)
        _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        for _ in 0..<3 {
            let pid = try #require(try bus.processID(ofOwner: ServiceProcess.busName))
            kill(pid, SIGKILL)
            _ = try observer.nextErrorLine { $0.contains("the service went away") }
            try expectReturn(of: observer)
            try expectOneObserver(of: observer, on: bus)
        }
        if let pid = try bus.processID(ofOwner: ServiceProcess.busName) { kill(pid, SIGTERM) }
    }

    /// Waits until the service lists the process as a client, whether it took it up again or was told anew.
    private func waitUntilRegistered(_ observer: RunningCommand, on bus: PrivateBus) throws {
        try eventually("the service knows the observer: \(observer.transcript)") {
            let clients = try Command.run(
                "gdbus",
                [
                    "call", "--address", bus.address, "--dest", ServiceProcess.busName, "--object-path",
                    ServiceProcess.objectPath, "--method", "org.carillon.NotificationCenter1.ListClients",
                ], environment: bus.environment)
            return clients.standardOutput.contains("'pid': <uint32 \(observer.pid)>")
        }
    }

    /// For programs, the service's going and coming stand in the output, too.
    private func expectReturn(of observer: RunningCommand) throws {
        _ = try observer.nextErrorLine { $0.contains("the service is back") }
        #expect(try observer.nextLine() == #"{"event": "service-gone"}"#)
        #expect(try observer.nextLine() == #"{"event": "service-back"}"#)
    }

    /// Posts, and looks at the observers that the notification names.
    private func expectOneObserver(of observer: RunningCommand, on bus: PrivateBus) throws {
        try waitUntilRegistered(observer, on: bus)
        let result = try Command.run(try Bell.path(), ["post", "Ding"], environment: bus.environment)
        try #require(result.exitCode == 0, "\(result)")
        let line = try ObservedLine(try observer.nextLine())
        #expect((line.members["observers"] as? [Int])?.count == 1, "\(line.text)")
    }
}
