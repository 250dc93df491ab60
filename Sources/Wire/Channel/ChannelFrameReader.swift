// SPDX-License-Identifier: Apache-2.0
/// A parser that splits a byte stream into frames, independent of the sizes of its reads.
///
/// It holds at most one incomplete frame, and the bytes of one ``read(_:)``. A fault is permanent: each later call
/// reports it again.
public final class ChannelFrameReader {
    private static let roomSize = 64 << 10

    private let sender: ChannelFrame.Sender
    /// The longest kept body, in bytes; longer bodies are skipped.
    public var maxKept: Int
    /// The longest kept beginning, in bytes, of a body that is skipped for lack of quota.
    public var maxHead = 0
    /// The buffer, with unparsed bytes from `first` to `end`. It has no memory while it is empty.
    private var buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var (first, end) = (0, 0)
    /// The number of bytes left of a skipped body.
    private var skipped = 0
    /// The frame whose rest ``passOver()`` discards, until ``next()`` returns it.
    private var cut: (kind: ChannelFrame.Kind, number: UInt64)?
    /// The beginning of its body, received up to `headEnd`. It is valid as long as the body of a frame.
    private var head = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var headEnd = 0
    private var fault: ChannelFrame.Fault?

    /// - Parameters:
    ///   - sender: The sender of the frames; kinds that it does not send are faults.
    ///   - maxKept: The longest kept body, in bytes; for longer bodies only the header is returned.
    public init(from sender: ChannelFrame.Sender, maxKept: Int = ChannelFrame.maxBytesOfBody) {
        self.sender = sender
        self.maxKept = maxKept
    }

    deinit {
        buffer.deallocate()
        head.deallocate()
    }

    /// The number of unparsed bytes.
    public var byteCount: Int { end - first }

    /// The allocated memory in bytes, little more than the next frame needs if only a part of that frame has arrived.
    public var heldBytes: Int { buffer.count }

    /// The memory for the current incomplete frame, in bytes, if it exceeds the default buffer size; otherwise 0.
    public var wantedBytes: Int {
        let size = roomForNext
        return size > Self.roomSize ? size : 0
    }

    /// Whether the stream read so far ends at a frame boundary.
    public var isBetweenFrames: Bool { byteCount == 0 && skipped == 0 && cut == nil }

    /// Reads more bytes. Call it after ``next()`` has returned nil.
    ///
    /// - Parameter source: Fills the buffer that it receives, which is not empty, and returns the number of bytes, or
    ///   any value that is not positive.
    /// - Returns: The result of `source`, and whether it filled the buffer.
    public func read(_ source: (UnsafeMutableRawBufferPointer) -> Int) -> (count: Int, isFull: Bool) {
        makeRoom()
        let room = UnsafeMutableRawBufferPointer(rebasing: buffer[end...])
        let count = source(room)
        if count > 0 { end += min(count, room.count) }
        if first == end { giveUpRoom() }
        return (count, count == room.count)
    }

    /// Returns the next complete frame; nil if more bytes are needed.
    ///
    /// - Throws: A protocol violation. Each later call throws it again.
    public func next() throws(ChannelFrame.Fault) -> ChannelFrame? {
        if let fault { throw fault }
        let passed = min(skipped, byteCount)
        if cut == nil { giveUpHead() } else { keepHead(of: passed) }
        first += passed
        skipped -= passed
        if skipped == 0, let (kind, number) = cut.take() {
            return ChannelFrame(kind: kind, number: number, body: UnsafeRawBufferPointer(head), cut: .room)
        }
        guard skipped == 0, byteCount >= ChannelFrame.headerSize else {
            if first == end { giveUpRoom() }
            return nil
        }
        let length = header(at: 0, as: UInt32.self)
        let code = header(at: 4, as: UInt32.self)
        let number = header(at: 8, as: UInt64.self)
        guard let kind = ChannelFrame.Kind(rawValue: code), kind.sender == sender else {
            return try fail(.kind(code))
        }
        guard length <= ChannelFrame.maxBytesOfBody else { return try fail(.length(length)) }
        if Int(length) > maxKept {
            first += ChannelFrame.headerSize
            skipped = Int(length)
            return ChannelFrame(
                kind: kind, number: number, body: UnsafeRawBufferPointer(start: nil, count: 0), cut: .length)
        }
        let size = ChannelFrame.headerSize + Int(length)
        guard byteCount >= size else { return nil }
        let body = UnsafeRawBufferPointer(rebasing: buffer[first + ChannelFrame.headerSize..<first + size])
        first += size
        return ChannelFrame(kind: kind, number: number, body: body, cut: nil)
    }

