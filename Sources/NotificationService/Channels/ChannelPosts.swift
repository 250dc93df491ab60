import BusNames
import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// Opens channels, takes what clients post on them, and ends them (F2).
///
/// A post is checked, counted and posted as one that came on the bus. What a process sends beyond its part of the time
/// stays in the socket until its turn, so that it is the process that waits (E4).
final class ChannelPosts {
    private enum Result {
        case accepted(ChannelPost, Receipt)
        case refused(ChannelPost, name: String, BusError)
    }

    /// Posts of one piece: some hundreds of microseconds.
    private static let piece = 32
    /// The same while an observer is behind that reads.
    private static let pieceInCrowd = 8
    /// Options of a post that nobody keeps more of.
    private static let mostBytesOfOptions = 4 << 10

    private unowned let driver: CenterDriver
    private unowned let turns: DeliveryTurns
    private unowned let callers: Callers
    private unowned let gate: PolicyGate
    private unowned let refusals: Refusals
    private unowned let configuration: ConfigurationKeeper
    private let machine: Machine
    /// Says whose turn it is; nil where nothing is read from a bus.
    weak var calls: CallQueue?
    private var faults: UInt64 = 0

    init(
        driver: CenterDriver, turns: DeliveryTurns, callers: Callers, gate: PolicyGate, refusals: Refusals,
        configuration: ConfigurationKeeper, machine: Machine
    ) {
        self.driver = driver
        self.turns = turns
        self.callers = callers
        self.gate = gate
        self.refusals = refusals
        self.configuration = configuration
        self.machine = machine
    }

    private var channels: Channels { driver.effects.channels }

    // MARK: Opening

    /// Answers a call of ``OpenChannel``. A channel that the caller had before ends: who asks anew may never have got it.
    func open(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        _ = try OpenChannel(from: &arguments)
        try call.expectNoDescriptors()
        guard call.answer.isWanted else { throw .invalidArgs("a channel is in the answer, which the caller wants not") }
        guard configuration.current.allowsChannels else {
            throw BusError(.channelsDisabled, message: "the configuration of the service allows no channels")
        }
        let client = call.sender
        // It would hold a descriptor each time.
        guard !driver.effects.answers.keepsReplies(for: client) else {
            throw BusError(.limitExceeded, message: "the caller does not read its answers")
        }
        if let before = channels[client] { finish(before, mayBeUnread: true) }
        let account = callers[client]?.account ?? .connection(client)
        let most = driver.center.limits[.channelsPerProcess]
        guard channels.count(of: account) < most else {
            throw BusError(.limitExceeded(.channelsPerProcess, value: most))
        }
        guard let (own, other) = machine.makeStream() else {
            throw BusError(.limitExceeded, message: "the service has no file descriptors left")
        }
        let state = try mappingCenterErrors { () throws(CenterError) in
            try driver.perform { effects throws(CenterError) in
                try driver.center.channelOpened(of: client, effects: &effects)
            }
        }
        let channel = Channel(
            of: client, account, own, context: driver.context, unansweredProbes: state.unansweredProbes)
        // What was asked on the bus is answered here.
        channel.owesWitness = state.isBeingWitnessed
        channel.isServed = { [unowned driver] in driver.center.isServed(client) }
        channel.onReadable = { [unowned self] channel in
            if let calls { calls.take(channel) } else { _ = take(from: channel) }
        }
        // Before the answer, with which a probe may be due.
        channels.add(channel)
        call.reply(to: OpenChannel.self, other)
        Log.info("\(client) has a channel", ["CARILLON_CLIENT": client.rawValue])
    }

    // MARK: Taking

    /// Takes the next posts of a channel.
    ///
    /// - Returns: how many, and whether there may be more at once.
    func take(from channel: Channel) -> (count: Int, isMore: Bool) {
        let count = take(from: channel, most: driver.center.isCrowded ? Self.pieceInCrowd : Self.piece)
        let isMore = channel.isOpen && channel.reader.hasNext && channel.readsOutcomes
        return (count, isMore)
    }

    private func take(from channel: Channel, most: Int) -> Int {
        guard channel.isOpen, !driver.isOver else { return 0 }
        let limits = driver.center.limits
        channel.beginPiece(
            mostKept: Int(limits[.nameLength] + limits[.objectLength] + limits[.userInfoBytes])
                + Self.mostBytesOfOptions)
        var results: [Result] = []
        var (count, waitsForIdleness) = (0, false)
        driver.perform { effects in
            while count < most, let frame = channel.nextFrame() {
                count += 1
                do throws(ChannelFrame.Fault) {
                    guard let result = try take(frame, of: channel, limits: limits, &waitsForIdleness, &effects) else {
                        continue
                    }
                    results.append(result)
                } catch {
                    channel.fail(error)
                }
            }
        }
        for _ in 0..<(count + 7) / 8 { turns.noteActivity() }
        let answers = results.compactMap { result -> ChannelAnswer? in
            switch result {
            case .accepted(let post, let receipt): return driver.answer(to: post, with: receipt)
            case .refused(let post, let name, let error):
                refusals.note(post, error, name: name)
                return post.answered(ChannelOutcome(error))
            }
        }
        driver.send(answers)
        if waitsForIdleness { turns.expectIdleness() }
        endIfOver(channel)
        return count
    }

