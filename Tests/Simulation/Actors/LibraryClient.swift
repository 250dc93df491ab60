// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonClient
import CarillonCollections
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A program with the Swift library's engine: the real ``ServiceSession`` on a simulated bus.
final class LibraryClient: Client {
    private(set) var witness: Witness?
    private(set) var isThere = true
    private let world: World
    let ledger: Ledger
    private let process: LoopProcess
    private let sessionBus: ProcessBus
    private let outbox = SharedOutbox()
    private let wish: TransportPreference
    /// Whether it ever wished for a channel.
    private(set) var hadChannel: Bool
    private var session: ServiceSession!
    private var slots: [Int: (key: RegistrationKey, number: Int)] = [:]
    private let mode: CarillonCore.RunLoopMode?
    private let role: Plan.Role
    private(set) var follower: Follower?
    private var early: [() -> Void] = []
    private var areDetailsRefused = false

    init(_ world: World, _ bus: Bus, _ ledger: Ledger, _ streams: Streams, role: Plan.Role, processID: UInt32) {
        self.world = world
        self.ledger = ledger
        mode = role.mode
        self.role = role
        process = LoopProcess(world, id: processID, name: "library client")
        sessionBus = ProcessBus(bus, streams, process)
        wish = TransportPreference(role.hasChannel ? .channel : .bus)
        hadChannel = role.hasChannel
        session = ServiceSession(bus: sessionBus, wish: wish, outbox: outbox, receiver: Receiver(self))
        sessionBus.onName = { [unowned self] name in named(name) }
        process.perform { session.start() }
    }

    private func named(_ name: UniqueName) {
        guard witness == nil else { return }
        ledger.policy.note(name, role.application)
        witness = Witness(name, ledger: ledger, mode: mode, isLibrary: true)
        witness?.isReading = { [unowned self] in !process.isStopped && process.slowness == 1 }
        // It asks when it is told that there is a service.
        follower = role.followsBy.map { Follower(self, page: $0) }
        if role.wantsDetails { askForDetails() }
        let early = early
        self.early = []
        for action in early { action() }
    }

    private func askForDetails() {
        let asked = world.now
        ask(.details([.host, .user]))
        let box = Unchecked(self)
        ask(
            .barrier { isDone in
                guard isDone, !box.value.areDetailsRefused else { return }
                box.value.witness?.acknowledgeDetails(asked: asked)
            })
    }

    // MARK: Its deeds

    func observe(
        slot: Int, name: Int?, object: Int?, _ behavior: SuspensionBehavior, _ mode: CarillonCore.RunLoopMode,
        values: Bool, interval: UInt32
    ) {
        whenNamed { [unowned self] witness in
            let key = RegistrationKey(
                name: name.map { ExactText(Names.name($0)) }, object: object.map { ExactText(Names.object($0)) },
                options: ObserverOptions(
                    suspensionBehavior: behavior, runLoopMode: mode, wantsRetained: values, minimumInterval: interval),
                number: values ? UInt64(witness.registrations.count + 1) : 0)
            guard slots[slot] == nil, !slots.values.contains(where: { $0.key == key }) else { return }
            let number = witness.register(
                name: name, object: object, behavior, mode, values: values, interval: interval)
            slots[slot] = (key, number)
            ask(.register(key))
            ask(confirmation(of: number))
        }
    }

    /// What was asked before is known when this is answered; not by a service that knows nothing of the one before.
    private func confirmation(of number: Int) -> Request {
        let asked = world.now
        let box = Unchecked(self)
        return .barrier { isDone in
            let client = box.value
            guard isDone, !client.ledger.wasStateLost(since: asked), let witness = client.witness,
                witness.registrations[number].removed == nil
            else { return }
            witness.acknowledge(number)
        }
    }

    func unobserve(slot: Int) {
        whenNamed { [unowned self] witness in
            guard let (key, number) = slots.removeValue(forKey: slot) else { return }
            witness.remove(number)
            ask(.unregister(key))
            let box = Unchecked(witness)
            ask(.barrier { if $0 { box.value.acknowledgeRemoval(number) } })
        }
    }

    func removeAll(name: Int?) {
        whenNamed { [unowned self] witness in
            for (slot, (_, number)) in slots.sorted(by: { $0.key < $1.key })
            where name == nil || witness.registrations[number].name == name { unobserve(slot: slot) }
        }
    }

    func post(_ plan: PostPlan) { postMany([plan]) }

    func postMany(_ plans: [PostPlan]) {
        whenNamed { [unowned self] witness in
            let requests = plans.map { request(for: $0, of: witness) }
            process.perform {
                for request in requests { _ = try? outbox.append(request) }
                session.pump()
            }
        }
    }

    private func request(for plan: PostPlan, of witness: Witness) -> Request {
        let number = ledger.post(plan, from: witness.client)
        world.note("\(witness.client) sends post \(number): \(plan)")
        guard let post = try? OutgoingPost(ledger.call(for: plan, number: number)) else {
            preconditionFailure("a plan has posts that can be laid out")
        }
        // The session has some of them answered, and nobody told.
        guard plan.wantsAnswer else { return .post(post) }
        let box = Unchecked(ledger)
        return .post(
            post.completed { outcome in
                let ledger = box.value
                switch outcome {
                case .success(let receivers):
                    ledger.settle(number, .accepted(receivers: receivers, at: ledger.world.now))
                case .failure(.refused(let error)): ledger.refuse(number, because: error)
                case .failure: break
                }
            })
    }

    func suspend(_ isSuspended: Bool?) {
        whenNamed { [unowned self] witness in
            let number = witness.say(isSuspended)
            ask(.suspend(isSuspended))
            let box = Unchecked(witness)
            ask(.barrier { if $0 { box.value.acknowledgeWord(number) } })
        }
    }

