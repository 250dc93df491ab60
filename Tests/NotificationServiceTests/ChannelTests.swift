// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonTestSupport
import CarillonWire
import Foundation
import Glibc
import Testing

/// Channels (F2), by a client that writes and reads frames itself, on real buses.
@Suite("F2: channels", .serialized, .limited)
struct ChannelTests {
    private func hasChannel(_ name: String, asked client: Client) throws -> Bool? {
        try client.call(ListClients()).first { $0.name.rawValue == name }?.hasChannel
    }

    @Test(
        "Posts and notifications pass the channel in order, with an outcome for each post",
        arguments: BusKind.available)
    func both(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, plain) = (try ChannelClient(on: bus), try Client(on: bus))
        try one.client.addObserver("Ding")
        try plain.addObserver("Ding")
        for n in 0..<1000 as Range<Int64> { try one.post("Ding", n) }
        let refused = one.postWithoutName()
        let unheard = try one.post("Dong")
        try one.run("all") { one.outcomes.count == 1002 && one.notifications.count == 1000 }
        try plain.run("all on the bus") { plain.signals.count == 1000 }
        #expect(one.numbers == Array(0..<1000) && plain.signals.map(\.number) == one.numbers)
        #expect(one.notifications.map(\.sequence) == Array(1...1000) && one.client.signals.isEmpty)
        #expect(one.notifications.map(\.serial) == plain.signals.map(\.serial))
        #expect(one.notifications.allSatisfy { $0.poster.rawValue == one.client.name })
        #expect(one.outcomes[refused]?.error?.centerError == .invalidName && one.outcomes[unheard]?.receivers == 0)
        #expect((1...1000).allSatisfy { one.outcomes[$0] == ChannelOutcome(receivers: 2) })
        // An outcome stands behind the notification of its post.
        #expect(one.kinds.firstIndex(of: .notification)! < one.kinds.firstIndex(of: .outcome)!)
        #expect(try hasChannel(one.client.name, asked: plain) == true)
        #expect(try hasChannel(plain.name, asked: plain) == false)
        #expect(try CenterProperties(in: plain.send(CenterProperties.getAll())).statistics[.channels] == 1)
        #expect(service.isRunning)
    }

    @Test(
        "Notifications sent on the bus precede the channel's reply, and all later ones come on the channel",
        arguments: BusKind.available)
    func beginning(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, poster) = (try ChannelClient(on: bus), try Client(on: bus))
        try one.client.addObserver("Ding")
        one.close()
        try one.run("on the bus") { try hasChannel(one.client.name, asked: poster) == false }
        for n in 0..<3000 as Range<Int64> {
            if n == 1500 { try one.open() }
            poster.connection.send(try PostCall(name: "Ding", userInfo: ["n": .int64(n)]))
        }
        try one.run("all") {
            // What its socket had no room for.
            poster.turn()
            return one.numbersOnBus.count + one.numbers.count == 3000
        }
        #expect(one.numbersOnBus + one.numbers == Array(0..<3000))
        #expect(one.client.lost == 0 && one.dropped.isEmpty)
        #expect(service.isRunning)
    }

    @Test("SuspensionChanged arrives on the channel", arguments: BusKind.available)
    func suspension(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let one = try ChannelClient(on: bus)
        try one.client.addObserver("Ding")
        try one.client.call(SetSuspended(true))
        try one.client.post("Ding")
        try one.run("suspended") { one.suspensions.count == 1 }
        #expect(one.suspensions[0] == SuspensionChangedSignal(isSuspended: true, cause: "explicit"))
        try one.client.call(SetSuspended(false))
        try one.run("resumed, and what was held") { one.suspensions.count == 2 && one.notifications.count == 1 }
        #expect(one.kinds == [.suspensionChanged, .suspensionChanged, .notification])
        #expect(service.isRunning)
    }

    @Test("A4, S4: an unread channel has a bounded queue with reported losses, and other clients lose nothing")
    func stopped() throws {
        let bus = try PrivateBus(.dbusDaemon)
        try bus.configure("[Limits]\nqueued-per-client=500\n")
        let service = try ServiceProcess(on: bus)
        let (stopped, reading, poster) = (
            try ChannelClient(on: bus), try ChannelClient(on: bus), try ChannelClient(on: bus)
        )
        try stopped.client.addObserver("Ding")
        try reading.client.addObserver("Ding")
        for n in 0..<10_000 as Range<Int64> {
            try poster.post("Ding", n)
            guard n % 100 == 99 else { continue }
            try poster.run("outcomes") { poster.outcomes.count == n + 1 }
            try reading.run("as many") { reading.notifications.count == n + 1 }
        }
        #expect(reading.numbers == Array(0..<10_000) && reading.dropped.isEmpty)
        let status = try #require(
            try poster.client.call(ListClients()).first { $0.name.rawValue == stopped.client.name })
        #expect(status.flow != "open" && status.queued <= 500 && status.dropped > 0)
        try stopped.run("all that is left") { stopped.numbers.last == 9999 }
        let lost = stopped.dropped.reduce(0) { $0 + $1.count }
        #expect(stopped.dropped.allSatisfy { $0.reason == "queue-full" })
        #expect(UInt64(stopped.notifications.count) + lost == 10_000)
        #expect(stopped.numbers == stopped.numbers.sorted() && Set(stopped.numbers).count == stopped.numbers.count)
        #expect(stopped.notifications.last?.sequence == 10_000, "its numbers have room for the lost ones")
        #expect(service.isRunning)
    }

    // MARK: Ends

    @Test(
        "Unwritten notifications of an ended channel arrive on the bus, without duplicates or losses",
        arguments: BusKind.available)
    func halfClosed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, poster) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        try one.client.addObserver("Ding")
        let big = [UInt8](repeating: 7, count: 3000)
        for n in 0..<2000 as Range<Int64> { try poster.post("Ding", n, data: big) }
        try poster.run("outcomes") { poster.outcomes.count == 2000 }
        // The service closes its end for what is no frame; what is in the socket can be read.
        one.write([UInt8](repeating: 0xFF, count: 16))
        try one.run("the rest on the bus", reads: false) { one.numbersOnBus.last == 1999 }
        try one.run("the channel's end") { one.isAtEnd }
        #expect(!one.numbers.isEmpty && one.numbers + one.numbersOnBus == Array(0..<2000))
        #expect(one.client.lost == 0 && one.dropped.isEmpty)
        #expect(service.isRunning)
    }

    @Test(
        "S4: notifications that are unread when the client closes its channel are reported as lost, as an upper bound",
        arguments: BusKind.available)
    func closed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, poster) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        try one.client.addObserver("Ding")
        for n in 0..<10 as Range<Int64> { try poster.post("Ding", n) }
        try poster.run("outcomes") { poster.outcomes.count == 10 }
        try one.run("ten") { one.notifications.count == 10 }
        for n in 10..<40 as Range<Int64> { try poster.post("Ding", n) }
        try poster.run("outcomes") { poster.outcomes.count == 40 }
        one.close()
        try one.run("the word") { one.client.lost > 0 }
        #expect(one.client.lost >= 30 && one.client.lost <= 40)
        try poster.post("Ding", 40)
        try poster.run("outcome") { poster.outcomes.count == 41 }
        try one.run("the next") { one.client.signals.count == 1 }
        #expect(one.client.signals[0].number == 40 && one.client.signals[0].sequence == 41)
        #expect(service.isRunning)
    }

    @Test(
        "A client that has read everything and closes its channel gets no report of a loss",
        arguments: BusKind.available)
    func closedAfterReading(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let (one, poster) = (try ChannelClient(on: bus), try Client(on: bus))
        try one.client.addObserver("Ding")
        for round in 1...20 {
            try poster.post("Ding")
            try one.run("one") { one.notifications.count == round }
            one.close()
            try poster.post("Ding")
            try one.run("one on the bus", reads: false) { one.client.signals.count == round }
            try one.open()
        }
        #expect(one.client.lost == 0 && one.client.holes.count == 20, "on the bus alone every second is missing")
        #expect(service.isRunning)
    }

    @Test(
        "A client that ends its writing and reads to the end gets the outcome of each post, however late it reads",
        arguments: BusKind.available)
    func endsWriting(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        // One that is behind: the outcomes come behind what is sent to it.
        let observer = try ChannelClient(on: bus)
        try observer.client.addObserver("Ding")
        for count in [1, 300, 8000] {
            let poster = try ChannelClient(on: bus)
            for n in 0..<Int64(count) { try poster.post("Ding", n) }
            try poster.run("all is written", reads: count > 300) { poster.writer.byteCount == 0 }
            poster.endWriting()
            if count == 300 {
                // Until there is nothing more to do for it but to read.
                try eventually("all was posted") {
                    let all = try CenterProperties(in: observer.client.send(CenterProperties.getAll()))
                    return all.statistics[.posted] ?? 0 >= 301
                }
            }
            try poster.run("its end") { poster.isAtEnd }
            #expect(poster.outcomes.count == count, "\(service.transcript)")
            #expect(poster.outcomes.values.allSatisfy { $0.receivers == 1 })
            try observer.run("all") { observer.notifications.count == [1: 1, 300: 301, 8000: 8301][count] }
        }
        #expect(service.isRunning)
    }

    @Test("A malformed frame ends the channel and has no other effect", arguments: BusKind.available)
    func malformed(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let one = try ChannelClient(on: bus)
        try one.client.addObserver("Ding")
        func frame(_ length: UInt32, _ kind: UInt32, _ number: UInt64, _ body: [UInt8] = []) -> [UInt8] {
            var bytes: [UInt8] = []
            withUnsafeBytes(of: length) { bytes += $0 }
            withUnsafeBytes(of: kind) { bytes += $0 }
            withUnsafeBytes(of: number) { bytes += $0 }
            return bytes + body
        }
        let good = try PostCall(name: "Ding").message().marshalledBody
        let bad: [[UInt8]] = [
            frame(0, 0, 0), frame(0, 2, 1), frame(0, 3, 1), frame(0, 77, 1), frame(.max, 1, 1),
            frame(33 << 20, 1, 1), frame(0, 1, 1), frame(3, 1, 1, [0, 0, 0]),
            frame(UInt32(good.count + 8), 1, 1, good + [UInt8](repeating: 0, count: 8)),
            frame(UInt32(good.count - 4), 1, 1, Array(good.dropLast(4))),
            frame(UInt32(good.count), 1, 1, [0xFF] + good.dropFirst()),
            frame(UInt32(good.count), 1, 1, Array(good[0..<4]) + [0xC0] + good[5...]),
            [UInt8](repeating: 0xFF, count: 4096),
        ]
        for (index, bytes) in bad.enumerated() {
            one.write(bytes)
            try one.run("the end \(index)") { one.isAtEnd }
            #expect(try one.client.post("Ding") == 1)
            try one.run("on the bus \(index)") { one.client.signals.count == index + 1 }
            try one.open()
        }
        #expect(one.notifications.isEmpty && one.client.lost == 0)
        try eventually("the log: \(service.transcript)") {
            service.transcript.contains("the channel of \(one.client.name) ended: it sent")
        }
        // A userInfo that is none is an error, as on the bus.
        let body = try Array(PostCall(name: "Ding", userInfo: ["n": .string("x")]).message().marshalledBody)
        let place = try #require(body.lastIndex(of: UInt8(ascii: "s")))
        one.writer.appendPost(number: 9, body: body[..<place] + [UInt8(ascii: "o")] + body[(place + 1)...])
        try one.run("refused") { one.outcomes[9]?.error?.centerError == .invalidUserInfo }
        let right = try one.post("Ding")
        try one.run("still there") { one.outcomes[right]?.receivers == 1 }
        #expect(service.isRunning)
    }

    @Test("E1: a post beyond a limit is refused, and the channel remains open")
    func tooLarge() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let service = try ServiceProcess(on: bus)
        let one = try ChannelClient(on: bus)
        try one.client.addObserver("Ding")
        let large = try one.post("Ding", data: [UInt8](repeating: 1, count: 3 << 20))
        let almost = try one.post("Ding", data: [UInt8](repeating: 1, count: 1 << 20))
        let silent = try one.post("Ding", data: [UInt8](repeating: 1, count: 2 << 20), wantsOutcome: false)
        let fits = try one.post("Ding", 5, data: [UInt8](repeating: 1, count: 1_000_000))
        try one.run("outcomes") { one.outcomes.count == 3 && one.notifications.count == 1 }
        #expect(one.outcomes[large]?.error?.centerError == .limitExceeded)
        #expect(one.outcomes[almost]?.error?.centerError == .limitExceeded && silent == 0)
        #expect(one.outcomes[fits] == ChannelOutcome(receivers: 1) && one.numbers == [5])
        #expect(try CenterProperties(in: one.client.send(CenterProperties.getAll())).statistics[.refused] == 3)
        #expect(service.isRunning)
    }

    @Test(
        "A second OpenChannel ends the first channel, and posts on the first channel are not lost",
        arguments: BusKind.available)
    func second(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let one = try ChannelClient(on: bus)
        try one.client.addObserver("Ding")
        let first = try #require(one.descriptor)
        for n in 0..<200 as Range<Int64> { try one.post("Ding", n, wantsOutcome: false) }
        one.flush()
        try one.open()
        var old: [Int64] = []
        let reader = ChannelFrameReader(from: .service)
        while reader.read({ recv(first.rawValue, $0.baseAddress!, $0.count, 0) }).count > 0 {
            while let frame = try reader.next() { old.append(ArrivedNotification(channelBody: frame.body)!.number) }
        }
        try one.run("the rest") { old.count + one.numbersOnBus.count + one.numbers.count == 200 }
        #expect((old + one.numbersOnBus + one.numbers).sorted() == Array(0..<200))
        #expect(try CenterProperties(in: one.client.send(CenterProperties.getAll())).statistics[.channels] == 1)
        #expect(service.isRunning)
    }

    // MARK: Who may have one

    @Test("E4: the channels of a process are limited, and ended channels leave no descriptors behind")
    func limits() throws {
        let bus = try PrivateBus(.dbusDaemon)
        try bus.configure("[Limits]\nchannels-per-process=3\n")
        let service = try ServiceProcess(on: bus)
        func descriptors() throws -> Int {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(service.pid)/fd").count
        }
        let before = try descriptors()
        var clients: [ChannelClient] = []
        for _ in 0..<3 { clients.append(try ChannelClient(on: bus)) }
        let plain = try Client(on: bus)
        do {
            _ = try plain.call(OpenChannel())
            Issue.record("opened")
        } catch let error as BusError {
            #expect(error.centerError == .limitExceeded && error.message.contains("channels-per-process = 3"))
        }
        for _ in 0..<50 { try clients[0].open() }
        try eventually("those of the others are closed") { try descriptors() == before + 3 }
        clients = []
        try eventually("they are closed") {
            _ = try? plain.post("Ding")
            return try descriptors() == before
        }
        _ = try plain.call(OpenChannel())
        let unknown = Wire.methodCall(OpenChannel.member)
        var writer = MessageWriter(unknown)
        writer.array(of: "{sv}") { $0.entry("fast", true) }
        do {
            _ = try plain.send(unknown)
            Issue.record("accepted")
        } catch let error as BusError {
            #expect(error.centerError == .invalidOption)
        }
        #expect(service.isRunning)
    }

    @Test(
        "A configuration that forbids channels ends existing channels without loss and refuses new ones",
        arguments: BusKind.available)
    func disabled(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let one = try ChannelClient(on: bus)
        try one.client.addObserver("Ding")
        for n in 0..<500 as Range<Int64> { try one.post("Ding", n) }
        one.flush()
        try bus.configure("[Channels]\nchannels=false\n")
        try one.client.call(ReloadConfiguration())
        try one.run("its end") { one.isAtEnd }
        #expect(one.outcomes.count == 500, "what was written before is posted, and answered")
        try one.run("all") { one.numbers.count + one.numbersOnBus.count == 500 }
        #expect(one.numbers + one.numbersOnBus == Array(0..<500) && one.client.lost == 0)
        do {
            try one.open()
            Issue.record("opened")
        } catch let error as BusError {
            #expect(error.centerError == .channelsDisabled)
        }
        #expect(try one.client.post("Ding") == 1)
        try bus.configure("")
        try one.client.call(ReloadConfiguration())
        try one.open()
        #expect(service.isRunning)
    }

    // MARK: Others

    @Test("E4: another process is answered during an endless flood of posts on a channel", arguments: BusKind.available)
    func flood(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let load = try ChannelClient(on: bus)
        try load.client.addObserver("Flood")
        var posted = 0
        func goOnPosting() throws {
            while load.writer.byteCount < 1 << 20 {
                try load.post("Flood", Int64(posted), wantsOutcome: false)
                posted += 1
            }
            load.flush()
            try load.read()
        }
        try eventually("the service is behind", every: .zero) {
            try goOnPosting()
            return load.numbers.count > 1000
        }
        // Another process, as shares are those of processes. The flood has no end until it is answered.
        let other = try RunningCommand(
            try Executables.path(of: "carillon"), ["post", "Other"], environment: bus.environment)
        try eventually("the other is answered: \(service.transcript)", every: .zero) {
            try goOnPosting()
            return !other.isRunning
        }
        #expect(other.status == .exited(0), "\(other.transcript)")
        try load.run("all") { load.writer.byteCount == 0 && load.numbers.last == Int64(posted - 1) }
        #expect(load.numbers == load.numbers.sorted() && load.dropped.isEmpty)
        #expect(service.isRunning)
    }

    @Test("Posts written to a channel are posted even if their poster has left", arguments: BusKind.available)
    func leaving(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let service = try ServiceProcess(on: bus)
        let observer = try Client(on: bus)
        try observer.addObserver("Ding")
        var one: ChannelClient? = try ChannelClient(on: bus)
        for n in 0..<1000 as Range<Int64> { try one?.post("Ding", n, wantsOutcome: false) }
        one?.flush()
        let written = 1000
        #expect(one?.writer.byteCount == 0)
        one = nil
        try observer.run("all") { observer.signals.count == written }
        #expect(observer.signals.map(\.number) == Array(0..<1000))
        #expect(service.isRunning)
    }

    @Test("E3: notifications in a channel's socket survive a kill of the service and are not reported as lost")
    func killed() throws {
        let bus = try PrivateBus(.dbusDaemon)
        let first = try ServiceProcess(on: bus)
        let (one, poster) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        try one.client.addObserver("Ding")
        for n in 0..<300 as Range<Int64> { try poster.post("Ding", n) }
        try poster.run("outcomes") { poster.outcomes.count == 300 }
        // More than its window: the rest leaves when it has confirmed some.
        try one.run("all has been sent") { (try? first.notedNumbers())?.contains { $0.sequence == 300 } == true }
        try first.settle()
        try first.kill()
        let second = try ServiceProcess(on: bus)
        #expect(try poster.client.post("Ding") == 1)
        try one.run("the next on the bus") { one.isAtEnd && one.client.signals.count == 1 }
        #expect(one.numbers == Array(0..<300) && one.client.lost == 0)
        #expect(one.client.signals[0].sequence == 301)
        #expect(second.isRunning)
    }

    @Test(
        "E3: a service that shuts down sends the unwritten notifications of its channels on the bus",
        arguments: BusKind.available)
    func ended(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let first = try ServiceProcess(on: bus)
        let (one, poster) = (try ChannelClient(on: bus), try ChannelClient(on: bus))
        try one.client.addObserver("Ding")
        let big = [UInt8](repeating: 7, count: 5000)
        for n in 0..<80 as Range<Int64> { try poster.post("Ding", n, data: big) }
        try poster.run("outcomes") { poster.outcomes.count == 80 }
        try first.terminate()
        let second = try ServiceProcess(on: bus)
        try one.run("all") { one.isAtEnd && one.numbers.count + one.numbersOnBus.count == 80 }
        #expect(one.numbers + one.numbersOnBus == Array(0..<80) && one.client.lost == 0)
        #expect(second.isRunning)
    }
}
