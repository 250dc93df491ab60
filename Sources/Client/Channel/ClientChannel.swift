// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// The program's end of a channel (F2), a private socket between the program and the service. It reads frames, sends
/// posts through a ``ChannelSender``, and handles the end of the stream.
///
/// It knows neither the bus nor the meaning of frames: ``ServiceSession`` handles frames in ``onFrame``. A channel has
/// three states: `open`; `closing`, after this side stopped writing; and `over`.
///
/// Threads: all members are used on the session's thread.
final class ClientChannel {
    /// The session's result of handling a frame.
    enum FrameResult: Equatable {
        /// The frame was handled.
        case taken
        /// The frame can't be handled yet: an observer's number is still missing. Later frames wait behind it, to keep
        /// the order. ``retryHeldFrame()`` delivers it again.
        case notYet
        /// The frame is invalid: the channel is closed.
        case malformed(String)
    }

    private enum State {
        case open
        /// This side has ended writing and awaits the end of the stream. Frames until then are handled, or discarded if
        /// `discardsFrames` is true.
        case closing(reason: String, discardsFrames: Bool)
        case over
    }

    /// A received frame.
    struct Frame {
        let kind: ChannelFrame.Kind
        let number: UInt64
        let body: UnsafeRawBufferPointer
    }

    /// The limit of reads in one turn, so that other sources of the loop get their share. A turn is one call by the
    /// loop because input or space is available.
    private static let readsPerTurn = 4
    /// The limit of bytes read in one call, 8 MiB. It exceeds the capacity of any socket, so a drain reads all bytes
    /// that are in the socket. Input that keeps arriving can't prolong the call forever.
    private static let maxBytesAtOnce = 8 << 20

    /// The service that provided the channel.
    let service: UniqueName
    /// Called with every frame. The bytes of the frame are valid only during the call.
    ///
    /// - Parameter mayWait: whether the result may be `notYet`. It may not while the channel is drained.
    var onFrame: ((_ frame: Frame, _ mayWait: Bool) -> FrameResult)?
    /// Called at the end of a turn, when the frames that were read in it have been handled.
    var onTurn: (() -> Void)?
    /// Called when this side closes the channel and awaits its end.
    ///
    /// - Parameter discardsFrames: whether later frames are discarded.
    var onClosing: ((_ reason: String, _ discardsFrames: Bool) -> Void)?
    /// Called once, when all received frames have been handled and no more will arrive.
    var onEnd: ((_ reason: String) -> Void)?

    /// Whether the channel ended after the program had read everything that the service wrote to it.
    private(set) var isReadToEnd = false

    /// Encodes and writes posts, and keeps those without an outcome.
    let sender: ChannelSender
    private let stream: any ClientStream
    private var state = State.open
    private let reader = ChannelFrameReader(from: .service)
    /// Whether a frame is being handled. Handling may call back into this object; such a call must not read further
    /// frames.
    private var isTaking = false
    /// The frame that waits for ``retryHeldFrame()``, as a copy, because the reader's bytes are valid only during the
    /// call.
    private var held: (kind: ChannelFrame.Kind, number: UInt64, body: [UInt8])?

    /// Starts reading.
    ///
    /// - Parameter service: the service that provided the channel.
    init(_ stream: any ClientStream, from service: UniqueName) {
        self.stream = stream
        sender = ChannelSender(stream.writing)
        self.service = service
        stream.onReady = { [unowned self] in ready() }
        stream.isReading = true
    }

    deinit {
        stream.onReady = nil
    }

    // MARK: Sending

    /// Sends posts in one step. ``ChannelSender/hasRoom`` must be true.
    func send(_ posts: [OutgoingPost]) {
        wrote(sender.send(posts))
    }

    /// Writes as many of the remaining bytes as there is space for. This includes the remaining bytes of posts that
    /// posting threads have written in part.
    func flush() {
        guard case .open = state else { return }
        wrote(sender.flush())
    }

    /// Handles the result of a write.
    private func wrote(_ outcome: ChannelSender.Flushing) {
        // Frames that the service wrote before are still to be read.
        if outcome == .broken {
            close("the service has closed its end")
        } else {
            stream.isWaitingForSpace = outcome == .rest
        }
    }

    // MARK: Receiving

    /// Called by the loop when input or space is available.
    private func ready() {
        flush()
        read(Self.readsPerTurn, mayWait: true)
        onTurn?()
    }

