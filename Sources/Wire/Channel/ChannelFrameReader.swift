// SPDX-License-Identifier: Apache-2.0
/// The parser of a channel's byte stream: it splits the stream into frames, independent of the sizes of reads. The
/// service and the client each have one for a channel.
///
/// The owner calls ``read(_:)`` with bytes from the socket, and then ``next()`` until it returns nil. The reader holds
/// at most one incomplete frame and the bytes of one read. It can discard a frame without storing the body: frames that
/// are too long, and frames for which the owner has no memory quota (``passOver()``). A protocol violation is
/// permanent: each later call reports it again.
public final class ChannelFrameReader {
    /// The standard size of the buffer, in bytes.
    private static let standardSize = 64 << 10

    private let sender: ChannelFrame.Sender
    /// The maximum size of a stored body, in bytes; longer bodies are discarded.
    public var maxKept: Int
    /// The maximum size, in bytes, of the stored beginning of a body that is discarded for lack of quota.
    public var maxHead = 0
    /// The buffer, with unparsed bytes from `first` to `end`. It has no memory while it is empty.
    private var buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var (first, end) = (0, 0)
    /// The number of bytes that are still to be discarded.
    private var skipped = 0
    /// The header of the frame that ``passOver()`` discards, until ``next()`` returns that frame.
    private var cut: (kind: ChannelFrame.Kind, number: UInt64)?
    /// The stored beginning of the body of that frame; `headEnd` bytes have arrived.
    private var head = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var headEnd = 0
    private var fault: ChannelFrame.Fault?

    /// - Parameters:
    ///   - sender: The sender of the frames; kinds that it does not send are faults.
    ///   - maxKept: The maximum size of a stored body, in bytes; of a frame with a longer body only the header is
    ///     returned.
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

    /// The allocated memory of the buffer, in bytes.
    public var heldBytes: Int { buffer.count }

    /// The memory that the current incomplete frame needs, in bytes, if it exceeds the standard size of the buffer;
    /// otherwise 0. The service checks its quota for this memory before the next read.
    public var wantedBytes: Int {
        let size = sizeForNext
        return size > Self.standardSize ? size : 0
    }

    /// Whether the stream read so far ends at a frame boundary.
    public var isBetweenFrames: Bool { byteCount == 0 && skipped == 0 && cut == nil }

    /// Reads more bytes. Call it after ``next()`` has returned nil.
    ///
    /// - Parameter source: Fills the buffer that it receives, which is not empty, and returns the number of bytes, or
    ///   any value that is not positive.
    /// - Returns: The result of `source`, and whether it filled the buffer.
    public func read(_ source: (UnsafeMutableRawBufferPointer) -> Int) -> (count: Int, isFull: Bool) {
        makeSpace()
        let room = UnsafeMutableRawBufferPointer(rebasing: buffer[end...])
        let count = source(room)
        if count > 0 { end += min(count, room.count) }
        if first == end { releaseBuffer() }
        return (count, count == room.count)
    }

