// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// A program that is no notification center and has the service's name.
@Suite("carillon with another program as owner of the service's name", .serialized, .limited)
struct StrangerTests {
    /// Takes the name on a thread of its own, and answers as a program does that knows nothing of it, or never.
    private final class Stranger: @unchecked Sendable {
        // Sendable: the connection is used on the thread alone, once that runs.
        private final class Flag: Sendable {
            let value = Locked(false)
        }

        private let stop = Flag()
        private let context = MainContext()
        private let ended = Doorbell()

        init(on bus: PrivateBus, answers: Bool) throws {
            let ready = Doorbell()
            let (address, context, stop, ended) = (bus.address, context, stop, ended)
            Thread {
                defer { ended.ring() }
                guard let connection = try? Connection(address: address, context: context) else { return }
                connection.onMessage = { message in message.kind == .methodCall && !answers }
                connection.hello { _ in connection.requestName(Wire.busName) { _ in ready.ring() } }
                while !stop.value.withLock({ $0 }) { context.iterate(mayBlock: true) }
            }.start()
            try ready.wait("the stranger's name")
        }

        func leave() throws {
            stop.value.withLock { $0 = true }
            context.wakeUp()
            try ended.wait("the end of the stranger")
        }
    }

    @Test(
        "E6: a name owner that is no notification center is reported with its process, and the exit code is 2",
        arguments: BusKind.available)
    func answers(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let stranger = try Stranger(on: bus, answers: true)
        for arguments in [["post", "Ding"], ["observe", "Ding"], ["status"]] {
            let result = try Command.run(try Bell.path(), arguments, environment: bus.environment)
            #expect(result.exitCode == 2, "\(result)")
            #expect(result.standardError.contains("is owned by :1."), "\(result)")
            #expect(result.standardError.contains("process \(getpid())"), "\(result)")
            #expect(result.standardError.contains("does not answer as a notification center"), "\(result)")
        }
        try stranger.leave()
    }

    @Test(
        "E6: a foreign owner of the name after a crash is reported, and the next center is observed",
        arguments: BusKind.available)
    func afterACrash(kind: BusKind) throws {
        let bell = try Bell(kind)
        let observer = try bell.observe("Ding", "--count", "1")
        try bell.service.kill()
        let stranger = try Stranger(on: bell.bus, answers: true)
        _ = try observer.nextErrorLine { $0.contains("does not answer as a notification center") }
        try stranger.leave()
        let second = try ServiceProcess(on: bell.bus)
        _ = try observer.nextErrorLine { $0.contains("the service is back") }
        try bell.post("Ding")
        #expect(try observer.waitForExit() == .exited(0), "\(observer.transcript)")
        #expect(second.isRunning)
    }

    @Test(
        "E3: post reports a service that does not respond with its process, and waits for the service",
        arguments: BusKind.available)
    func silent(kind: BusKind) throws {
        let bell = try Bell(kind)
        try bell.service.stop()
        let poster = try RunningCommand(try Bell.path(), ["post", "Ding"], environment: bell.bus.environment)
        let line = try poster.nextErrorLine { $0.contains("does not answer") }
        #expect(line.contains("process \(bell.service.pid), carillond"), "\(line)")
        #expect(!line.contains("as a notification center"), "\(line)")
        bell.service.signal(SIGCONT)
        #expect(try poster.waitForExit() == .exited(0), "\(poster.transcript)")
    }
}
