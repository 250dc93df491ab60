// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// A client in any language: a connection, calls, and what a D-Bus library does by itself. It knows nothing of restarts.
final class PlainClient: Client {
    private(set) var witness: Witness?
    private(set) var isThere = true
    let peer: Peer
    let world: World
    private let bus: Bus
    let ledger: Ledger
    let streams: Streams
    let role: Plan.Role
    private(set) var follower: Follower?
    /// What it has of channels: `+Channel`.
    var channels = ChannelState()
    private var calls: [UInt32: (Result<Message, BusError>) -> Void] = [:]
    /// Observers that policy took before their number was known.
    private var revokedEarly: Set<ObserverID> = []
    private var slots: [Int: Int] = [:]
    /// What was asked for before there was a name.
    private var early: [() -> Void] = []
    private(set) var isStopped = false
    private(set) var slowness: Int64 = 1
    private var isReadingScheduled = false
    /// When it asked for its notifications together; nil before that is answered, and where it did not ask.
    private var batchesSince: Int64?
    private static let maxTogether = 100
    /// Answers that took longer than this while nothing was the matter are a violation of fairness.
    private static let patience: Int64 = 10_000_000
    /// In microseconds, before it says again what the service had no room for.
    private static let untilAgain: Int64 = 1_000_000
    /// The same for who calls rarely beside those who call without end. The service may leave its connection unread for
    /// a second, and then has to read what came meanwhile.
    private static let rarePatience: Int64 = 2_000_000

    init(_ world: World, _ bus: Bus, _ ledger: Ledger, _ streams: Streams, role: Plan.Role, processID: UInt32) {
        self.world = world
        self.bus = bus
        self.ledger = ledger
        self.streams = streams
        self.role = role
        peer = bus.connect(processID: processID)
        peer.onReadable = { [weak self] in self?.scheduleReading() }
        let hello = Message.methodCall(
            to: AnyBusName("org.freedesktop.DBus"), path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
            member: "Hello")
        call(hello) { [unowned self] result in
            guard case .success(let reply) = result else { return }
            var reader = MessageReader(reply)
            guard let name = try? reader.readUniqueName() else { return }
            ledger.policy.note(name, role.application)
            witness = Witness(name, ledger: ledger, mode: role.mode, isLibrary: false)
            witness?.isReading = { [unowned self] in !isStopped && slowness == 1 && !role.isLiar && role.answersPings }
            setOptions()
            follower = role.followsBy.map { Follower(self, page: $0) }
            follower?.ask()
            if role.hasChannel { openChannel() }
            let early = early
            self.early = []
            for action in early { action() }
        }
    }

    // MARK: Its deeds

    func observe(
        slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: RunLoopMode, values: Bool,
        interval: UInt32
    ) {
        whenNamed { [unowned self] witness in
            guard slots[slot] == nil else { return }
            let number = witness.register(
                name: name, object: object, behavior, mode, values: values, interval: interval)
            slots[slot] = number
            let options = ObserverOptions(
                suspensionBehavior: behavior, runLoopMode: mode, wantsRetained: values, minimumInterval: interval)
            let method = AddObserver(
                name: name.map(Names.name) ?? "", object: object.map(Names.object) ?? "", options: options)
            let asked = world.now
            request(method) { [unowned self] result in
                ledger.policy.judge(.observe, name, of: witness.client, asked: asked, result)
                guard let id = try? result.get() else {
                    // It may be there all the same.
                    if slots[slot] == number { slots[slot] = nil }
                    return
                }
                // An answer that is read late may be older than a loss of the state.
                guard !ledger.wasStateLost(since: witness.registrations[number].asked) else {
                    // Numbers begin anew then.
                    revokedEarly.remove(id)
                    return
                }
                witness.acknowledge(number, id: id)
                if revokedEarly.remove(id) != nil { revoked([id]) }
            }
        }
    }

    func unobserve(slot: Int) {
        whenNamed { [unowned self] witness in
            guard let number = slots[slot], let id = witness.registrations[number].id else { return }
            slots[slot] = nil
            witness.remove(number)
            witness.remove(everythingWith: id)
            ask(RemoveObserver(id)) { if $0 != nil { witness.acknowledgeRemoval(number) } }
        }
    }

    func removeAll(name: Int?) {
        whenNamed { [unowned self] witness in
            for (slot, number) in slots where name == nil || witness.registrations[number].name == name {
                slots[slot] = nil
            }
            let numbers = witness.registrations.indices.filter {
                name == nil || witness.registrations[$0].name == name
            }
            for number in numbers { witness.remove(number) }
            ask(RemoveObservers(name: name.map(Names.name) ?? "", object: "")) { count in
                if count != nil { for number in numbers { witness.acknowledgeRemoval(number) } }
            }
        }
    }

    func post(_ plan: PostPlan) {
        whenNamed { [unowned self] witness in
            let number = ledger.post(plan, from: witness.client)
            world.note("\(witness.client) sends post \(number): \(plan)")
            if channels.isInUse { postBesideBus(number) } else { postOnBus(number) }
        }
    }