    /// Returns the next complete frame; nil if more bytes are needed.
    ///
    /// - Throws: A protocol violation. Each later call throws it again.
    public func next() throws(ChannelFrame.Fault) -> ChannelFrame? {
        if let fault { throw fault }
        // Discard the rest of an earlier frame. Of a frame that `passOver()` discards, the beginning is copied.
        let passed = min(skipped, byteCount)
        if cut == nil { releaseHead() } else { copyHead(of: passed) }
        first += passed
        skipped -= passed
        if skipped == 0, let (kind, number) = cut.take() {
            return ChannelFrame(kind: kind, number: number, body: UnsafeRawBufferPointer(head), cut: .room)
        }
        guard skipped == 0, byteCount >= ChannelFrame.headerSize else {
            if first == end { releaseBuffer() }
            return nil
        }
        // The header: the length of the body, the kind, and a number.
        let length = header(at: 0, as: UInt32.self)
        let code = header(at: 4, as: UInt32.self)
        let number = header(at: 8, as: UInt64.self)
        guard let kind = ChannelFrame.Kind(rawValue: code), kind.sender == sender else {
            return try fail(.kind(code))
        }
        guard length <= ChannelFrame.maxBytesOfBody else { return try fail(.length(length)) }
        // A frame that is too long is returned at once, without its body.
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

    /// Discards the body of the current incomplete frame for lack of quota, except for its beginning. When the whole
    /// frame has arrived, ``next()`` returns it with that beginning and ``ChannelFrame/Cut/room``.
    ///
    /// - Returns: Whether the frame is being discarded; false if ``next()`` has a result, or the header is incomplete.
    public func passOver() -> Bool {
        guard !hasNext, skipped == 0, byteCount >= ChannelFrame.headerSize,
            let kind = ChannelFrame.Kind(rawValue: header(at: 4, as: UInt32.self))
        else { return false }
        cut = (kind, header(at: 8, as: UInt64.self))
        let length = Int(header(at: 0, as: UInt32.self))
        first += ChannelFrame.headerSize
        skipped = length - byteCount
        releaseHead()
        head = .allocate(byteCount: min(length, maxHead), alignment: 8)
        copyHead(of: byteCount)
        releaseBuffer()
        return true
    }

    /// Copies those of the next `count` bytes into `head` that belong to it.
    private func copyHead(of count: Int) {
        let count = min(count, head.count - headEnd)
        guard count > 0 else { return }
        UnsafeMutableRawBufferPointer(rebasing: head[headEnd...])
            .copyMemory(from: UnsafeRawBufferPointer(rebasing: buffer[first..<first + count]))
        headEnd += count
    }

    private func releaseHead() {
        guard head.baseAddress != nil else { return }
        head.deallocate()
        head = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        headEnd = 0
    }

    /// Releases unused memory of the buffer. Call it after ``next()`` has returned nil.
    public func releaseMemory() {
        // A buffer that was enlarged for the current frame stays.
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

    /// Records a protocol violation and throws it.
    private func fail(_ found: ChannelFrame.Fault) throws(ChannelFrame.Fault) -> ChannelFrame? {
        fault = found
        (first, end) = (0, 0)
        releaseBuffer()
        throw found
    }

    /// Reads a field of the next frame's header.
    private func header<Value: FixedWidthInteger>(at offset: Int, as type: Value.Type) -> Value {
        UnsafeRawBufferPointer(buffer).loadUnaligned(fromByteOffset: first + offset, as: type)
    }

    // MARK: Memory

    /// Moves the bytes of the next frame to the beginning of a buffer that can hold the whole frame and at least one
    /// more byte.
    private func makeSpace() {
        let size = sizeForNext
        if size != buffer.count {
            move(to: size)
        } else if first > 0 {
            let rest = UnsafeRawBufferPointer(rebasing: buffer[first..<end])
            if !rest.isEmpty { buffer.copyMemory(from: rest) }
            (first, end) = (0, end - first)
        }
    }

    /// The size that the buffer needs for the next frame: the standard size, or that of the whole frame if its length
    /// is known.
    private var sizeForNext: Int {
        var size = Self.standardSize
        if skipped == 0, byteCount >= ChannelFrame.headerSize {
            let length = Int(header(at: 0, as: UInt32.self))
            if length <= min(maxKept, ChannelFrame.maxBytesOfBody) {
                size = max(size, ChannelFrame.headerSize + length)
            }
        }
        return max(size, byteCount + 1)
    }

    /// Moves the unparsed bytes to a new buffer.
    private func move(to size: Int) {
        let rest = UnsafeRawBufferPointer(rebasing: buffer[first..<end])
        let other = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 8)
        if !rest.isEmpty { other.copyMemory(from: rest) }
        buffer.deallocate()
        buffer = other
        (first, end) = (0, end - first)
    }

    /// Releases the empty buffer: a service has a reader for each channel, and most of them are idle.
    private func releaseBuffer() {
        buffer.deallocate()
        buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        (first, end) = (0, 0)
    }
}
