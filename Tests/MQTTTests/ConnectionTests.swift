// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Glibc
import Testing

@Suite(
    "Connections to a broker", .enabled(if: MosquittoBroker.isAvailable, "there is no mosquitto"),
    .limited)
struct ConnectionTests {
    @Test("A client connects to a broker, publishes, and another client receives the publication")
    func connects() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let (one, other) = (try Party(broker, on: loop, "one"), try Party(broker, on: loop, "other"))
        #expect(!one.client.isConnected)
        try one.connect()
        try other.connect()
        #expect(one.client.isConnected)
        #expect(one.connections.map(\.sessionPresent) == [false])
        #expect(try other.subscribe(TopicFilter("bells/#")) == [.grantedAtLeastOnce])
        #expect(try one.publish("bells/ding", "dong") == .success)
        try other.waitForPublications(1)
        #expect(other.received == [Publication(topic: "bells/ding", payload: Array("dong".utf8))])
        #expect(!one.wasToldInCall && !other.wasToldInCall)
    }

    @Test("A new connection reports the limits of the broker")
    func limits() throws {
        let lines = [
            "max_keepalive 30", "max_packet_size 5000", "retain_available false", "max_inflight_messages 7",
        ]
        let (broker, loop) = (try MosquittoBroker(lines), Loop())
        let party = try Party(broker, on: loop)
        try party.connect()
        let limits = try #require(party.connections.first).limits
        #expect(limits.keepAlive == 30)
        #expect(limits.maximumPacketSize == 5000)
        #expect(!limits.retainAvailable)
        #expect(limits.receiveMaximum == 7)
        #expect(limits.wildcardsAvailable)
        #expect(limits.maximumQuality == .atLeastOnce)
    }

    // MARK: Sessions

    @Test("The broker keeps a session and its publications until the session expiry")
    func session() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let other = try Party(broker, on: loop, "other")
        try other.connect()
        let party = try Party(broker, on: loop) { $0.sessionExpiry = 600 }
        try party.connect()
        try party.subscribe(TopicFilter("bells/#"))
        party.call { $0.disconnect() }
        try broker.waitForLog("Client party disconnected")
        for text in ["1", "2", "3"] { try other.publish("bells/ding", text) }
        try party.connect()
        #expect(party.connections.map(\.sessionPresent) == [false, true])
        try party.waitForPublications(3)
        #expect(party.texts == ["1", "2", "3"])
        #expect(party.errors.isEmpty)
    }

    @Test("A session without an expiry ends with its connection")
    func noSession() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let party = try Party(broker, on: loop)
        for _ in 0..<2 {
            try party.connect()
            party.call { $0.disconnect() }
            try broker.waitForLog("Client party disconnected")
        }
        #expect(party.connections.map(\.sessionPresent) == [false, false])
    }

    /// So that one that is killed has, after a restart, what it had acknowledged.
    private static let savesAlways = ["autosave_interval 1", "autosave_on_changes true"]

    @Test("A new connection does not resend unacknowledged publications of the previous connection")
    func forgets() throws {
        let (broker, loop) = (try MosquittoBroker(Self.savesAlways, keepsState: true), Loop())
        let other = try Party(broker, on: loop, "other") { $0.sessionExpiry = 600 }
        let party = try Party(broker, on: loop, "party") { $0.sessionExpiry = 600 }
        try other.connect()
        try other.subscribe(TopicFilter("bells/#"))
        try party.connect()
        try party.publish("bells/ding", "first")
        try other.waitForPublications(1)

        try ProcessState.stop(broker.pid)
        let texts = (0..<50).map(String.init)
        for text in texts {
            _ = try party.call { try $0.publish(Publication(topic: "bells/ding", payload: Array(text.utf8))) }
        }
        loop.turn()
        broker.kill()
        #expect(try party.waitForEnd().cause != .notConnected)
        #expect(throws: MQTTError(.notConnected)) {
            try party.client.publish(Publication(topic: "bells/ding", payload: []))
        }
        try broker.restart()
        try other.connect()
        try party.connect()
        #expect(party.connections.last?.sessionPresent == true)
        for text in texts.suffix(2) { try party.publish("bells/ding", text) }
        try other.waitForPublications(3)
        #expect(party.acknowledged.count == 3 && other.texts == ["first"] + texts.suffix(2))
        #expect(!party.wasToldInCall)
    }

    @Test("A client that connects with the identifier of another client takes over its session")
    func takeover() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let (first, second) = (try Party(broker, on: loop, "same"), try Party(broker, on: loop, "same"))
        try first.connect()
        try second.connect()
        let error = try first.errors.first ?? first.waitForEnd()
        // mosquitto 2.0.11 does not say why.
        #expect([.ended(.sessionTakenOver), .connectionLost].contains(error.cause), "\(error)")
        #expect(second.client.isConnected && !first.client.isConnected)
    }

    @Test("The client reports the reason code with which the broker ends the connection")
    func ended() throws {
        // It takes the connection, and then another client has taken the session over.
        let (broker, loop) = (try FakeBroker(.bytes([0x20, 3, 0, 0, 0, 0xE0, 1, 0x8E])), Loop())
        let party = try Party(port: broker.port, on: loop)
        try party.connect()
        let error = try party.errors.first ?? party.waitForEnd()
        #expect(error == MQTTError(.ended(.sessionTakenOver)))
        #expect(error.reason == .sessionTakenOver)
        #expect("\(error)" == "the broker ended the connection: another client has taken over the session")
        #expect(party.connections.count == 1 && party.errors.count == 1)
        #expect(loop.turn())
    }

    @Test("An error includes the reason string and the server reference of the broker")
    func explanations() throws {
        // A reason string (31) and a server reference (28).
        func properties(_ reason: String, _ server: String) -> [UInt8] {
            func text(_ identifier: UInt8, _ text: String) -> [UInt8] {
                [identifier, 0, UInt8(text.utf8.count)] + Array(text.utf8)
            }
            let texts = text(31, reason) + text(28, server)
            return [UInt8(texts.count)] + texts
        }
        func packet(_ type: UInt8, _ body: [UInt8]) -> [UInt8] { [type, UInt8(body.count)] + body }
        let loop = Loop()
        let refusing = try FakeBroker(.bytes(packet(0x20, [0, 0x9C] + properties("too many", "other:1"))))
        let error = try Party(port: refusing.port, on: loop).failure()
        #expect(
            "\(error)"
                == "the broker refused the connection: use another broker for now: too many; use other:1")
        let ending = try FakeBroker(
            .bytes([0x20, 3, 0, 0, 0] + packet(0xE0, [0x97] + properties("go away", "b"))))
        let party = try Party(port: ending.port, on: loop)
        try party.connect()
        let end = try party.errors.first ?? party.waitForEnd()
        // libmosquitto 2.0.11 hands on none of the properties of a DISCONNECT.
        #expect(end.reason == .quotaExceeded && [nil, "go away; use b"].contains(end.detail), "\(end)")
    }

    @Test("The shutdown of a broker is reported as its reason code or as a lost connection")
    func shutDown() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let party = try Party(broker, on: loop)
        try party.connect()
        broker.stop()
        let error = try party.waitForEnd()
        #expect([.ended(.serverShuttingDown), .connectionLost].contains(error.cause), "\(error)")
    }

    // MARK: The will

    @Test("The broker publishes the will with all its properties when the connection breaks")
    func will() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let other = try Party(broker, on: loop, "other")
        try other.connect()
        try other.subscribe(TopicFilter("wills/#"))
        let will = Publication(
            topic: "wills/ünder", payload: Array("gone".utf8), isRetained: true, contentType: "text/plain",
            userProperties: [UserProperty("carillon", "1"), UserProperty("carillon", "")])
        var party: Party? = try Party(broker, on: loop) { $0.will = will }
        try party?.connect()
        party = nil
        try other.waitForPublications(1)
        #expect(other.received == [will])
    }

    @Test(
        "A client that disconnects withdraws its will, unless the reason code says otherwise",
        arguments: [
            (ReasonCode.success, ["after"]), (.disconnectWithWill, ["gone", "after"]),
        ])
    func withoutWill(reason: ReasonCode, texts: [String]) throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let other = try Party(broker, on: loop, "other")
        try other.connect()
        try other.subscribe(TopicFilter("wills/#", excludesOwn: false))
        let party = try Party(broker, on: loop) { $0.will = Publication(topic: "wills/1", payload: Array("gone".utf8)) }
        try party.connect()
        party.call { $0.disconnect(reason) }
        #expect(!party.client.isConnected)
        try broker.waitForLog("Client party disconnected")
        try other.publish("wills/1", "after")
        try other.waitForPublications(texts.count)
        #expect(other.texts == texts)
        #expect(party.errors.isEmpty)
    }

    // MARK: Who can't connect

    @Test("A wrong password is refused")
    func wrongPassword() throws {
        let directory = try TemporaryDirectory()
        try Command.run("mosquitto_passwd", ["-c", "-b", directory.entry("users"), "anna", "right"])
        let (broker, loop) = (try MosquittoBroker(["password_file @/users"], directory: directory), Loop())
        let wrong = try Party(broker, on: loop, "wrong") { ($0.userName, $0.password) = ("anna", "wrong") }
        let error = try wrong.failure()
        #expect([.badCredentials, .notAuthorized].contains(error.reason))
        #expect(error.description.hasPrefix("the broker refused the connection: "))
        #expect(wrong.errors == [error])
        let right = try Party(broker, on: loop, "right") { ($0.userName, $0.password) = ("anna", "right") }
        try right.connect()
    }

    @Test("A refused TCP connection is reported at once, and to the delegate once")
    func nobodyListens() throws {
        let loop = Loop()
        let party = try Party(port: try MosquittoBroker.freePort(), on: loop)
        let error = try party.failure()
        #expect(error == MQTTError(.system(ECONNREFUSED)))
        #expect("\(error)" == "Connection refused")
        #expect(loop.turn())
        #expect(party.errors == [error] && !party.wasToldInCall)
    }

    @Test("An unknown host name is reported as a lookup error")
    func noSuchName() throws {
        let party = try Party(port: 1883, on: Loop()) { $0.host = "no-such-host.invalid" }
        guard case .lookUp = try party.failure().cause else {
            Issue.record("\(try party.failure())")
            return
        }
    }

    @Test(
        "A broker that speaks only MQTT 3 is recognized",
        arguments: [
            // The answer of MQTT 3.1.1: unacceptable protocol version.
            (FakeBroker.Answer.bytes([0x20, 0x02, 0x00, 0x01]), MQTTError.Cause.refused(.unsupportedProtocolVersion)),
            (.end, .connectionLost),
        ])
    func oldBroker(answer: FakeBroker.Answer, cause: MQTTError.Cause) throws {
        let (broker, loop) = (try FakeBroker(answer), Loop())
        let party = try Party(port: broker.port, on: loop)
        let error = try party.failure()
        #expect(error.cause == cause)
        #expect("\(error)".contains("speak MQTT 5"))
        #expect(loop.turn())
        #expect(party.errors == [error])
    }

    @Test(
        "An answer that is not MQTT is an error",
        arguments: [[0x48, 0x54, 0x54, 0x50], [0x20, 0x00], [0x20, 0x03, 0, 0, 0xFF]])
    func noMQTT(bytes: [UInt8]) throws {
        let (broker, loop) = (try FakeBroker(.bytes(bytes)), Loop())
        let party = try Party(port: broker.port, on: loop) { $0.connectTimeout = 5 }
        #expect(try party.failure().reason == nil)
        #expect(loop.turn())
    }

    @Test("Connecting to a silent broker times out, and the loop sleeps meanwhile", arguments: [false, true])
    func silence(withTLS: Bool) throws {
        let (broker, loop) = (try FakeBroker(.silence), Loop())
        let party = try Party(port: broker.port, on: loop) {
            $0.connectTimeout = 2
            if withTLS { $0.tls = MQTTClient.TLS() }
        }
        try party.call { try $0.connect() }
        #expect(loop.turn())
        #expect(throws: MQTTError(.connected)) { try party.client.connect() }
        #expect(try party.waitForEnd() == MQTTError(.noAnswer))
        #expect(loop.turn())
    }

    @Test("A delegate gets no further events after the client has disconnected while connecting")
    func givenUp() throws {
        let (broker, loop) = (try FakeBroker(.silence), Loop())
        let party = try Party(port: broker.port, on: loop) { $0.connectTimeout = 1 }
        try party.call { try $0.connect() }
        loop.turn()
        party.call { $0.disconnect() }
        let real = try MosquittoBroker()
        let other = try Party(real, on: loop)
        try other.connect()
        #expect(loop.turn())
        #expect(party.errors.isEmpty && party.connections.isEmpty)
        party.client.disconnect()
    }

    @Test("The client ends the connection to a broker that stops answering pings")
    func keepAlive() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let party = try Party(broker, on: loop) { $0.keepAlive = 5 }
        try party.connect()
        try ProcessState.stop(broker.pid)
        #expect(try party.waitForEnd() == MQTTError(.noAnswer))
    }

    @Test("An idle connection stays open through pings")
    func staysIdle() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let party = try Party(broker, on: loop) { $0.keepAlive = 5 }
        try party.connect()
        #expect(loop.turn())
        for count in 1...2 {
            try loop.run("ping \(count)") {
                broker.log.split(separator: "Sending PINGRESP to party", omittingEmptySubsequences: false).count > count
            }
        }
        #expect(party.client.isConnected && party.errors.isEmpty)
    }

    @Test("The keep-alive time of the broker replaces the client's, for pings and for the timeout of a ping")
    func brokersKeepAlive() throws {
        let (broker, loop) = (try FakeBroker(.keepAlive(2, answeringPings: 1)), Loop())
        let party = try Party(port: broker.port, on: loop) { $0.keepAlive = .max }
        try party.connect()
        #expect(party.connections.map(\.limits.keepAlive) == [2])
        // By its own time the client would send the first ping after hours.
        #expect(try party.waitForEnd() == MQTTError(.noAnswer))
        try loop.run("the first ping, by then with the broker") { broker.pingCount >= 1 }
    }

    @Test("Invalid settings are refused with their cause")
    func badSettings() throws {
        func cause(_ change: (inout MQTTClient.Settings) -> Void) -> MQTTError.Cause? {
            do {
                _ = try Party(port: 1883, on: Loop(), change: change)
                return nil
            } catch {
                return (error as? MQTTError)?.cause
            }
        }
        #expect(cause { _ in } == nil)
        #expect(cause { $0.clientID = "" } == .settingsInvalid)
        #expect(cause { $0.clientID = "a\0b" } == .textInvalid)
        #expect(cause { $0.host = "" } == .settingsInvalid)
        #expect(cause { $0.host = "a\0b" } == .textInvalid)
        #expect(cause { $0.port = 0 } == .settingsInvalid)
        #expect(cause { $0.keepAlive = 4 } == .settingsInvalid)
        #expect(cause { $0.keepAlive = 0 } == nil)
        #expect(cause { $0.receiveMaximum = 0 } == .settingsInvalid)
        #expect(cause { $0.userName = "a\u{1}" } == .textInvalid)
        #expect(cause { $0.will = Publication(topic: "a/+", payload: []) } == .topicInvalid)
        #expect(cause { $0.will = Publication(topic: "a\0", payload: []) } == .textInvalid)
        #expect(cause { $0.tls = MQTTClient.TLS(certificateFile: "/a") } == .settingsInvalid)
    }

    // MARK: From inside of the delegate

    @Test("A delegate may connect again when it is informed of the end of the connection")
    func connectsAgain() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let party = try Party(broker, on: loop, "same")
        try party.connect()
        party.onDisconnected = { _ in try? party.client.connect() }
        let other = try Party(broker, on: loop, "same")
        try other.connect()
        try loop.run("it is back") { party.connections.count == 2 }
        #expect(party.client.isConnected)
        try loop.run("the other has lost it") { other.errors.count == 1 }
    }

    @Test("A delegate may disconnect and release the client while it receives a publication")
    func letsGo() throws {
        let (broker, loop) = (try MosquittoBroker(), Loop())
        let other = try Party(broker, on: loop, "other")
        try other.connect()
        var party: Party? = try Party(broker, on: loop)
        try party?.connect()
        try party?.subscribe(TopicFilter("bells/#"))
        var received = 0
        party?.onReceived = { _ in
            received += 1
            party?.client.disconnect()
            party = nil
        }
        for _ in 0..<20 { _ = try other.client.publish(Publication(topic: "bells/ding", payload: [])) }
        try loop.run("all are acknowledged") { other.acknowledged.count == 20 }
        try loop.run("it has gone") { party == nil }
        #expect(loop.turn())
        #expect(received == 1)
    }
}
