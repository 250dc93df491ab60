// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Glibc
import Testing

@testable import CarillonSimulation

/// The model of a stream socket does what the kernel does with a pair of them, but for how much fits in.
@Suite("Model of a stream socket", .limited)
struct StreamModelTests {
    /// What both can do.
    private protocol End {
        func write(_ bytes: [UInt8]) -> String
        func read(_ most: Int) -> String
        func stopReading()
        func stopWriting()
        func close()
        var conditions: String { get }
    }

    private struct Modelled: End {
        let end: Stream.End

        func write(_ bytes: [UInt8]) -> String {
            bytes.withUnsafeBytes { end.write($0) }.map { "\($0)" } ?? "broken"
        }

        func read(_ most: Int) -> String {
            var memory = [UInt8](repeating: 0, count: most)
            return switch memory.withUnsafeMutableBytes({ end.read(into: $0) }) {
            case .bytes(let count): "\(memory[..<count])"
            case .nothing: "nothing"
            case .end: "end"
            case .reset: "reset"
            }
        }

        func stopReading() { end.stopReading() }
        func stopWriting() { end.stopWriting() }
        func close() { end.close() }
        var conditions: String {
            "readable \(end.isReadable), error \(end.hasError), hung up \(end.isHungUp), unread \(end.isAnythingUnread)"
        }
    }

    private final class Real: End {
        private let descriptor: Int32

        init(_ descriptor: Int32) {
            self.descriptor = descriptor
        }

        func write(_ bytes: [UInt8]) -> String {
            let count = send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
            return count >= 0 ? "\(count)" : "broken"
        }

        func read(_ most: Int) -> String {
            var memory = [UInt8](repeating: 0, count: most)
            let count = recv(descriptor, &memory, most, 0)
            if count > 0 { return "\(memory[..<count])" }
            return count == 0 ? "end" : errno == ECONNRESET ? "reset" : "nothing"
        }

        func stopReading() { shutdown(descriptor, Int32(SHUT_RD)) }
        func stopWriting() { shutdown(descriptor, Int32(SHUT_WR)) }
        func close() { _ = Glibc.close(descriptor) }
        var conditions: String {
            var poll = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            _ = Glibc.poll(&poll, 1, 0)
            var bytes: Int32 = 0
            _ = ioctl(descriptor, UInt(TIOCOUTQ), &bytes)
            func has(_ flag: Int32) -> Bool { poll.revents & Int16(flag) != 0 }
            return "readable \(has(POLLIN)), error \(has(POLLERR)), hung up \(has(POLLHUP)), unread \(bytes > 0)"
        }
    }

    @Test("Any sequence of calls has the same results as on a stream socket of the kernel")
    func sameAsKernel() throws {
        var random = Random(seed: 7)
        for round in 0..<2000 {
            var descriptors: [Int32] = [-1, -1]
            let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
            try #require(socketpair(AF_UNIX, type, 0, &descriptors) == 0)
            let stream = Stream(toService: 100_000, toClient: 100_000)
            let real = descriptors.map { Real($0) }
            let modelled = [Modelled(end: stream.service), Modelled(end: stream.client)]
            var isOpen = [true, true]
            var calls: [String] = []
            for _ in 0..<random.number(1...14) {
                let side = random.number(0...1)
                guard isOpen[side] else { continue }
                let (one, other) = (real[side], modelled[side])
                switch random.number(0...9) {
                case 0..<4:
                    let bytes = (0..<random.number(1...20)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
                    calls.append("\(side) writes \(bytes.count)")
                    #expect(other.write(bytes) == one.write(bytes), "\(round): \(calls)")
                case 4..<7:
                    let most = random.number(1...30)
                    calls.append("\(side) reads \(most)")
                    #expect(other.read(most) == one.read(most), "\(round): \(calls)")
                case 7:
                    calls.append("\(side) stops reading")
                    one.stopReading()
                    other.stopReading()
                case 8:
                    calls.append("\(side) stops writing")
                    one.stopWriting()
                    other.stopWriting()
                default:
                    calls.append("\(side) closes")
                    one.close()
                    other.close()
                    isOpen[side] = false
                }
                for side in 0..<2 where isOpen[side] {
                    // A program that another test is about to run may have a copy of what is closed, until it runs.
                    try eventually("\(round): \(side) is as modelled after \(calls)") {
                        modelled[side].conditions == real[side].conditions
                    }
                }
            }
            for side in 0..<2 where isOpen[side] { real[side].close() }
        }
    }

    @Test("A stream accepts the bytes that fit, and is writable again when most of them were read")
    func bounded() {
        let stream = Stream(toService: 100, toClient: 40)
        let (service, client) = (Modelled(end: stream.service), Modelled(end: stream.client))
        #expect(client.write([UInt8](repeating: 1, count: 60)) == "60")
        #expect(client.write([UInt8](repeating: 2, count: 60)) == "40")
        #expect(client.write([3]) == "0" && !stream.client.isWritable)
        _ = service.read(60)
        #expect(!stream.client.isWritable && stream.client.room == 60)
        _ = service.read(20)
        #expect(stream.client.isWritable)
        #expect(service.write([UInt8](repeating: 1, count: 41)) == "40")
    }

    @Test("A stream ends when its other descriptor is lost, and a descriptor can be taken only once")
    func lostDescriptor() throws {
        let world = World(seed: 1)
        let streams = Streams(world)
        let process = LoopProcess(world, id: 1, name: "test")
        var kept = try #require(streams.make(for: process))
        world.run(until: 10_000_000)
        #expect(kept.own.ready == [.writable], "somebody may still take it")
        kept.other = FileDescriptor(adopting: -1)
        world.run(until: 20_000_000)
        #expect(kept.own.ready.isSuperset(of: [.readable, .hangUp]))
        var byte: UInt8 = 0
        #expect(withUnsafeMutableBytes(of: &byte) { kept.own.receive(into: $0) } == 0)

        let other = try #require(streams.make(for: process))
        let stream = try #require(streams.take(other.other))
        #expect(streams.take(other.other) == nil, "it is one stream's, once")
        #expect(streams.openInService == 1 + 1)
        stream.client.close()
        #expect(other.own.ready.contains(.hangUp))
        streams.trouble = .short
        #expect(streams.make(for: process) == nil)
    }
}