    /// Reads and handles all frames that the service has written until now. No frame may wait.
    func drain() {
        retryHeldFrame(mayWait: false)
        read(.max, mayWait: false)
    }

    /// Delivers again the frame that could not be handled before, and then the frames behind it.
    func retryHeldFrame() {
        if held != nil { retryHeldFrame(mayWait: true) }
    }

    private func retryHeldFrame(mayWait: Bool) {
        takeFrames(mayWait: mayWait)
        stream.isReading = !isOver && held == nil
    }

    private var isOver: Bool { if case .over = state { true } else { false } }

    /// Reads and handles frames until no input is left.
    ///
    /// - Parameters:
    ///   - maxReads: the maximum number of reads; `.max` for a drain.
    ///   - mayWait: whether a frame may wait for ``retryHeldFrame()``; false for a drain.
    private func read(_ maxReads: Int, mayWait: Bool) {
        var (reads, bytes) = (0, 0)
        while !isOver, held == nil, !isTaking, reads < maxReads, bytes < Self.maxBytesAtOnce {
            if case .closing(_, discardsFrames: true) = state { return discardInput() }
            var hasEnded = false
            let (count, isFull) = reader.read { buffer in
                switch stream.read(into: buffer) {
                case .bytes(let count): return count
                case .nothing: return 0
                case .end:
                    hasEnded = true
                    return 0
                }
            }
            if hasEnded {
                isReadToEnd = true
                let isWhole = reader.isBetweenFrames
                return finish("the service closed it" + (isWhole ? "" : " in the middle of a frame"))
            }
            guard count > 0 else { return }
            reads += 1
            bytes += count
            takeFrames(mayWait: mayWait)
            // A read that did not fill the buffer has probably taken all input. Only a drain reads on, to find the end
            // of the stream.
            guard isFull || maxReads == .max else { return }
        }
    }

    /// Reads and discards input of a channel whose frames can't be understood, to find its end.
    private func discardInput() {
        let result = withUnsafeTemporaryAllocation(byteCount: 16 << 10, alignment: 8) { stream.read(into: $0) }
        if result == .end { finish("the service closed it") }
    }

    /// Handles the waiting frame and all complete frames behind it.
    private func takeFrames(mayWait: Bool) {
        guard !isTaking else { return }
        isTaking = true
        defer { isTaking = false }
        if let (kind, number, body) = held {
            held = nil
            body.withUnsafeBytes { take(Frame(kind: kind, number: number, body: $0), mayWait: mayWait) }
        }
        while !isOver, held == nil {
            do throws(ChannelFrame.Fault) {
                guard let frame = try reader.next() else { return }
                take(Frame(kind: frame.kind, number: frame.number, body: frame.body), mayWait: mayWait)
            } catch {
                // Behind an invalid frame no frame boundary is known, so the rest of the stream is discarded.
                return close(error.description, discardsFrames: true)
            }
        }
    }

    /// Passes a frame to the session, and applies its result: handled, held, or invalid.
    ///
    /// - Parameter mayWait: whether the session may hold the frame.
    private func take(_ frame: Frame, mayWait: Bool) {
        if case .closing(_, discardsFrames: true) = state { return }
        switch onFrame?(frame, mayWait) ?? .taken {
        case .taken: break
        case .notYet:
            held = (frame.kind, frame.number, Array(frame.body))
            stream.isReading = false
        case .malformed(let reason): close(reason, discardsFrames: true)
        }
    }

    // MARK: End

    /// Ends writing in an orderly way and waits for the service to end the channel. The service does so after it has
    /// read all frames, so later messages on the bus do not overtake posts in these frames.
    ///
    /// - Parameter discardsFrames: whether later frames are discarded, because they can't be understood.
    func close(_ reason: String, discardsFrames: Bool = false) {
        guard case .open = state else { return }
        state = .closing(reason: reason, discardsFrames: discardsFrames)
        sender.close()
        stream.isWaitingForSpace = false
        stream.endWriting()
        onClosing?(reason, discardsFrames)
    }

    /// Ends the channel at once, without waiting for the service.
    func finish(_ reason: String) {
        guard !isOver else { return }
        // The reason of this side's close precedes the reason of the end that follows it.
        let finalReason = if case .closing(let ours, _) = state { ours } else { reason }
        state = .over
        sender.close()
        stream.onReady = nil
        stream.isReading = false
        stream.isWaitingForSpace = false
        onEnd?(finalReason)
    }
}
