// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Posts and notifications that go together (F1), on real buses.
@Suite("F1: batches on the bus", .serialized, .limited)
struct BusBatchTests {
    private func client(on bus: PrivateBus) throws -> Client {
        let client = try Client(on: bus)
        try client.call(SetClientOptions(ClientOptionsChange(batches: true)))
        return client
    }

    private func posts(_ count: Int, _ name: String = "Ding", from first: Int = 0) throws -> PostMany {
        PostMany(try (first..<first + count).map { try PostCall(name: name, userInfo: ["n": .int64(Int64($0))]) })
    }

    @Test(
        "Each post of a call gets its own outcome, and a refused post does not stop the others",
        arguments: BusKind.available)
    func outcomes(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (observer, poster) = (try Client(on: bus), try Client(on: bus))
        try observer.addObserver("Ding")
        let call = Wire.methodCall(PostMany.member)
        var writer = MessageWriter(call)
        writer.array(of: "(ssa{sv}a{sv})") { writer in
            for (name, option) in [("Ding", nil), ("", nil), ("Dong", nil), ("Ding", "slip"), ("Ding", nil)] {
                writer.structure { writer in
                    writer.append(name)
                    writer.append("")
                    writer.array(of: "{sv}") { _ in }
                    writer.array(of: "{sv}") { writer in if let option { writer.entry(option, true) } }
                }
            }
        }
        let outcomes = try PostMany.reply(in: poster.send(call))
        let names = outcomes.map { $0.errorName.split(separator: ".").last ?? "" }
        #expect(outcomes.map(\.receivers) == [1, 0, 0, 0, 1] && names == ["", "InvalidName", "", "InvalidOption", ""])
        try observer.run("both") { observer.signals.count == 2 }
        #expect(observer.signals.map(\.serial) == [1, 3], "serials as if they had come alone")
        let empty = try poster.call(PostMany([]))
        #expect(empty == [])
        #expect(service.isRunning)
    }

    @Test("D3: calls of a client are answered in the order of the calls", arguments: BusKind.available)
    func answersInOrder(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        try client.addObserver("Ding")
        var answered: [Int] = []
        for number in 0..<400 {
            // They arrive together, so that some of them wait for the turn of their deliveries, and others have none.
            client.connection.call(try PostCall(name: number % 3 == 0 ? "Dong" : "Ding").message()) { result in
                if case .success = result { answered.append(number) }
            }
        }
        try client.run("all: \(service.transcript)") { answered.count == 400 && client.signals.count == 266 }
        #expect(answered == Array(0..<400))
    }

    @Test(
        "Each error in a call without a reply is counted, and the call is logged with its sender",
        arguments: BusKind.available)
    func unanswered(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (observer, poster) = (try Client(on: bus), try Client(on: bus))
        try observer.addObserver("Ding")
        let call = Wire.methodCall(PostMany.member)
        call.expectsNoReply = true
        var writer = MessageWriter(call)
        writer.array(of: "(ssa{sv}a{sv})") { writer in
            for name in ["", "Ding", ""] {
                writer.structure { writer in
                    writer.append(name)
                    writer.append("")
                    for _ in 0..<2 { writer.array(of: "{sv}") { _ in } }
                }
            }
        }
        poster.connection.send(call)
        try observer.run("the one") { observer.signals.count == 1 }
        let reply = try poster.send(CenterProperties.getAll())
        #expect(try CenterProperties(in: reply).statistics[.refused] == 2)
        try eventually("the log: \(service.transcript)") {
            service.transcript.contains("refused a call of \(poster.name) that expects no reply")
        }
    }

