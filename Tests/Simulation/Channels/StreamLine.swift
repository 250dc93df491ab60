// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonMainLoop

/// The library's end of a stream, served by the loop of its process.
final class StreamLine: ClientStream, PolledSourceDelegate {
    var onReady: (() -> Void)?
    var isReading = false { didSet { if isReading, !oldValue { process?.wake() } } }
    var isWaitingForSpace = false { didSet { if isWaitingForSpace, !oldValue { process?.wake() } } }
    private let stream: Stream
    private weak var process: LoopProcess?
    private var source: PolledSource!

    /// What a call of the system costs, in microseconds.
    private static let cost: Int64 = 2

    init(_ stream: Stream, of process: LoopProcess) {
        self.stream = stream
        self.process = process
        stream.client.onChange = { [weak process] in process?.wake() }
        source = PolledSource(delegate: self, priority: .default, context: process.context)
    }

    deinit {
        stream.client.close()
    }

    private var ours: Stream.End { stream.client }
    private var isAlive: Bool { process?.isDead == false }

    func hasPendingWork() -> Bool {
        guard isReading || isWaitingForSpace else { return false }
        return isReading && ours.isReadable || isWaitingForSpace && ours.isWritable || ours.isHungUp || ours.hasError
    }

    func dispatch() {
        if isAlive, hasPendingWork() { onReady?() }
    }

    func read(into room: UnsafeMutableRawBufferPointer) -> StreamReadResult {
        guard isAlive else { return .nothing }
        process?.spend(Self.cost)
        switch ours.read(into: room) {
        case .bytes(let count): return .bytes(count)
        case .nothing: return .nothing
        case .end, .reset: return .end
        }
    }

    var writing: any ChannelWriting { Writing(line: self) }

    private struct Writing: ChannelWriting, @unchecked Sendable {
        // Sendable: a simulation has one thread.
        unowned let line: StreamLine

        func write(_ bytes: UnsafeRawBufferPointer) -> StreamWriteResult { line.write(bytes) }
    }

    private func write(_ bytes: UnsafeRawBufferPointer) -> StreamWriteResult {
        guard isAlive else { return .bytes(0) }
        process?.spend(Self.cost)
        return ours.write(bytes).map { .bytes($0) } ?? .broken
    }

    func endWriting() {
        if isAlive { ours.stopWriting() }
    }
}
