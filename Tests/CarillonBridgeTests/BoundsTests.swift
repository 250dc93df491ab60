// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMQTT
import CarillonTestLimits
import Testing

@testable import CarillonBridge

extension TopicCounts {
    mutating func next(on topic: String) -> MessageProperties.SequenceNumber { next(on: topic) { "another" } }
}

@Suite("G2: limits of the bridge", .limited)
struct BoundsTests {
    private let origin = Origin(host: "lap", user: "ben")!

    private func entry(_ name: String) -> ExportQueue.Entry {
        ExportQueue.Entry(message: OutwardMessage(removalOf: name, ""), topic: name)
    }

    @Test("A full export queue discards and returns the oldest messages, by number and by bytes")
    func queue() {
        var queue = ExportQueue(limits: .init(count: 2, byteCount: 1 << 20))
        #expect(queue.append(entry("a")).isEmpty && queue.append(entry("b")).isEmpty)
        #expect(queue.append(entry("c")).map(\.message.name) == ["a"])
        #expect(queue.popFirst()?.message.name == "b")
        queue.prepend(entry("b"))
        #expect(queue.count == 2 && queue.byteCount == 2 * entry("b").message.byteCount)
        var small = ExportQueue(limits: .init(count: 10, byteCount: entry("a").message.byteCount))
        #expect(small.append(entry("a")).isEmpty)
        #expect(small.append(entry("b")).map(\.message.name) == ["a"])
        #expect(small.append(entry("cc")).map(\.message.name) == ["b", "cc"], "it is too large for itself")
        #expect(small.count == 0 && small.byteCount == 0)
    }

    @Test("The byte count of the export queue includes names, objects and payloads")
    func queueBytes() {
        let part = String(repeating: "a", count: 10_000)
        for (name, object, payload) in [(part, "b", "c"), ("a", part, "c"), ("a", "b", part)] {
            let message = OutwardMessage(
                name: name, object: object, payload: Array(payload.utf8), contentType: nil, isRetained: false,
                expiry: nil, properties: MessageProperties())
            var queue = ExportQueue(limits: .init(count: 10, byteCount: 15_000))
            #expect(queue.append(.init(message: message, topic: "t")).isEmpty)
            #expect(queue.append(.init(message: message, topic: "t")).count == 1, "two of them are too large")
        }
    }

    @Test("Each topic is counted from 1, and too many topics begin a new run")
    func counts() {
        var counts = TopicCounts(run: "r")
        #expect(counts.next(on: "a") == .init(run: "r", count: 1))
        #expect(counts.next(on: "b") == .init(run: "r", count: 1))
        #expect(counts.next(on: "a") == .init(run: "r", count: 2))
        for number in 0..<TopicCounts.maxTopics - 2 { _ = counts.next(on: "t\(number)") }
        #expect(counts.next(on: "a") == .init(run: "r", count: 3))
        let other = counts.next(on: "one more")
        #expect(other.run != "r" && other.count == 1)
        #expect(counts.next(on: "a") == .init(run: other.run, count: 1))
    }

    @Test("Losses of a name are announced together, and those of excess names without a name")
    func ledger() {
        var ledger = LossLedger()
        ledger.lost(of: "a", from: origin, because: .queueFull, .outwards)
        ledger.lost(2, of: "a", from: origin, because: .queueFull, .outwards)
        ledger.lost(4, of: "a", from: origin, because: .missing, .inwards)
        #expect(ledger.takePending().map(\.count) == [4, 3])
        #expect(ledger.takePending().isEmpty && ledger.outwards == 3 && ledger.inwards == 4)
        for number in 0..<1_000 { ledger.lost(of: "n\(number)", from: origin, because: .missing, .inwards) }
        let told = ledger.takePending()
        #expect(told.count == LossLedger.maxEntries + 1)
        #expect(told.reduce(0) { $0 + $1.count } == 1_000)
        #expect(told.contains { $0.entry.name == nil && $0.count == 1_000 - UInt64(LossLedger.maxEntries) })
    }