    /// Sends a post that has its number.
    func postOnBus(_ number: Int) {
        let plan = ledger.posts[number].plan
        let serial = peer.send(ledger.pattern(for: plan), UInt64(number))
        guard plan.wantsAnswer else { return }
        expect(serial) { [unowned self] result in
            switch result {
            case .success(let reply):
                let receivers = (try? PostCall.reply(in: reply)) ?? 0
                ledger.settle(number, .accepted(receivers: receivers, at: world.now))
            case .failure(let error):
                ledger.refuse(number, because: error)
            }
        }
    }

    /// Posts what belongs together in calls of many posts (F1).
    func postTogether(_ plans: [PostPlan]) {
        whenNamed { [unowned self] witness in
            for first in stride(from: 0, to: plans.count, by: Self.maxTogether) {
                sendTogether(plans[first..<min(plans.count, first + Self.maxTogether)], of: witness)
            }
        }
    }

    /// The same in one call, however long.
    func postMany(_ plans: [PostPlan]) {
        whenNamed { [unowned self] witness in sendTogether(plans[...], of: witness) }
    }

    private func sendTogether(_ plans: ArraySlice<PostPlan>, of witness: Witness) {
        guard !channels.isInUse else {
            for plan in plans { post(plan) }
            return
        }
        let numbers = plans.map { ledger.post($0, from: witness.client) }
        world.note("\(witness.client) sends posts \(numbers[0])...\(numbers[numbers.count - 1]): \(plans.first!)")
        let call = PostMany(zip(plans, numbers).map { ledger.call(for: $0, number: $1) })
        let wantsAnswer = plans.first!.wantsAnswer
        let message = call.message(wantsAnswer: wantsAnswer)
        guard wantsAnswer else {
            send(message)
            // Nobody is told that it is more than a call may have.
            guard numbers.count > Int(ledger.limits[.postsPerCall]) else { return }
            return settle(numbers, .failure(BusError(CenterError.limitExceeded(.postsPerCall, value: 0))))
        }
        self.call(message) { [unowned self] result in settle(numbers, result) }
    }

    private func settle(_ numbers: [Int], _ result: Result<Message, BusError>) {
        switch result {
        case .success(let reply):
            let outcomes = (try? PostMany.reply(in: reply)) ?? []
            guard outcomes.count == numbers.count else {
                return world.violate("F1", "\(outcomes.count) outcomes of \(numbers.count) posts")
            }
            for (number, outcome) in zip(numbers, outcomes) {
                if let error = outcome.error {
                    ledger.refuse(number, because: error)
                    ledger.judgeRefusal(of: number, error)
                } else {
                    ledger.settle(number, .accepted(receivers: outcome.receivers, at: world.now))
                }
            }
        case .failure(let error):
            for number in numbers { ledger.refuse(number, because: error) }
        }
    }

    private func setOptions() {
        guard role.hasBatches || role.wantsDetails, !role.isLiar else { return }
        let asked = world.now
        let change = ClientOptionsChange(
            batches: role.hasBatches ? true : nil, details: role.wantsDetails ? [.host, .user] : nil)
        request(SetClientOptions(change)) { [unowned self] result in
            if role.wantsDetails, let witness {
                ledger.policy.judgeTrespass("be told where notifications are from", of: witness.client, result)
            }
            guard case .success = result else { return }
            if role.hasBatches { batchesSince = asked }
            if role.wantsDetails { witness?.acknowledgeDetails(asked: asked) }
        }
    }

    /// A notification came by itself.
    private func expectOneAlone() {
        guard let batchesSince, !ledger.wasStateLost(since: batchesSince) else { return }
        world.violate("F1", "\(witness?.client.rawValue ?? "?") asked for batches, and gets one by itself")
    }

    func suspend(_ isSuspended: Bool?) {
        whenNamed { [unowned self] witness in
            tell(isSuspended, witness, witness.say(isSuspended))
        }
    }

    /// Says it until there is room for the call, or another word.
    private func tell(_ isSuspended: Bool?, _ witness: Witness, _ number: Int) {
        let message = isSuspended.map { SetSuspended($0).message() } ?? FollowActivity().message()
        call(message) { [unowned self] result in
            switch result {
            case .success: witness.acknowledgeWord(number)
            case .failure(let error):
                guard error.centerError == .limitExceeded else { return }
                world.after(Self.untilAgain) { [weak self] in
                    guard let self, isThere, witness.words.count - 1 == number else { return }
                    tell(isSuspended, witness, number)
                }
            }
        }
    }

    func list() {
        whenNamed { [unowned self] witness in
            call(ListObservers(of: witness.client.rawValue).message()) { _ in }
            ask(ListClients()) { [ledger] clients in
                ledger.policy.judgeSight(of: witness.client, clients?.map(\.name) ?? [])
            }
            ask(ListPosters()) { [ledger] posters in
                ledger.policy.judgeSight(of: witness.client, posters?.map(\.name) ?? [])
            }
        }
    }