    /// - Returns: nil for what was accepted and wants no outcome.
    private func take(
        _ frame: ChannelFrame, of channel: Channel, limits: Limits, _ waitsForIdleness: inout Bool,
        _ effects: inout [Effect]
    ) throws(ChannelFrame.Fault) -> Result? {
        machine.noteServing()
        let answer = ChannelPost(channel: channel, number: frame.number)
        guard !frame.isCut else {
            let error = BusError(.limitExceeded(.userInfoBytes, value: limits[.userInfoBytes]))
            return .refused(answer, name: "", error)
        }
        let client = channel.client
        let (name, post) = try Post<WireUserInfo>.read(channelBody: frame.body, limits: limits) {
            [gate, driver] name, object throws(BusError) in
            // That a name is missing is for the post's own check to say.
            if !name.isEmpty { try gate.check(client) { .post(name: name) } }
            try mappingCenterErrors { () throws(CenterError) in
                try driver.center.checkPost(name: name, object: object)
            }
        }
        do throws(BusError) {
            let post = try post.get()
            let receipt = try mappingCenterErrors { () throws(CenterError) in
                try driver.center.post(
                    name: post.name, object: post.object, userInfo: post.userInfo, options: post.options,
                    from: client, effects: &effects)
            }
            if post.options.postingStyle == .whenIdle { waitsForIdleness = true }
            return frame.number == 0 ? nil : .accepted(answer, receipt)
        } catch {
            return .refused(answer, name: name, error)
        }
    }

    // MARK: Ending

    private func endIfOver(_ channel: Channel) {
        guard channel.isOpen, !channel.isEnding else { return }
        if let fault = channel.fault {
            if let count = Log.throttle(&faults) {
                Log.warning(
                    "the channel of \(channel.client) ended: it sent \(fault) (\(count) such ends so far)",
                    ["CARILLON_CLIENT": channel.client.rawValue, "CARILLON_REASON": "malformed-frame"])
            }
            channels.end(channel, mayBeUnread: false)
        } else if channel.isAtEnd {
            let isCut = !channel.reader.isBetweenFrames
            Log.info(
                "the channel of \(channel.client) ended\(isCut ? " in the middle of a frame" : "")",
                ["CARILLON_CLIENT": channel.client.rawValue])
            channels.end(channel, mayBeUnread: channel.socket.wasReset || channel.socket.isAnythingUnread)
        } else {
            return
        }
        driver.effects.eventEnded(isMoreDue: false)
    }

    /// Takes what the client has written, and ends the channel.
    ///
    /// - Parameter mayBeUnread: whether what lies unread in the socket may never be read.
    private func finish(_ channel: Channel, mayBeUnread: Bool = false) {
        takeRest(of: channel)
        // Outcomes stand behind them.
        driver.perform { effects in driver.center.sendAllReady(effects: &effects) }
        let isUnread = channel.socket.isAnythingUnread
        channels.end(channel, mayBeUnread: channel.socket.wasReset || mayBeUnread && isUnread)
        driver.effects.eventEnded(isMoreDue: false)
    }

    /// The client can't write any more, so this comes to an end.
    private func takeRest(of channel: Channel) {
        channel.isEnding = true
        driver.effects.answers.release(for: channel)
        channel.socket.stopReceiving()
        for _ in 0..<Self.mostPiecesAtEnd {
            guard channel.isOpen, channel.fault == nil, !driver.isOver, !channel.isAtEnd || channel.reader.hasNext
            else { return }
            _ = take(from: channel, most: Self.pieceAtEnd)
        }
    }

    private static let pieceAtEnd = 256
    /// More than any socket holds.
    private static let mostPiecesAtEnd = 1 << 16

    /// Ends all channels. Their clients go on by the bus.
    func finishAll() {
        for channel in channels.all { finish(channel) }
    }

    /// The client has left the bus, and its turn comes with what it has posted before.
    func isLeaving(_ client: UniqueName) {
        guard let channel = channels[client], let calls else { return }
        channel.isEnding = true
        calls.keep(channel)
    }

    /// The client has left the bus.
    func left(_ client: UniqueName) {
        guard let channel = channels[client] else { return }
        takeRest(of: channel)
        channels.forget(client)
    }
}
