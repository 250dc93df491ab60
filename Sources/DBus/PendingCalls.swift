// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonMainLoop

/// The table of a connection's calls without a reply, with the expected sender of each reply (E6). ``Connection`` uses
/// it.
///
/// libdbus completes a call with the first message that carries its serial, and any connection can send such a message.
/// Its table is therefore not used. Here a reply counts only if it comes from the called connection: for a well-known
/// name from its owner, as the bus announced it. An error may also come from the bus, which answers for absent peers.
/// Replies of other senders are counted and ignored, and the call stays pending.
///
/// One timer, set to the earliest deadline, serves all calls.
final class PendingCalls {
    typealias Completion = (Result<Message, BusError>) -> Void

    /// The expected sender of a reply.
    enum Peer {
        case bus
        case connection(UniqueName)
        /// A connection that owns a name now, or has owned it since the call was sent. `since` is the number of owner
        /// changes that the bus had announced by then; see ``NameOwners``.
        case owner(of: WellKnownName, since: UInt64)
    }

    private struct Call {
        /// The position among all calls of the connection, for the order of completions.
        let number: UInt64
        let peer: Peer
        /// The timeout in milliseconds; nil for none.
        let timeout: UInt32?
        let deadline: SuspendingClock.Instant?
        let completion: Completion
        /// Replies of senders that are not known to own the called name, until the bus reports its owner.
        var candidates: [UniqueName: Message] = [:]
    }

    /// Called to request the owner of a name from the bus. The connection passes the answer to
    /// ``ownerReported(_:of:)``.
    var requestOwner: ((WellKnownName) -> Void)?
    /// The number of ignored replies from senders other than the called peer.
    private(set) var forged: UInt64 = 0

    private let context: MainContext
    private var calls: [UInt32: Call] = [:]  // by the serials of their messages
    private var lastNumber: UInt64 = 0
    private var owners: [WellKnownName: NameOwners] = [:]
    /// Names whose owner has been requested from the bus, which has not answered.
    private var ownerRequests: Set<WellKnownName> = []
    private var timer: (source: EventSource, due: SuspendingClock.Instant)?
    /// The number of calls with a deadline.
    private var timedCalls = 0
    private var isClosed = false

    #if CARILLON_PLANTED
        // The planted fault `unverified-sender`: replies of any sender count. A simulation has one thread.
        nonisolated(unsafe) static var acceptsAnySender = false
    #endif

    /// The capacity up to which an empty table keeps its memory, in calls.
    private static let keptCapacity = 256
    /// The minimum interval between two timers, so that calls with close deadlines expire together.
    private static let granularity = Duration.milliseconds(20)
    /// The maximum number of ``Call/candidates`` per call. Any connection can send some, so further ones count as
    /// forged.
    private static let maxCandidates = 16

    init(context: MainContext) {
        self.context = context
    }

    /// Closes the table with its connection. No call is completed from then on, even if it was already removed for
    /// completion.
    func close() {
        isClosed = true
        timer = nil
        calls = [:]
    }

    // MARK: Calls

    /// Adds a call that has just been sent.
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

    /// Handles a received reply: completes its call, or counts it as forged, or keeps it as a candidate.
    ///
    /// - Returns: Whether it has the serial of a pending call.
    func take(_ reply: Message) -> Bool {
        let serial = reply.replySerial
        guard serial != 0, let call = calls[serial] else { return false }
        if reply.comesFromBus {
            let mayAnswer = if case .bus = call.peer { true } else { reply.kind == .error }
            if mayAnswer { complete(serial, with: reply) } else { recordForged(reply) }
            return true
        }
        #if CARILLON_PLANTED
            if Self.acceptsAnySender {
                complete(serial, with: reply)
                return true
            }
        #endif
        // A sender field that holds no unique name, which no bus sets, is ignored.
        guard let sender = reply.sender else { return true }
        switch call.peer {
        case .bus: recordForged(reply)
        case .connection(let name): if sender == name { complete(serial, with: reply) } else { recordForged(reply) }
        case .owner(let name, let epoch):
            if owners[name]?.hasOwned(sender, since: epoch) == true {
                complete(serial, with: reply)
            } else if call.candidates.count < Self.maxCandidates {
                // The sender may be a new owner nevertheless. The bus does not announce each change: it may refuse a
                // match rule, or drop its own signal for lack of space.
                calls[serial]?.candidates[sender] = reply
                if ownerRequests.insert(name).inserted { requestOwner?(name) }
            } else {
                recordForged(reply)
            }
        }
        return true
    }

