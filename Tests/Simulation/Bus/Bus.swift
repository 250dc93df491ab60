// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonWire

/// A model of a message bus: unique names, ownership of names with queueing, match rules, the order of each connection,
/// activation, credentials, and two manners of failing.
///
/// Messages are libdbus's own, so that what the service and its clients code and decode is what crosses a real bus.
final class Bus {
    /// How it behaves where buses differ.
    struct Manner {
        enum Kind: String, CaseIterable {
            case daemon = "dbus-daemon"
            case broker = "dbus-broker"
        }

        var kind = Kind.daemon
        /// What it keeps for a connection that does not read.
        var maxOutgoingBytes = 64 << 20
        /// What the socket of a connection holds.
        var socketBytes = 200 << 10
        var maxRules = 512
        /// What it holds of what a connection has sent before it makes that wait; nil for any amount. dbus-broker never
        /// makes anybody wait.
        var maxIncomingBytes: Int?
        /// How much slower than usual everything goes through it.
        var slowness: Int64 = 1
    }

    static let socketPath = "/run/simulated/bus"
    static let address = "unix:path=" + socketPath
    private static let ownName: AnyBusName = "org.freedesktop.DBus"
    private static let ownPath: ObjectPath = "/org/freedesktop/DBus"
    private static let ownInterface: InterfaceName = "org.freedesktop.DBus"

    let world: World
    let id: String
    var manner: Manner
    /// Starts a process that takes a name.
    var activate: [WellKnownName: () -> Void] = [:]
    /// Told when a name has another owner.
    var onOwner: ((WellKnownName, UniqueName?) -> Void)?
    /// Sees every message that the bus takes from a connection, with who gets it.
    var onCarried: ((Message, _ sender: Peer, _ receiver: Peer?) -> Void)?
    /// Told of each message that a connection sends, before the bus reads it.
    var onSent: ((Message, _ sender: Peer) -> Void)?
    /// Told when a message of one connection stands before another, unread.
    var onDelivered: ((_ sender: Peer, _ receiver: Peer) -> Void)?
    /// Told when a connection has read a message of another, by that one's number.
    var onRead: ((Message, _ sender: Int, _ reader: Peer) -> Void)?
    /// Told when it has let go of a descriptor that its receiver does not get, and for whom that was.
    var onLostDescriptor: ((UniqueName) -> Void)?
    /// Calls of the service to others that it has no room for, as its quotas are used up by others just then.
    struct Refusals: Equatable {
        var share = 1.0
        var ofPings = false
        var ofBarriers = false
    }

    var refusals: Refusals?
    /// How long barriers take to where they are answered, in microseconds, besides the usual time.
    var barrierDelay: Int64 = 0
    /// When the last of those comes out that were carried late.
    private(set) var lastLateBarrier: Int64 = 0
    /// What it does to descriptors.
    var descriptorTrouble: Streams.Trouble?
    /// Loses some of the notifications, which no bus does.
    var losesSignals = false
    private var signalCount = 0
    private(set) var peers: [UniqueName: Peer] = [:]
    /// By the order in which they connected, so that the same seed has the same order of everything.
    private var connected: [Peer] = []
    /// Who has a name, and who waits for it.
    private var owners: [WellKnownName: [Peer]] = [:]
    private var waitingForStart: [WellKnownName: [(message: Message, sender: Peer)]] = [:]
    private var lastNumber = 0
    private var random: Random
    private var lastSerial: UInt32 = 0
    /// Directed signals that were discarded for want of room.
    private(set) var discarded = 0

    init(_ world: World, id: String, manner: Manner) {
        self.world = world
        self.id = id
        self.manner = manner
        random = Random(seed: world.seed, stream: 1 << 33)
    }

    func connect(processID: UInt32) -> Peer {
        lastNumber += 1
        let peer = Peer(number: lastNumber, bus: self, processID: processID)
        connected.append(peer)
        return peer
    }

