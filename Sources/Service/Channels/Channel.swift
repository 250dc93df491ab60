// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The channel of a client (F2): its socket, and the state of its reading and writing.
///
/// ``Channels`` sends on it, ``ChannelPosts`` takes the posts from it.
///
/// Threads: that of the context. Nothing here blocks.
final class Channel: PolledSourceDelegate {
    /// A probe of the core: whether all earlier frames have been written, and, if messages were sent on the bus as
    /// well, whether the client has acknowledged those.
    struct Probe {
        /// The number of bytes in the stream ahead of the probe.
        let position: UInt64
        var waitsForPing: Bool
        /// Whether the client itself answered a Ping for the probe.
        var isOfPeer = false
    }

    /// A frame that was appended and has not been written completely.
    struct Frame {
        /// The number of bytes in the stream up to the end of the frame.
        let end: UInt64
        /// The effect that the frame carries out; nil for an outcome.
        let effect: Effect?
        let byteCount: Int
    }

    /// The reason for the end of a channel to which the client can write no more.
    enum End {
        /// The client continues on the bus, or with the next channel. `mayBeUnread`: the client may never read the
        /// unread bytes.
        case finishing(mayBeUnread: Bool)
        /// The client has left the bus.
        case left
    }

    /// The size of unread outcomes, and the number of posts whose outcomes wait for deliveries, beyond which nothing
    /// more is read from the client. Reading stops earlier when the process has used up its share of kept answers.
    private static let maxOutcomeBytes = 64 << 10
    private static let maxOutcomesDue = 1024
    private static let maxOutcomeBytesAtEnd = 256 << 10
    /// The maximum number of reads for a work slice.
    private static let readsPerSlice = 2

    let client: ClientName
    /// The account that is charged for the channel.
    let account: AccountID
    let socket: any ChannelStream
    let writer = ChannelFrameWriter()
    let reader = ChannelFrameReader(from: .client)
    private var source: PolledSource!
    private var tag: PolledSource.Tag?
    private var polled: PolledSource.Conditions = []
    /// Called when there may be bytes to read, or space to write.
    var onReadable: ((Channel) -> Void)?
    var onWritable: ((Channel) -> Void)?
    /// Called when a frame was appended.
    var onAppended: ((Channel) -> Void)?

    /// Whether the bus is known to have carried the reply with the client's end of the channel.
    var isCarried = false
    /// The notifications that were written before that was known.
    var writtenBefore = DeliveryReceipts.Sent()

    // The state of sending.
    var frames = Deque<Frame>()
    var probes: [Probe] = []
    /// The notifications and losses that were written since the client was known to have read everything.
    var unread = SentSignals.Recent()
    /// The control signals that were written since then. They have no sequence number by which the client could miss
    /// them: the last signal about its suspension, and all about observers that policy removed.
    private(set) var unreadControl: [Effect] = []
    /// Whether the core waits for a finding whether the client reads (``Effect/backlogProbe(_:)``).
    var awaitsBacklogProbe = false
    /// Whether the client wants batches for its notifications on the bus.
    var wantsBatches = false
    /// The time until which the end of the channel, without a byte from the client, may mean that the client never got
    /// it. Nil until the bus has passed on or refused the reply.
    var refusalEnd: SuspendingClock.Instant?
    /// Whether frames were appended since the last attempt to write.
    var isDirty = false
    /// Whether the channel is in the list of channels with an answered probe.
    var isAnswerNoted = false
    private var isFull = false

    // The state of reading.
    /// Whether the channel is in the queue of waiting calls.
    var isQueued = false
    var outcomesDue = 0
    /// The bytes of outcomes that are not written, and of kept outcomes that the client's window does not allow to
    /// append.
    private var outcomeBytes = 0
    var keptBytes = 0
    /// Whether the core allows further answers to be kept for the client.
    var isServed: (() -> Bool)?
    private(set) var isAtEnd = false
    /// The part of ``bytesToHold`` that the client is charged for.
    var heldBytes = 0
    private var sizeOfLast = 0
    private var hasReceived = false
    private(set) var fault: ChannelFrame.Fault?
    private var readsLeft = 0
    private(set) var isOpen = true
    /// The way in which the channel ends when all posts of the client have been taken; nil as long as the client can
    /// write.
    var end: End?
    /// The call that requests another channel in place of this one.
    var next: MethodCall?

    init(of client: ClientName, _ account: AccountID, _ socket: any ChannelStream, context: MainContext) {
        self.client = client
        self.account = account
        self.socket = socket
        source = PolledSource(delegate: self, priority: .of(.reading), context: context)
    }

    /// Ends reading and writing. The client can read the written bytes, and then the end, at once. The descriptor is
    /// closed with the last reference, which a waiting post may hold.
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
    /// Whether there is a post that can be taken without reading more. A post that was begun is taken however many
    /// outcomes the client has left unread.
    private var mayTake: Bool { isOpen && !isQueued && waiting != nil || mayRead && reader.hasNext }

    /// Whether outcomes of the client's posts are still to be delivered to it, on a socket that can be written to.
    var owesOutcomes: Bool { !socket.isBroken && (outcomesDue > 0 || outcomeBytes > 0 || keptBytes > 0) }

    /// Whether the client has closed its writing side, and has got all outcomes.
    private var isOver: Bool { isOpen && !isQueued && isAtEnd && end == nil && fault == nil && !owesOutcomes }

