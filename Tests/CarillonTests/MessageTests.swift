// SPDX-License-Identifier: Apache-2.0
import Carillon
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Synchronization
import Testing

@Suite("Typed messages", .limited)
struct MessageTests {
    /// Everything that a Codable type may have.
    struct Everything: DistributedMessage, Equatable {
        static let name = Notification.Name("com.example.Everything")
        enum Kind: String, Codable, Sendable { case small, large }
        enum Level: Int, Codable, Sendable { case low = -1, high = 9 }
        enum Shape: Codable, Sendable, Equatable { case circle(radius: Double), point, box(Int, Int) }
        struct Inner: Codable, Sendable, Equatable {
            var text = "日本語 🔔"
            var there: Int? = 5
            var absent: Int?
            var deeper: [Inner] = []
        }
        var kind = Kind.large
        var level = Level.low
        var shapes = [Shape.circle(radius: 1.5), .point, .box(1, 2)]
        var inner = Inner(deeper: [Inner(), Inner(there: nil)])
        var date = Date(timeIntervalSince1970: 1_700_000_000.123456)
        var data = Data([0, 255])
        var noData = Data()
        var bytes: [UInt8] = [1, 2, 3]
        var small = Int8.min
        var large = UInt64.max
        var smallest = Int.min
        var word = UInt32.max
        var float = Float(0.1)
        var double = 0.1
        var whole = 3.0
        var isTrue = true
        var isFalse = false
        var empty: [String] = []
        var emptyDictionary: [String: Int] = [:]
        var dictionary = ["a": 1, "": 2]
        var numbered = [1: "one", 2: "two"]
        var set: Set<Int> = [1, 2, 3]
        var url = URL(string: "https://example.com/a?b=c")!
        var uuid = UUID(uuidString: "E621E1F8-C36C-495A-93FC-0C247A3E6E5F")!
        var perhaps: [Int?] = [1, nil, 3]
        var decimal = Decimal(string: "1.25")!
    }

    @Test("A type with all kinds of Codable properties arrives unchanged at handlers and sequences")
    func everything() async throws {
        let desk = try Desk()
        let (center, poster) = (desk.center(), desk.center())
        let inbox = Inbox<Everything>()
        let observation = center.observe(Everything.self) { inbox.add($0) }
        let messages = center.messages(of: Everything.self)
        try center.settle()
        #expect(try await poster.postAndWait(Everything()) == 1)
        #expect(try inbox.wait(for: 1) == [Everything()])
        var iterator = messages.makeAsyncIterator()
        #expect(await iterator.next() == Everything())
        #expect(center.statistics.undecodable == 0)
        withExtendedLifetime(observation) {}
    }

    enum Mode: String, DistributedMessage {
        static let name = Notification.Name("com.example.Mode")
        case day, night
    }
    struct Count: DistributedMessage, Equatable {
        static let name = Notification.Name("com.example.Count")
        let value: Int
        init(_ value: Int) { self.value = value }
        init(from decoder: any Decoder) throws { value = try decoder.singleValueContainer().decode(Int.self) }
        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            try container.encode(value)
        }
    }
    struct Empty: DistributedMessage, Equatable {
        static let name = Notification.Name("com.example.Empty")
    }
    struct Value: DistributedMessage, Equatable {
        static let name = Notification.Name("com.example.Value")
        var value: [String: Int]
    }

    @Test("A type without keys travels as one value, and a type with a key named value is encoded by its keys")
    func single() async throws {
        let desk = try Desk()
        let center = desk.center()
        let userInfos = Inbox<String>()
        center.addObserver(forName: nil, object: nil, queue: nil) { note in
            userInfos.add("\(note.userInfo?.map { "\($0.key)=\($0.value)" }.joined() ?? "nil")")
        }
        var modes = center.messages(of: Mode.self).makeAsyncIterator()
        var counts = center.messages(of: Count.self).makeAsyncIterator()
        var empties = center.messages(of: Empty.self).makeAsyncIterator()
        var values = center.messages(of: Value.self).makeAsyncIterator()
        try await center.postAndWait(Mode.night)
        try await center.postAndWait(Count(.max))
        try await center.postAndWait(Empty())
        try await center.postAndWait(Value(value: ["a": 1]))
        try await center.postAndWait(Value(value: [:]))
        #expect(await modes.next() == .night)
        #expect(await counts.next() == Count(.max))
        #expect(await empties.next() == Empty())
        #expect(await values.next() == Value(value: ["a": 1]))
        #expect(await values.next() == Value(value: [:]))
        #expect(try userInfos.wait(for: 3).prefix(3) == ["value=night", "value=\(Int.max)", "nil"])
    }

    struct Saved: DistributedMessage, Equatable {
        static let name = Notification.Name("com.example.Saved")
        var path: String
        var bytes: Int
    }

    @Test("A foreign post is a message if it has the keys, and other posts are counted and skipped")
    func undecodable() async throws {
        let desk = try Desk()
        let (ear, poster) = (try Ear(desk), desk.center())
        let inbox = Inbox<Saved>()
        let observation = ear.center.observe(Saved.self, object: "o") { inbox.add($0) }
        try ear.center.settle()
        let userInfos: [[AnyHashable: Any]] = [
            ["path": "1", "bytes": 1], [:], ["path": "2"], ["path": 3, "bytes": 3], ["path": "4", "bytes": "4"],
            ["path": "5", "bytes": UInt8(5), "more": [1, 2]], ["path": "6", "bytes": 1.5], ["value": "7"],
            ["path": "8", "bytes": NSNumber(value: 8)],
        ]
        for userInfo in userInfos { poster.post(name: Saved.name, object: "o", userInfo: userInfo) }
        poster.post(name: Saved.name, object: "other", userInfo: [:])
        _ = try ear.everything(from: poster)
        #expect(inbox.all == [Saved(path: "1", bytes: 1), Saved(path: "5", bytes: 5), Saved(path: "8", bytes: 8)])
        #expect(ear.center.statistics.undecodable == 6)
        withExtendedLifetime(observation) {}
    }

    struct Nameless: DistributedMessage {
        static let name = Notification.Name("")
    }
    struct Unencodable: DistributedMessage {
        static let name = Notification.Name("com.example.Unencodable")
        struct Reason: Error {}
        init() {}
        init(from decoder: any Decoder) throws {}
        func encode(to encoder: any Encoder) throws { throw Reason() }
    }

    @Test("A message that can't be posted is refused at once with a typed error")
    func refused() async throws {
        let center = DistributedNotificationCenter(busAddress: "unix:path=/nonexistent")
        func error(_ body: () throws(DistributedNotificationError) -> Void) -> DistributedNotificationError? {
            do throws(DistributedNotificationError) { try body() } catch { return error }
            return nil
        }
        #expect(error { () throws(DistributedNotificationError) in try center.post(Nameless()) } == .invalidName(""))
        let nul = error { () throws(DistributedNotificationError) in
            try center.post(Everything(inner: .init(deeper: [.init(), .init(text: "a\0")])))
        }
        #expect(
            { if case .invalidUserInfo("userInfo.inner.deeper[1].text", _) = nul { true } else { false } }(),
            "\(String(describing: nul))")
        let unencodable = error { () throws(DistributedNotificationError) in try center.post(Unencodable()) }
        #expect(
            { if case .encodingFailed("Unencodable", _) = unencodable { true } else { false } }(),
            "\(String(describing: unencodable))")
        await #expect(throws: DistributedNotificationError.invalidName("")) { try await center.postAndWait(Nameless()) }
    }
}