    func owner(of name: WellKnownName) -> Peer? { owners[name]?.first }

    /// Closes a connection, as a bus does for reasons of its own.
    func disconnect(_ peer: Peer) {
        guard peer.isOpen else { return }
        world.note("bus closes the connection of \(peer.name?.rawValue ?? "?")")
        peer.cut()
        remove(peer)
    }

    /// A connection was closed at its other end.
    func ended(_ peer: Peer) {
        remove(peer)
    }

    private func remove(_ peer: Peer) {
        guard let index = connected.firstIndex(where: { $0 === peer }) else { return }
        connected.remove(at: index)
        for name in owners.keys.sorted(by: { $0.rawValue < $1.rawValue }) { release(name, by: peer) }
        if let name = peer.name {
            peers[name] = nil
            announce(AnyBusName(name), from: name, to: nil)
        }
        let callers = peer.unanswered.sorted { ($0.caller, $0.serial) < ($1.caller, $1.serial) }
        for pending in callers {
            guard let caller = peers[pending.caller] else { continue }
            sendError(
                BusError(
                    name: BusError.noReplyName,
                    message: "Message recipient disconnected from message bus without replying"),
                to: caller, serial: pending.serial)
        }
        peer.unanswered = []
    }

    // MARK: Carrying

    func handle(_ message: Message, from sender: Peer) {
        guard sender.name != nil || message.member == "Hello" else { return disconnect(sender) }
        let destination = message.destination
        if destination == Self.ownName { return serve(message, from: sender) }
        guard let name = sender.name else { return }
        guard let destination else {
            onCarried?(message, sender, nil)
            return broadcast(message.carried(from: AnyBusName(name), serial: message.serial), senders: [name.rawValue])
        }
        guard let receiver = find(destination) else { return miss(message, from: sender, destination) }
        carry(message, from: sender, to: receiver)
    }

    private func find(_ name: AnyBusName) -> Peer? {
        if let unique = name.unique { return peers[unique] }
        return name.wellKnown.flatMap { owners[$0]?.first }
    }

    private func miss(_ message: Message, from sender: Peer, _ destination: AnyBusName) {
        guard message.kind == .methodCall else { return }
        if let name = destination.wellKnown, let start = activate[name], message.startsService {
            waitingForStart[name, default: []].append((message, sender))
            if waitingForStart[name]!.count == 1 { start() }
            return
        }
        guard !message.expectsNoReply else { return }
        let error = BusError(
            name: BusError.serviceUnknownName, message: "The name \(destination) was not provided by any .service files"
        )
        sendError(error, to: sender, serial: message.serial)
    }

    /// The process that was started for a name ended without taking it.
    func startFailed(_ name: WellKnownName) {
        for (message, sender) in waitingForStart.removeValue(forKey: name) ?? [] where !message.expectsNoReply {
            sendError(
                BusError(name: "org.freedesktop.DBus.Error.Spawn.ChildExited", message: "it ended"), to: sender,
                serial: message.serial)
        }
    }

