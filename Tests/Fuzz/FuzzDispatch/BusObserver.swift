// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonFuzzSupport
import CarillonWire

/// What a bus would see of the service, and the rules for it.
final class BusObserver {
    /// Signals `Notification` that were sent.
    private(set) var notifications: UInt64 = 0
    /// The sum of the signals `Dropped` that tell a number, and the largest bound that one told. A bound has what was told
    /// before in it, where that may not have arrived.
    private(set) var announcedLosses: UInt64 = 0
    private(set) var largestBound: UInt64 = 0

    /// Replies that are due, by caller and serial. One caller may use a serial twice.
    private var due: [Caller: Int] = [:]
    /// Replies that callers which left may still be sent.
    private var excused: [Caller: Int] = [:]
    /// Whether something was urgent so far: it overtakes, and there is one order no longer (M6).
    private var hasUrgent = false
    private var known: [String: Known] = [:]

    private static let peer: InterfaceName = "org.freedesktop.DBus.Peer"

    private struct Caller: Hashable {
        let name: String
        let serial: UInt32
    }

    /// A client since it first called, or since it last left.
    private struct Known {
        var sequence: UInt64 = 0
        var serial: UInt64 = 0
        /// Notifications since the last answer, or the end of a time, which lets more go out.
        var unconfirmed = 0
        /// Whether it did something that makes it a client.
        var isClient = false
        /// The signals that it asked for, and which are told to callers that are no clients, too.
        var follows: Set<MemberName> = []
        /// Whether it asked for values that are kept, which come with the serials that they had (R2).
        var wantsValues = false
        /// Whether it posted without waiting for an answer, so that it is told of posts that are refused.
        var postsSilently = false
    }

    /// Two windows of 64.
    private static let maxUnconfirmed = 128
    private static let makesClient: Set<String> = ["AddObserver", "SetSuspended", "FollowActivity", "SetClientOptions"]
    private static let followed: [MemberName: MemberName] = [
        FollowInterest.member: InterestChangedSignal.member, FollowValues.member: ValuesRemovedSignal.member,
    ]

    /// Those that made themselves clients and did not leave.
    var clients: [String] { known.filter(\.value.isClient).keys.sorted() }

    func arrived(_ message: Message, from sender: String) {
        guard message.kind == .methodCall else { return }
        if !hasUrgent { hasUrgent = asksForUrgency(message) }
        if !message.expectsNoReply {
            due[Caller(name: sender, serial: message.serial), default: 0] += 1
        } else if [PostCall.member, PostMany.member, PostJSON.member].contains(message.member) {
            known[sender, default: Known()].postsSilently = true
        }
        if let member = message.member?.rawValue, Self.makesClient.contains(member) {
            known[sender, default: Known()].isClient = true
        }
        if let member = message.member, let signal = Self.followed[member] {
            known[sender, default: Known()].follows.insert(signal)
        }
        if observerOptions(message)?.wantsRetained == true { known[sender, default: Known()].wantsValues = true }
    }

    private func observerOptions(_ message: Message) -> ObserverOptions? {
        guard message.member?.rawValue == "AddObserver", message.signature == "ssa{sv}" else { return nil }
        var reader = MessageReader(message)
        for _ in 0..<2 { reader.skip() }
        return try? ObserverOptions(from: &reader)
    }

    private func asksForUrgency(_ message: Message) -> Bool {
        if let options = observerOptions(message) { return options.runLoopMode != .default }
        var reader = MessageReader(message)
        switch (message.member?.rawValue, message.signature) {
        case ("Post", "ssa{sv}a{sv}"):
            for _ in 0..<3 { reader.skip() }
            return (try? PostOptions(from: &reader))?.deliverImmediately ?? false
        case ("PostMany", "a(ssa{sv}a{sv})"):
            guard var posts = try? reader.readContainer(.array) else { return false }
            while !posts.isAtEnd, var post = try? posts.readContainer(.structure) {
                for _ in 0..<3 { post.skip() }
                if (try? PostOptions(from: &post))?.deliverImmediately == true { return true }
            }
            return false
        default: return false
        }
    }

    func left(_ client: String) {
        known[client] = nil
        // What is on its way to it may come or not.
        for (caller, count) in due where caller.name == client {
            due[caller] = nil
            excused[caller, default: 0] += count
        }
    }

