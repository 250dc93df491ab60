// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonService

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The streams of a run. A descriptor that goes over the bus is a pipe's, with the number of its stream in it.
final class Streams {
    /// What happens to descriptors.
    enum Trouble: CaseIterable {
        /// The bus carries messages without them.
        case stripped
        /// It does not carry the answers that have them.
        case refused
        /// The service has none left.
        case short
    }

    private final class Entry {
        let stream: Stream
        /// Tells by an error that nobody has the descriptor any more.
        let pipe: FileDescriptor
        var isTaken = false

        init(_ stream: Stream, _ pipe: FileDescriptor) {
            self.stream = stream
            self.pipe = pipe
        }
    }

    private let world: World
    private var entries: [UInt64: Entry] = [:]
    private var lastNumber: UInt64 = 0
    private var random: Random
    private let fixedCapacity: Int?
    var trouble: Trouble?
    /// How many there have been.
    var count: UInt64 { lastNumber }

    /// Until a descriptor that nobody has taken is looked after again, in microseconds; twice as long each time.
    private static let pause = (first: Int64(500), last: Int64(500_000))

    /// - Parameter capacity: of each direction, in bytes; nil for any.
    init(_ world: World, capacity: Int? = nil) {
        self.world = world
        fixedCapacity = capacity
        random = Random(seed: world.seed, stream: 2 << 32)
    }

    /// A new one for the service, as ``Machine`` has it.
    func make(for process: LoopProcess) -> (own: any ChannelStream, other: FileDescriptor)? {
        guard trouble != .short, !process.isDead else { return nil }
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { fatalError("there are no file descriptors for the simulation") }
        lastNumber += 1
        withUnsafeBytes(of: lastNumber) { bytes in
            precondition(writeAll(ends[1], bytes) == bytes.count, "an empty pipe has room")
        }
        let stream = Stream(toService: capacity(), toClient: capacity())
        entries[lastNumber] = Entry(stream, FileDescriptor(adopting: ends[1]))
        lookAfter(lastNumber, again: Self.pause.first)
        let seed = random.next()
        return (ServiceStream(stream, of: process, seed: seed), FileDescriptor(adopting: ends[0]))
    }

    private func capacity() -> Int {
        if let fixedCapacity { return fixedCapacity }
        return switch random.number(0...3) {
        case 0: random.number(200...2000)
        case 1: random.number(2000...20_000)
        default: random.number(20_000...220_000)
        }
    }

    /// The kernel closes what nobody has.
    private func lookAfter(_ number: UInt64, again pause: Int64) {
        world.after(pause) { [weak self] in
            if let self, lookAfter(number) { lookAfter(number, again: min(2 * pause, Self.pause.last)) }
        }
    }

    /// Somebody may just have let go of a descriptor, which the kernel closes at once.
    func lookAfterAll() {
        world.after(1) { [weak self] in
            guard let self else { return }
            for number in entries.keys.sorted() { lookAfter(number) }
        }
    }

    /// - Returns: whether somebody still has the descriptor, and has not taken it.
    @discardableResult
    private func lookAfter(_ number: UInt64) -> Bool {
        guard let entry = entries[number], !entry.isTaken else { return false }
        var poll = pollfd(fd: entry.pipe.rawValue, events: 0, revents: 0)
        guard pollOnce(&poll) > 0, poll.revents & Int16(POLLERR) != 0 else { return true }
        world.note("nobody has the descriptor of channel \(number)")
        entry.stream.client.close()
        taken.append(entry.stream)
        entries[number] = nil
        return false
    }

    /// The client's end of the stream that a descriptor means. It is its owner's to close.
    func take(_ descriptor: FileDescriptor) -> Stream? {
        var number: UInt64 = 0
        let count = withUnsafeMutableBytes(of: &number) { readAll(descriptor.rawValue, $0) }
        guard count == 8, let entry = entries[number], !entry.isTaken else { return nil }
        entry.isTaken = true
        taken.append(entry.stream)
        entries[number] = nil
        world.note("channel \(number): \(entry.stream.service.capacity) bytes in, \(entry.stream.client.capacity) out")
        return entry.stream
    }

    private var taken: [Stream] = []

    /// How many the service has not closed.
    var openInService: Int {
        taken.removeAll { !$0.service.isOpen }
        return taken.count + entries.values.count { $0.stream.service.isOpen }
    }
}

private func writeAll(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer) -> Int {
    write(descriptor, bytes.baseAddress!, bytes.count)
}

private func readAll(_ descriptor: Int32, _ bytes: UnsafeMutableRawBufferPointer) -> Int {
    read(descriptor, bytes.baseAddress!, bytes.count)
}

private func pollOnce(_ descriptor: inout pollfd) -> Int32 { poll(&descriptor, 1, 0) }