    private func carry(_ message: Message, from sender: Peer, to receiver: Peer) {
        guard let name = sender.name, let receiverName = receiver.name else { return }
        let isReply = message.kind == .methodReturn || message.kind == .error
        if isReply {
            let pending = Peer.PendingReply(caller: receiverName, serial: message.replySerial)
            let wasAsked = sender.unanswered.remove(pending) != nil
            // dbus-daemon carries what nobody asked for.
            if !wasAsked, manner.kind == .broker { return }
        }
        if losesSignals, message.kind == .signal,
            message.hasMember(NotificationSignal.member) || message.hasMember(NotificationsSignal.member)
        {
            signalCount += 1
            if signalCount.isMultiple(of: 5) { return }
        }
        onCarried?(message, sender, receiver)
        if refuses(message) {
            world.note("bus: refuses a \(message.member?.rawValue ?? "") for \(receiverName)")
            return sendError(
                BusError(name: BusError.limitsExceededName, message: "a quota is used up"), to: sender,
                serial: message.serial)
        }
        var message = message
        if let descriptorTrouble, message.hasDescriptors {
            world.note("bus: \(descriptorTrouble) descriptor for \(receiverName)")
            onLostDescriptor?(receiverName)
            guard descriptorTrouble != .refused else { return }
            message = message.withoutDescriptors()
        }
        let delay = barrierDelay > 0 && message.hasMember("Barrier") ? barrierDelay : 0
        if delay > 0 { lastLateBarrier = max(lastLateBarrier, world.now + delay) }
        if receiver.deliver(message.carried(from: AnyBusName(name), serial: message.serial), from: sender, delay: delay)
        {
            if message.kind == .methodCall, !message.expectsNoReply {
                receiver.unanswered.insert(Peer.PendingReply(caller: name, serial: message.serial))
            }
            return
        }
        if message.hasDescriptors, descriptorTrouble == nil { onLostDescriptor?(receiverName) }
        discarded += 1
        world.note("bus has no room for \(receiverName): \(message.member?.rawValue ?? "a reply") of \(name)")
        let isTold = message.kind == .methodCall || manner.kind == .daemon && message.kind == .signal
        guard isTold else { return }
        sendError(
            BusError(name: BusError.limitsExceededName, message: "the connection has too much to read"), to: sender,
            serial: message.serial)
    }

    private func refuses(_ message: Message) -> Bool {
        guard let refusals, message.kind == .methodCall else { return false }
        guard refusals.ofPings && message.hasMember("Ping") || refusals.ofBarriers && message.hasMember("Barrier")
        else {
            return false
        }
        return random.happens(refusals.share)
    }

    private func broadcast(_ signal: Message, senders: [String]) {
        for peer in connected where peer.name != nil {
            if peer.rules.keys.contains(where: { $0.matches(signal, from: senders) }) { _ = peer.deliver(signal) }
        }
    }

    // MARK: The bus's own words

    private func nextSerial() -> UInt32 {
        lastSerial += 1
        return lastSerial
    }

    private func send(_ message: Message, to peer: Peer) {
        _ = peer.deliver(message.carried(from: Self.ownName, serial: nextSerial()))
    }

    private func sendError(_ error: BusError, to peer: Peer, serial: UInt32) {
        guard let name = peer.name else { return }
        send(.errorReply(error, to: name, serial: serial), to: peer)
    }

    private func announce(_ name: AnyBusName, from old: UniqueName?, to new: UniqueName?) {
        let signal = Message.signal(path: Self.ownPath, interface: Self.ownInterface, member: "NameOwnerChanged")
        var writer = MessageWriter(signal)
        writer.append(name.rawValue)
        writer.append(old?.rawValue ?? "")
        writer.append(new?.rawValue ?? "")
        broadcast(signal.carried(from: Self.ownName, serial: nextSerial()), senders: [Self.ownName.rawValue])
    }

    private func tell(_ peer: Peer, _ member: MemberName, _ name: WellKnownName) {
        let signal = Message.signal(
            to: peer.name, path: Self.ownPath, interface: Self.ownInterface, member: member)
        var writer = MessageWriter(signal)
        writer.append(name.rawValue)
        send(signal, to: peer)
    }

    // MARK: Its methods

