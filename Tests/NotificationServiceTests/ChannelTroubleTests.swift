// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Testing

/// Channels when the service's connection or the service itself ends, and when others call without end.
@Suite("F2: channels during disconnections, kills and floods", .serialized, .limited)
struct ChannelTroubleTests {
    /// What an observer got on its channel, and behind that on the bus.
    private static func check(
        _ one: ChannelClient, posted: Set<Int64>, sourceLocation: SourceLocation = #_sourceLocation
    ) -> UInt64 {
        let numbers = one.numbers + one.numbersOnBus
        #expect(zip(numbers, numbers.dropFirst()).allSatisfy(<), "in order, and once", sourceLocation: sourceLocation)
        let sequences = one.notifications.map(\.sequence) + one.client.signals.map(\.sequence)
        #expect(zip(sequences, sequences.dropFirst()).allSatisfy(<), sourceLocation: sourceLocation)
        let told = one.client.lost + one.dropped.reduce(0) { $0 + $1.count }
        let missing = (sequences.last ?? 0) - UInt64(sequences.count)
        #expect(missing <= told, "\(missing) numbers are missing", sourceLocation: sourceLocation)
        let lost = posted.subtracting(numbers)
        #expect(lost.count <= told, "\(lost.count) are missing, \(told) were announced", sourceLocation: sourceLocation)
        return told
    }

    @Test(
        "E5: when the bus disconnects the service, channels end, in-flight losses are announced, and the rest arrives",
        arguments: BusKind.available)
    func cut(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let relay = try BusRelay(to: bus)
        let service = try ServiceProcess(
            on: bus, environment: ["DBUS_SESSION_BUS_ADDRESS": relay.address], waitUntilReady: false)
        let watcher = try Client(on: bus)
        try eventually("the service answers: \(service.transcript)") { (try? watcher.listClients()) != nil }
        let (one, poster) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        try one.client.addObserver("Ding")
        // By then it has come through the relay that the channel was carried; of another all would have to be told.
        for _ in 0..<3 { _ = try watcher.listClients() }
        // More than the socket takes, and more than two windows.
        let big = [UInt8](repeating: 7, count: 3000)
        for n in 0..<400 as Range<Int64> { try poster.post("Ding", n, data: big) }
        try poster.run("outcomes") { poster.outcomes.count == 400 }
        relay.cut()
        try poster.run("its end") { poster.isAtEnd }
        try eventually("the service is back: \(service.transcript)") {
            service.log.contains("reconnected to the bus")
        }
        // The bus may still have the end of the one before to learn of.
        try eventually("it has the name again") { (try? poster.open()) != nil }
        try poster.post("Ding", 400)
        try poster.run("the outcome") { poster.outcomes.count == 401 }
        try one.run("the last, on the bus") { one.isAtEnd && one.numbersOnBus.last == 400 }
        let told = Self.check(one, posted: Set(0...400))
        // The connections that follow at once can be cut off as well, while the bus still closes the first.
        let cuts = service.log.split(separator: "reconnected to the bus").count - 1
        #expect(told > 0 && told <= 128 * cuts, "no more than what was on its way each time: \(told) in \(cuts)")
        try one.open()
        try poster.post("Ding", 401)
        poster.flush()
        try one.run("the next") { one.numbers.last == 401 }
        #expect(service.isRunning)
    }

