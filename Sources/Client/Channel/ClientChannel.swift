// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// A program's end of a channel (F2): frames in, posts out (``ChannelSender``), and its end.
///
/// It knows nothing of the bus and of what frames mean: ``ServiceSession`` does. Threads: everything on the session's.
final class ClientChannel {
    /// What became of a frame.
    enum Taking: Equatable {
        case taken
        /// It can't be taken yet, nor can what is behind it. ``goOn()`` brings it again.
        case notYet
        /// It is none: the channel is given up.
        case malformed(String)
    }

    private enum State {
        case open
        /// We write nothing more, and wait for the end. What comes until then counts, or is passed over.
        case closing(reason: String, passesOver: Bool)
        case over
    }

    /// One that came.
    struct Frame {
        let kind: ChannelFrame.Kind
        let number: UInt64
        let body: UnsafeRawBufferPointer
    }

    private static let readsPerTurn = 4
    /// As much as no socket holds, so that what lay there is read, and what comes meanwhile does not keep us.
    private static let maxBytesAtOnce = 8 << 20

    /// The service that it came from.
    let service: UniqueName
    /// Called with every frame. Its bytes are valid only inside.
    ///
    /// - Parameter mayWait: whether `notYet` is an answer.
    var onFrame: ((_ frame: Frame, _ mayWait: Bool) -> Taking)?
    /// Called at the end of a turn in which something came, or room.
    var onTurn: (() -> Void)?
    /// Called when it is closed from here, and the end is waited for.
    ///
    /// - Parameter passesOver: whether what still comes is passed over.
    var onClosing: ((_ reason: String, _ passesOver: Bool) -> Void)?
    /// Called once, when all that came has been taken and nothing more will.
    var onEnd: ((_ reason: String) -> Void)?

    /// Whether it ended, and all that the service wrote to it was heard.
    private(set) var isReadToEnd = false

    /// Lays posts out and writes them, and has those without an outcome.
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

    // MARK: Out

    /// Sends posts, as many as there are, in one go. ``ChannelSender/hasRoom`` says that they may be.
    func send(_ posts: [OutgoingPost]) {
        wrote(sender.send(posts))
    }

    /// Writes what there is room for of what is left, also of what threads that post have left.
    func flush() {
        guard case .open = state else { return }
        wrote(sender.flush())
    }

    private func wrote(_ outcome: ChannelSender.Flushing) {
        // What was written to us before is still to be read.
        if outcome == .broken { close("nobody reads it") } else { line.isWaitingForRoom = outcome == .rest }
    }

    // MARK: In

    private func ready() {
        flush()
        read(Self.readsPerTurn, mayWait: true)
        onTurn?()
    }

    /// Takes what the service has written until now, whatever it is.
    func drain() {
        goOn(mayWait: false)
        read(.max, mayWait: false)
    }

    /// What could not be taken may be taken now.
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
            // There may be no more than that; or the end, which who reads all that there is has to know.
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
                // What is no frame ends the reader.
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

    // MARK: Ending

    /// Writes nothing more and waits for the service to end it, which has read all that was written then: what goes by
    /// the bus from now on must not overtake that.
    ///
    /// - Parameter passesOver: whether what still comes is not to be understood.
    func close(_ reason: String, passesOver: Bool = false) {
        guard case .open = state else { return }
        state = .closing(reason: reason, passesOver: passesOver)
        sender.close()
        line.isWaitingForRoom = false
        line.endWriting()
        onClosing?(reason, passesOver)
    }

    /// It is over, whatever the service does.
    func finish(_ reason: String) {
        guard !isOver else { return }
        let told = if case .closing(let ours, _) = state { ours } else { reason }
        state = .over
        sender.close()
        line.onReady = nil
        line.isReading = false
        line.isWaitingForRoom = false
        onEnd?(told)
    }
}