    func leave(abruptly: Bool) {
        guard isThere else { return }
        isThere = false
        calls = [:]
        if let witness {
            witness.hasLeft = true
            ledger.leave(witness.client)
        }
        leaveChannel(abruptly: abruptly)
        peer.close(losing: abruptly)
    }

    func setStopped(_ isStopped: Bool) {
        self.isStopped = isStopped
        guard !isStopped else { return }
        scheduleReading()
        scheduleChannel()
    }

    func setSlowness(_ factor: Int) {
        slowness = Int64(factor)
    }

    func request<Method: CenterMethod>(
        _ method: Method, _ completion: @escaping (Result<Method.Reply, BusError>) -> Void
    ) {
        call(method.message()) { result in
            completion(
                result.flatMap { reply in
                    Result { () throws(BusError) in try Method.reply(in: reply) }
                })
        }
    }

    /// Calls any method of the service.
    func call(_ message: Message, _ completion: @escaping (Result<Message, BusError>) -> Void) {
        expect(peer.send(message), completion)
    }

    /// The answer to the call with this serial, which has just been sent.
    private func expect(_ serial: UInt32, _ completion: @escaping (Result<Message, BusError>) -> Void) {
        let sent = world.now
        calls[serial] = { [unowned self] result in
            // What was quiet shows by now.
            if world.now - sent > Self.patience, isCalm {
                world.violate(
                    "fairness", "\(witness?.client.rawValue ?? "?") waited \(world.now - sent) µs for an answer")
            }
            completion(result)
        }
        guard role.callsRarely else { return }
        world.after(Self.rarePatience) { [weak self] in
            guard let self, isThere, calls[serial] != nil, !ledger.wasAnythingTheMatter else { return }
            world.violate(
                "fairness", "\(witness?.client.rawValue ?? "?") calls rarely, and waits for an answer since \(sent) µs")
        }
    }

    /// Set by whoever knows that nothing is the matter.
    var isCalm = false

    func send(_ message: Message) {
        _ = peer.send(message)
    }

    func whenNamed(_ body: @escaping (Witness) -> Void) {
        guard isThere else { return }
        if let witness { return body(witness) }
        early.append { [unowned self] in if let witness { body(witness) } }
    }

    // MARK: What arrives

    /// Policy has taken observers. On a channel that may come before the answer which has the number of the observer.
    func revoked(_ observers: [ObserverID]) {
        if let witness {
            revokedEarly.formUnion(observers.filter { id in !witness.registrations.contains { $0.id == id } })
        }
        for number in witness?.revoked(observers) ?? [] {
            for (slot, other) in slots where other == number { slots[slot] = nil }
        }
    }

    private func scheduleReading() {
        guard !isReadingScheduled, !isStopped, isThere else { return }
        isReadingScheduled = true
        world.after(5 * slowness) { [weak self] in self?.read() }
    }

    private func read() {
        isReadingScheduled = false
        guard !isStopped, isThere else { return }
        for _ in 0..<16 {
            guard let message = peer.receive() else { break }
            handle(message)
            guard isThere else { return }
        }
        if peer.hasMessage { scheduleReading() }
    }

    private func handle(_ message: Message) {
        switch message.kind {
        case .methodReturn, .error:
            // A library that lets any program do that knows from whom an answer comes.
            guard message.isFromBus || message.sender.map(ledger.services.contains) == true,
                let completion = calls.removeValue(forKey: message.replySerial)
            else { return }
            completion(message.error.map { .failure($0) } ?? .success(message))
        case .methodCall:
            guard role.answersPings, !message.expectsNoReply else { return }
            send(message.methodReturn())
        case .signal:
            guard let sender = message.sender, ledger.services.contains(sender), let witness else { return }
            do throws(BusError) {
                if let receipt = try Receipt(message) {
                    expectOneAlone()
                    channelHasEnded(telling: sender)
                    witness.received(receipt)
                } else if let together = try NotificationsSignal(message) {
                    channelHasEnded(telling: sender)
                    for signal in together.notifications { witness.received(Receipt(signal, hasDetails: true)) }
                } else if let signal = try DroppedSignal(message) {
                    channelHasEnded(telling: sender)
                    if signal.reason == DroppedSignal.notAllowed { return revoked(signal.observers) }
                    witness.dropped(signal)
                } else if let signal = try SuspensionChangedSignal(message) {
                    channelHasEnded(telling: sender)
                    witness.told(isSuspended: signal.isSuspended, cause: signal.cause)
                } else if try InterestChangedSignal(message) != nil {
                    follower?.interest.changed()
                } else if try ValuesRemovedSignal(message) != nil {
                    follower?.values.changed()
                }
            } catch {
                world.violate("D7", "a signal that nobody can read: \(error)")
            }
        case nil: break
        }
    }
}