    @Test(
        "E3: after a kill amid posts on a channel, each post with an outcome arrives or its loss is announced",
        arguments: BusKind.available)
    func killed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        for round in 1...3 {
            let first = try ServiceProcess(on: bus)
            let (one, poster) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
            try one.client.addObserver("Ding")
            for n in 0..<3000 as Range<Int64> { try poster.post("Ding", n) }
            try poster.run("some") { poster.outcomes.count > 200 * round }
            if round == 2 { try one.read() }
            try first.kill()
            try poster.run("its end") { poster.isAtEnd }
            let second = try ServiceProcess(on: bus)
            // Without a number.
            #expect(try poster.client.post("Ding") == 1)
            try one.run("the next, on the bus") { one.isAtEnd && one.client.signals.last?.number == -1 }
            let answered = Set(poster.outcomes.keys.map { Int64($0) - 1 })
            let numbers = one.numbers + one.numbersOnBus.dropLast()
            #expect(zip(numbers, numbers.dropFirst()).allSatisfy(<), "in order, and once")
            let told = one.client.lost + one.dropped.reduce(0) { $0 + $1.count }
            #expect(answered.subtracting(numbers).count <= told, "\(told) were announced")
            let sequences = one.notifications.map(\.sequence) + one.client.signals.map(\.sequence)
            #expect(zip(sequences, sequences.dropFirst()).allSatisfy(<))
            #expect(sequences.last! - UInt64(sequences.count) <= told)
            try one.open()
            #expect(try poster.client.post("Ding") == 1)
            try one.run("on the channel again") { one.numbers.last == -1 }
            try second.terminate()
        }
    }

    // MARK: Fairness

    // How long the answers take depends on the machine, and is noted. What must hold is that they come while the flood
    // lasts, again and again; `FairQueueTests` and the simulation have the rule, with clocks of their own.

    /// Posts on both ways, and measures how long the answers take.
    private final class Urgent {
        let channel: ChannelClient
        let plain: Client
        private(set) var longest = (channel: Duration.zero, bus: Duration.zero)
        private(set) var count = 0

        init(on bus: PrivateBus) throws {
            channel = try ChannelClient(on: bus)
            plain = try Client(on: bus)
            try channel.client.addObserver("Urgent")
        }

        func post() throws {
            count += 1
            var start = ContinuousClock.now
            let number = try channel.post("Urgent", Int64(count))
            try channel.run("an outcome") { channel.outcomes[number] != nil }
            longest.channel = max(longest.channel, ContinuousClock.now - start)
            start = .now
            #expect(try plain.post("Urgent") == 1)
            longest.bus = max(longest.bus, ContinuousClock.now - start)
        }
    }

    @Test("E4: during a flood on a channel, another client is answered on its channel and on the bus")
    func floodOnChannel() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let service = try ServiceProcess(on: bus)
        let urgent = try Urgent(on: bus)
        let environment = bus.environment.merging(["CARILLON_TRANSPORT": "channel"]) { $1 }
        let tool = try Executables.path(of: "carillon")
        let count = 40_000
        let observer = try RunningCommand(tool, ["observe", "Flood", "--count", "\(count)"], environment: environment)
        _ = try observer.nextErrorLine(within: .start) { $0.hasPrefix("observing") }
        try bus.directory.write((0..<count).map { "n=\($0)\n" }.joined(), to: "lines")
        let flood = try RunningCommand(
            "sh", ["-c", #"exec "$0" post Flood --lines < "$1""#, tool, bus.directory.entry("lines")],
            environment: environment)
        while flood.isRunning, urgent.count < 100_000 { try urgent.post() }
        #expect(flood.status == .exited(0), "\(flood.transcript)")
        #expect(try observer.waitForExit() == .exited(0), "nothing is lost: \(observer.standardError)")
        #expect(urgent.count > 10)
        Load.note(
            "\(count) posts on a channel, \(urgent.count) of another answered, longest on a channel "
                + "\(urgent.longest.channel), on the bus \(urgent.longest.bus)")
        #expect(service.isRunning)
    }

    @Test("E4: during a flood on the bus, a client with a channel is answered")
    func floodOnBus() throws {
        let load = try Load(.dbusDaemon)
        let observer = try load.observer()
        let urgent = try ChannelClient(on: load.bus)
        try urgent.client.addObserver("Urgent")
        var (longest, count) = (Duration.zero, Int64(0))
        _ = try load.post(
            Load.flood, arguments: ["--unpaced"],
            meanwhile: {
                let start = ContinuousClock.now
                count += 1
                let number = try urgent.post("Urgent", count)
                try urgent.run("an outcome") { urgent.outcomes[number] != nil }
                longest = max(longest, ContinuousClock.now - start)
            })
        let report = try observer.report()
        #expect(report.received + report.dropped == Load.flood && report.faults == 0, "\(report)")
        #expect(count > 3)
        #expect(urgent.numbers == Array(1...count) && urgent.dropped.isEmpty)
        Load.note("\(Load.flood) posts on the bus, \(count) on a channel answered, longest \(longest)")
    }

    @Test("A4, S4: an unread channel costs the service only a bounded queue, and other clients lose nothing")
    func stopped() throws {
        let bus = try PrivateBus(.dbusDaemon)
        try bus.configure("[Limits]\nqueued-bytes-per-client=1000000\n")
        let service = try ServiceProcess(on: bus)
        let (stopped, reading, poster) = (
            try ChannelClient(on: bus), try ChannelClient(on: bus), try ChannelClient(on: bus)
        )
        try stopped.client.addObserver("Ding")
        try reading.client.addObserver("Ding")
        let big = [UInt8](repeating: 7, count: 3000)
        func post(_ numbers: Range<Int64>) throws {
            for n in numbers {
                try poster.post("Ding", n, data: big)
                guard n % 100 == 99 else { continue }
                try poster.run("outcomes") { poster.outcomes.count == n + 1 }
                try reading.run("as many") { reading.notifications.count == n + 1 }
            }
        }
        // Its queue is full by then.
        try post(0..<1000)
        let before = try service.residentBytes()
        try post(1000..<6000)
        let growth = try service.residentBytes() - before
        #expect(growth < 4 << 20, "the service grew by \(growth) bytes, of 15 MB that were posted")
        #expect(reading.numbers == Array(0..<6000) && reading.dropped.isEmpty)
        try stopped.run("what is left") { stopped.numbers.last == 5999 }
        _ = Self.check(stopped, posted: Set(0..<6000))
    }
}
