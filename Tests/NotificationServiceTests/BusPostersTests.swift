// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Glibc
import Testing

/// Who posts (B3), on real buses.
@Suite("B3: list of posters, on the bus", .serialized, .limited)
struct BusPostersTests {
    private func posters(_ asker: Client) throws -> [String] {
        try asker.call(ListPosters()).map { "\($0.name) \($0.posted) \($0.refused)" }
    }

    @Test(
        "A connection that only posts is listed while it is on the bus, for every method of posting; others are not",
        arguments: BusKind.available)
    func listed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (asker, observer, one) = (try Client(on: bus), try Client(on: bus), try Client(on: bus))
        var many: Client? = try Client(on: bus)
        let onChannel = try ChannelClient(on: bus)
        try observer.addObserver("Ding")
        #expect(try posters(asker) == [])

        try one.post("Ding")
        let nameless = try PostCall(name: "x").message()
        func post(_ name: String, wantsAnswer: Bool) throws -> Message {
            let message = Wire.methodCall(PostCall.member)
            var writer = MessageWriter(message)
            writer.append(name)
            writer.append("")
            try UserInfoCoding.append([:], to: &writer)
            try UserInfoCoding.append([:], to: &writer)
            message.expectsNoReply = !wantsAnswer
            return message
        }
        one.connection.send(try post("", wantsAnswer: false))
        #expect(throws: BusError.self) { try one.send(try post("", wantsAnswer: true)) }
        // A call of another method is no post.
        #expect(throws: BusError.self) { try one.call(Explain("nobody")) }
        let outcomes = try PostMany.reply(
            in: try #require(many).send(
                try #require(
                    PostMany.message(
                        of: [nameless, try post("", wantsAnswer: true), nameless, nameless], wantsAnswer: true))))
        #expect(outcomes.map { $0.error == nil } == [true, false, true, true])
        for _ in 0..<5 { try onChannel.post("Ding") }
        let last = onChannel.postWithoutName()
        onChannel.flush()
        try onChannel.run("its outcomes") { onChannel.outcomes[last] != nil }
        try observer.post("Dong")

        let (first, second, third) = (onChannel.client.name, try #require(many).name, one.name)
        #expect(
            try Set(posters(asker)) == ["\(first) 5 1", "\(second) 3 1", "\(third) 1 2", "\(observer.name) 1 0"],
            "\(service.transcript)")
        let all = try asker.call(ListPosters()).map(\.name)
        #expect(all == all.sorted { $0.isOlder(than: $1) }, "in the order of connection")
        #expect(try Set(asker.call(ListPosters(most: 2)).map(\.name.rawValue)) == [first, second])
        #expect(try asker.call(ListPosters(most: 0)).isEmpty)
        let shown = try #require(try asker.call(ListPosters()).first { $0.name.rawValue == third })
        #expect(shown.processID == UInt32(getpid()) && shown.userID == getuid() && !shown.process.isEmpty)

        many = nil
        try asker.run("it is gone") { (try? posters(asker).contains { $0.hasPrefix("\(second) ") }) == false }
        #expect(try posters(asker).count == 3)
        // Many ask at once, and each is answered.
        var answers = 0
        for _ in 0..<50 { asker.connection.call(ListPosters().message()) { if case .success = $0 { answers += 1 } } }
        try asker.run("all answers") { answers == 50 }
    }
}