    /// Whether the client has left few enough outcomes unread, so that more posts are taken from it.
    var readsOutcomes: Bool {
        // On a broken socket no outcome can be delivered, and the posts are still taken.
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

    /// The polled conditions that have occurred.
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
    /// - Parameters:
    ///   - effect: the effect that the frame carries out; nil for an outcome.
    ///   - body: writes the frame.
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

    /// Writes as many bytes as the socket takes.
    ///
    /// - Parameter written: called with each frame that has been written completely.
    func write(_ written: (Frame) -> Void) {
        isDirty = false
        guard isOpen else { return }
        if case .finishing(mayBeUnread: true)? = end, socket.isAnythingUnread {
            // The client may never read further bytes. Unwritten frames are sent on the bus.
            isFull = false
            return
        }
        let isNothingUnread =
            (unread != SentSignals.Recent() || !unreadControl.isEmpty) && !socket.isAnythingUnread
        let before = writer.written
        writer.write(socket.send)
        // Checked after the write: if the client has closed its end, its unread bytes are gone as well, but nothing can
        // be written then.
        if isNothingUnread, writer.written > before { (unread, unreadControl) = (SentSignals.Recent(), []) }
        while let frame = frames.first, frame.end <= writer.written {
            frames.popFirst()
            if let effect = frame.effect { noteControl(effect) } else { outcomeBytes -= frame.byteCount }
            written(frame)
        }
        isFull = writer.byteCount > 0
        if !isFull, frames.isEmpty { writer.releaseMemory() }
    }

    private func noteControl(_ effect: Effect) {
        switch effect {
        case .suspensionChanged: unreadControl.removeAll { if case .suspensionChanged = $0 { true } else { false } }
        case .revoked: break
        default: return
        }
        unreadControl.append(effect)
    }

    /// Whether the oldest probe is answered.
    var isAnswered: Bool {
        probes.first.map { !$0.waitsForPing && $0.position <= writer.written } ?? false
    }

    // MARK: Reading

    /// A post that was read and is being posted in parts: so far only posts that it replaces have been removed.
    var waiting: ReadPost?

    /// Begins a work slice, which makes a bounded number of system calls.
    ///
    /// - Parameters:
    ///   - maxKept: as for ``ChannelFrameReader``.
    ///   - maxHead: as for ``ChannelFrameReader``.
    func beginSlice(maxKept: Int, maxHead: Int) {
        readsLeft = Self.readsPerSlice
        reader.maxKept = maxKept
        reader.maxHead = maxHead
    }

    /// Returns the next frame of the work slice; nil when there is none now. ``isAtEnd`` and ``fault`` show whether
    /// more frames will arrive.
    ///
    /// - Parameter hold: charges for the given size of a frame that has begun, and returns whether the quota allows it.
    ///   Otherwise the frame is skipped.
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
                // From a client that can't write any more, nothing will arrive.
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

    /// Ends the work slice, and releases memory that only reading needs.
    func endSlice() {
        if !reader.hasNext { reader.releaseMemory() }
    }

    /// The bytes that are held for posts that are incomplete or not taken, and for a waiting post.
    var bytesToHold: Int { reader.heldBytes + (waiting == nil ? 0 : sizeOfLast) }

    /// Whether the held bytes are a part of a frame, which can be given up.
    var mayGiveUpPart: Bool { waiting == nil && !reader.hasNext && reader.byteCount >= ChannelFrame.headerSize }

    /// Discards the part of a post that has arrived. The caller takes back the charge for it.
    func giveUpPart() {
        _ = reader.passOver()
    }

    /// Whether all posts were taken: no more will arrive, or the stream is malformed.
    var isExhausted: Bool { waiting == nil && (fault != nil || isAtEnd && !reader.hasNext) }

    /// Whether the client probably never got its end: the end was closed at once, and nothing arrived.
    func mayBeRefused(at now: SuspendingClock.Instant) -> Bool {
        isAtEnd && !hasReceived && refusalEnd.map { now < $0 } ?? true
    }

    /// Ends the channel's input because of a frame that is no post.
    func fail(_ found: ChannelFrame.Fault) {
        fault = fault ?? found
    }
}

/// A post that was read from a channel, or the error with which it is refused.
struct ReadPost {
    let answer: ChannelPost
    let name: String
    /// The post or its error; nil for a post that exceeded the quota and wants no outcome, which counts as lost.
    let post: Result<Post<WireUserInfo>, BusError>?
    /// Whether policy has allowed the options. A post that is posted in parts was checked with the first part.
    var isChecked = false
}

/// The identity of a post that arrived on a channel.
struct ChannelPost {
    let channel: Channel
    /// The client's number of the post; 0 when it wants no outcome.
    let number: UInt64

    /// Returns the answer to the post; nil when the post wants no outcome.
    func answered(_ outcome: @autoclosure () -> ChannelOutcome) -> ChannelAnswer? {
        number == 0 ? nil : ChannelAnswer(post: self, outcome: outcome())
    }
}

/// The answer to a post on a channel: its outcome.
struct ChannelAnswer {
    let post: ChannelPost
    let outcome: ChannelOutcome

    /// The approximate size of the frame.
    var byteCount: Int { Self.smallSize + outcome.errorName.utf8.count + outcome.message.utf8.count }

    private static let smallSize = 48
}

extension Channel {
    /// Whether an outcome can reach the client. It can't when the client has left, or its end is closed, while earlier
    /// posts are taken. During the end of a channel, ``maxOutcomeBytesAtEnd`` of outcomes are accepted.
    var takesOutcomes: Bool {
        guard isOpen, !socket.isBroken else { return false }
        return switch end {
        case nil: true
        case .finishing?: outcomeBytes < Self.maxOutcomeBytesAtEnd
        case .left?: false
        }
    }

    /// Appends an outcome, if it can reach the client.
    func append(_ answer: ChannelAnswer) {
        guard takesOutcomes else { return }
        append(nil) { $0.append(answer.outcome, number: answer.post.number) }
    }
}
