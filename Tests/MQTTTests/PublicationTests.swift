// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@Suite(
    "Publishing and subscribing", .enabled(if: MosquittoBroker.isAvailable, "there is no mosquitto"),
    .limited)
struct PublicationTests {
    private let broker: MosquittoBroker
    private let loop = Loop()
    private let one: Party
    private let other: Party

    init() throws {
        broker = try MosquittoBroker(["max_packet_size 1000000"])
        one = try Party(broker, on: loop, "one")
        other = try Party(broker, on: loop, "other")
        try one.connect()
        try other.connect()
    }

    private static let full = Publication(
        topic: "bells/größe/😀", payload: [0, 1, 0xFF, 0], quality: .atLeastOnce, isRetained: true,
        contentType: "application/json", expiry: 3600,
        userProperties: [UserProperty("object", "a b"), UserProperty("object", ""), UserProperty("", "ü")])

    @Test(
        "A publication arrives with all its properties, at both qualities of service",
        arguments: [QualityOfService.atMostOnce, .atLeastOnce])
    func properties(quality: QualityOfService) throws {
        try other.subscribe(TopicFilter("bells/#"))
        var publication = Self.full
        publication.quality = quality
        #expect(try one.publish(publication) == .success)
        try other.waitForPublications(1)
        // The broker counts the seconds down.
        #expect(try #require(other.received[0].expiry) <= 3600)
        #expect(try #require(other.received[0].expiry) > 3000)
        other.received[0].expiry = 3600
        #expect(other.received == [publication])
        #expect(!one.wasToldInCall && !other.wasToldInCall)
    }

    @Test("A publication comes with the identifiers of its subscriptions")
    func identifiers() throws {
        try other.subscribe(TopicFilter("bells/#", identifier: 7))
        try other.subscribe(TopicFilter("bells/+", identifier: 268_435_455))
        try other.subscribe(TopicFilter("clocks"))
        try one.publish(Publication(topic: "bells/a", payload: []))
        try one.publish(Publication(topic: "clocks", payload: []))
        // mosquitto sends one for each subscription.
        try other.waitForPublications(3)
        #expect(Set(other.received.prefix(2).flatMap(\.subscriptions)) == [7, 268_435_455])
        #expect(other.received[2].subscriptions.isEmpty)
    }

    @Test("A publication without properties arrives without properties")
    func plain() throws {
        try other.subscribe(TopicFilter("#"))
        try one.publish(Publication(topic: "a", payload: []))
        try other.waitForPublications(1)
        #expect(other.received == [Publication(topic: "a", payload: [])])
    }

    @Test("Publications are exchanged unchanged with mosquitto_pub and mosquitto_sub")
    func otherPrograms() throws {
        try other.subscribe(TopicFilter("bells/#"))
        try Command.run(
            "mosquitto_pub",
            [
                "-V", "5", "-h", "127.0.0.1", "-p", "\(broker.port)", "-q", "1", "-t", "bells/ding", "-m", "dong",
                "-D", "PUBLISH", "user-property", "object", "x", "-D", "PUBLISH", "content-type", "text/plain",
            ])
        try other.waitForPublications(1)
        let publication = Publication(
            topic: "bells/ding", payload: Array("dong".utf8), contentType: "text/plain",
            userProperties: [UserProperty("object", "x")])
        #expect(other.received == [publication])

        let reader = try RunningCommand(
            "mosquitto_sub",
            [
                "-V", "5", "-h", "127.0.0.1", "-p", "\(broker.port)", "-q", "1", "-t", "bells/#", "-C", "1", "-R", "-F",
                "%t %q %p %C %P",
            ])
        try broker.waitForLog("Sending SUBACK to auto-")
        try one.publish(publication)
        #expect(try reader.nextLine() == "bells/ding 1 dong text/plain object:x")
    }

