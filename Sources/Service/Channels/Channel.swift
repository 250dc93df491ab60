// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// One channel: a socket between a client and the service for high volume, in addition to the bus (F2). The client
/// writes posts to it. The service writes notifications, control signals, and the outcomes of the posts.
///
/// A client gets the descriptor of its end in the reply to `OpenChannel`. ``Channels`` writes to the channel, and
/// ``ChannelPosts`` reads the posts. This type has the state of both directions, and polls the socket. It stops reading
/// while the client leaves outcomes unread, so that a client that reads nothing can't fill the service's memory.
///
/// Threads: only that of the service's main loop. Nothing here blocks.
final class Channel: PolledSourceDelegate {
    /// A probe that the core has requested. It is answered when all frames ahead of it have been written to the socket,
    /// because the client can read these even if the service dies. A probe from before the channel also waits for the
    /// client's answer to the Ping on the bus.
    struct Probe {
        /// The number of bytes in the stream ahead of the probe.
        let position: UInt64
        /// Whether the answer to the Ping is awaited.
        var waitsForPing: Bool
        /// Whether the client itself has answered the Ping.
        var isOfPeer = false
    }

    /// A frame that was appended and has not been written completely.
    struct Frame {
        /// The number of bytes in the stream up to the end of the frame.
        let end: UInt64
        /// The core's effect that the frame carries out; nil for the outcome of a post.
        let effect: Effect?
        /// The size of the frame, in bytes.
        let byteCount: Int
    }

    /// The reason why a channel is ending. The client can write no more, and the posts that it has written are still
    /// taken.
    enum End {
        /// The client continues on the bus, or with the next channel. `mayBeUnread`: the client may never read the
        /// unread bytes, so they count as a possible loss.
        case finishing(mayBeUnread: Bool)
        /// The client has left the bus.
        case left
    }

    /// The bytes of outcomes that the client has not read, above which its posts are not read. Reading stops earlier
    /// when the client's process has used up its share of kept answers.
    private static let maxOutcomeBytes = 64 << 10
    /// The number of posts with outcomes that wait for deliveries, above which no more posts are read.
    private static let maxOutcomesDue = 1024
    /// The bytes of unwritten outcomes above which the outcomes of an ending channel are discarded.
    private static let maxOutcomeBytesAtEnd = 256 << 10
    /// The maximum number of reads from the socket for a work slice.
    private static let readsPerSlice = 2

    let client: ClientName
    /// The account that is charged for the channel.
    let account: AccountID
    /// The service's end.
    let socket: any ChannelStream
    /// The frames that have not been written to the socket, as bytes.
    let writer = ChannelFrameWriter()
    /// The parser of the client's frames.
    let reader = ChannelFrameReader(from: .client)
    private var source: PolledSource!
    /// The registration of the socket with the source; nil while nothing is polled.
    private var tag: PolledSource.Tag?
    /// The conditions that are polled for.
    private var polled: PolledSource.Conditions = []
    /// Called when there may be bytes to read.
    var onReadable: ((Channel) -> Void)?
    /// Called when there may be space to write.
    var onWritable: ((Channel) -> Void)?
    /// Called when the first frame was appended since the last attempt to write.
    var onAppended: ((Channel) -> Void)?

    /// Whether the bus is known to have carried the reply with the client's end of the channel. Before that, the client
    /// may have no channel, so written frames do not count as delivered.
    var isCarried = false
    /// The notifications that were written before ``isCarried`` was set.
    var writtenBeforeCarried = DeliveryReceipts.Sent()

