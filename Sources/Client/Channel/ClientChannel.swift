// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// The program's end of a channel (F2): reads frames, sends posts (``ChannelSender``), and handles the end.
///
/// It knows neither the bus nor the meaning of frames; ``ServiceSession`` does. Threads: all members are used on the
/// session's thread.
final class ClientChannel {
    /// The result of handling a frame.
    enum Taking: Equatable {
        case taken
        /// The frame can't be handled yet, nor can later frames. ``goOn()`` delivers it again.
        case notYet
        /// The frame is invalid: the channel is closed.
        case malformed(String)
    }

    private enum State {
        case open
        /// Writing has ended, and the end of the stream is awaited. Frames until then are handled or discarded.
        case closing(reason: String, passesOver: Bool)
        case over
    }

    /// A received frame.
    struct Frame {
        let kind: ChannelFrame.Kind
        let number: UInt64
        let body: UnsafeRawBufferPointer
    }

    private static let readsPerTurn = 4
    /// The limit of bytes read in one step. It exceeds the capacity of any socket, so all bytes in the socket are read,
    /// but later input can't prolong the step forever.
    private static let maxBytesAtOnce = 8 << 20

    /// The service that provided the channel.
    let service: UniqueName
    /// Called with every frame. The bytes of the frame are valid only during the call.
    ///
    /// - Parameter mayWait: whether the result may be `notYet`.
    var onFrame: ((_ frame: Frame, _ mayWait: Bool) -> Taking)?
    /// Called at the end of a turn in which input arrived or space became free.
    var onTurn: (() -> Void)?
    /// Called when this side closes the channel and awaits its end.
    ///
    /// - Parameter passesOver: whether later frames are discarded.
    var onClosing: ((_ reason: String, _ passesOver: Bool) -> Void)?
    /// Called once, when all received frames have been handled and no more will arrive.
    var onEnd: ((_ reason: String) -> Void)?

    /// Whether the channel ended after the program had read everything that the service wrote to it.
    private(set) var isReadToEnd = false

    /// Encodes and writes posts, and keeps those without an outcome.
    let sender: ChannelSender
    private let line: any ChannelLine
    private var state = State.open
    private let reader = ChannelFrameReader(from: .service)
    private var isTaking = false
    /// The frame that waits for ``goOn()``.
    private var held: (kind: ChannelFrame.Kind, number: UInt64, body: [UInt8])?

    init(_ line: any ChannelLine, from service: UniqueName) {
        self.line = line
        sender = ChannelSender(line.writing)
        self.service = service
        line.onReady = { [unowned self] in ready() }
        line.isReading = true
    }

    deinit {
        line.onReady = nil
    }

    // MARK: Sending

    /// Sends posts in one step. ``ChannelSender/hasRoom`` must be true.
    func send(_ posts: [OutgoingPost]) {
        wrote(sender.send(posts))
    }

    /// Writes as many of the remaining bytes as there is space for, including the rest of posts by posting threads.
    func flush() {
        guard case .open = state else { return }
        wrote(sender.flush())
    }

    private func wrote(_ outcome: ChannelSender.Flushing) {
        // Frames that the service wrote before are still to be read.
        if outcome == .broken { close("it has no reader") } else { line.isWaitingForSpace = outcome == .rest }
    }

    // MARK: Receiving

    private func ready() {
        flush()
        read(Self.readsPerTurn, mayWait: true)
        onTurn?()
    }

    /// Reads and handles everything that the service has written until now.
    func drain() {
        goOn(mayWait: false)
        read(.max, mayWait: false)
    }

    /// Delivers again the frame that could not be handled before.
    func goOn() {
        if held != nil { goOn(mayWait: true) }
    }

    private func goOn(mayWait: Bool) {
        takeFrames(mayWait: mayWait)
        line.isReading = !isOver && held == nil
    }

    private var isOver: Bool { if case .over = state { true } else { false } }

    private func read(_ most: Int, mayWait: Bool) {
        var (reads, bytes) = (0, 0)
        while !isOver, held == nil, !isTaking, reads < most, bytes < Self.maxBytesAtOnce {
            if case .closing(_, passesOver: true) = state { return passOver() }
            var hasEnded = false
            let (count, isFull) = reader.read { room in
                switch line.read(into: room) {
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
            // Without a full buffer there may be no more input. A complete drain continues, to find the end of the
            // stream.
            guard isFull || most == .max else { return }
        }
    }

    private func passOver() {
        let result = withUnsafeTemporaryAllocation(byteCount: 16 << 10, alignment: 8) { line.read(into: $0) }
        if result == .end { finish("the service closed it") }
    }

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
                // An invalid frame ends the reader.
                return close(error.description, passesOver: true)
            }
        }
    }

    private func take(_ frame: Frame, mayWait: Bool) {
        if case .closing(_, passesOver: true) = state { return }
        switch onFrame?(frame, mayWait) ?? .taken {
        case .taken: break
        case .notYet:
            held = (frame.kind, frame.number, Array(frame.body))
            line.isReading = false
        case .malformed(let reason): close(reason, passesOver: true)
        }
    }

    // MARK: End

    /// Ends writing and waits for the service to end the channel, which it does after reading all frames. Later
    /// messages on the bus must not overtake these frames.
    ///
    /// - Parameter passesOver: whether later frames are discarded, because they can't be understood.
    func close(_ reason: String, passesOver: Bool = false) {
        guard case .open = state else { return }
        state = .closing(reason: reason, passesOver: passesOver)
        sender.close()
        line.isWaitingForSpace = false
        line.endWriting()
        onClosing?(reason, passesOver)
    }

    /// Ends the channel at once, independently of the service.
    func finish(_ reason: String) {
        guard !isOver else { return }
        let told = if case .closing(let ours, _) = state { ours } else { reason }
        state = .over
        sender.close()
        line.onReady = nil
        line.isReading = false
        line.isWaitingForSpace = false
        onEnd?(told)
    }
}