    @Test(
        "A client with batches gets every notification in a batch, and other clients get single notifications",
        arguments: BusKind.available)
    func together(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (observer, plain, poster) = (try client(on: bus), try Client(on: bus), try Client(on: bus))
        try observer.addObserver("Ding")
        try plain.addObserver("Ding")
        try poster.post("Ding")
        try observer.run("one alone") { observer.signals.count == 1 }
        #expect(observer.batches == [1])
        for first in stride(from: 0, to: 2000, by: 100) {
            let outcomes = try poster.call(posts(100, from: first))
            #expect(outcomes.allSatisfy { $0 == PostOutcome(receivers: 2) })
        }
        for client in [observer, plain] {
            try client.run("all") { client.signals.count == 2001 }
            #expect(client.holes.isEmpty && client.lost == 0)
            #expect(client.signals.dropFirst().map { $0.userInfo["n"] } == (0..<2000).map { .int64($0) })
        }
        #expect(plain.batches.isEmpty && observer.batches.reduce(0, +) == 2001)
        #expect(observer.batches.count < 500 && observer.batches.allSatisfy { $0 <= 64 }, "\(observer.batches)")
        try observer.call(SetClientOptions(ClientOptionsChange(batches: false)))
        let before = observer.batches.count
        try poster.post("Ding")
        try observer.run("one more") { observer.signals.count == 2002 }
        #expect(observer.batches.count == before)
        #expect(service.isRunning)
    }

    @Test(
        "E4: a call with thousands of posts does not delay other callers, and no later post overtakes it",
        arguments: BusKind.available)
    func large(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (observer, poster, other) = (try client(on: bus), try Client(on: bus), try Client(on: bus))
        try observer.addObserver("Ding")
        try observer.addObserver("Last")
        try observer.addObserver("Other")
        var outcomes: [PostOutcome]?
        poster.connection.call(try posts(10_000)) { outcomes = try? $0.get() }
        poster.connection.send(try PostCall(name: "Last"))
        // Its answers come while the poster's posts are taken piece by piece.
        var answered = 0
        try poster.run("what was sent") {
            if outcomes == nil { answered += (try? other.post("Other")) ?? 0 }
            return outcomes != nil
        }
        #expect(outcomes?.count == 10_000 && outcomes?.allSatisfy { $0.receivers == 1 } == true)
        try observer.run("all") { observer.signals.last?.name == "Last" || observer.signals.count > 10_000 + answered }
        let ding = observer.signals.filter { $0.name == "Ding" }.map { $0.userInfo["n"] }
        #expect(ding == (0..<10_000).map { .int64($0) }, "in their order")
        #expect(observer.signals.filter { $0.name == "Last" }.count == 1, "behind them")
        #expect(observer.holes.isEmpty && observer.lost == 0)
        #expect(service.isRunning)
    }

    @Test("E1: a call with more posts than the limit is refused as a whole")
    func tooMany() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let service = try ServiceProcess(on: bus)
        let poster = try Client(on: bus)
        do {
            try poster.call(posts(16_385))
            Issue.record("accepted")
        } catch let error as BusError {
            #expect(error.centerError == .limitExceeded && error.message.contains("posts-per-call = 16384"))
        }
        #expect(try CenterProperties(in: poster.send(CenterProperties.getAll())).statistics[.posted] == 0)
        #expect(service.isRunning)
    }

    @Test("E3: the batches option survives a kill, and each notification of a batch arrives once or counts as lost")
    func survives() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let first = try ServiceProcess(on: bus)
        let (observer, poster) = (try client(on: bus), try Client(on: bus))
        try observer.addObserver("Ding")
        try poster.call(posts(500))
        try observer.run("the first ones") { observer.signals.count == 500 }
        try first.kill()
        let second = try ServiceProcess(on: bus)
        try poster.call(posts(500, from: 500))
        try observer.run("the others") { observer.signals.count + Int(observer.lost) >= 1000 }
        #expect(observer.holes.isEmpty && observer.batches.reduce(0, +) == observer.signals.count)
        let numbers = observer.signals.compactMap { if case .int64(let n) = $0.userInfo["n"] { n } else { nil } }
        #expect(Set(numbers).count == numbers.count && numbers == numbers.sorted(), "none twice")
        #expect(second.isRunning)
    }
}
