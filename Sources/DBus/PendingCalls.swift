// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonMainLoop

/// The calls of a connection that wait for a reply, and from whom each must come (E6).
///
/// libdbus has such a table of its own, but completes a call with the first message that carries its number, whoever
/// sent it, and any connection can send that to any other. So its table is not used. Here a reply counts when it comes
/// from the connection that was called: for a well-known name from its owner, as the bus told that. An error may also
/// come from the bus, which answers for those that can't. What comes from anybody else is counted and passed over, and
/// the call goes on waiting.
///
/// One timer serves all calls, set for the earliest.
final class PendingCalls {
    typealias Completion = (Result<Message, BusError>) -> Void

    /// From whom a reply must come.
    enum Peer {
        case bus
        case connection(UniqueName)
        /// From who owns the name, or did so since this state of ``NameOwners``.
        case owner(of: WellKnownName, since: UInt64)
    }

    private struct Call {
        let number: UInt64
        let peer: Peer
        let timeout: UInt32?
        let deadline: SuspendingClock.Instant?
        let completion: Completion
        /// Replies of which the bus has to say first whether they come from the owner, by their senders.
        var candidates: [UniqueName: Message] = [:]
    }

    /// Asks the bus who owns a name; the answer goes to ``ownerIs(_:of:)``.
    var askForOwner: ((WellKnownName) -> Void)?
    /// Replies that came from others than those who were asked.
    private(set) var forged: UInt64 = 0

    private let context: MainContext
    private var calls: [UInt32: Call] = [:]  // by the serials of their messages
    private var lastNumber: UInt64 = 0
    private var owners: [WellKnownName: NameOwners] = [:]
    /// Names of whose owners the bus is being asked.
    private var asked: Set<WellKnownName> = []
    private var timer: (source: EventSource, due: SuspendingClock.Instant)?
    private var timedCalls = 0
    private var isClosed = false

    #if CARILLON_PLANTED
        // The fault `stranger-believed`; a simulation has one thread.
        nonisolated(unsafe) static var believesStrangers = false
    #endif

    private static let keptCapacity = 256
    /// The timer is not set again sooner: many calls end together then.
    private static let granularity = Duration.milliseconds(20)
    /// Senders of whom the bus is asked at a time, for one call.
    private static let maxCandidates = 16

    init(context: MainContext) {
        self.context = context
    }

    /// The connection goes away: nothing is completed any more, not even what has been taken out to be.
    func close() {
        isClosed = true
        timer = nil
        calls = [:]
    }

    // MARK: Calls

    func add(serial: UInt32, peer: Peer, timeout: ReplyTimeout, completion: @escaping Completion) {
        lastNumber += 1
        let milliseconds: UInt32? =
            switch timeout {
            case .standard: 25_000
            case .milliseconds(let milliseconds): UInt32(max(0, milliseconds))
            case .never: nil
            }
        let deadline = milliseconds.map { context.now + .milliseconds($0) }
        calls[serial] = Call(
            number: lastNumber, peer: peer, timeout: milliseconds, deadline: deadline, completion: completion)
        guard let deadline else { return }
        timedCalls += 1
        if timer.map({ deadline < $0.due }) ?? true { setTimer(for: deadline) }
    }

    /// Takes a reply. Returns whether it has the number of a call that waits; all others are for nobody.
    func take(_ reply: Message) -> Bool {
        let serial = reply.replySerial
        guard serial != 0, let call = calls[serial] else { return false }
        if reply.comesFromBus {
            let mayAnswer = if case .bus = call.peer { true } else { reply.kind == .error }
            if mayAnswer { complete(serial, with: reply) } else { noteForged(reply) }
            return true
        }
        #if CARILLON_PLANTED
            if Self.believesStrangers {
                complete(serial, with: reply)
                return true
            }
        #endif
        guard let sender = reply.sender else { return true }
        switch call.peer {
        case .bus: noteForged(reply)
        case .connection(let name): if sender == name { complete(serial, with: reply) } else { noteForged(reply) }
        case .owner(let name, let epoch):
            if owners[name]?.hasOwned(sender, since: epoch) == true {
                complete(serial, with: reply)
            } else if call.candidates.count < Self.maxCandidates {
                // The bus does not tell every change: not where it has no room for a rule, or had none for its own signal.
                calls[serial]?.candidates[sender] = reply
                if asked.insert(name).inserted { askForOwner?(name) }
            } else {
                noteForged(reply)
            }
        }
        return true
    }

    /// No reply will come any more.
    func failAll(with error: BusError) {
        let all = calls.values.sorted { $0.number < $1.number }
        calls = [:]
        timedCalls = 0
        timer = nil
        for call in all where !isClosed { call.completion(.failure(error)) }
    }

