// SPDX-License-Identifier: Apache-2.0
import MQTT
import NotificationWire
import TestLimits
import TestSupport
import Testing

@testable import CarillonBridge

/// A value that the broker tells anew is posted only where it is not here already, and one is here when the service has
/// one of the same name, object, machine and user with the same content.
@Suite("G2, G3: whether a value is here already", .serialized, .limited)
struct KeptHereTests {
    private static let here = KeptValue(
        name: "com.example.Battery", object: "BAT\u{E9}", userInfo: ["level": .int64(7)],
        details: ["host": .string("desk"), "user": .string("ann\u{E9}"), "serial": .uint64(3), "pid": .uint32(7)])

    private func message() throws -> InwardMessage {
        let topic = BridgeTopic(
            .value(name: "com.example.Battery", object: "BAT\u{E9}"), of: Origin(host: "desk", user: "ann\u{E9}")!)
        let publication = Publication(
            topic: topic.text(in: "home"), payload: Array(#"{"level": 7}"#.utf8), isRetained: true)
        return try InwardMessage(publication, on: try #require(BridgeTopic(publication.topic, in: "home")))
    }

    @Test("G3: it is here when all that makes it what it is is the same, whatever else is told of it")
    func same() throws {
        #expect(try message().isKept(as: Self.here, ["level": .int64(7)]))
    }

    @Test(
        "G3: it is not here when one of name, object, content, machine or user is another, or is not told",
        arguments: [
            { $0.name = "com.example.Batter" }, { $0.object = "" }, { $0.object = "BATe\u{301}" },
            { $0.userInfo = [:] }, { $0.userInfo = ["level": .int64(8)] },
            { $0.userInfo = ["level": .int64(7), "more": .boolean(true)] },
            { $0.details["host"] = .string("lap") }, { $0.details["host"] = nil }, { $0.details["host"] = .string("") },
            { $0.details["user"] = .string("ben") }, { $0.details["user"] = nil },
            { $0.details["user"] = .string("anne\u{301}") },
            {
                $0.details["host"] = .string("ann\u{E9}")
                $0.details["user"] = .string("desk")
            },
        ] as [@Sendable (inout KeptValue) -> Void])
    func another(change: @Sendable (inout KeptValue) -> Void) throws {
        var value = Self.here
        change(&value)
        #expect(try !message().isKept(as: value, ["level": .int64(7)]))
    }

    @Test(
        "G2, G3: two users of one host, and one of another, keep the same value; each is here, and each is removed alone",
        .enabled(if: MosquittoBroker.isAvailable, "there is no mosquitto"))
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
}