    /// Completes all calls with an error, in the order in which they were made.
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
        // The memory of a burst is released with its last call.
        if calls.isEmpty, calls.capacity > Self.keptCapacity { calls = [:] }
        if call.deadline != nil {
            timedCalls -= 1
            if timedCalls == 0 { timer = nil }
        }
        return call
    }

    /// Counts an ignored reply, and logs it at a limited rate.
    private func recordForged(_ reply: Message) {
        guard let count = Log.throttle(&forged) else { return }
        Log.warning(
            "ignored an unexpected reply from \(reply.senderText) (\(count) so far)",
            ["CARILLON_CLIENT": reply.senderText, "CARILLON_REASON": "forged-reply"])
    }

    // MARK: Owners of names

    /// Returns the expected sender for a call to `name` that is sent now; nil if ``follow(_:)`` was not called for the
    /// name.
    func peer(owning name: WellKnownName) -> Peer? {
        owners[name].map { .owner(of: name, since: $0.epoch) }
    }

    /// Begins to record the owners of `name`, which the bus announces from now on. Returns the expected sender for a
    /// call that is sent now.
    func follow(_ name: WellKnownName) -> Peer {
        owners[name] = NameOwners()
        return .owner(of: name, since: 0)
    }

    /// Handles the answer of the bus to a request for the owner of `name`; nil if there is none. It decides about all
    /// candidates.
    func ownerReported(_ owner: UniqueName?, of name: WellKnownName) {
        ownerRequests.remove(name)
        ownerChanged(name, to: owner)
        for (serial, call) in calls.filter({ !$0.value.candidates.isEmpty }).sorted(by: { $0.key < $1.key }) {
            guard !isClosed, case .owner(of: name, since: _) = call.peer else { continue }
            calls[serial]?.candidates = [:]
            for (sender, reply) in call.candidates {
                if sender == owner { complete(serial, with: reply) } else { recordForged(reply) }
            }
        }
    }

    /// Handles the announcement of a new owner of `name`.
    func ownerChanged(_ name: WellKnownName, to owner: UniqueName?) {
        owners[name]?.changed(to: owner)
    }

    // MARK: Time

    /// Replaces the timer by a new one, which ends just after `due`.
    private func setTimer(for due: SuspendingClock.Instant) {
        let left = context.now.duration(to: due).components
        let milliseconds = left.seconds * 1000 + left.attoseconds / 1_000_000_000_000_000 + 1
        timer = (
            .once(milliseconds: UInt32(clamping: max(0, milliseconds)), on: context) { [unowned self] in
                failOverdueCalls()
            }, due
        )
    }

    /// Completes the calls whose deadline has passed with an error, and sets the timer to the next deadline.
    private func failOverdueCalls() {
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
        // The loop may run so late that several deadlines have passed; the calls fail in the order of their deadlines.
        late.sort { ($0.deadline, $0.number) < ($1.deadline, $1.number) }
        let failed = late.compactMap { remove($0.serial) }
        if let earliest { setTimer(for: max(earliest, now + Self.granularity)) }
        for call in failed where !isClosed {
            call.completion(
                .failure(BusError(name: BusError.noReplyName, message: "no reply within \(call.timeout ?? 0) ms")))
        }
    }
}

/// The current owner and the recent owners of a well-known name, as the bus announced them.
private struct NameOwners {
    /// The number of changes so far.
    private(set) var epoch: UInt64 = 0
    private var current: UniqueName?
    /// Former owners, each with the number of the change that ended its ownership.
    private var former: [(owner: UniqueName, until: UInt64)] = []
    /// The maximum number of former owners. After so many changes during one call, a reply of the first owner is
    /// ignored.
    private static let maxFormer = 8

    mutating func changed(to owner: UniqueName?) {
        guard owner != current else { return }
        epoch += 1
        if let current { former.append((current, epoch)) }
        if former.count > Self.maxFormer { former.removeFirst() }
        current = owner
    }

    /// Whether a connection has been the owner at any time since there were `epoch` changes.
    func hasOwned(_ name: UniqueName, since epoch: UInt64) -> Bool {
        name == current || former.contains { $0.owner == name && $0.until > epoch }
    }
}

extension Message {
    /// Whether the message comes from the bus, or from a proxy between bus and process, as in a sandbox. A message of a
    /// proxy itself has no sender. No connection can imitate that, since the bus sets the sender on each message.
    fileprivate var comesFromBus: Bool { isFromBus || !hasSender }

    fileprivate var senderText: String { sender?.rawValue ?? "the bus" }
}
