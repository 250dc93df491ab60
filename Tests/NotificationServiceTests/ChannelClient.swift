// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestSupport
import CarillonWire
import Glibc

/// A client with a channel, which reads and writes only when it is told to.
final class ChannelClient {
    let client: Client
    private(set) var descriptor: FileDescriptor?
    private var reader = ChannelFrameReader(from: .service)
    let writer = ChannelFrameWriter()
    private(set) var notifications: [ArrivedNotification] = []
    private(set) var outcomes: [UInt64: ChannelOutcome] = [:]
    /// Their numbers, as they came.
    private(set) var outcomeNumbers: [UInt64] = []
    private(set) var dropped: [DroppedSignal] = []
    private(set) var suspensions: [SuspensionChangedSignal] = []
    /// The kinds of all frames, in their order.
    private(set) var kinds: [ChannelFrame.Kind] = []
    private(set) var isAtEnd = false
    private(set) var isWritable = true
    private var lastNumber: UInt64 = 0

    init(on bus: PrivateBus) throws {
        client = try Client(on: bus)
        try open()
    }

    /// Opens a channel; what was there of another is forgotten.
    func open() throws {
        descriptor = try client.call(OpenChannel())
        reader = ChannelFrameReader(from: .service)
        (isAtEnd, isWritable) = (false, true)
    }

    /// From now on it can only read.
    func endWriting() {
        if let descriptor { shutdown(descriptor.rawValue, Int32(SHUT_WR)) }
    }

    func close() {
        // A program that another test is about to run may have a copy until it runs.
        if let descriptor { shutdown(descriptor.rawValue, Int32(SHUT_RDWR)) }
        descriptor = nil
    }

    /// Puts a post where ``flush()`` takes it from.
    ///
    /// - Returns: its number.
    @discardableResult
    func post(_ name: String, _ n: Int64 = 0, data: [UInt8] = [], wantsOutcome: Bool = true) throws -> UInt64 {
        lastNumber += 1
        let post = try PostCall(name: name, userInfo: ["n": .int64(n), "data": .data(data)])
        let number = wantsOutcome ? lastNumber : 0
        writer.appendPost(number: number, body: post.message().marshalledBody)
        return number
    }

    /// The same for a post that is refused.
    func postWithoutName() -> UInt64 {
        lastNumber += 1
        writer.append(.post, number: lastNumber, atMost: 64) { body in
            body.append("")
            body.append("")
            body.array { _ in }
            body.array { _ in }
        }
        return lastNumber
    }

    /// Writes what the socket takes.
    func flush() {
        guard let descriptor = descriptor?.rawValue else { return }
        writer.write { bytes in
            let count = send(descriptor, bytes.baseAddress!, bytes.count, Int32(MSG_NOSIGNAL))
            if count < 0, errno != EAGAIN { isWritable = false }
            return max(0, count)
        }
    }

    /// Posts that many, with outcomes, and reads nothing, until nothing more is taken for half a second.
    func postUnread(_ count: Int, _ name: String) throws {
        for n in 0..<Int64(count) { try post(name, n) }
        var (left, since) = (Int.max, ContinuousClock.now)
        try eventually("the socket is full", every: .milliseconds(1), progress: { -self.writer.byteCount }) {
            flush()
            if writer.byteCount != left { (left, since) = (writer.byteCount, .now) }
            return left == 0 || ContinuousClock.now - since > .milliseconds(500)
        }
    }

    /// - Returns: how many of them the socket took.
    @discardableResult
    func write(_ bytes: [UInt8]) -> Int {
        guard let descriptor = descriptor?.rawValue, !bytes.isEmpty else { return 0 }
        return max(0, bytes.withUnsafeBytes { send(descriptor, $0.baseAddress!, $0.count, Int32(MSG_NOSIGNAL)) })
    }

    /// Reads what there is.
    ///
    /// - Parameter most: frames.
    func read(atMost most: Int = .max) throws {
        var left = most
        while left > 0 {
            if let frame = try reader.next() {
                left -= 1
                take(frame)
                continue
            }
            guard !isAtEnd, let descriptor = descriptor?.rawValue else { return }
            let (count, _) = reader.read { recv(descriptor, $0.baseAddress!, $0.count, 0) }
            if count == 0 || count < 0 && errno != EAGAIN { isAtEnd = true }
            guard count > 0 else { return }
        }
    }

    private func take(_ frame: ChannelFrame) {
        kinds.append(frame.kind)
        switch frame.kind {
        case .outcome:
            outcomes[frame.number] = ChannelOutcome(channelBody: frame.body)
            outcomeNumbers.append(frame.number)
        case .notification:
            guard let notification = ArrivedNotification(channelBody: frame.body) else { break }
            notifications.append(notification)
        case .dropped: dropped.append(DroppedSignal(channelBody: frame.body)!)
        case .suspensionChanged: suspensions.append(SuspensionChangedSignal(channelBody: frame.body)!)
        case .post: break
        }
    }

    /// Writes and reads until `condition` holds. The time begins anew with everything that comes.
    ///
    /// - Throws: ``NotInTime``, and what `condition` throws.
    func run(
        _ what: @autoclosure () -> String, reads: Bool = true, within patience: Patience = .event,
        until condition: () throws -> Bool
    ) throws {
        var wait = Wait(patience)
        var come = 0
        while true {
            flush()
            if reads { try read() }
            client.turn()
            if try condition() { return }
            let all = kinds.count + client.signals.count
            if all > come {
                come = all
                wait.goOn()
            }
            try wait.look(for: "\(what()), after \(kinds.count) frames and \(client.signals.count) notifications")
            letPass(.milliseconds(1), because: "nothing tells that there is something to do")
        }
    }

    /// The `n` of what came on the channel.
    var numbers: [Int64] { notifications.map(\.number) }
    /// Of what came on the bus.
    var numbersOnBus: [Int64] { client.signals.map(\.number) }
}

extension ArrivedNotification {
    /// The `n` in its userInfo.
    var number: Int64 { if case .int64(let n)? = userInfo.decoded()["n"] { n } else { -1 } }
}

extension NotificationSignal {
    /// The `n` in its userInfo.
    var number: Int64 { if case .int64(let n)? = userInfo["n"] { n } else { -1 } }
}