    // The state of sending.
    /// The frames that have not been written completely, the oldest first.
    var frames = Deque<Frame>()
    /// The probes without a reported answer, the oldest first.
    var probes: [Probe] = []
    /// The notifications and losses that were written since the client's last known moment without unread bytes. They
    /// are the possible loss if the channel ends now.
    var unread = SentSignals.SignalContent()
    /// The control signals that were written since that moment: the last one about the client's suspension, and all
    /// about observers that policy removed. They have no sequence number, so the client could not detect their loss.
    private(set) var unreadControl: [Effect] = []
    /// Whether the core waits for a finding whether the client reads (``Effect/backlogProbe(_:)``).
    var awaitsBacklogProbe = false
    /// Whether the client wants several notifications in one message on the bus, as the core's last delivery shows. It
    /// is needed when unwritten frames go to the bus at the end of the channel.
    var wantsBatches = false
    /// The time until which a channel that ends without a byte from the client may have been refused by the bus
    /// (``mayBeRefused(at:)``). Nil until the bus has passed on or refused the reply with the client's end.
    var refusalEnd: SuspendingClock.Instant?
    /// Whether frames were appended since the last attempt to write.
    var isDirty = false
    /// Whether the channel is in the list of channels with an answered probe, in ``Channels``.
    var isAnswerNoted = false
    /// Whether the socket has taken less than all bytes, so that writing waits for space.
    private var isFull = false

    // The state of reading.
    /// Whether the channel is in the ``CallQueue``, which serves it later. Meanwhile it is not polled for bytes to
    /// read.
    var isQueued = false
    /// The number of accepted posts whose outcomes wait for their deliveries.
    var outcomesDue = 0
    /// The size of the outcomes that were appended and not written, in bytes.
    private var outcomeBytes = 0
    /// The size of the outcomes that wait in the ``ReplyQueue`` for the client's window, in bytes.
    var keptBytes = 0
    /// Whether the core allows further answers to be kept for the client.
    var isServed: (() -> Bool)?
    /// Whether no more bytes will arrive from the client.
    private(set) var isAtEnd = false
    /// The part of ``bytesToHold`` that the client is charged for.
    var heldBytes = 0
    /// The size of the last frame that was returned, in bytes.
    private var sizeOfLast = 0
    /// Whether any byte has arrived.
    private var hasReceived = false
    /// The protocol violation by which the input has ended; nil while there is none.
    private(set) var fault: ChannelFrame.Fault?
    /// The number of reads left in the work slice.
    private var readsLeft = 0
    /// Whether the channel can be used; false after ``close()``.
    private(set) var isOpen = true
    /// The reason for the end, while the remaining posts are taken; nil as long as the client can write.
    var end: End?
    /// The call that requests another channel in place of this one.
    var next: MethodCall?

    init(of client: ClientName, _ account: AccountID, _ socket: any ChannelStream, context: MainContext) {
        self.client = client
        self.account = account
        self.socket = socket
        source = PolledSource(delegate: self, priority: .of(.reading), context: context)
    }

    /// Ends reading and writing at once. The client can still read the written bytes, and then the end of the stream.
    /// The descriptor is closed with the last reference to the channel, which a pending outcome may hold.
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

    /// Whether bytes are read from the client when they arrive.
    private var mayRead: Bool { isOpen && !isQueued && !isAtEnd && fault == nil && readsOutcomes }
    /// Whether there is a post that can be taken without reading more bytes. A post that was posted in part is
    /// continued even if the client has left many outcomes unread.
    private var mayTake: Bool { isOpen && !isQueued && waiting != nil || mayRead && reader.hasNext }

    /// Whether outcomes of the client's posts still have to be written, on a socket that can be written to.
    var hasPendingOutcomes: Bool { !socket.isBroken && (outcomesDue > 0 || outcomeBytes > 0 || keptBytes > 0) }

    /// Whether the client has closed its writing side and all outcomes were written, so that the channel ends.
    private var isOver: Bool { isOpen && !isQueued && isAtEnd && end == nil && fault == nil && !hasPendingOutcomes }

    /// Whether the client reads its outcomes, so that more posts are taken from it.
    var readsOutcomes: Bool {
        // On a broken socket no outcome can be written. The posts that have arrived are still taken.
        if socket.isBroken { return true }
        guard outcomesDue < Self.maxOutcomesDue, outcomeBytes + keptBytes < Self.maxOutcomeBytes else { return false }
        return keptBytes == 0 || isServed?() ?? true
    }

