// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonFuzzSupport
import CarillonMQTT
import CarillonWire

@testable import CarillonBridge

/// Reads what comes from a broker, which may be anything: topics, properties, payloads, in any order: see the README.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    Fuzzer.run(bytes, count) { input in
        var gate = InwardGate(
            realm: "r", own: Origin(host: "h", user: "u")!,
            imports: input.flag() ? [.all] : [.below("a."), .exactly("n")])
        gate.wanted = WantedNames(
            observed: ["n", "a.b"], isAnyObserved: input.flag(), imports: gate.imports, maxSubscriptions: 8)
        var now = SuspendingClock.now
        while !input.isAtEnd {
            now += .seconds(input.number(below: 4))
            let publication = publication(&input)
            judge(gate.judge(publication, now: now), of: publication, wanted: gate.wanted)
            for loss in gate.losses(at: now) { Fuzzer.expect(loss.count > 0, "a loss of nothing") }
        }
    }
}

/// One that a broker can hand on: libmosquitto has seen to it that texts are UTF-8 without NUL.
private func publication(_ input: inout ByteSource) -> Publication {
    var topic = input.choice(of: ["carillon/1/r/g/v/", "carillon/1/r/g%2F/w/", "carillon/1/r/h/u/", "x/", ""])
    topic += input.choice(of: ["n/n", "n/a/b", "v/n/o", "online", "n/", "v/", "status", "test"])
    if input.flag() { topic += text(&input) }
    let names = [
        "object", "object-percent", "serial", "count", "run", "hops", "time", "value", "widths", "carillon", "x",
    ]
    let values = ["1", "2", "3", "7", "18446744073709551615", "-1", "", "a"]
    var properties: [UserProperty] = []
    for _ in 0..<input.number(below: 6) {
        let name = input.choice(of: names)
        properties.append(UserProperty(name, input.flag() ? text(&input) : input.choice(of: values)))
    }
    let payloads = ["", "{}", "1", "[", #"{"online":true,"protocol":1}"#, #"{"a":{"$data":""}}"#]
    let payload = input.flag() ? input.bytes(input.number(below: 64)) : Array(input.choice(of: payloads).utf8)
    return Publication(
        topic: topic, payload: payload, isRetained: input.flag(),
        contentType: input.flag() ? input.choice(of: ["application/json", "application/cbor", "x;y", ""]) : nil,
        expiry: input.flag() ? UInt32(truncatingIfNeeded: input.integer()) : nil, userProperties: properties)
}

private func text(_ input: inout ByteSource) -> String {
    String(decoding: input.bytes(input.number(below: 32)), as: UTF8.self).filter { $0 != "\0" }
}

/// What is posted is wanted, and the service's bus can carry it.
private func judge(_ judgement: InwardGate.Judgement, of publication: Publication, wanted: WantedNames) {
    guard case .message(let message) = judgement else { return }
    Fuzzer.expect(wanted.contains(message.name), "nobody wants \(message.name)")
    let texts = [message.name, message.object, message.origin.host, message.origin.user]
    Fuzzer.expect(texts.allSatisfy { !$0.utf8.contains(0) }, "a text of D-Bus with a NUL")
    Fuzzer.expect(!message.name.isEmpty && message.origin.host != "h", "no name, or one's own")
    do throws(CenterError) {
        var options = PostOptions()
        options.origin = try OutsideOrigin(host: message.origin.host, user: message.origin.user)
        guard case .notification(let userInfo) = message.content else { return }
        _ = try OutgoingPost(name: message.name, object: message.object, userInfo: userInfo, options: options)
    } catch {
        Fuzzer.expect(!"\(error)".isEmpty, "a refusal without words")
    }
    // What it says is written as it was read.
    let subject: BridgeTopic.Subject = .value(name: message.name, object: "o" + message.object)
    let topic = BridgeTopic(subject, of: message.origin).text(in: "r")
    guard case .value(let name, let object)? = BridgeTopic(topic, in: "r")?.subject else {
        Fuzzer.fail("\(topic) is not read")
    }
    Fuzzer.expect(Array(name.utf8) == Array(message.name.utf8), "\(name) is not \(message.name)")
    Fuzzer.expect(Array(object.utf8) == Array(("o" + message.object).utf8), "\(object) is not \(message.object)")
    Fuzzer.expect(MessageProperties(message.properties.all) != nil, "properties are not read back")
}
