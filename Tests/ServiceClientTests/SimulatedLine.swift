// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

@testable import CarillonClient

/// A channel's line whose other end the test plays: no socket, any room, any piece of what was written.
final class SimulatedLine: ClientStream {
    var onReady: (() -> Void)?
    var isReading = false
    var isWaitingForSpace = false
    /// How many bytes may be written before it is full.
    var room = Int.max
    /// Whether the service has closed it, or nobody reads it any more.
    var hasEnded = false
    var isBroken = false
    private(set) var isWritingOver = false
    /// How often something was written.
    private(set) var writes = 0
    /// All that was.
    private(set) var written: [UInt8] = []
    private var readable: [UInt8] = []
    private let frames = ChannelFrameReader(from: .client)
    private var taken = 0

    func read(into memory: UnsafeMutableRawBufferPointer) -> StreamReadResult {
        guard !readable.isEmpty else { return hasEnded ? .end : .nothing }
        let count = min(memory.count, readable.count)
        memory.copyBytes(from: readable[..<count])
        readable.removeFirst(count)
        return .bytes(count)
    }

    var writing: any ChannelWriting { Writing(line: self) }

    private struct Writing: ChannelWriting, @unchecked Sendable {
        // Sendable: a test of it has one thread.
        unowned let line: SimulatedLine

        func write(_ bytes: UnsafeRawBufferPointer) -> StreamWriteResult { line.write(bytes) }
    }

    private func write(_ bytes: UnsafeRawBufferPointer) -> StreamWriteResult {
        guard !isBroken else { return .broken }
        writes += 1
        let count = min(bytes.count, room)
        room -= room == .max ? 0 : count
        written += bytes[..<count]
        return .bytes(count)
    }

    func endWriting() { isWritingOver = true }

    // MARK: The service's end

    /// The posts that came whole and were not taken yet, as `name number`.
    func takePosts() throws -> [String] {
        _ = frames.read { memory in
            let count = min(memory.count, written.count - taken)
            memory.copyBytes(from: written[taken..<taken + count])
            taken += count
            return count
        }
        var posts: [String] = []
        while let frame = try frames.next() {
            var reader = MarshalledReader(frame.body)
            posts.append("\(reader.readString() ?? "?") \(frame.number)")
        }
        return posts
    }

    /// The bytes of frames that `body` appends.
    static func bytes(_ body: (ChannelFrameWriter) -> Void) -> [UInt8] {
        let writer = ChannelFrameWriter()
        body(writer)
        var bytes: [UInt8] = []
        writer.write { all in
            bytes += all
            return all.count
        }
        return bytes
    }

    static func notification(_ number: UInt64, observer: UInt64 = 1) -> [UInt8] {
        bytes { writer in
            writer.append(.notification, number: number, atMost: 256) { body in
                body.append("Ding")
                body.append("")
                body.array { _ in }
                body.append([observer])
                body.append(":1.9")
                body.append(number)
                body.append(number)
                body.array { _ in }
            }
        }
    }

    /// Bytes come from the service, and the loop turns.
    func arrive(_ bytes: [UInt8]...) {
        lie(bytes)
        turn()
    }

    /// The same before the loop turns.
    func lie(_ bytes: [[UInt8]]) {
        for bytes in bytes { readable += bytes }
    }

    func settle(_ number: UInt64, receivers: Int = 1, error: BusError? = nil) {
        let outcome = error.map { ChannelOutcome($0) } ?? ChannelOutcome(receivers: receivers)
        arrive(Self.bytes { $0.append(outcome, number: number) })
    }

    /// The service closes it.
    func end() {
        hasEnded = true
        isBroken = true
        turn()
    }

    /// The loop turns until there is nothing to do.
    func turn() {
        for _ in 0..<1000 {
            let isReadable = isReading && (!readable.isEmpty || hasEnded)
            let hasRoom = isWaitingForSpace && (room > 0 || isBroken)
            guard isReadable || hasRoom, let onReady else { return }
            onReady()
        }
        fatalError("the loop would turn for ever")
    }
}
