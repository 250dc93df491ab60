// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A reader of lines from a descriptor on the main loop, as they arrive, and no faster than its user allows.
final class LineReader: PolledSourceDelegate {
    /// The reason why reading has ended.
    enum End {
        case ofInput
        case tooLong
        case failure(String)
    }

    /// The maximum length of a line, in bytes. A longer line can't be posted, because it is larger than any userInfo.
    private static let longestLine = 80 << 20

    private let descriptor: Int32
    private let take: (ArraySlice<UInt8>) -> Void
    private let ended: (End) -> Void
    private var source: PolledSource!
    /// The registration of the descriptor, while it is read.
    private var tag: PolledSource.Tag?
    /// The bytes read so far, from the beginning of the first line that was not taken.
    private var input: [UInt8] = []
    /// The number of bytes in it that are known to contain no line end.
    private var searched = 0
    private var isPaused = true
    private var hasReadAll = false
    private var hasEnded = false

    /// - Parameters:
    ///   - take: receives each line without its line end.
    ///   - ended: called once, behind the last line.
    init(_ descriptor: Int32, take: @escaping (ArraySlice<UInt8>) -> Void, ended: @escaping (End) -> Void) {
        self.descriptor = descriptor
        self.take = take
        self.ended = ended
        source = PolledSource(delegate: self, priority: .default, context: .default)
    }

    /// Reads from the loop until it is paused.
    func resume() {
        guard isPaused, !hasEnded else { return }
        isPaused = false
        if tag == nil, !hasReadAll {
            tag = source.add(descriptor: descriptor, waitingFor: [.readable, .hangUp, .error])
        }
    }

    /// Takes no further line, not even a line that was read already. May be called while a line is taken.
    func pause() {
        isPaused = true
        if let tag { source.remove(tag) }
        tag = nil
    }

    /// Whether lines that were read before a pause wait.
    func hasPendingWork() -> Bool { !isPaused && !hasEnded && (hasReadAll || searched < input.count) }

    func dispatch() {
        if !hasReadAll, searched >= input.count, let tag, !source.occurred(on: tag).isEmpty { read() }
        takeLines()
    }

    private func read() {
        let size = 65_536
        var failure: Int32 = 0
        let count = withUnsafeTemporaryAllocation(byteCount: size, alignment: 1) { buffer in
            let count = systemRead(descriptor, buffer)
            if count > 0 { input += buffer[..<count] } else { failure = errno }
            return count
        }
        guard count <= 0 else { return }
        if count < 0, failure == EINTR || failure == EAGAIN { return }
        if count < 0 { return end(.failure(String(cString: strerror(failure)))) }
        hasReadAll = true
        if let tag { source.remove(tag) }
        tag = nil
    }

    private func takeLines() {
        var start = 0
        while !isPaused, let end = input[searched...].firstIndex(of: UInt8(ascii: "\n")) {
            let line = input[start..<end]
            start = end + 1
            searched = start
            take(line)
        }
        if isPaused {
            input.removeSubrange(..<start)
            searched = 0
            return
        }
        searched = input.count - start
        input.removeSubrange(..<start)
        if hasReadAll {
            if !input.isEmpty { take(input[...]) }
            input = []
            searched = 0
            // If the last line has paused the reader, the end waits too.
            if !isPaused { end(.ofInput) }
        } else if input.count > Self.longestLine {
            end(.tooLong)
        }
    }

    private func end(_ end: End) {
        guard !hasEnded else { return }
        hasEnded = true
        pause()
        ended(end)
    }
}

// The system's function, which has the same name as a method.

private func systemRead(_ descriptor: Int32, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
    read(descriptor, buffer.baseAddress, buffer.count)
}
