// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A client's channel (F2): the socket, what is to be written to it, and what is known of what was.
///
/// ``Channels`` sends, ``ChannelPosts`` takes what comes.
final class Channel: PolledSourceDelegate {
    /// What was asked with a probe: whether all was written that was given before, and, where something was sent on the
    /// bus as well, whether that has been read.
    struct Probe {
        /// The place in the stream.
        let position: UInt64
        var waitsForPing: Bool
        /// Whether the client itself answered.
        var isOfPeer = false
    }

    /// Something that was appended and of which not all has been written.
    struct Frame {
        /// The place in the stream behind it.
        let end: UInt64
        /// What it carries out; nil for an outcome.
        let effect: Effect?
        let byteCount: Int
    }

    /// How a channel ends to which the client can write no more.
    enum End {
        /// Its client goes on by the bus, or with the next channel. `mayBeUnread`: what lies unread may never be read.
        case finishing(mayBeUnread: Bool)
        /// Its client has left the bus.
        case left
    }

    /// Outcomes that a client leaves unread, in bytes, and those that wait for deliveries, until nothing more is read from
    /// it. Earlier where its process has its share of what is kept for all.
    private static let maxOutcomeBytes = 64 << 10
    private static let maxOutcomesDue = 1024
    private static let maxOutcomeBytesAtEnd = 256 << 10
    /// Calls of the system for a piece.
    private static let readsPerPiece = 2

    let client: ClientName
    /// Who pays for it.
    let account: AccountID
    let socket: any ChannelStream
    let writer = ChannelFrameWriter()
    let reader = ChannelFrameReader(from: .client)
    private var source: PolledSource!
    private var tag: PolledSource.Tag?
    private var polled: PolledSource.Conditions = []
    /// Called when there may be something to read, or room to write.
    var onReadable: ((Channel) -> Void)?
    var onWritable: ((Channel) -> Void)?
    /// Called when there is something to be written.
    var onAppended: ((Channel) -> Void)?

    /// Whether the bus is known to have carried the answer that has the client's end.
    var isCarried = false
    /// What was written before that is known.
    var writtenBefore = DeliveryReceipts.Sent()

    // What is sent.
    var frames = Deque<Frame>()
    var probes: [Probe] = []
    /// Notifications and losses that were written since the client was known to have read everything.
    var unread = SentSignals.Recent()
    /// What else was written since then, and has no number by which it would be missed: the last word about its suspension,
    /// and all about observers that policy took from it.
    private(set) var unreadWords: [Effect] = []
    /// Whether the core waits for a word whether the client reads (``Effect/witness(_:)``).
    var owesWitness = false
    /// Whether the client wants batches where it gets its notifications on the bus.
    var wantsBatches = false
    /// Until when a channel that ends without a byte from the client may be one that the client never got; nil as long as
    /// the bus has not passed the answer on, or refused it.
    var refusalEnd: SuspendingClock.Instant?
    /// Whether something was appended that nobody tried to write.
    var isDirty = false
    /// Whether it is noted that a probe is answered.
    var isAnswerNoted = false
    private var isFull = false

    // What comes.
    /// Whether it waits for its turn.
    var isQueued = false
    var outcomesDue = 0
    /// Outcomes that are not written, and those of which the client has not read enough that they could be appended.
    private var outcomeBytes = 0
    var keptBytes = 0
    /// Whether a client for which outcomes are kept may have more kept.
    var isServed: (() -> Bool)?
    private(set) var isAtEnd = false
    /// The part of ``bytesToHold`` that is charged to the client.
    var heldBytes = 0
    private var sizeOfLast = 0
    private var hasReceived = false
    private(set) var fault: ChannelFrame.Fault?
    private var readsLeft = 0
    private(set) var isOpen = true
    /// What comes when all has been taken that the client had written; nil as long as it can write.
    var end: End?
    /// The call that wants another channel behind this one.
    var next: MethodCall?

    init(of client: ClientName, _ account: AccountID, _ socket: any ChannelStream, context: MainContext) {
        self.client = client
        self.account = account
        self.socket = socket
        source = PolledSource(delegate: self, priority: .of(.reading), context: context)
    }

    /// Nothing more is read or written. The descriptor is closed with the last reference, which something that waits may
    /// have; the client reads what was written, and the end, at once.
    func close() {
        isOpen = false
        poll([])
        socket.end()
        onReadable = nil
        onWritable = nil
        onAppended = nil
        isServed = nil
    }

    // MARK: Polling