    @Test("Losses that the service has not accepted are announced again with later ones, and remain saved")
    func announcedAgain() {
        var ledger = LossLedger()
        ledger.lost(4, of: "a", from: origin, because: .missing, .inwards)
        let first = ledger.takePending()[0]
        #expect(first.isNew && ledger.pending.isEmpty)
        ledger.lost(of: "a", from: origin, because: .missing, .inwards)
        #expect(ledger.unannounced == [first.entry: 5])
        ledger.answered(first.entry, 4, isTaken: false)
        #expect(ledger.unannounced == [first.entry: 5])
        let second = ledger.takePending()[0]
        #expect(second.count == 5 && second.isNew)
        ledger.answered(second.entry, 5, isTaken: false)
        let third = ledger.takePending()[0]
        #expect(third.count == 5 && !third.isNew)
        ledger.answered(third.entry, 5, isTaken: true)
        #expect(ledger.unannounced.isEmpty && ledger.takePending().isEmpty && ledger.inwards == 5)
        // A service that answers nothing, and ever new names.
        for number in 0..<10_000 {
            ledger.lost(of: "n\(number)", from: origin, because: .missing, .inwards)
            if number % 100 == 0 { _ = ledger.takePending() }
        }
        #expect(ledger.unannounced.count < 4 * LossLedger.maxEntries)
        #expect(ledger.unannounced.values.reduce(0, +) == 10_000)
    }

    private func list(_ text: String) throws -> [NamePattern] { try NamePattern.list(text) }

    @Test("The bridge subscribes only to wanted names of the import list, also with an observer of any name")
    func wanted() throws {
        let imports = try list("a.b;c.*")
        let some = WantedNames(
            observed: ["a.b", "c.d", "x"], isAnyObserved: false, imports: imports, maxSubscriptions: 100)
        #expect(some.contains("a.b") && some.contains("c.d") && !some.contains("c.e") && !some.contains("x"))
        #expect(some.filters(in: "r").count == 4)
        let any = WantedNames(observed: ["c.d"], isAnyObserved: true, imports: imports, maxSubscriptions: 100)
        #expect(any.contains("c.e") && any.contains("a.b") && !any.contains("c"))
        #expect(any.filters(in: "r").contains("carillon/1/r/+/+/n/c/#"))
        let all = WantedNames(observed: ["x"], isAnyObserved: true, imports: try list("*"), maxSubscriptions: 100)
        #expect(all.contains("x") && !all.contains("y") && all.filters(in: "r").count == 2)
        let long = String(repeating: "a.", count: 300) + "b"
        let impossible = WantedNames(
            observed: [long, "c.\(long)", "c.d"], isAnyObserved: false, imports: try list("*"), maxSubscriptions: 100)
        #expect(impossible.filters(in: "r").count == 2, "one name that no broker takes is not to spoil the others")
        let own = WantedNames(
            observed: ["org.carillon.Bridge.Lost"], isAnyObserved: false, imports: try list("*"), maxSubscriptions: 100
        )
        #expect(own.filters(in: "r").isEmpty, "what a bridge says of itself is nobody else's")
        let many = WantedNames(
            observed: (0..<100).map { "n\($0)" }, isAnyObserved: false, imports: try list("*"), maxSubscriptions: 10)
        #expect(many.isCut && many.filters(in: "r").count == 10)
    }

    @Test("The number of hosts is limited, and a host without user properties counts as stripped")
    func hosts() {
        var table = HostTable()
        var presence = OwnPresence(run: "r")
        let message = presence.announcement(answer: nil, asking: nil, topic: "t")
        #expect(
            table.take(message, of: origin)
                == HostTable.Host(isOnline: true, software: "carillon-bridge 0.1.0", run: "r"))
        #expect(table.take(message, of: origin) == nil, "nothing is new")
        var stripped = message
        stripped.userProperties = []
        #expect(table.take(stripped, of: origin)?.isStripped == true)
        func plain(_ text: String) -> Publication { Publication(topic: "t", payload: Array(text.utf8)) }
        #expect(table.take(plain("offline"), of: origin) == HostTable.Host(isOnline: false))
        #expect(table.take(plain(#"{"online": true}"#), of: origin) == HostTable.Host(isOnline: true))
        #expect(table.take(plain("nonsense"), of: origin) == nil && table[origin]?.isOnline == true)
        #expect(table.take(plain(""), of: origin) == HostTable.Host(isOnline: false) && table[origin] == nil)
        for number in 0..<HostTable.maxHosts + 10 {
            _ = table.take(plain("on"), of: Origin(host: "h\(number)", user: "u")!)
        }
        #expect(table.hosts.count == HostTable.maxHosts)
    }
}