    /// Discards the current incomplete frame for lack of quota, except the beginning of its body, and skips the rest.
    /// Once the rest has arrived, ``next()`` returns the frame with that beginning. A frame whose end never arrives is
    /// never returned.
    ///
    /// - Returns: Whether the frame is being skipped; false if ``next()`` has a result, or the header is incomplete.
    public func passOver() -> Bool {
        guard !hasNext, skipped == 0, byteCount >= ChannelFrame.headerSize,
            let kind = ChannelFrame.Kind(rawValue: header(at: 4, as: UInt32.self))
        else { return false }
        cut = (kind, header(at: 8, as: UInt64.self))
        let length = Int(header(at: 0, as: UInt32.self))
        first += ChannelFrame.headerSize
        skipped = length - byteCount
        giveUpHead()
        head = .allocate(byteCount: min(length, maxHead), alignment: 8)
        keepHead(of: byteCount)
        giveUpRoom()
        return true
    }

    /// Keeps those of the next `count` bytes that belong to the head.
    private func keepHead(of count: Int) {
        let count = min(count, head.count - headEnd)
        guard count > 0 else { return }
        UnsafeMutableRawBufferPointer(rebasing: head[headEnd...])
            .copyMemory(from: UnsafeRawBufferPointer(rebasing: buffer[first..<first + count]))
        headEnd += count
    }

    private func giveUpHead() {
        guard head.baseAddress != nil else { return }
        head.deallocate()
        head = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        headEnd = 0
    }

    /// Releases memory that only reading needs. Call it after ``next()`` has returned nil.
    public func releaseMemory() {
        let isMadeForIt = wantedBytes > 0 && buffer.count >= wantedBytes
        if byteCount < buffer.count, !isMadeForIt { move(to: byteCount) }
    }

    /// Whether ``next()`` returns a frame or throws without another read.
    public var hasNext: Bool {
        if fault != nil { return true }
        if cut != nil { return byteCount >= skipped }
        guard byteCount - skipped >= ChannelFrame.headerSize else { return false }
        let length = header(at: skipped, as: UInt32.self)
        return length > maxKept || byteCount - skipped >= ChannelFrame.headerSize + Int(length)
            || ChannelFrame.Kind(rawValue: header(at: skipped + 4, as: UInt32.self))?.sender != sender
    }

    private func fail(_ found: ChannelFrame.Fault) throws(ChannelFrame.Fault) -> ChannelFrame? {
        fault = found
        (first, end) = (0, 0)
        giveUpRoom()
        throw found
    }

    private func header<Value: FixedWidthInteger>(at offset: Int, as type: Value.Type) -> Value {
        UnsafeRawBufferPointer(buffer).loadUnaligned(fromByteOffset: first + offset, as: type)
    }

    // MARK: Memory

    /// Moves the bytes of the next frame to the beginning of a buffer that can hold the whole frame and at least one
    /// more byte.
    private func makeRoom() {
        let size = roomForNext
        if size != buffer.count {
            move(to: size)
        } else if first > 0 {
            let rest = UnsafeRawBufferPointer(rebasing: buffer[first..<end])
            if !rest.isEmpty { buffer.copyMemory(from: rest) }
            (first, end) = (0, end - first)
        }
    }

    private var roomForNext: Int {
        var size = Self.roomSize
        if skipped == 0, byteCount >= ChannelFrame.headerSize {
            let length = Int(header(at: 0, as: UInt32.self))
            if length <= min(maxKept, ChannelFrame.maxBytesOfBody) {
                size = max(size, ChannelFrame.headerSize + length)
            }
        }
        return max(size, byteCount + 1)
    }

    private func move(to size: Int) {
        let rest = UnsafeRawBufferPointer(rebasing: buffer[first..<end])
        let other = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 8)
        if !rest.isEmpty { other.copyMemory(from: rest) }
        buffer.deallocate()
        buffer = other
        (first, end) = (0, end - first)
    }

    /// Releases all memory, as there may be many readers, most of them idle.
    private func giveUpRoom() {
        buffer.deallocate()
        buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        (first, end) = (0, 0)
    }
}