    @Test("A thousand publications arrive in order, and each is acknowledged once")
    func order() throws {
        try other.subscribe(TopicFilter("bells/#"))
        let texts = (0..<1_000).map(String.init)
        let ids = try texts.map { text in
            try one.call { try $0.publish(Publication(topic: "bells/ding", payload: Array(text.utf8))) }
        }
        try other.waitForPublications(1_000)
        try loop.run("all are acknowledged") { one.acknowledged.count >= 1_000 }
        #expect(other.texts == texts)
        #expect(one.acknowledged.map(\.id) == ids)
        #expect(loop.turn())
    }

    @Test("A publication without subscribers is acknowledged as noMatchingSubscribers")
    func nobody() throws {
        #expect(try one.publish("bells/ding") == .noMatchingSubscribers)
        #expect(!ReasonCode.noMatchingSubscribers.isFailure)
    }

    // MARK: Values that the broker keeps

    @Test("A subscription gets the retained publication according to its retain handling")
    func retained() throws {
        try one.publish(Self.full)
        try one.publish("bells/other", "value", isRetained: true)
        func subscribe(_ handling: TopicFilter.RetainHandling) throws -> [String] {
            let before = other.received.count
            try other.subscribe(TopicFilter("bells/other", retainHandling: handling))
            // What the broker sends for the subscription is ahead of this.
            try other.subscribe(TopicFilter("end", excludesOwn: false))
            try other.publish("end", "end")
            try loop.run("the end") { other.texts.dropFirst(before).contains("end") }
            return other.texts.dropFirst(before).filter { $0 != "end" }
        }
        #expect(try subscribe(.never) == [])
        #expect(try subscribe(.ifNew) == [])
        #expect(try subscribe(.always) == ["value"])
        let id = try other.call { try $0.unsubscribe(["bells/other"]) }
        try loop.run("unsubscribed") { other.unsubscribed == [id] }
        #expect(try subscribe(.ifNew) == ["value"])
        #expect(other.received.filter { $0.text == "value" }.allSatisfy { $0.isRetained })

        // With an empty payload it is forgotten.
        try one.publish("bells/other", "", isRetained: true)
        try loop.run("the removal") { other.received.contains { $0.topic == "bells/other" && $0.payload.isEmpty } }
        #expect(try subscribe(.always) == [])
    }

    @Test("The retain flag of a live publication arrives only at a subscription that keeps the flag")
    func retainAsPublished() throws {
        try other.subscribe(TopicFilter("bells/+", keepsRetainFlag: true))
        try one.subscribe(TopicFilter("bells/+", excludesOwn: false, keepsRetainFlag: false))
        try one.publish("bells/ding", "kept", isRetained: true)
        try other.waitForPublications(1)
        try one.waitForPublications(1)
        #expect(other.received[0].isRetained)
        #expect(!one.received[0].isRetained)
    }

    @Test("A client receives its own publications only through a subscription that does not exclude them")
    func noLocal() throws {
        try one.subscribe(TopicFilter("bells/+"), TopicFilter("gongs/+", excludesOwn: false))
        try one.publish("bells/ding", "own")
        try other.publish("bells/ding", "other's")
        try one.publish("gongs/dong", "end")
        try loop.run("the end") { one.texts.contains("end") }
        #expect(one.texts == ["other's", "end"])
    }

    @Test("A subscription with several filters gets a single answer with the reason codes in order")
    func mixedFilters() throws {
        let reasons = try one.subscribe(
            TopicFilter("a", quality: .atMostOnce), TopicFilter("b", quality: .atLeastOnce),
            TopicFilter("c", quality: .atMostOnce), TopicFilter("d", excludesOwn: false))
        #expect(reasons == [.success, .grantedAtLeastOnce, .success, .grantedAtLeastOnce])
        #expect(one.subscribed.count == 1)
    }

    @Test("A publication that the broker's access list forbids is answered with notAuthorized")
    func notAuthorized() throws {
        let directory = try TemporaryDirectory()
        try directory.write("topic read bells/#\n", to: "acl")
        let broker = try MosquittoBroker(["acl_file @/acl"], directory: directory)
        let party = try Party(broker, on: loop)
        try party.connect()
        let reason = try party.publish("bells/ding", "x")
        #expect(reason == .notAuthorized)
        #expect(reason.isFailure && "\(reason)" == "not authorized")
        #expect(party.client.isConnected)
    }

