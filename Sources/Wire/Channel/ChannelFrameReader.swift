// SPDX-License-Identifier: Apache-2.0
/// Takes a stream of bytes apart into frames, however they are cut into pieces.
///
/// It never holds more than one frame that is not complete, and what one ``read(_:)`` brought. What is no frame ends it: a
/// fault stays.
public final class ChannelFrameReader {
    private static let roomSize = 64 << 10

    private let sender: ChannelFrame.Sender
    /// Longer bodies are passed over.
    public var maxKept: Int
    /// The longest beginning that is kept of a body for which there is no room.
    public var maxHead = 0
    /// What was read and not given out is from `first` to `end`. Without memory while there is nothing.
    private var buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var (first, end) = (0, 0)
    /// What is left of a body that is passed over.
    private var skipped = 0
    /// The one of which ``passOver()`` has given up the rest, until ``next()`` gives it.
    private var cut: (kind: ChannelFrame.Kind, number: UInt64)?
    /// The beginning of its body, up to `headEnd` of which has come. Valid as long as the body of a frame.
    private var head = UnsafeMutableRawBufferPointer(start: nil, count: 0)
    private var headEnd = 0
    private var fault: ChannelFrame.Fault?

    /// - Parameters:
    ///   - sender: of the frames; kinds that it does not send are faults.
    ///   - mostKept: the longest body that is wanted; of longer ones the header is given, and nothing kept.
    public init(from sender: ChannelFrame.Sender, maxKept: Int = ChannelFrame.maxBytesOfBody) {
        self.sender = sender
        self.maxKept = maxKept
    }

    deinit {
        buffer.deallocate()
        head.deallocate()
    }

    /// How many bytes were read and not given out.
    public var byteCount: Int { end - first }

    /// The memory that it has, in bytes: little more than what the next frame takes, where there is nothing but a part of it.
    public var heldBytes: Int { buffer.count }

    /// The memory that the frame that has begun takes, in bytes, if that is more than reading takes anyway; otherwise 0.
    public var wantedBytes: Int {
        let size = roomForNext
        return size > Self.roomSize ? size : 0
    }

    /// Whether what was read so far ends with a frame.
    public var isBetweenFrames: Bool { byteCount == 0 && skipped == 0 && cut == nil }

    /// Reads more. Call when ``next()`` has given all there is.
    ///
    /// - Parameter source: puts bytes into the room that it gets, which is not empty, and returns how many, or what it
    ///   likes that is not positive.
    /// - Returns: what that returned, and whether it filled the room.
    public func read(_ source: (UnsafeMutableRawBufferPointer) -> Int) -> (count: Int, isFull: Bool) {
        makeRoom()
        let room = UnsafeMutableRawBufferPointer(rebasing: buffer[end...])
        let count = source(room)
        if count > 0 { end += min(count, room.count) }
        if first == end { giveUpRoom() }
        return (count, count == room.count)
    }

    /// The next frame, when all of it has been read.
    ///
    /// - Throws: what is no frame. So does every later call.
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

    /// There is no room for the frame that has begun: what has come of it is given up, but for the beginning of its body, and
    /// its rest is passed over. When that has come, ``next()`` gives it with this beginning: one of which the end never comes
    /// was not sent.
    ///
    /// - Returns: whether that is so: not where ``next()`` has something to give, or the header has not come.
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

    /// Keeps what belongs to the head of the next `count` bytes.
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

    /// Gives up memory that only reading takes. Call when ``next()`` has given all there is.
    public func releaseRoom() {
        let isMadeForIt = wantedBytes > 0 && buffer.count >= wantedBytes
        if byteCount < buffer.count, !isMadeForIt { move(to: byteCount) }
    }

    /// Whether ``next()`` has something to say without more being read.
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

    // MARK: Room

    /// Moves what there is of the next frame to the beginning of memory that holds all of it, and some more.
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

    /// There may be many readers, most of which have nothing to do.
    private func giveUpRoom() {
        buffer.deallocate()
        buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        (first, end) = (0, 0)
    }
}