    private func complete(_ serial: UInt32, with reply: Message) {
        guard let call = remove(serial) else { return }
        call.completion(reply.error.map { .failure($0) } ?? .success(reply))
    }

    private func remove(_ serial: UInt32) -> Call? {
        guard let call = calls.removeValue(forKey: serial) else { return nil }
        // The room of a burst goes with it.
        if calls.isEmpty, calls.capacity > Self.keptCapacity { calls = [:] }
        if call.deadline != nil {
            timedCalls -= 1
            if timedCalls == 0 { timer = nil }
        }
        return call
    }

    private func noteForged(_ reply: Message) {
        guard let count = Log.throttle(&forged) else { return }
        Log.warning(
            "ignored a reply from \(reply.senderText), who was not asked (\(count) so far)",
            ["CARILLON_CLIENT": reply.senderText, "CARILLON_REASON": "forged-reply"])
    }

    // MARK: Owners of names

    /// Who has to answer a call to `name` that is sent now; nil when nothing has been heard of the name yet.
    func peer(owning name: WellKnownName) -> Peer? {
        owners[name].map { .owner(of: name, since: $0.epoch) }
    }

    /// From now on the bus tells who owns `name`.
    func follow(_ name: WellKnownName) -> Peer {
        owners[name] = NameOwners()
        return .owner(of: name, since: 0)
    }

    /// The bus answered who owns `name`.
    func ownerIs(_ owner: UniqueName?, of name: WellKnownName) {
        asked.remove(name)
        ownerChanged(name, to: owner)
        for (serial, call) in calls.filter({ !$0.value.candidates.isEmpty }).sorted(by: { $0.key < $1.key }) {
            guard !isClosed, case .owner(of: name, since: _) = call.peer else { continue }
            calls[serial]?.candidates = [:]
            for (sender, reply) in call.candidates {
                if sender == owner { complete(serial, with: reply) } else { noteForged(reply) }
            }
        }
    }

    /// The bus told who owns `name` from now on.
    func ownerChanged(_ name: WellKnownName, to owner: UniqueName?) {
        owners[name]?.changed(to: owner)
    }

    // MARK: Time

    private func setTimer(for due: SuspendingClock.Instant) {
        let left = context.now.duration(to: due).components
        let milliseconds = left.seconds * 1000 + left.attoseconds / 1_000_000_000_000_000 + 1
        timer = (
            .once(milliseconds: UInt32(clamping: max(0, milliseconds)), on: context) { [unowned self] in
                failLate()
            }, due
        )
    }

    private func failLate() {
        let now = context.now
        timer = nil
        var late: [(serial: UInt32, number: UInt64, deadline: SuspendingClock.Instant)] = []
        var earliest: SuspendingClock.Instant?
        for (serial, call) in calls {
            guard let deadline = call.deadline else { continue }
            if deadline <= now {
                late.append((serial, call.number, deadline))
            } else {
                earliest = min(earliest ?? deadline, deadline)
            }
        }
        // Also where the loop comes to it so late that the time of several is over.
        late.sort { ($0.deadline, $0.number) < ($1.deadline, $1.number) }
        let failed = late.compactMap { remove($0.serial) }
        if let earliest { setTimer(for: max(earliest, now + Self.granularity)) }
        for call in failed where !isClosed {
            call.completion(
                .failure(BusError(name: BusError.noReplyName, message: "no reply within \(call.timeout ?? 0) ms")))
        }
    }
}

/// Who owns a well-known name, and who did so lately.
private struct NameOwners {
    private(set) var epoch: UInt64 = 0
    private var current: UniqueName?
    /// Each with the epoch in which it was no more.
    private var former: [(owner: UniqueName, until: UInt64)] = []
    /// A call that outlives so many changes is answered by nobody who is there to ask.
    private static let maxFormer = 8

    mutating func changed(to owner: UniqueName?) {
        guard owner != current else { return }
        epoch += 1
        if let current { former.append((current, epoch)) }
        if former.count > Self.maxFormer { former.removeFirst() }
        current = owner
    }

    func hasOwned(_ name: UniqueName, since epoch: UInt64) -> Bool {
        name == current || former.contains { $0.owner == name && $0.until > epoch }
    }
}

extension Message {
    /// Whether it comes from the bus, or from whatever stands between it and us, as the proxy of a sandbox does: the
    /// bus leaves no message of a connection without its sender.
    fileprivate var comesFromBus: Bool { isFromBus || !hasSender }

    fileprivate var senderText: String { sender?.rawValue ?? "the bus" }
}
