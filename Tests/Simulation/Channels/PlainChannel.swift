// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonCore
import CarillonDBus

/// A channel as a program has it that reads and writes frames by itself, after docs/channel.md and nothing else.
final class PlainChannel {
    /// What comes, by its kind.
    enum Frame {
        case outcome(number: UInt64, receivers: Int, error: String)
        case notification(Receipt)
        case dropped(count: UInt64, observers: [ObserverID], reason: String)
        case suspensionChanged(isSuspended: Bool, cause: String)
    }

    private struct Sent {
        /// Of the post in the ledger; nil for rubbish.
        let post: Int?
        /// The place of its last byte in all that was to be written.
        let end: Int
    }

    /// Who gave it.
    let service: UniqueName
    let end: Stream.End
    private let stream: Stream
    /// How many bytes it writes or reads with one call.
    private let grain: Int
    private var outgoing: [UInt8] = []
    private var written = 0
    private var frames = Deque<Sent>()
    private var incoming: [UInt8] = []
    private var first = 0
    /// Posts without an outcome, by the numbers of their frames.
    private(set) var asked: [UInt64: Int] = [:]
    private var lastNumber: UInt64 = 0
    private(set) var isAtEnd = false
    /// What came that is no frame; nothing more is read.
    private(set) var fault: String?
    /// Whether it writes nothing more, and waits for the end.
    private(set) var isClosing = false

    init(_ stream: Stream, of service: UniqueName, grain: Int) {
        self.service = service
        self.stream = stream
        end = stream.client
        self.grain = grain
    }

    deinit {
        end.close()
    }

    // MARK: Out

    /// Whether something waits for room.
    var isWaiting: Bool { written < outgoing.count && !isClosing && end.room != nil }

    /// Appends a post.
    func append(_ body: [UInt8], post: Int, wantsOutcome: Bool) {
        var number: UInt64 = 0
        if wantsOutcome {
            lastNumber += 1
            number = lastNumber
            asked[number] = post
        }
        append(Self.frame(1, number, body), post: post)
    }

    func append(_ bytes: [UInt8], post: Int? = nil) {
        outgoing += bytes
        frames.append(Sent(post: post, end: outgoing.count))
    }

    static func frame(_ kind: UInt32, _ number: UInt64, _ body: [UInt8], length: UInt32? = nil) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(16 + body.count)
        withUnsafeBytes(of: length ?? UInt32(body.count)) { bytes += $0 }
        withUnsafeBytes(of: kind) { bytes += $0 }
        withUnsafeBytes(of: number) { bytes += $0 }
        return bytes + body
    }

    /// Writes what there is room for, with so many calls at most.
    func write(calls: Int) {
        for _ in 0..<calls {
            guard isWaiting else { break }
            let count = outgoing.withUnsafeBytes { bytes in
                end.write(UnsafeRawBufferPointer(rebasing: bytes[written..<min(written + grain, bytes.count)]))
            }
            guard let count, count > 0 else { break }
            written += count
        }
        while let frame = frames.first, frame.end <= written { frames.popFirst() }
        if frames.isEmpty { (outgoing, written) = ([], 0) }
    }

    /// Takes out the posts of which not all was written. Nothing more is.
    func takeUnsent() -> [Int] {
        var posts: [Int] = []
        while let frame = frames.popFirst() {
            if let post = frame.post { posts.append(post) }
        }
        (outgoing, written) = ([], 0)
        let unsent = Set(posts)
        asked = asked.filter { !unsent.contains($0.value) }
        return posts
    }

    /// Writes nothing more, and goes on reading.
    func closeInOrder() {
        isClosing = true
        end.stopWriting()
    }

    func settle(_ number: UInt64) -> Int? { asked.removeValue(forKey: number) }

    // MARK: In

    var isReadable: Bool { !isAtEnd && fault == nil && (end.isReadable || hasFrame) }

    /// Reads, with so many calls at most.
    ///
    /// - Returns: the frames that are there.
    func read(calls: Int, grain: Int? = nil) -> [Frame] {
        var found: [Frame] = []
        let size = grain ?? self.grain
        withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { room in
            for _ in 0..<calls where !isAtEnd && fault == nil {
                switch end.read(into: room) {
                case .bytes(let count): incoming += room[..<count]
                case .nothing: return
                case .end, .reset: isAtEnd = true
                }
            }
        }
        while fault == nil, hasFrame { if let frame = next() { found.append(frame) } }
        if first > 0 {
            incoming.removeFirst(first)
            first = 0
        }
        return found
    }

    private func number<Value: FixedWidthInteger>(at offset: Int, as type: Value.Type) -> Value {
        incoming.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: first + offset, as: type) }
    }

    private var hasFrame: Bool {
        guard incoming.count - first >= 16 else { return false }
        return incoming.count - first - 16 >= Int(number(at: 0, as: UInt32.self))
    }

    private func next() -> Frame? {
        let (length, kind) = (Int(number(at: 0, as: UInt32.self)), number(at: 4, as: UInt32.self))
        let number = number(at: 8, as: UInt64.self)
        let start = first + 16
        first = start + length
        let frame = incoming.withUnsafeBytes { bytes in
            Self.frame(kind, number, UnsafeRawBufferPointer(rebasing: bytes[start..<start + length]))
        }
        if frame == nil { fault = "a frame of the kind \(kind), number \(number) and \(length) bytes is none" }
        return frame
    }

    private static func frame(_ kind: UInt32, _ number: UInt64, _ body: UnsafeRawBufferPointer) -> Frame? {
        var reader = MarshalledReader(body)
        switch kind {
        case 2:
            guard let receivers = reader.readUInt32(), let error = reader.readString(), reader.readString() != nil,
                reader.isAtEnd, number != 0
            else { return nil }
            return .outcome(number: number, receivers: Int(receivers), error: error)
        case 3:
            guard let receipt = Receipt(channelBody: body), receipt.sequence == number else { return nil }
            return .notification(receipt)
        case 4:
            guard reader.skip(8), let observers = reader.readArray(alignedTo: 8), observers.count % 8 == 0 else {
                return nil
            }
            reader.move(to: observers.upperBound)
            let ids = stride(from: observers.lowerBound, to: observers.upperBound, by: 8).map {
                ObserverID(rawValue: body.loadUnaligned(fromByteOffset: $0, as: UInt64.self))
            }
            guard let reason = reader.readString(), reader.isAtEnd, number == 0 else { return nil }
            return .dropped(count: body.loadUnaligned(as: UInt64.self), observers: ids, reason: reason)
        case 5:
            guard let flag = reader.readUInt32(), flag < 2, let cause = reader.readString(), reader.isAtEnd, number == 0
            else { return nil }
            return .suspensionChanged(isSuspended: flag == 1, cause: cause)
        default: return nil
        }
    }
}