    // MARK: What can't be sent

    @Test("Invalid topics and texts are errors, and no packet is sent for them")
    func invalid() throws {
        func cause(_ change: (inout Publication) -> Void) -> MQTTError.Cause? {
            var publication = Publication(topic: "bells/ding", payload: [])
            change(&publication)
            do {
                _ = try one.client.publish(publication)
                return nil
            } catch {
                return error.cause
            }
        }
        #expect(cause { $0.topic = "" } == .topicInvalid)
        #expect(cause { $0.topic = "bells/+" } == .topicInvalid)
        #expect(cause { $0.topic = "bells/#" } == .topicInvalid)
        #expect(cause { $0.topic = "a\0b" } == .textInvalid)
        #expect(cause { $0.topic = "a\u{1F}" } == .textInvalid)
        #expect(cause { $0.topic = String(repeating: "a", count: 65_536) } == .textInvalid)
        #expect(cause { $0.contentType = "\u{FFFF}" } == .textInvalid)
        #expect(cause { $0.userProperties = [UserProperty("a", "b\0c")] } == .textInvalid)
        #expect(cause { $0.userProperties = [UserProperty("a\n", "b")] } == .textInvalid)
        #expect(
            cause { $0.userProperties = [UserProperty("a", String(repeating: "b", count: 70_000))] } == .textInvalid)
        for topics in [[], [""], ["a/#/b"], ["a+"]] {
            #expect(throws: MQTTError.self) { try one.client.unsubscribe(topics) }
            #expect(throws: MQTTError.self) { try one.client.subscribe(topics.map { TopicFilter($0) }) }
        }
        try one.subscribe(TopicFilter("bells/+", excludesOwn: false))
        try one.publish("bells/ding", "end")
        try one.waitForPublications(1)
        #expect(one.texts == ["end"])
    }

    @Test("A packet may be as large as the broker's limit, exact to the byte")
    func packetSize() throws {
        try other.subscribe(TopicFilter("bells/#"))
        // A header of 4 bytes, the topic's length, the number, and no properties.
        var publication = Publication(topic: "bells/ding", payload: [])
        publication.payload = Array(repeating: 7, count: 1_000_000 - 4 - 2 - 10 - 2 - 1)
        #expect(try one.publish(publication) == .success)
        publication.payload.append(7)
        #expect(throws: MQTTError(.packetTooLarge)) { try one.client.publish(publication) }
        publication.payload.removeLast(13)
        publication.userProperties = [UserProperty("a", "123456")]
        #expect(try one.publish(publication) == .success)
        publication.userProperties = [UserProperty("a", "1234567")]
        #expect(throws: MQTTError(.packetTooLarge)) { try one.client.publish(publication) }
        try other.waitForPublications(2)
        #expect(other.received.map(\.payload.count) == [999_981, 999_969])
        #expect(one.client.isConnected && loop.turn())
    }

    @Test("A publication larger than the client's packet limit does not reach the client")
    func ownPacketSize() throws {
        let small = try Party(broker, on: loop, "small") { $0.maximumPacketSize = 100 }
        try small.connect()
        try small.subscribe(TopicFilter("bells/#"))
        try one.publish(Publication(topic: "bells/ding", payload: Array(repeating: 7, count: 200)))
        try one.publish("bells/ding", "end")
        try small.waitForPublications(1)
        #expect(small.texts == ["end"])
    }

    @Test("Publishing, subscribing and unsubscribing without a connection throw an error")
    func notConnected() throws {
        one.client.disconnect()
        #expect(throws: MQTTError(.notConnected)) {
            try one.client.publish(Publication(topic: "bells/ding", payload: []))
        }
        #expect(throws: MQTTError(.notConnected)) { try one.client.subscribe([TopicFilter("a")]) }
        #expect(throws: MQTTError(.notConnected)) { try one.client.unsubscribe(["a"]) }
        #expect("\(MQTTError(.notConnected))" == "there is no connection to the broker")
    }
}
