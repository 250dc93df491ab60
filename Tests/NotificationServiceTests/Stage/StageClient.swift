// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestSupport
import CarillonWire
import Glibc

@testable import CarillonService

/// A client of the service on a stage. It answers what it is asked, unless it does not read.
final class StageClient {
    let name: UniqueName
    /// Whether it answers a Ping.
    var reads = true
    private(set) var notifications: [NotificationSignal] = []
    private(set) var dropped: [DroppedSignal] = []
    private(set) var suspensions: [SuspensionChangedSignal] = []
    /// What it was sent, in its order: the kinds of all that is no answer of its own calls, and these answers.
    private(set) var messages: [Message] = []
    /// Called with the number of a call of its own when that is answered.
    var onAnswer: ((UInt32) -> Void)?
    /// Pings that it did not answer, with the line that they came by.
    private(set) var unanswered: [(ping: Message, line: StageLine)] = []
    private unowned let stage: ServiceStage
    private var lastSerial: UInt32 = 0

    init(_ name: String, on stage: ServiceStage) {
        self.name = UniqueName(rawValue: name)!
        self.stage = stage
    }

    // MARK: Calling

    /// Calls a method and returns the answer.
    ///
    /// - Throws: the error reply as ``BusError``.
    @discardableResult
    func call<Method: CenterMethod>(_ method: Method) throws -> Method.Reply {
        try Method.reply(in: try ask(method.message()))
    }

    /// The answer to a call, whatever it is.
    func ask(_ message: Message) throws -> Message {
        let serial = send(message)
        try stage.run("an answer to \(message.member?.rawValue ?? "a call")") { answer(to: serial) != nil }
        let reply = answer(to: serial)!
        if let error = reply.error { throw error }
        return reply
    }

    /// Sends a message to the service. It lies there when this returns.
    ///
    /// - Returns: its number.
    @discardableResult
    func send(_ message: Message) -> UInt32 {
        send(message, by: stage.main)
    }

    /// The same on a connection of the service that is not the one for calls.
    @discardableResult
    func send(_ message: Message, by line: StageLine) -> UInt32 {
        lastSerial += 1
        line.arrive(message.carried(from: AnyBusName(name), serial: lastSerial))
        return lastSerial
    }

    func answer(to serial: UInt32) -> Message? { messages.first { $0.replySerial == serial } }

    @discardableResult
    func observe(_ name: String, _ object: String = "", options: ObserverOptions = ObserverOptions()) throws
        -> ObserverID
    {
        try call(AddObserver(name: name, object: object, options: options))
    }

    /// Returns how many clients matched.
    @discardableResult
    func post(_ name: String, _ object: String = "", options: PostOptions = PostOptions()) throws -> Int {
        try call(try PostCall(name: name, object: object, options: options))
    }

    // MARK: What comes

    func take(_ message: Message, serial: UInt32, from line: StageLine) {
        if message.member == "Ping", message.kind == .methodCall {
            // A copy that has the number under which its sender waits.
            let ping = message.carried(from: AnyBusName(line.name), serial: serial)
            if reads { answer(ping, line) } else { unanswered.append((ping, line)) }
            return
        }
        messages.append(message)
        if message.replySerial > 0 { onAnswer?(message.replySerial) }
        if let notification = (try? NotificationSignal(message)) ?? nil { notifications.append(notification) }
        if let together = (try? NotificationsSignal(message)) ?? nil { notifications += together.notifications }
        if let signal = (try? DroppedSignal(message)) ?? nil { dropped.append(signal) }
        if let signal = (try? SuspensionChangedSignal(message)) ?? nil { suspensions.append(signal) }
    }

    private func answer(_ ping: Message, _ line: StageLine) {
        lastSerial += 1
        line.arrive(ping.methodReturn().carried(from: AnyBusName(name), serial: lastSerial))
    }

    /// It answers all that it did not, and goes on reading.
    func goOn() {
        reads = true
        for (ping, line) in unanswered { answer(ping, line) }
        unanswered = []
    }

    // MARK: A channel

    private(set) var channel: StageChannel?

    /// Opens a channel; another that it had ends by that.
    @discardableResult
    func openChannel() throws -> StageChannel {
        let channel = StageChannel(try call(OpenChannel()), on: stage)
        messages.removeAll(where: \.hasDescriptors)
        self.channel = channel
        return channel
    }
}

/// A client's end of a channel.
final class StageChannel {
    private var descriptor: FileDescriptor?
    private let reader = ChannelFrameReader(from: .service)
    private let writer = ChannelFrameWriter()
    private(set) var outcomes: [UInt64: ChannelOutcome] = [:]
    private(set) var notifications: [ArrivedNotification] = []
    private(set) var dropped: [DroppedSignal] = []
    /// The kinds of all frames, in their order.
    private(set) var kinds: [ChannelFrame.Kind] = []
    private(set) var isAtEnd = false
    private unowned let stage: ServiceStage
    private var lastNumber: UInt64 = 0

    init(_ descriptor: FileDescriptor, on stage: ServiceStage) {
        self.descriptor = descriptor
        self.stage = stage
    }

    /// Writes a post.
    ///
    /// - Parameter body: `ssa{sv}a{sv}`.
    /// - Returns: its number; 0 where no outcome is wanted.
    @discardableResult
    func post(_ body: [UInt8], wantsOutcome: Bool = true) -> UInt64 {
        lastNumber += 1
        let number = wantsOutcome ? lastNumber : 0
        writer.appendPost(number: number, body: body)
        flush()
        return number
    }

    private func flush() {
        guard let descriptor = descriptor?.rawValue else { return }
        writer.write { max(0, Glibc.send(descriptor, $0.baseAddress!, $0.count, Int32(MSG_NOSIGNAL))) }
    }

    /// What became of a post.
    func outcome(of number: UInt64) throws -> ChannelOutcome {
        try stage.run("an outcome") {
            try read()
            return outcomes[number] != nil || isAtEnd
        }
        guard let outcome = outcomes[number] else { throw NotInTime("an outcome before the channel ended") }
        return outcome
    }

    /// Reads what there is, and writes what is left.
    func read() throws {
        flush()
        while !isAtEnd, let descriptor = descriptor?.rawValue {
            if let frame = try reader.next() {
                take(frame)
                continue
            }
            let (count, _) = reader.read { recv(descriptor, $0.baseAddress!, $0.count, Int32(MSG_DONTWAIT)) }
            if count == 0 || count < 0 && errno != EAGAIN { isAtEnd = true }
            guard count > 0 else { return }
        }
    }

    private func take(_ frame: ChannelFrame) {
        kinds.append(frame.kind)
        switch frame.kind {
        case .outcome: outcomes[frame.number] = ChannelOutcome(channelBody: frame.body)
        case .notification: if let one = ArrivedNotification(channelBody: frame.body) { notifications.append(one) }
        case .dropped: if let signal = DroppedSignal(channelBody: frame.body) { dropped.append(signal) }
        case .suspensionChanged, .post: break
        }
    }

    /// Closes it. With something unread in it, it is reset.
    func close() {
        descriptor = nil
    }
}