    func answered(_ call: Message) {
        if let client = call.destination?.rawValue { known[client]?.unconfirmed = 0 }
    }

    func timePassed() {
        for client in known.keys { known[client]!.unconfirmed = 0 }
    }

    func expectAllAnswered() {
        for (caller, count) in due where count != 0 {
            Fuzzer.fail("call \(caller.serial) of \(caller.name) lacks \(count) replies")
        }
    }

    func sent(_ message: Message) {
        Fuzzer.expect(Message.arriving(message.marshalled, from: ":1.0") != nil, "sent what libdbus refuses")
        switch message.kind {
        case .methodReturn?, .error?: replied(message)
        case .signal?: signalled(message)
        case .methodCall?:
            let isProbe = message.hasInterface(Self.peer) && !message.expectsNoReply
            let isToBus = message.hasInterface("org.freedesktop.DBus")
            Fuzzer.expect(isProbe || isToBus, "called \(message.member?.rawValue ?? "")")
        case nil: Fuzzer.fail("sent a message of no kind")
        }
    }

    private func replied(_ message: Message) {
        let caller = Caller(name: message.destination?.rawValue ?? "", serial: message.replySerial)
        if due[caller] == nil, let count = excused[caller], count > 0 { return excused[caller] = count - 1 }
        let count = due[caller] ?? 0
        Fuzzer.expect(count > 0, "replied to call \(caller.serial) of \(caller.name), which is not due")
        due[caller] = count == 1 ? nil : count - 1
    }

    private func signalled(_ message: Message) {
        guard let client = message.destination?.rawValue else {
            let isChange = message.isSignal("org.freedesktop.DBus.Properties", "PropertiesChanged")
            return Fuzzer.expect(isChange, "broadcast \(message.member?.rawValue ?? "")")
        }
        if let member = message.member, known[client]?.follows.contains(member) == true { return }
        if known[client]?.postsSilently == true, let signal = (try? PostsRefusedSignal(message)) ?? nil {
            return Fuzzer.expect(signal.count > 0, "\(client): told of no refused post")
        }
        guard var state = known[client], state.isClient else {
            Fuzzer.fail("sent \(message.member?.rawValue ?? "") to \(client), who is no client")
        }
        do throws(BusError) {
            if let signal = try NotificationSignal(message) {
                received(signal, by: client, &state)
                countUnconfirmed(of: client, &state)
            } else if let together = try NotificationsSignal(message) {
                Fuzzer.expect(!together.notifications.isEmpty, "\(client) was sent no notification")
                for signal in together.notifications { received(signal, by: client, &state) }
                countUnconfirmed(of: client, &state)
            } else if let signal = try DroppedSignal(message) {
                Fuzzer.expect(signal.count > 0, "\(client): announced no loss")
                if signal.isBound {
                    largestBound = max(largestBound, signal.count)
                } else {
                    announcedLosses += signal.count
                }
                // Those of a bound had their numbers before.
                if !signal.isBound { state.sequence += signal.count }
            } else if try SuspensionChangedSignal(message) == nil {
                Fuzzer.fail("sent \(message.member?.rawValue ?? "") to \(client)")
            }
        } catch {
            Fuzzer.fail("sent what does not follow the contract: \(error)")
        }
        known[client] = state
    }

    private func received(_ signal: NotificationSignal, by client: String, _ state: inout Known) {
        notifications += 1
        state.sequence += 1
        Fuzzer.expect(
            signal.sequence == state.sequence, "\(client): \(signal.sequence) where \(state.sequence) is next")
        Fuzzer.expect(hasUrgent || state.wantsValues || signal.serial > state.serial, "\(client): order is lost")
        Fuzzer.expect(!signal.observers.isEmpty, "\(client): for no observer")
        Fuzzer.expect(!signal.name.isEmpty, "\(client): no name")
        Fuzzer.expect(Set(signal.observers).count == signal.observers.count, "\(client): an observer twice")
        state.serial = signal.serial
    }

    private func countUnconfirmed(of client: String, _ state: inout Known) {
        state.unconfirmed += 1
        Fuzzer.expect(
            state.unconfirmed <= Self.maxUnconfirmed, "\(client) was sent more than it may leave unconfirmed")
    }
}
