// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestLimits
import CarillonTestSupport
import Testing

@testable import CarillonThreadDelivery

@Suite("C7, T2: the buffer for the reader of a sequence", .limited)
struct ReaderBufferTests {
    private typealias Buffer = ReaderBuffer<Int>

    private final class Counter: Sendable {
        private let count = Locked(0)
        var value: Int { count.withLock { $0 } }
        func add() { count.withLock { $0 += 1 } }
    }

    @Test("A buffer is read in order; beyond its bounds the oldest are lost, and the newest is kept, of any size")
    func bounds() async {
        let buffer = Buffer(count: 3)
        let reader = Buffer.Reader(buffer)
        #expect((1...5).map { buffer.append($0, byteCount: 1) } == [0, 0, 0, 1, 1])
        #expect(await reader.next(isolation: nil) == 3)
        #expect(buffer.append(6, byteCount: 64 << 20) == 2, "there are 64 MiB for all")
        #expect(buffer.append(7, byteCount: 1) == 1)
        #expect(buffer.append(8, byteCount: 1) == 0, "what went is not counted any more")
        #expect(await reader.next(isolation: nil) == 7)
        #expect(buffer.append(9, byteCount: 65 << 20) == 1)
        #expect(await reader.next(isolation: nil) == 9)
        let least = Buffer(count: 0)
        #expect(least.append(1, byteCount: 0) == 0)
    }

    @Test("A waiting reader gets the next element, and nil after the source has ended")
    func waiting() async {
        let buffer = Buffer(count: 3)
        let reader = Buffer.Reader(buffer)
        var finisher: Buffer.Finisher? = Buffer.Finisher(buffer)
        async let first = reader.next(isolation: nil)
        _ = finisher!.buffer.append(1, byteCount: 1)
        #expect(await first == 1)
        _ = buffer.append(2, byteCount: 1)
        finisher = nil
        #expect(buffer.append(3, byteCount: 1) == 0, "it counts as nothing")
        #expect(await reader.next(isolation: nil) == 2)
        #expect(await reader.next(isolation: nil) == nil)
        #expect(await reader.next(isolation: nil) == nil)
    }

    @Test("A cancelled task gets no more elements, and the source is informed once")
    func cancelled() async {
        let buffer = Buffer(count: 3)
        let reader = Buffer.Reader(buffer)
        let ends = Counter()
        buffer.onEnd { ends.add() }
        let waiter = Task { await reader.next(isolation: nil) }
        waiter.cancel()
        #expect(await waiter.value == nil && ends.value == 1)
        #expect(buffer.append(1, byteCount: 1) == 0)
        #expect(await reader.next(isolation: nil) == nil)
        buffer.onEnd { ends.add() }
        #expect(ends.value == 2, "at once, as it has ended")
        // Also what waits already is not for a task that is cancelled.
        let other = Buffer(count: 3)
        let otherReader = Buffer.Reader(other)
        _ = other.append(1, byteCount: 1)
        let late = Task {
            while !Task.isCancelled { await Task.yield() }
            return await otherReader.next(isolation: nil)
        }
        late.cancel()
        #expect(await late.value == nil)
    }

    @Test("The waiting elements are released when the reader ends")
    func gone() {
        let buffer = ReaderBuffer<Counter>(count: 3)
        let ends = Counter()
        buffer.onEnd { ends.add() }
        var reader: ReaderBuffer<Counter>.Reader? = .init(buffer)
        weak var waiting: Counter?
        do {
            let element = Counter()
            waiting = element
            _ = buffer.append(element, byteCount: 1)
        }
        #expect(waiting != nil && ends.value == 0)
        withExtendedLifetime(reader) {}
        reader = nil
        #expect(waiting == nil && ends.value == 1)
    }

    @Test("With several threads and readers, each element is read once, and those of a thread in order")
    func threads() async {
        let buffer = ReaderBuffer<(thread: Int, number: Int)>(count: 1_000_000)
        let reader = ReaderBuffer<(thread: Int, number: Int)>.Reader(buffer)
        let (threads, numbers) = (4, 2_000)
        let readings = (0..<3).map { _ in
            Task {
                var read: [(thread: Int, number: Int)] = []
                while let next = await reader.next(isolation: nil) { read.append(next) }
                return read
            }
        }
        await withTaskGroup(of: Void.self) { group in
            for thread in 0..<threads {
                group.addTask {
                    for number in 0..<numbers {
                        _ = buffer.append((thread, number), byteCount: 1)
                        if number % 50 == 0 { await Task.yield() }
                    }
                }
            }
        }
        buffer.finish()
        var counts = [Int: Int]()
        for reading in readings {
            var last = [Int: Int]()
            for (thread, number) in await reading.value {
                #expect(number > last[thread] ?? -1)
                last[thread] = number
                counts[thread, default: 0] += 1
            }
        }
        #expect(counts == Dictionary(uniqueKeysWithValues: (0..<threads).map { ($0, numbers) }))
    }
}
