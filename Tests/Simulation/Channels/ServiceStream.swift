// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonService

/// The service's end of a stream.
final class ServiceStream: ChannelStream {
    let polled: Int32? = nil
    private(set) var isBroken = false
    private var hasMetReset = false
    /// It keeps both ends.
    private let stream: Stream
    private let process: LoopProcess
    private var random: Random

    /// What a call of the system costs, in microseconds.
    private static let cost: Int64 = 2

    init(_ stream: Stream, of process: LoopProcess, seed: UInt64) {
        self.stream = stream
        self.process = process
        random = Random(seed: seed)
        ours.onChange = { [weak process] in process?.wake() }
    }

    deinit {
        ours.close()
    }

    private var ours: Stream.End { stream.service }

    var ready: PolledSource.Conditions {
        var ready: PolledSource.Conditions = []
        if ours.isReadable { ready.insert(.readable) }
        if ours.isWritable { ready.insert(.writable) }
        if ours.isHungUp { ready.insert(.hangUp) }
        if ours.hasError { ready.insert(.error) }
        return ready
    }

    func receive(into room: UnsafeMutableRawBufferPointer) -> Int {
        guard !process.isDead else { return -1 }
        process.spend(Self.cost)
        switch ours.read(into: room) {
        case .bytes(let count): return count
        case .nothing: return -1
        case .end: return 0
        case .reset:
            (isBroken, hasMetReset) = (true, true)
            return 0
        }
    }

    func send(_ bytes: UnsafeRawBufferPointer) -> Int {
        guard !process.isDead, !isBroken else { return 0 }
        process.spend(Self.cost)
        guard let room = ours.room else {
            isBroken = true
            return 0
        }
        guard room > 0 else { return 0 }
        let isAlive = process.operate()
        // It dies before the call, or in it.
        guard isAlive || random.happens(0.5) else { return 0 }
        return ours.write(bytes) ?? 0
    }

    var wasReset: Bool { hasMetReset || ours.hasError }

    var isAnythingUnread: Bool { ours.isAnythingUnread }

    func stopReceiving() {
        if !process.isDead { ours.stopReading() }
    }

    func end() {
        guard !process.isDead else { return }
        ours.stopReading()
        ours.stopWriting()
    }
}
