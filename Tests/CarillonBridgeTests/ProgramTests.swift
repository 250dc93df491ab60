// SPDX-License-Identifier: Apache-2.0
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// The program and the command that looks at it, with a real broker. What happens between machines, with TLS and cut
/// cables, is tested by tools/test-bridge.
@Suite(
    "carillon-bridge", .serialized, .enabled(if: MosquittoBroker.isAvailable, "there is no mosquitto"),
    .limited)
struct ProgramTests {
    @Test("The bridge ends and reports that it is off if no broker is configured")
    func off() throws {
        let machine = try Machine()
        let bridge = try machine.startBridge(waitingFor: "no broker is configured")
        #expect(try bridge.waitForExit() == .exited(0))
        let status = try machine.run("bridge", "status")
        #expect(
            status.exitCode == 2 && status.standardError.contains("there is no bridge in this session"), "\(status)")
    }

    @Test("A mistake in bridge.conf ends the bridge with file and line")
    func mistake() throws {
        let machine = try Machine()
        try machine.configure("[Broker]\nhost=a\nport=x\n")
        let bridge = try machine.startBridge(waitingFor: "bridge.conf:3: 'x' is not a number")
        #expect(try bridge.waitForExit() == .exited(1))
        try machine.configure("[Broker]\nhost=localhost\npassword-file=/nowhere\n")
        #expect(try machine.startBridge(waitingFor: "/nowhere").waitForExit() == .exited(1))
    }

    @Test("The bridge exits with 2 without a bus, with 3 beside another bridge, and with 4 when the bus ends")
    func ends() throws {
        let (machine, broker) = (try Machine(), try MosquittoBroker())
        try machine.configure(broker: broker, host: "a")
        let first = try machine.startBridge()
        #expect(try machine.startBridge(waitingFor: "the session already has a bridge").waitForExit() == .exited(3))
        machine.service.bus.stop()
        #expect(try first.waitForExit() == .exited(4))
        #expect(try machine.startBridge(waitingFor: "no bus").waitForExit() == .exited(2))
    }

    @Test("A post arrives on another machine with its origin and is not sent back", arguments: BusKind.available)
    func between(bus: BusKind) throws {
        let broker = try MosquittoBroker()
        let (here, there) = (try Machine(bus: bus), try Machine(bus: bus))
        try here.configure(broker: broker, host: "a", exports: "com.example.*", imports: "com.example.*")
        try there.configure(broker: broker, host: "b", exports: "com.example.*", imports: "com.example.*")
        try here.startBridge()
        try there.startBridge()
        let observer = try there.observe("com.example.Saved", "--json", "--details", "--count", "2")
        let own = try here.observe("com.example.Saved", "--count", "2")
        try there.waitForSubscriptions(2)
        try here.waitForSubscriptions(2)
        #expect(try here.run("post", "com.example.Saved", "--object", "a.txt", "bytes=4711").exitCode == 0)
        #expect(try here.run("post", "other.Saved").exitCode == 0)
        let line = try observer.nextLine()
        #expect(line.contains(#""object": "a.txt", "userInfo": {"bytes": 4711}"#), "\(line)")
        #expect(line.contains(#""host": "a""#) && line.contains(#""user": "u""#), "\(line)")
        // What has come there is not sent back: the next one that arrives is the next one that is posted.
        #expect(try here.run("post", "com.example.Saved", "n=2").exitCode == 0)
        #expect(try observer.nextLine().contains(#""userInfo": {"n": 2}"#))
        #expect(try own.waitForExit() == .exited(0))
        #expect(own.standardOutput == "com.example.Saved  a.txt  {\"bytes\": 4711}\ncom.example.Saved  {\"n\": 2}\n")
        // It counts when the service has answered, and the observer may have it before that.
        try eventually("both are counted") {
            try here.status()["exported"] as? Int == 2 && there.status()["imported"] as? Int == 2
        }
        #expect(try there.status()["exported"] as? Int == 0)
    }

    @Test("carillon bridge shows the status, tests the connection and reloads the configuration")
    func command() throws {
        let (machine, broker) = (try Machine(), try MosquittoBroker())
        try machine.configure(broker: broker, host: "a", exports: "com.example.*")
        let bridge = try machine.startBridge()
        let status = try machine.run("bridge", "status")
        #expect(status.exitCode == 0 && status.standardError.isEmpty, "\(status)")
        #expect(status.standardOutput.contains("connected to 127.0.0.1:\(broker.port), without TLS"), "\(status)")
        #expect(status.standardOutput.contains("a/u in the realm home"), "\(status)")
        #expect(try machine.run("status").standardOutput.contains("bridge"), "it is a line of the service's status")
        let test = try machine.run("bridge", "test")
        #expect(test.exitCode == 0 && test.standardOutput.hasPrefix("round trip: "), "\(test)")
        try machine.configure(broker: broker, host: "a", exports: "com.example.*;Ding")
        #expect(try machine.run("bridge", "reload").exitCode == 0)
        try eventually("the new list", every: .milliseconds(50)) {
            try machine.status()["export"] as? [String] == ["com.example.*", "Ding"]
                && machine.status()["connected"] as? Bool == true
        }
        try machine.configure("[Broker]\nhost=\n")
        let refused = try machine.run("bridge", "reload")
        #expect(
            refused.exitCode == 1 && refused.standardError.contains("configuration has no broker"), "\(refused)")
        broker.stop()
        try eventually("that the broker is gone", every: .milliseconds(50)) {
            try machine.status()["connected"] as? Bool == false
        }
        let failed = try machine.run("bridge", "test")
        #expect(failed.exitCode == 2 && failed.standardError.contains("not connected to 127.0.0.1"), "\(failed)")
        bridge.terminate()
        #expect(try bridge.waitForExit() == .exited(0))
        #expect(try machine.run("bridge", "nothing").exitCode == 1 && machine.run("bridge").exitCode == 1)
    }

    @Test("A request that the service refuses is repeated, and logged once")
    func refusedQuestion() throws {
        let broker = try MosquittoBroker()
        let machine = try Machine(limits: "[Limits]\nclients=1\n")
        try machine.configure(broker: broker, host: "a", imports: "com.example.*")
        // The one client that there may be.
        let observer = try machine.observe("com.example.Saved")
        let bridge = try machine.startBridge(waitingFor: "does not list wanted names")
        // Nothing tells the bridge of this.
        try machine.configureService("[Limits]\nclients=100\n")
        machine.service.signal(SIGHUP)
        try machine.waitForSubscriptions(2)
        let said = bridge.standardError.split(separator: "\n").filter { $0.contains("does not list wanted names") }
        #expect(said.count == 1 && observer.isRunning, "\(said)")
    }

    @Test("Messages that the broker has not acknowledged are sent by the next bridge, in order and once")
    func restart() throws {
        let broker = try MosquittoBroker(keepsState: true)
        let (here, there) = (try Machine(), try Machine())
        try here.configure(broker: broker, host: "a", exports: "N")
        try there.configure(broker: broker, host: "b", imports: "N")
        try there.startBridge()
        let observer = try there.observe("N", "--count", "6")
        try there.waitForSubscriptions(2)
        let bridge = try here.startBridge()
        #expect(try here.run("post", "N", "n=0").exitCode == 0)
        #expect(try observer.nextLine() == "N  {\"n\": 0}")
        broker.stop()
        for n in 1...4 { #expect(try here.run("post", "N", "n=\(n)").exitCode == 0) }
        try eventually("what waits", every: .milliseconds(50)) {
            (try here.status()["queued"] as? Int ?? 0) + (try here.status()["in-flight"] as? Int ?? 0) == 4
        }
        bridge.terminate()
        #expect(try bridge.waitForExit() == .exited(0))
        try broker.restart()
        try here.startBridge()
        #expect(try here.run("post", "N", "n=5").exitCode == 0)
        #expect(try observer.waitForExit() == .exited(0))
        #expect(observer.standardOutput == (0...5).map { "N  {\"n\": \($0)}\n" }.joined())
        #expect(try there.status()["lost-in"] as? Int == 0)
    }

    @Test("Losses during an absence of the broker are published in the status after the reconnection")
    func lossesWhileAway() throws {
        let (machine, broker) = (try Machine(), try MosquittoBroker())
        try machine.configure(broker: broker, host: "a", exports: "N", queue: 2)
        let bridge = try machine.startBridge()
        broker.stop()
        try eventually("the bridge has noticed", every: .milliseconds(50)) {
            try machine.status()["connected"] as? Bool == false
        }
        for n in 1...5 { #expect(try machine.run("post", "N", "n=\(n)").exitCode == 0) }
        // All losses are announced in the session before the broker is back, so that none announces them at the broker.
        var announced = 0
        while announced < 3 {
            let line = try bridge.nextErrorLine {
                $0.contains("lost notifications of N from a/u: ") && $0.contains("queue-full")
            }
            announced += try #require(line.firstMatch(of: /a\/u: (\d+), queue-full/).flatMap { Int($0.1) }, "\(line)")
        }
        #expect(announced == 3)
        try broker.restart()
        let status = try TopicReader("carillon/1/home/a/u/status", at: broker)
            .first(within: .work(.seconds(150), because: "the bridge may look for its broker once a minute only"))
        #expect(status.isRetained)
        #expect(String(decoding: status.payload, as: UTF8.self) == #"{"lost": 3, "names": {"N": 3}}"#)
    }

    @Test("G2, G3: equal values of two users of a host and of another host are kept and removed separately")
    func users() throws {
        let broker = try MosquittoBroker()
        let machine = try Machine()
        try machine.configure(broker: broker, host: "here", imports: "N")
        let origins = [("h", "anna"), ("h", "ben"), ("g", "anna")]
        func publish(_ origin: (String, String), _ payload: String) throws {
            var options = [
                "-h", "127.0.0.1", "-p", "\(broker.port)", "-V", "5", "-q", "1", "-r", "-t",
                "carillon/1/home/\(origin.0)/\(origin.1)/n/N",
            ]
            options += payload.isEmpty ? ["-n"] : ["-m", payload]
            #expect(try Command.run("mosquitto_pub", options).exitCode == 0)
        }
        /// Who has one here, as the service tells it.
        func kept() throws -> Set<String> {
            let lines = try machine.run("retained").standardOutput.split(separator: "\n")
                .filter { $0.hasPrefix("N ") }
            return Set(lines.compactMap { $0.split(separator: " ").last.map(String.init) })
        }
        // They are there before the bridge is, so that each is told as one that may be here already.
        for origin in origins { try publish(origin, #"{"n": 1}"#) }
        try machine.startBridge()
        let observer = try machine.observe("N")
        try eventually("all values", every: .milliseconds(50)) {
            try kept() == ["anna@h", "ben@h", "anna@g"]
        }
        try publish(origins[0], "")
        try eventually("one is gone", every: .milliseconds(50)) { try kept() == ["ben@h", "anna@g"] }
        try publish(origins[2], "")
        try eventually("another one is gone", every: .milliseconds(50)) { try kept() == ["ben@h"] }
        #expect(observer.isRunning)
    }

    @Test("The introspection of the bridge equals its interface file")
    func introspection() throws {
        let (machine, broker) = (try Machine(), try MosquittoBroker())
        try machine.configure(broker: broker, host: "a")
        try machine.startBridge()
        let shown = try Command.run(
            "gdbus",
            [
                "introspect", "--session", "--xml", "--dest", "org.carillon.Bridge1", "--object-path",
                "/org/carillon/Bridge1",
            ], environment: machine.environment)
        let file = Executables.packageRoot + "/dbus-interfaces/org.carillon.Bridge1.xml"
        #expect(
            try Self.arguments(shown.standardOutput) == Self.arguments(String(contentsOfFile: file, encoding: .utf8)))
    }

    /// The methods of the bridge's interface with their arguments.
    private static func arguments(_ xml: String) throws -> [String: [String]] {
        let document = try #require(
            xml.firstMatch(of: #/<interface name="org\.carillon\.Bridge1">(?s:.*?)</interface>/#))
        var methods: [String: [String]] = [:]
        for method in String(document.0).matches(of: #/<method name="(\w+)"\s*(?:\/>|>((?s:.*?))<\/method>)/#) {
            methods[String(method.1)] = (method.2 ?? "").matches(of: #/<arg ([^>]*)>/#).map { argument in
                argument.1.matches(of: #/(type|name|direction)="([^"]*)"/#).map { "\($0.1) \($0.2)" }.sorted()
                    .joined(separator: ", ")
            }
        }
        #expect(methods.count == 4)
        return methods
    }
}
