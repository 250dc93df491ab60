// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// An asynchronous reader of lines from a descriptor on the main loop. Its owner, ``LinePoster``, pauses it for
/// backpressure: a paused reader reads nothing, so the writer of a pipe has to wait.
final class LineReader: PolledSourceDelegate {
    /// The reason why reading has ended.
    enum End {
        case ofInput
        case tooLong
        case failure(String)
    }

    /// The maximum length of a line, in bytes: five times the largest userInfo that a service can accept (16 MiB),
    /// since JSON escapes lengthen a text.
    private static let longestLine = 80 << 20

    private let descriptor: Int32
    /// Receives each line.
    private let take: (ArraySlice<UInt8>) -> Void
    private let ended: (End) -> Void
    private var source: PolledSource!
    /// The registration of the descriptor in the poll; nil while nothing is read.
    private var tag: PolledSource.Tag?
    /// The bytes that were read and not yet delivered as lines.
    private var input: [UInt8] = []
    /// The number of bytes at the beginning of `input` that were searched for a line end and have none.
    private var searched = 0
    /// Whether lines are withheld, as before the first ``resume()``.
    private var isPaused = true
    /// Whether the end of the input was read. Lines may still wait in `input`.
    private var hasReadAll = false
    /// Whether the end was reported, after which no line follows.
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

    /// Delivers lines in the following loop iterations, until ``pause()``.
    func resume() {
        guard isPaused, !hasEnded else { return }
        isPaused = false
        if tag == nil, !hasReadAll {
            tag = source.add(descriptor: descriptor, waitingFor: [.readable, .hangUp, .error])
        }
    }

    /// Delivers no further line, not even a line that was read already. The receiver of a line may call it.
    func pause() {
        isPaused = true
        if let tag { source.remove(tag) }
        tag = nil
    }

    /// Whether bytes that were read before a pause have to be searched for lines, or the end has to be reported.
    func hasPendingWork() -> Bool { !isPaused && !hasEnded && (hasReadAll || searched < input.count) }

    /// Reads once if all bytes of `input` were searched, and delivers lines. Then `input` never holds more than an
    /// incomplete line and the bytes of one read.
    func dispatch() {
        if !hasReadAll, searched >= input.count, let tag, !source.occurred(on: tag).isEmpty { read() }
        takeLines()
    }

    /// Reads once into `input`.
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

    /// Delivers the complete lines of `input` until a pause. At the end of the input it also delivers a last line
    /// without a line end, and reports the end.
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
            // If the last line has paused the reader, the end is reported after the pause.
            if !isPaused { end(.ofInput) }
        } else if input.count > Self.longestLine {
            end(.tooLong)
        }
    }

    /// Reports the end once.
    private func end(_ end: End) {
        guard !hasEnded else { return }
        hasEnded = true
        pause()
        ended(end)
    }
}

// Calls `read` of the C library, whose name the reader's own method hides.

private func systemRead(_ descriptor: Int32, _ buffer: UnsafeMutableRawBufferPointer) -> Int {
    read(descriptor, buffer.baseAddress, buffer.count)
}
