// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Posts that wait until their poster leaves the bus (R4), on real buses.
@Suite("R4: posts at the exit of their poster, on the bus", .serialized, .limited)
struct BusAtExitTests {
    private func post(
        _ name: String, _ object: String = "", n: Int64 = 0, style: PostingStyle = .atExit,
        coalescing: Set<CoalescingKey> = [], retention: Retention? = nil, expiresAfter: UInt32? = nil,
        from client: Client
    ) throws {
        var options = PostOptions()
        options.postingStyle = style
        options.coalescing = coalescing
        options.retention = retention
        options.expiresAfter = expiresAfter
        try client.call(try PostCall(name: name, object: object, userInfo: ["n": .int64(n)], options: options))
    }

    private func observer(of name: String = "", on bus: PrivateBus) throws -> Client {
        let observer = try Client(on: bus)
        try observer.call(AddObserver(name: name, object: "", options: ObserverOptions()))
        return observer
    }

    private func queuedPosts(_ client: Client) throws -> UInt64? {
        try CenterProperties(in: client.send(CenterProperties.getAll())).statistics[.queuedPosts]
    }

    /// A program that posts one notification at its exit and goes on, until it is killed.
    private func program(on bus: PrivateBus, _ name: String) throws -> RunningCommand {
        let program = try RunningCommand(
            try Executables.path(of: "carillon"), ["post", name, "--posting-style", "at-exit", "--lines", "--verbose"],
            environment: bus.environment)
        program.write("n=7\n")
        return program
    }

    @Test("An at-exit post is sent when its poster is killed, with that poster's name", arguments: BusKind.available)
    func killed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let observer = try observer(on: bus)
        let program = try program(on: bus, "Gone")
        let other = try Client(on: bus)
        try eventually("it waits: \(service.transcript)") {
            try queuedPosts(other) == 1
        }
        try post("Mark", style: .now, from: other)
        try observer.run("the mark") { observer.signals.count == 1 }
        program.kill()
        _ = try program.waitForExit()
        try observer.run("it comes: \(service.transcript)") { observer.signals.count == 2 }
        #expect(observer.signals.map(\.name) == ["Mark", "Gone"] && observer.signals[1].number == 7)
        #expect(observer.signals[1].poster.rawValue != other.name)
        #expect(try queuedPosts(other) == 0)
    }

    @Test(
        "Coalesced or withdrawn at-exit posts are not sent, and the others arrive in order",
        arguments: BusKind.available)
    func withdrawn(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let observer = try observer(on: bus)
        func pass(_ poster: Client) throws {
            for n in 1...3 { try post("State", n: Int64(n), coalescing: [.name], from: poster) }
            for object in ["a", "b", "c"] { try post("Part", object, from: poster) }
            #expect(try poster.call(WithdrawPosts(name: "Part", object: "b")) == 1)
            #expect(try poster.call(WithdrawPosts(name: "Nothing")) == 0)
            #expect(try observer.call(WithdrawPosts(name: "")) == 0, "nobody else's")
            try post("Now", style: .now, from: poster)
            try observer.run("what waits for nothing") { observer.signals.count == 1 }
            #expect(observer.signals.map(\.name) == ["Now"])
        }
        // It leaves at the end of this.
        try pass(try Client(on: bus))
        try observer.run("all: \(service.transcript)") { observer.signals.count == 4 }
        #expect(observer.signals.dropFirst().map(\.object) == ["", "a", "c"])
        #expect(observer.signals[1].number == 3)
        #expect(observer.signals.map(\.serial) == [1, 2, 3, 4])
    }

    @Test(
        "At-exit posts survive restarts of the service, and are sent if their poster left meanwhile",
        arguments: BusKind.available)
    func acrossAKill(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let observer = try observer(on: bus)
        var (stays, leaves): (Client?, Client?) = (try Client(on: bus), try Client(on: bus))
        for n in 1...200 { try post("Left", "\(n)", n: Int64(n), from: #require(leaves)) }
        try post("Stays", retention: Retention(), from: #require(stays))
        first.signal(SIGKILL)
        _ = try first.waitForExit()
        leaves = nil
        let second = try ServiceProcess(on: bus)
        try observer.run("what waited: \(second.transcript)") { observer.signals.count == 200 }
        #expect(observer.signals.map(\.number) == (1...200).map(Int64.init))
        #expect(try observer.call(Get(name: "Stays")).isEmpty)
        second.signal(SIGTERM)
        _ = try second.waitForExit()
        let third = try ServiceProcess(on: bus)
        stays = nil
        try observer.run("the last: \(third.transcript)") { observer.signals.last?.name == "Stays" }
        #expect(observer.signals.count == 201)
        #expect(try observer.call(Get(name: "Stays")).count == 1)
    }

    @Test("The at-exit posts of a hundred posters that leave together arrive once each", arguments: BusKind.available)
    func hundred(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let observer = try observer(on: bus)
        var posters = try (0..<100).map { _ in try Client(on: bus) }
        for (number, poster) in posters.enumerated() {
            for _ in 0..<10 { try post("Gone", "\(number)", n: Int64(number), from: poster) }
        }
        posters = []
        try observer.run("all: \(service.transcript)") { observer.signals.count == 1000 }
        let counts = Dictionary(grouping: observer.signals, by: \.object).mapValues(\.count)
        #expect(counts.count == 100 && counts.values.allSatisfy { $0 == 10 })
        try observer.run("no more") { true }
        #expect(observer.signals.count == 1000)
    }

    @Test("An at-exit post with while-connected is refused by the name of the option")
    func refused() throws {
        let bus = try PrivateBus()
        let service = try ServiceProcess(on: bus)
        let client = try Client(on: bus)
        let error = #expect(throws: BusError.self) {
            try post("A", retention: Retention(whileConnected: true), from: client)
        }
        #expect(error?.centerError == .invalidOption && error?.message.contains("while-connected") == true)
        #expect(service.isRunning)
    }
}