    private func serve(_ call: Message, from sender: Peer) {
        guard call.kind == .methodCall else { return }
        let number = call.serial
        func reply(_ body: (inout MessageWriter) -> Void = { _ in }) {
            guard !call.expectsNoReply, let name = sender.name else { return }
            let reply = Message.forgedReply(to: name, serial: number)
            var writer = MessageWriter(reply)
            body(&writer)
            send(reply, to: sender)
        }
        func refuse(_ error: BusError) {
            if !call.expectsNoReply { sendError(error, to: sender, serial: number) }
        }
        var arguments = MessageReader(call)
        switch call.member?.rawValue {
        case "Hello" where sender.name == nil:
            let name = UniqueName(unchecked: ":1.\(sender.number)")
            sender.name = name
            peers[name] = sender
            reply { $0.append(name.rawValue) }
            announce(AnyBusName(name), from: nil, to: name)
        case "GetId": reply { $0.append(id) }
        case "AddMatch":
            guard let text = try? arguments.readString(), let rule = MatchRule(text) else {
                return refuse(BusError(name: "org.freedesktop.DBus.Error.MatchRuleInvalid", message: ""))
            }
            guard sender.ruleCount < manner.maxRules else {
                return refuse(BusError(name: BusError.limitsExceededName, message: "too many match rules"))
            }
            sender.rules[rule, default: 0] += 1
            reply()
        case "RemoveMatch":
            guard let text = try? arguments.readString(), let rule = MatchRule(text), let count = sender.rules[rule]
            else { return refuse(BusError(name: "org.freedesktop.DBus.Error.MatchRuleNotFound", message: "")) }
            sender.rules[rule] = count > 1 ? count - 1 : nil
            reply()
        case "RequestName":
            guard let name = (try? arguments.readString()).flatMap(WellKnownName.init(rawValue:)),
                let flags = try? arguments.read(UInt32.self)
            else { return refuse(.invalidArgs("")) }
            let code = request(name, by: sender, queues: flags & 4 == 0)
            reply { $0.append(code) }
        case "ReleaseName":
            guard let name = (try? arguments.readString()).flatMap(WellKnownName.init(rawValue:)) else {
                return refuse(.invalidArgs(""))
            }
            let wasOwner = owners[name]?.contains { $0 === sender } == true
            release(name, by: sender)
            reply { $0.append(UInt32(wasOwner ? 1 : 3)) }
        case "GetNameOwner":
            guard let name = try? arguments.readString(), let owner = find(AnyBusName(unchecked: name))?.name else {
                return refuse(BusError(name: BusError.nameHasNoOwnerName, message: "the name has no owner"))
            }
            reply { $0.append(owner.rawValue) }
        case "ListNames":
            reply { writer in
                writer.array(of: "s") { writer in for name in peers.keys { writer.append(name.rawValue) } }
            }
        case "GetConnectionCredentials":
            guard let name = try? arguments.readString(), let peer = find(AnyBusName(unchecked: name)) else {
                return refuse(BusError(name: BusError.nameHasNoOwnerName, message: "the name has no owner"))
            }
            reply { writer in
                writer.array(of: "{sv}") { writer in
                    writer.entry("ProcessID", peer.processID)
                    writer.entry("UnixUserID", peer.userID)
                }
            }
        default: refuse(.unknownMethod("the simulated bus has no \(call.member?.rawValue ?? "")"))
        }
    }

    private func request(_ name: WellKnownName, by peer: Peer, queues: Bool) -> UInt32 {
        guard let owner = owners[name]?.first else {
            owners[name] = [peer]
            onOwner?(name, peer.name)
            announce(AnyBusName(name), from: nil, to: peer.name)
            tell(peer, "NameAcquired", name)
            for (message, sender) in waitingForStart.removeValue(forKey: name) ?? [] where sender.isOpen {
                carry(message, from: sender, to: peer)
            }
            return 1
        }
        if owner === peer { return 4 }
        guard queues else { return 3 }
        owners[name]!.append(peer)
        return 2
    }

    private func release(_ name: WellKnownName, by peer: Peer) {
        guard let index = owners[name]?.firstIndex(where: { $0 === peer }) else { return }
        owners[name]!.remove(at: index)
        guard index == 0 else { return }
        let next = owners[name]!.first
        if next == nil { owners[name] = nil }
        onOwner?(name, next?.name)
        announce(AnyBusName(name), from: peer.name, to: next?.name)
        tell(peer, "NameLost", name)
        if let next { tell(next, "NameAcquired", name) }
    }
}
