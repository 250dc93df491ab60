// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonDBus
@testable import CarillonCore

/// Replies that the service lays out without libdbus: those of `Get` and of `PostMany`.
@Suite("Replies encoded without libdbus", .limited)
struct LaidOutReplyTests {
    /// A bus that keeps all messages that it is given.
    private final class KeepingBus: MessageBus {
        let context = MainContext()
        var sent: [Message] = []

        func send(_ message: Message) { sent.append(message) }

        func call(
            _ message: Message, timeout: ReplyTimeout, completion: @escaping (Result<Message, BusError>) -> Void
        ) { Issue.record("a reply is no call") }
    }

    private let bus = KeepingBus()

    /// A call by `:1.7` with the serial 9.
    private func call(_ message: Message) throws -> MethodCall {
        let sender = AnyBusName(unchecked: ":1.7")
        return try #require(MethodCall(message.carried(from: sender, serial: 9), bus: bus))
    }

    private func kept(
        _ name: String, _ object: String = "", _ userInfo: [String: PropertyList] = [:], identity: Identity? = nil,
        serial: UInt64 = 1, expiryTime: Int64? = nil
    ) throws -> DistributedCenter.Kept {
        let post = try PostCall(name: name, object: object, userInfo: userInfo).message()
        let notification = Notification(
            name: name, object: object, userInfo: try Sample.userInfo(of: post), poster: ":1.9", identity: identity,
            time: -5, serial: serial)
        return DistributedCenter.Kept(notification: notification, retention: Retention(), expiryTime: expiryTime)
    }

    private func checkHeader<Method: CenterMethod>(of reply: Message, to _: Method.Type) {
        #expect(reply.kind == .methodReturn && reply.destination == ":1.7" && reply.replySerial == 9)
        #expect(reply.signature.rawValue == Method.outputs.map(\.signature.rawValue).joined())
    }

    @Test("R3: the reply of Get contains each value as it was posted, with its details, in order")
    func values() throws {
        let userInfo: [String: PropertyList] = ["n": .int64(1), "data": .data([1, 2, 3])]
        let (host, user) = (String(repeating: "h", count: 255), String(repeating: "u", count: 255))
        let origin = try OutsideOrigin(host: host, user: user)
        let details: [(identity: Identity?, known: [String: PropertyList])] = [
            (nil, [:]), (Identity(), [:]), (Identity(userID: 0), ["uid": .uint32(0)]),
            (Identity(processID: 7, application: "org.example.Bell"), ["app": .string("org.example.Bell")]),
            (Identity(origin: origin), ["host": .string(host), "user": .string(user)]),
        ]
        var (values, expected): ([DistributedCenter.Kept], [RetainedValueInfo]) = ([], [])
        // Texts of all lengths, so that the next value begins at each distance from a multiple of eight.
        for length in 1...16 {
            let (name, object) = (String(repeating: "n", count: length), String(repeating: "ö", count: 16 - length))
            let (identity, known) = details[length % details.count]
            let expiry: Int64? = length % 3 == 0 ? Int64(length) : nil
            values.append(
                try kept(name, object, userInfo, identity: identity, serial: UInt64(length), expiryTime: expiry))
            expected.append(
                RetainedValueInfo(
                    name: name, object: object, userInfo: userInfo,
                    details: known.merging([
                        "serial": .uint64(UInt64(length)), "time": .int64(-5), "poster": .string(":1.9"),
                    ]) { $1 }.merging(expiry.map { ["expiry": .int64($0)] } ?? [:]) { $1 }))
        }
        for count in [0, 1, 16] {
            try Get.answer(try call(Get(name: "", object: "").message()), with: Array(values.prefix(count))) { _ in true
            }
            let reply = try #require(bus.sent.last)
            checkHeader(of: reply, to: Get.self)
            #expect(try Get.reply(in: reply) == Array(expected.prefix(count)))
        }
        try Get.answer(try call(Get(name: "", object: "").message()), with: values) { !$0.isAboutPoster }
        for value in try Get.reply(in: try #require(bus.sent.last)) {
            let known = value.details.keys.filter { $0 != "expiry" }.sorted()
            #expect(known == ["poster", "serial", "time"], "P2: nothing about posters")
        }
        #expect(bus.sent.count == 4)
    }

    @Test("E1: Get refuses a reply of more than 4 MiB, and then sends no reply")
    func largestReply() throws {
        let value = try kept("Ding", "", ["data": .data([UInt8](repeating: 7, count: 100_000))])
        let most = Wire.maxAnswerBytes / 100_000
        try Get.answer(try call(Get(name: "Ding").message()), with: Array(repeating: value, count: most)) { _ in true }
        #expect(try Get.reply(in: try #require(bus.sent.last)).count == most)
        let error = #expect(throws: BusError.self) {
            try Get.answer(try call(Get(name: "Ding").message()), with: Array(repeating: value, count: most + 1)) { _ in
                true
            }
        }
        #expect(error?.centerError == .limitExceeded)
        #expect(bus.sent.count == 1)
    }

    @Test("F1: the reply of PostMany contains the outcome of each post, in order")
    func outcomes() throws {
        let refused = PostOutcome(BusError(.invalidName, message: "words"))
        let several = [PostOutcome(receivers: 7), refused, PostOutcome(receivers: 0), refused]
        let many = (0..<64).map { PostOutcome(receivers: $0) }
        for outcomes in [[], [refused], several, many] {
            try call(PostMany([]).message()).answer.reply(toPosts: outcomes)
            let reply = try #require(bus.sent.last)
            checkHeader(of: reply, to: PostMany.self)
            #expect(try PostMany.reply(in: reply) == outcomes)
        }
    }
}
