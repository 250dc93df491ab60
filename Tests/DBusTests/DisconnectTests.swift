// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Foundation
import Testing

/// How connections end, and how they fail to begin: never with an abort inside libdbus.
@Suite("The end of connections", .serialized, .limited)
struct DisconnectTests {
    @Test(
        "At the end of the bus, pending calls fail, and then onDisconnect is called once", arguments: BusKind.available,
        [SIGTERM, SIGKILL])
    func busEnds(kind: BusKind, signal: Int32) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let (connection, silent) = (try loop.connect(to: bus), try loop.connect(to: bus))
        var isReached = false
        silent.onMessage = { message in
            guard message.kind == .methodCall else { return false }
            isReached = true
            return true
        }
        var events: [String] = []
        for timeout in [ReplyTimeout.standard, .never, .milliseconds(30_000)] {
            connection.call(Sample.call("Slow", to: silent.uniqueName!), timeout: timeout) { result in
                if case .failure = result { events.append("failed") } else { events.append("answered") }
            }
        }
        connection.onDisconnect = { events.append("disconnected") }
        try loop.run("the call to arrive") { isReached }
        kill(bus.pid, signal)
        try loop.run("the end") { events.contains("disconnected") }
        #expect(events == ["failed", "failed", "failed", "disconnected"])