    /// Updates the polled conditions, and returns whether ``dispatch()`` has work without waiting for the socket.
    func hasPendingWork() -> Bool {
        var wanted: PolledSource.Conditions = []
        if mayRead { wanted.insert(.readable) }
        if isOpen, isFull, !socket.isBroken { wanted.insert(.writable) }
        poll(wanted)
        // A simulation has no descriptor to poll.
        return isOver || mayTake || socket.polled == nil && !occurred.isEmpty
    }

    /// Sets the conditions that the socket is polled for.
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

    /// Passes the conditions that have occurred to ``onWritable`` and ``onReadable``.
    func dispatch() {
        let occurred = occurred
        if isFull, !occurred.isDisjoint(with: [.writable, .error, .hangUp]) { onWritable?(self) }
        if isOver || mayTake || mayRead && !occurred.isDisjoint(with: [.readable, .error, .hangUp]) {
            onReadable?(self)
        }
    }

    // MARK: Writing

    /// Appends a frame to the unwritten ones. ``write(_:)`` follows at the end of the event.
    ///
    /// - Parameters:
    ///   - effect: the effect that the frame carries out; nil for an outcome.
    ///   - body: encodes the frame.
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
        // Asked before the write, which adds unread bytes, and only if there is something to clear.
        let isNothingUnread =
            (unread != SentSignals.SignalContent() || !unreadControl.isEmpty) && !socket.isAnythingUnread
        let before = writer.written
        writer.write(socket.send)
        // A closed end also has no unread bytes, although the client did not read them. Only a successful write shows
        // that the end is open.
        if isNothingUnread, writer.written > before { (unread, unreadControl) = (SentSignals.SignalContent(), []) }
        while let frame = frames.first, frame.end <= writer.written {
            frames.popFirst()
            if let effect = frame.effect { noteControl(effect) } else { outcomeBytes -= frame.byteCount }
            written(frame)
        }
        isFull = writer.byteCount > 0
        if !isFull, frames.isEmpty { writer.releaseMemory() }
    }

    /// Adds a written control signal to ``unreadControl``.
    private func noteControl(_ effect: Effect) {
        switch effect {
        case .suspensionChanged: unreadControl.removeAll { if case .suspensionChanged = $0 { true } else { false } }
        case .revoked: break
        default: return
        }
        unreadControl.append(effect)
    }

    /// Whether the oldest probe is answered, so that the core can be informed.
    var isAnswered: Bool {
        probes.first.map { !$0.waitsForPing && $0.position <= writer.written } ?? false
    }

    // MARK: Reading

    /// A post that was read and has to be continued in a later work slice. By coalescing it replaces too many queued
    /// posts for one event, and so far only some of these have been removed.
    var waiting: ReadPost?

    /// Begins a work slice of reading, which makes at most ``readsPerSlice`` reads.
    ///
    /// - Parameters:
    ///   - maxKept: the longest frame body that is kept, in bytes; longer ones are refused.
    ///   - maxHead: the longest beginning of a body, in bytes, that is kept when the quota has no space for the whole
    ///     body.
    func beginSlice(maxKept: Int, maxHead: Int) {
        readsLeft = Self.readsPerSlice
        reader.maxKept = maxKept
        reader.maxHead = maxHead
    }

    /// Returns the next frame of the work slice; nil when there is none now. ``isAtEnd`` and ``fault`` show whether
    /// more frames will arrive.
    ///
    /// - Parameter hold: charges for a large frame of which a part has arrived, and returns whether the quota allows
    ///   its size. Otherwise the frame is skipped, except for its beginning.
    func nextFrame(hold: (_ byteCount: Int) -> Bool) -> ChannelFrame? {
        guard isOpen, fault == nil else { return nil }
        do throws(ChannelFrame.Fault) {
            while true {
                if let frame = try reader.next() {
                    sizeOfLast = frame.body.count
                    return frame
                }
                guard !isAtEnd, readsLeft > 0 else { return nil }
                // A frame that exceeds the quota is skipped, and its beginning is returned later.
                let wanted = reader.wantedBytes
                if wanted > heldBytes, !hold(wanted), reader.passOver() { continue }
                readsLeft -= 1
                let (count, isFull) = reader.read(socket.receive)
                // The count is negative if nothing has arrived. After the end of a client's writing, nothing more will.
                if count == 0 || count < 0 && end != nil { isAtEnd = true }
                guard count > 0 else { return nil }
                hasReceived = true
                // A read that did not fill the buffer has emptied the socket.
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

    /// The bytes of memory that are held for an incomplete post and for posts that were read and not taken. The client
    /// is charged for them.
    var bytesToHold: Int { reader.heldBytes + (waiting == nil ? 0 : sizeOfLast) }

    /// Whether the held bytes are an incomplete frame, which may be discarded to free quota. Its post is then lost.
    var mayGiveUpPart: Bool { waiting == nil && !reader.hasNext && reader.byteCount >= ChannelFrame.headerSize }

    /// Discards the part of a frame that has arrived. The caller then updates the charge.
    func giveUpPart() {
        _ = reader.passOver()
    }

    /// Whether all posts were taken, and no more can follow: the client has ended its stream, or the stream is
    /// malformed.
    var isExhausted: Bool { waiting == nil && (fault != nil || isAtEnd && !reader.hasNext) }

    /// Whether the client probably never got its end, because a bus or a client without support for descriptors has
    /// closed it: the end was closed soon, and nothing has arrived from it.
    func mayBeRefused(at now: SuspendingClock.Instant) -> Bool {
        isAtEnd && !hasReceived && refusalEnd.map { now < $0 } ?? true
    }

    /// Ends the input because of a malformed frame.
    func fail(_ found: ChannelFrame.Fault) {
        fault = fault ?? found
    }
}

/// A post that was read from a channel, or the error with which it is refused.
struct ReadPost {
    /// The channel and the client's number, for the outcome.
    let answer: ChannelPost
    let name: String
    /// The post or its error; nil for a post without outcome that was counted as lost, because the quota was used up.
    let post: Result<Post<WireUserInfo>, BusError>?
    /// Whether policy has allowed the options. They are checked once, also for a post that takes several work slices.
    var isChecked = false
}

/// The channel and the number of a post, to which its outcome is addressed.
struct ChannelPost {
    let channel: Channel
    /// The number that the client gave the post; 0 when it wants no outcome.
    let number: UInt64

    /// Returns the answer to the post; nil when the post wants no outcome.
    func answered(_ outcome: @autoclosure () -> ChannelOutcome) -> ChannelAnswer? {
        number == 0 ? nil : ChannelAnswer(post: self, outcome: outcome())
    }
}

/// The outcome of a post on a channel, with its address.
struct ChannelAnswer {
    let post: ChannelPost
    let outcome: ChannelOutcome

    /// The approximate size of the frame.
    var byteCount: Int { Self.smallSize + outcome.errorName.utf8.count + outcome.message.utf8.count }

    private static let smallSize = 48
}

extension Channel {
    /// Whether an outcome is written to the channel. It is discarded if the client has left or its end is closed, while
    /// earlier posts are still taken. While the channel ends, up to ``maxOutcomeBytesAtEnd`` of outcomes are accepted.
    var takesOutcomes: Bool {
        guard isOpen, !socket.isBroken else { return false }
        return switch end {
        case nil: true
        case .finishing?: outcomeBytes < Self.maxOutcomeBytesAtEnd
        case .left?: false
        }
    }

    /// Appends the frame of an outcome, or discards the outcome (``takesOutcomes``).
    func append(_ answer: ChannelAnswer) {
        guard takesOutcomes else { return }
        append(nil) { $0.append(answer.outcome, number: answer.post.number) }
    }
}