    private var mayRead: Bool { isOpen && !isQueued && !isAtEnd && fault == nil && readsOutcomes }
    /// Whether there is something to take without reading more, whatever the client has left unread of what was begun.
    private var mayTake: Bool { isOpen && !isQueued && waiting != nil || mayRead && reader.hasNext }

    /// Whether the client can write no more and reads on, and outcomes are to come to it.
    var owesOutcomes: Bool { !socket.isBroken && (outcomesDue > 0 || outcomeBytes > 0 || keptBytes > 0) }

    /// Whether it is over with all that the client is still to read.
    private var isOver: Bool { isOpen && !isQueued && isAtEnd && end == nil && fault == nil && !owesOutcomes }

    /// Whether the client has left less unread than it may, so that more is taken from it.
    var readsOutcomes: Bool {
        // Where nothing can be answered any more, what was posted is still taken.
        if socket.isBroken { return true }
        guard outcomesDue < Self.maxOutcomesDue, outcomeBytes + keptBytes < Self.maxOutcomeBytes else { return false }
        return keptBytes == 0 || isServed?() ?? true
    }

    func hasPendingWork() -> Bool {
        var wanted: PolledSource.Conditions = []
        if mayRead { wanted.insert(.readable) }
        if isOpen, isFull, !socket.isBroken { wanted.insert(.writable) }
        poll(wanted)
        return isOver || mayTake || socket.polled == nil && !occurred.isEmpty
    }

    private func poll(_ conditions: PolledSource.Conditions) {
        guard conditions != polled else { return }
        if let tag { source.remove(tag) }
        polled = conditions
        tag = nil
        guard !conditions.isEmpty, let descriptor = socket.polled else { return }
        tag = source.add(descriptor: descriptor, waitingFor: conditions.union([.error, .hangUp]))
    }

    /// Of what is waited for.
    private var occurred: PolledSource.Conditions {
        if let tag { return source.occurred(on: tag) }
        return polled.isEmpty ? [] : socket.ready.intersection(polled.union([.error, .hangUp]))
    }

    func dispatch() {
        let occurred = occurred
        if isFull, !occurred.isDisjoint(with: [.writable, .error, .hangUp]) { onWritable?(self) }
        if isOver || mayTake || mayRead && !occurred.isDisjoint(with: [.readable, .error, .hangUp]) {
            onReadable?(self)
        }
    }

    // MARK: Writing

    /// Appends a frame.
    ///
    /// - Parameter effect: that it carries out; nil for an outcome.
    func append(_ effect: Effect?, _ body: (ChannelFrameWriter) -> Void) {
        let before = writer.byteCount
        body(writer)
        let size = writer.byteCount - before
        frames.append(Frame(end: writer.position, effect: effect, byteCount: size))
        if effect == nil { outcomeBytes += size }
        guard !isDirty else { return }
        isDirty = true
        onAppended?(self)
    }

    /// Writes what there is room for.
    ///
    /// - Parameter written: gets each frame of which all has been written.
    func write(_ written: (Frame) -> Void) {
        isDirty = false
        guard isOpen else { return }
        if case .finishing(mayBeUnread: true)? = end, socket.isAnythingUnread {
            // Nobody may read it any more. What is not written goes to the bus.
            isFull = false
            return
        }
        let isNothingUnread =
            (unread != SentSignals.Recent() || !unreadWords.isEmpty) && !socket.isAnythingUnread
        let before = writer.written
        writer.write(socket.send)
        // What a client leaves unread goes with its end as well, and to that nothing can be written.
        if isNothingUnread, writer.written > before { (unread, unreadWords) = (SentSignals.Recent(), []) }
        while let frame = frames.first, frame.end <= writer.written {
            frames.popFirst()
            if let effect = frame.effect { noteWord(effect) } else { outcomeBytes -= frame.byteCount }
            written(frame)
        }
        isFull = writer.byteCount > 0
        if !isFull, frames.isEmpty { writer.releaseRoom() }
    }

    private func noteWord(_ effect: Effect) {
        switch effect {
        case .suspensionChanged: unreadWords.removeAll { if case .suspensionChanged = $0 { true } else { false } }
        case .revoked: break
        default: return
        }
        unreadWords.append(effect)
    }

    /// Whether the oldest probe is answered.
    var isAnswered: Bool {
        probes.first.map { !$0.waitsForPing && $0.position <= writer.written } ?? false
    }

    // MARK: Reading

    /// A post that was read, and of which only what it takes the place of was taken out so far.
    var waiting: ReadPost?