    func list() {
        whenNamed { [unowned self] witness in
            ask(.call(ListObservers(of: witness.client.rawValue)) { _ in })
            ask(.call(ListClients()) { _ in })
        }
    }

    /// It would rather go this way from now on (F2).
    func wish(for transport: Transport) {
        if transport == .channel { hadChannel = true }
        wish.ofProgram = transport
        process.perform { session.pump() }
    }

    func leave(abruptly: Bool) {
        guard isThere else { return }
        isThere = false
        if let witness {
            witness.hasLeft = true
            ledger.leave(witness.client)
        }
        sessionBus.close(losing: abruptly)
        process.onDeath = { [self] in session = nil }
        process.kill()
    }

    func setStopped(_ isStopped: Bool) {
        process.isStopped = isStopped
    }

    func setSlowness(_ factor: Int) {
        process.slowness = Int64(factor)
    }

    func request<Method: CenterMethod>(
        _ method: Method, _ completion: @escaping (Result<Method.Reply, BusError>) -> Void
    ) {
        let box = Unchecked(completion)
        ask(
            .call(method) { result in
                box.value(
                    result.mapError { error in
                        if case .refused(let error) = error { error } else { .disconnected("\(error)") }
                    })
            })
    }

    private func ask(_ request: Request) {
        process.perform {
            _ = try? outbox.append(request)
            session.pump()
        }
    }

    func whenNamed(_ body: @escaping (Witness) -> Void) {
        guard isThere else { return }
        if let witness { return body(witness) }
        early.append { [unowned self] in if let witness { body(witness) } }
        // The first request is what has it connect.
        process.perform { session.pump() }
    }

    // MARK: What it hears

    private final class Receiver: ServiceReceiver, @unchecked Sendable {
        // Sendable: a simulation has one thread.
        private unowned let client: LibraryClient

        init(_ client: LibraryClient) {
            self.client = client
        }

        func received(_ notification: ArrivedNotification, for keys: [RegistrationKey]) {
            client.witness?.received(Receipt(notification))
        }

        func stateChanged(_ state: ConnectionState) {
            client.world.note("\(client.witness?.client.rawValue ?? "?") is \(state)")
            if state == .connected { client.follower?.ask() }
            guard state == .connected, let witness = client.witness, client.ledger.wasStateLost(since: 0) else {
                return
            }
            // What was lost with the state is registered again: known when that is answered.
            for (_, (_, number)) in client.slots.sorted(by: { $0.key < $1.key })
            where client.ledger.wasStateLost(since: witness.registrations[number].asked) {
                _ = try? client.outbox.append(client.confirmation(of: number))
            }
        }

        func mayHaveMissed(_ gap: Gap) {
            switch gap {
            case .dropped(let count, let reason):
                client.witness?.dropped(DroppedSignal(count: count, observers: [], reason: reason))
            case .missing(let count):
                guard let witness = client.witness else { return }
                // What came while the bus had not told who has the name is not believed, and missing then.
                if client.ledger.wasBusCrowded { return witness.noteMissing(count) }
                // The notification comes next, and is looked at then.
                guard !client.ledger.wasStateLost(since: witness.joined), !witness.mayHaveDiscarded else { return }
                client.world.violate("S4", "\(witness.client)'s library misses \(count)")
            case .undecodable(let text): client.world.violate("D7", "a signal that nobody can read: \(text)")
            case .serviceChanged, .overflow: break
            }
        }

        func lostPosts(_ count: Int, because error: ServiceError) {
            guard let witness = client.witness else { return }
            client.world.note("\(witness.client) is told of \(count) posts that are lost: \(error)")
            for _ in 0..<count { client.ledger.reportLoss(to: witness.client) }
        }

        func mayHaveLostPosts(_ count: Int, because reason: String) {
            guard let witness = client.witness else { return }
            client.world.note("\(witness.client) is told of \(count) posts that may be lost: \(reason)")
            for _ in 0..<count { client.ledger.reportLoss(to: witness.client) }
        }

        func detailsRefused(because error: ServiceError) {
            client.areDetailsRefused = true
            client.witness?.detailsAreRefused()
        }

        func registrationRefused(_ key: RegistrationKey, because error: ServiceError) {
            guard let (slot, entry) = client.slots.first(where: { $0.value.key == key }), let witness = client.witness
            else { return }
            if case .refused(let error) = error, error.centerError == .notAllowed {
                client.ledger.policy.judgeRevocation(of: witness.registrations[entry.number], of: witness.client)
            }
            client.slots[slot] = nil
            witness.remove(entry.number)
            // Another service may allow it; this program does not ask again.
            client.world.after(0) { [weak client] in
                if let client, client.isThere { client.ask(.unregister(key)) }
            }
        }
        func suspensionChanged(_ isSuspended: Bool, cause: String) {
            client.witness?.told(isSuspended: isSuspended, cause: cause)
        }
        func interestChanged() { client.follower?.interest.changed() }
        func valuesRemoved() { client.follower?.values.changed() }

        func transportChanged(to transport: Transport, because reason: String?) {
            if let witness = client.witness { client.ledger.channelClients.insert(witness.client) }
            let why = reason.map { ": \($0)" } ?? ""
            client.world.note("\(client.witness?.client.rawValue ?? "?") goes by the \(transport.rawValue)\(why)")
        }
    }
}

/// What a closure that is said to cross threads may hold: a simulation has one thread.
struct Unchecked<Value>: @unchecked Sendable {
    // Sendable: see above.
    let value: Value

    init(_ value: Value) {
        self.value = value
    }
}