        // From now on everything is harmless, and nothing is told twice.
        connection.send(Sample.signal())
        connection.call(Sample.call("Ring", to: ":1.4711")) { result in
            if case .failure(let error) = result { events.append(error.name.rawValue) }
        }
        connection.addMatch("type='signal'")
        connection.hello { _ in events.append("hello") }
        for _ in 0..<50 { loop.context.iterate(mayBlock: false) }
        #expect(events.filter { $0 == "disconnected" }.count == 1)
        #expect(events.contains("hello"))
        #expect(events.contains(BusError.disconnectedName.rawValue))
    }

    @Test("Calls on a closed connection fail asynchronously and in order, even a chain of 50,000 calls")
    func closed() throws {
        let bus = try PrivateBus()
        let loop = Loop()
        let connection = try loop.connect(to: bus)
        var isDisconnected = false
        connection.onDisconnect = { isDisconnected = true }
        bus.stop()
        try loop.run("the end") { isDisconnected }

        var failures: [Int] = []
        for number in 0..<3 {
            connection.call(Sample.call("Ring", to: ":1.4711")) { _ in failures.append(number) }
        }
        #expect(failures == [])
        try loop.run("the failures") { failures.count == 3 }
        #expect(failures == [0, 1, 2])

        // Deep enough for the end of the stack, if each were made within the one before.
        var left = 50_000
        func next() {
            connection.call(Sample.call("Ring", to: ":1.4711")) { _ in
                left -= 1
                if left > 0 { next() }
            }
        }
        next()
        try loop.run("the last") { left == 0 }
    }

    @Test("A connection whose bus has ended leaves the loop idle", arguments: BusKind.available)
    func quiet(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let connection = try loop.connect(to: bus)
        var isDisconnected = false
        connection.onDisconnect = { isDisconnected = true }
        bus.stop()
        try loop.run("the end") { isDisconnected }
        exhaust("the loop") { loop.context.iterate(mayBlock: false) }
        for _ in 0..<10 { #expect(!loop.context.iterate(mayBlock: false)) }
    }

    @Test("An idle connection leaves the loop idle", arguments: BusKind.available)
    func idle(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let connection = try loop.connect(to: bus)
        try loop.barrier(connection)
        exhaust("the loop") { loop.context.iterate(mayBlock: false) }
        var isOver = false
        let timer = EventSource.timer(milliseconds: 100, on: loop.context) {
            isOver = true
            return .remove
        }
        var turns = 0
        while !isOver {
            loop.context.iterate(mayBlock: true)
            turns += 1
        }
        #expect(turns <= 2, "the loop turned \(turns) times in a tenth of a second in which nothing happened")
        withExtendedLifetime((timer, connection)) {}
    }

    @Test("A connection can be released inside its own message handler", arguments: BusKind.available)
    func releasedInHandler(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let sender = try loop.connect(to: bus)
        var receiver: Connection? = try loop.connect(to: bus)
        weak let watched = receiver
        var count = 0
        receiver?.onMessage = { message in
            guard message.member == "Rang" else { return false }
            count += 1
            receiver = nil
            return true
        }
        for _ in 0..<100 { sender.send(Sample.signal(to: receiver!.uniqueName!)) }
        try loop.run("the first signal") { count > 0 }
        try loop.barrier(sender)
        #expect(count == 1)
        #expect(watched == nil)
    }

    @Test("A connection can be released inside the completion of its own call", arguments: BusKind.available)
    func releasedInCompletion(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        var connection: Connection? = try loop.connect(to: bus)
        var completions = 0
        for _ in 0..<10 {
            connection?.processID(of: connection!.uniqueName!) { _ in
                completions += 1
                connection = nil
            }
        }
        try loop.run("a completion") { completions > 0 }
        for _ in 0..<50 { loop.context.iterate(mayBlock: false) }
        #expect(completions == 1, "what is pending when the connection goes is not completed")
    }

    @Test("A connection can be released inside onDisconnect", arguments: BusKind.available)
    func releasedInDisconnect(kind: BusKind) throws {
        let bus = try PrivateBus(kind)
        let loop = Loop()
        var connection: Connection? = try loop.connect(to: bus)
        var count = 0
        connection?.onDisconnect = {
            count += 1
            connection = nil
        }
        bus.stop()
        try loop.run("the end") { count > 0 }
        for _ in 0..<50 { loop.context.iterate(mayBlock: false) }
        #expect(count == 1)
    }

    @Test("A released connection leaves the bus and releases its closures", arguments: BusKind.available)
    func released(kind: BusKind) throws {
        final class Mark {}
        let bus = try PrivateBus(kind)
        let loop = Loop()
        let watcher = try loop.connect(to: bus)
        var connection: Connection? = try loop.connect(to: bus)
        let name = try #require(connection?.uniqueName)
        var mark: Mark? = Mark()
        weak let watched = mark
        connection?.onMessage = { [mark] _ in mark == nil }
        connection?.onDisconnect = { [mark] in _ = mark }
        connection?.call(Sample.call("Slow", to: watcher.uniqueName!), timeout: .never) { [mark] _ in _ = mark }
        watcher.onMessage = { _ in true }
        try loop.barrier(try #require(connection))
        mark = nil
        #expect(watched != nil)
        connection = nil
        #expect(watched == nil)
        try eventually("it left the bus") {
            if case .failure = try loop.wait({ watcher.processID(of: name, completion: $0) }) { true } else { false }
        }
    }

    @Test(
        "An address without a listener, or an invalid address, is an error",
        arguments: [
            "unix:path=/nonexistent/bus", "unix:abstract=/carillon/nothing/here", "unix:path=/",
            "tcp:host=127.0.0.1,port=1",
            "", "nonsense", "unix:", "unix:path", "unix:path=/a,path=/b", "unix:path=%zz", "unix:path=/nonexistent;",
            "\u{1}",
            "unix:path=/tmp\0/x", "carrier-pigeon:path=/tmp", String(repeating: "x", count: 100_000),
        ])
    func badAddress(address: String) {
        #expect(throws: BusError.self) { try Connection(address: address, context: MainContext()) }
    }

    @Test("A connection uses the first address of a list that works")
    func severalAddresses() throws {
        let bus = try PrivateBus()
        let loop = Loop()
        let connection = try Connection(
            address: "unix:path=/nonexistent/bus;\(bus.address)", context: loop.context)
        #expect(try loop.wait { connection.hello(completion: $0) }.get().rawValue.hasPrefix(":"))
    }

    @Test(
        "A server that hangs up during the handshake, or sends invalid data, causes a disconnection",
        arguments: ["", "nonsense\r\n"])
    func badServer(greeting: String) throws {
        let directory = try TemporaryDirectory()
        let path = directory.entry("bus")
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(listener) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let isBound = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(listener, $0, size) == 0 }
        }
        try #require(isBound && listen(listener, 1) == 0)

        let loop = Loop()
        let connection = try Connection(address: "unix:path=\(path)", context: loop.context)
        var isDisconnected = false
        connection.onDisconnect = { isDisconnected = true }
        var result: Result<UniqueName, BusError>?
        connection.hello { result = $0 }
        let accepted = accept(listener, nil, nil)
        try #require(accepted >= 0)
        _ = write(accepted, greeting, greeting.utf8.count)
        close(accepted)
        try loop.run("the end") { isDisconnected && result != nil }
        #expect(throws: BusError.self) { try result!.get() }
    }
}