    /// What follows is a piece, for which a bounded number of system calls is made.
    ///
    /// - Parameters:
    ///   - mostKept: as for ``ChannelFrameReader``.
    ///   - maxHead: the same.
    func beginPiece(maxKept: Int, maxHead: Int) {
        readsLeft = Self.readsPerPiece
        reader.maxKept = maxKept
        reader.maxHead = maxHead
    }

    /// The next frame of the piece; nil when there is none now. ``isAtEnd`` and ``fault`` tell whether there will be more.
    ///
    /// - Parameter hold: says whether there is room for so much of a frame that has begun; otherwise it is passed over.
    func nextFrame(hold: (_ byteCount: Int) -> Bool) -> ChannelFrame? {
        guard isOpen, fault == nil else { return nil }
        do throws(ChannelFrame.Fault) {
            while true {
                if let frame = try reader.next() {
                    sizeOfLast = frame.body.count
                    return frame
                }
                guard !isAtEnd, readsLeft > 0 else { return nil }
                let wanted = reader.wantedBytes
                if wanted > heldBytes, !hold(wanted), reader.passOver() { continue }
                readsLeft -= 1
                let (count, isFull) = reader.read(socket.receive)
                // Nothing will come of who can't write.
                if count == 0 || count < 0 && end != nil { isAtEnd = true }
                guard count > 0 else { return nil }
                hasReceived = true
                if !isFull { readsLeft = 0 }
            }
        } catch {
            fault = error
            return nil
        }
    }

    /// The piece is over: memory that only reading takes is given up.
    func endPiece() {
        if !reader.hasNext { reader.releaseRoom() }
    }

    /// The bytes that are held for posts that have not come whole or were not taken, and for one that waits.
    var bytesToHold: Int { reader.heldBytes + (waiting == nil ? 0 : sizeOfLast) }

    /// Whether what is held has come in part, so that it can be given up.
    var mayGiveUpPart: Bool { waiting == nil && !reader.hasNext && reader.byteCount >= ChannelFrame.headerSize }

    /// Gives up what has come of a post. The caller takes back the charge for it.
    func giveUpPart() {
        _ = reader.passOver()
    }

    /// Whether all was taken that can be: there is nothing more, or it makes no sense.
    var isExhausted: Bool { waiting == nil && (fault != nil || isAtEnd && !reader.hasNext) }

    /// Whether the client probably never got its end: that was closed at once, and nothing came.
    func mayBeRefused(at now: SuspendingClock.Instant) -> Bool {
        isAtEnd && !hasReceived && refusalEnd.map { now < $0 } ?? true
    }

    /// What came is no post.
    func fail(_ found: ChannelFrame.Fault) {
        fault = fault ?? found
    }
}

/// A post that was read from a channel, or why it is none.
struct ReadPost {
    let answer: ChannelPost
    let name: String
    /// Nil where there was no room for it, and nobody wants an outcome: it counts as lost.
    let post: Result<Post<WireUserInfo>, BusError>?
    /// Whether policy has let its options through: what is posted in parts was accepted with the first.
    var isChecked = false
}

/// A post that came on a channel.
struct ChannelPost {
    let channel: Channel
    /// The client's own; 0 when it wants no outcome.
    let number: UInt64

    /// What it is answered with; nil when it wants no outcome.
    func answered(_ outcome: @autoclosure () -> ChannelOutcome) -> ChannelAnswer? {
        number == 0 ? nil : ChannelAnswer(post: self, outcome: outcome())
    }
}

/// What a post on a channel is answered with.
struct ChannelAnswer {
    let post: ChannelPost
    let outcome: ChannelOutcome

    /// Of the frame, about.
    var byteCount: Int { Self.smallSize + outcome.errorName.utf8.count + outcome.message.utf8.count }

    private static let smallSize = 48
}

extension Channel {
    /// Whether somebody may get an outcome of what was posted here: the client may have left, or its end may be closed, while
    /// posts are taken that it had written. At the end there is room for some.
    var takesOutcomes: Bool {
        guard isOpen, !socket.isBroken else { return false }
        return switch end {
        case nil: true
        case .finishing?: outcomeBytes < Self.maxOutcomeBytesAtEnd
        case .left?: false
        }
    }

    /// Appends an outcome, where somebody may get it.
    func append(_ answer: ChannelAnswer) {
        guard takesOutcomes else { return }
        append(nil) { $0.append(answer.outcome, number: answer.post.number) }
    }
}
