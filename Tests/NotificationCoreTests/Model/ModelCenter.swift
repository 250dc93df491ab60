// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The rules of the distributed center (parts D and S, A4 and E1), said as plainly as possible: lists that are searched
/// from end to end. Everything that ``DistributedCenter`` does must be what this does.
struct ModelCenter {
    /// Whether what was queued is kept for the next process.
    let remembersChanges: Bool
    private(set) var clients: [ModelClient] = []
    private var limits = Limits()
    private var isAutomationOn = true
    private var lastSerial: UInt64 = 0
    private var lastObserver: UInt64 = 0
    private var view = View()
    private var outcomes = Outcomes()
    /// Whose turn it is (M6), in each lane.
    private var turns: [Turn] = []
    private struct Turn {
        let client: ModelClient
        let lane: DeliveryLane
        let bytes: Int
        /// Whether what it was for went along with another one's. It keeps its place behind those before it.
        var isVoid = false
    }

    private var isBusy = false
    private var posters = ModelPosters()
    private var usage = ModelUsage()

    init(remembersChanges: Bool) {
        self.remembersChanges = remembersChanges
    }

    mutating func run(_ step: Step) -> (Answer, Outcomes) {
        outcomes = Outcomes()
        do throws(CenterError) {
            let answer = try answer(to: step)
            settle()
            findWitnesses()
            posters.settle()
            usage.settle(clients)
            return (answer, outcomes)
        } catch {
            return (.refused(error), outcomes)
        }
    }

    private mutating func answer(to step: Step) throws(CenterError) -> Answer {
        switch step {
        case .observe(let number, let name, let object, let behavior, let mode):
            return .numbers([try observe(number, name, object, behavior, mode)])
        case .monitor(let number, let name, let object, let mode):
            // B3: never suspended.
            return .numbers([try observe(number, name, object, .deliverImmediately, mode, isMonitor: true)])
        case .remove(let number, let pick):
            let id = observer(at: pick)
            guard let client = client(number), client.observers.contains(where: { $0.id == id }) else {
                throw .unknownObserver(ObserverID(rawValue: id))
            }
            remove(from: client) { $0.id == id }
        case .removeAll(let number, let name, let object):
            guard let client = client(number) else { return .numbers([0]) }
            let before = client.observers.count
            remove(from: client) { (name == 0 || $0.name == name) && (object == 0 || $0.object == object) }
            return .numbers([UInt64(before - client.observers.count)])
        case .post(let poster, let name, let object, let bytes, let immediately, let times, let origin):
            var receivers: [UInt64] = []
            for _ in 0..<times {
                try check(name, object)
                let new = Post(
                    serial: 0, name: name, object: object, bytes: bytes, poster: poster, origin: origin)
                receivers.append(post(new, immediately))
                settle()
                findWitnesses()
            }
            return .numbers(receivers)
        case .lose(_, let name, let object, let count):
            try check(name, object)
            lose(count, name: name, object: object)
        case .queue(let poster, let name, let object, let bytes, let immediately, let style, let coalescing):
            try check(name, object)
            let queued = ModelPosters.Queued(
                post: Post(serial: 0, name: name, object: object, bytes: bytes, poster: poster),
                immediately: immediately, style: style)
            if style != .now {
                try posters.check(queued, coalescing, limits)
                if style == .atExit { _ = try known(poster) }
                view.coalesced += UInt64(posters.queue(queued, coalescing))
                return .numbers([0])
            }
            let replaced = posters.removeSimilar(to: queued.post, style, coalescing)
            view.coalesced += UInt64(replaced.count)
            return .numbers([post(queued.post, immediately || replaced.contains(where: \.immediately))])
        case .withdraw(let poster, let name, let object):
            return .numbers([UInt64(posters.withdraw(of: poster, name: name, object: object))])
        case .postQueued(let style, let limit):
            var hasPosted = false
            for _ in 0..<limit {
                guard let queued = posters.take(style) else { break }
                _ = post(queued.post, queued.immediately)
                hasPosted = true
            }
            if hasPosted, remembersChanges { sendAllReady() }
        case .busy: isBusy = true
        case .send(let lane, let limit):
            isBusy = limit != nil
            var left = limit ?? 0
            while left > 0, let first = maxUrgent, first <= lane { left -= max(1, takeSlot(in: first)) }
        case .setSuspended(let number, let isSuspended): change(try known(number), word: isSuspended)
        case .followActivity(let number): change(try known(number), word: nil)
        case .override(let number, let isSuspended):
            if let client = client(number) { change(client) { $0.override = isSuspended } }
        case .tell(let number, let activity): tell(number, activity)
        case .endMoment(let number, let isLate):
            // One before the last is void; where there is none, nothing ends.
            if let client = client(number), !isLate, client.moments > 0, client.activity == .inactive {
                change(client) { $0.counts = .inactive }
            }
        case .automation(let isOn):
            isAutomationOn = isOn
            for client in clients { change(client) { $0.isAutomationOn = isOn } }
        case .answer(let number, let times):
            for _ in 0..<times {
                answered(number)
                settle()
            }
        case .backlogProbe(let number, let hasRead): backlogProbed(number, hasRead)
        case .batches(let number, let isWanted): try known(number).batches = isWanted
        case .leave(let number): leave(number)
        case .limit(let key, let value):
            limits[key] = value
            findExcess()
        case .restart: restart()
        }
        return .nothing
    }

    private func client(_ number: Int) -> ModelClient? {
        clients.first { $0.number == number }
    }

    /// The client, which is watched and asked for an answer when it is new.
    private mutating func known(_ number: Int) throws(CenterError) -> ModelClient {
        if let client = client(number) { return client }
        try usage.checkClient(number, clients, limits)
        let client = ModelClient(number)
        client.isAutomationOn = isAutomationOn
        clients.append(client)
        outcomes.append(.watched, for: number)
        probe(client)
        return client
    }

    private mutating func findExcess(restarted: Bool = false) {
        posters.findExcess(limits, restarted: restarted)
        usage.findExcess(clients, limits, restarted: restarted)
    }

    // MARK: Observers (D2, D8)

    /// The number of the observer at a place among all; behind the last there is one that nobody has.
    func observer(at pick: Int) -> UInt64 {
        let ids = clients.flatMap { $0.observers.map(\.id) }.sorted() + [lastObserver + 1]
        return ids[pick % ids.count]
    }

    private mutating func observe(
        _ number: Int, _ name: Int, _ object: Int, _ behavior: SuspensionBehavior, _ mode: RunLoopMode,
        isMonitor: Bool = false
    ) throws(CenterError) -> UInt64 {
        try limits.check(.nameLength, Step.texts[name].utf8.count)
        try limits.check(.objectLength, Step.texts[object].utf8.count)
        try usage.checkObserver(of: number, clients, limits)
        try limits.check(.observersPerClient, (client(number)?.observers.count ?? 0) + 1)
        let client = try known(number)
        lastObserver += 1
        client.observers.append(
            ModelClient.Observer(
                id: lastObserver, name: name, object: object, behavior: behavior, mode: mode, isMonitor: isMonitor))
        return lastObserver
    }

    /// Also out of what waits, and what nobody wants any more does not wait (S1).
    private func remove(from client: ModelClient, where isRemoved: (ModelClient.Observer) -> Bool) {
        client.observers.removeAll(where: isRemoved)
        for index in client.waiting.indices { client.waiting[index].observers.removeAll(where: isRemoved) }
        client.waiting.removeAll { $0.observers.isEmpty }
    }

    private mutating func leave(_ number: Int) {
        guard let client = client(number) else { return }
        client.waiting = []
        clients.removeAll { $0.number == number }
        posters.release(number)
        outcomes.append(.forgotten, for: number)
    }

    // MARK: Posting (D2 to D6, S1, S3)

    private func check(_ name: Int, _ object: Int) throws(CenterError) {
        guard name != 0 else { throw .invalidName }
        try limits.check(.nameLength, Step.texts[name].utf8.count)
        try limits.check(.objectLength, Step.texts[object].utf8.count)
    }

    private mutating func post(_ unnumbered: Post, _ immediately: Bool) -> UInt64 {
        lastSerial += 1
        view.posted += 1
        let post = Post(
            serial: lastSerial, name: unnumbered.name, object: unnumbered.object, bytes: unnumbered.bytes,
            poster: unnumbered.poster, origin: unnumbered.origin)
        let receivers = receivers(name: post.name, object: post.object)
        // B3: who only looks on counts for nobody.
        let counted = receivers.filter { $0.matching.contains { !$0.isMonitor } }.count
        if counted == 0 { view.unmatched += 1 }
        for (client, matching) in receivers {
            let wanting = matching.filter { $0.behavior != .drop }
            if immediately {
                deliver(post, to: client, matching, in: .immediate)
            } else if !client.isSuspended {
                // D6, M6: once, in the most urgent mode.
                let modes: [RunLoopMode] = [.eventTracking, .modalPanel, .default]
                let mode = modes.first { mode in matching.contains { $0.mode == mode } }!
                let lanes: [RunLoopMode: DeliveryLane] = [
                    .eventTracking: .eventTracking, .modalPanel: .modalPanel, .default: .standard,
                ]
                deliver(post, to: client, matching, in: lanes[mode]!)
            } else if wanting.contains(where: { $0.behavior == .deliverImmediately }) {
                deliver(post, to: client, wanting, in: .immediate)
            } else if !wanting.isEmpty {
                hold(post, for: client, wanting)
            }
        }
        while turns.count(where: { !$0.isVoid }) > 1024 || turns.reduce(0, { $0 + $1.bytes }) > 1 << 20 {
            takeSlot(in: maxUrgent!)
        }
        return UInt64(counted)
    }

    private func receivers(name: Int, object: Int) -> [(client: ModelClient, matching: [ModelClient.Observer])] {
        var receivers: [(client: ModelClient, matching: [ModelClient.Observer])] = []
        for client in clients {
            let matching = client.observers.filter { $0.matches(name: name, object: object) }
            if !matching.isEmpty { receivers.append((client, matching)) }
        }
        // The order in which clients have their turn shows only where all queues together are full.
        receivers.sort { $0.matching[0].id < $1.matching[0].id }
        return receivers
    }

    /// E4, S4: all who would have got them are told, whoever does not want them while suspended left aside.
    private mutating func lose(_ count: UInt64, name: Int, object: Int) {
        lastSerial += count
        view.posted += count
        let receivers = receivers(name: name, object: object)
        if receivers.allSatisfy({ $0.matching.allSatisfy(\.isMonitor) }) { view.unmatched += count }
        for (client, matching) in receivers {
            let wanting = client.isSuspended ? matching.filter { $0.behavior != .drop } : matching
            guard !wanting.isEmpty else { continue }
            note(count, lostBy: client, wanting, because: .overload)
            announceLoss(to: client)
        }
    }

    /// S3: after all that is held.
    private mutating func deliver(
        _ post: Post, to client: ModelClient, _ observers: [ModelClient.Observer], in lane: DeliveryLane
    ) {
        flush(client)
        let waiting = ModelClient.Waiting(post, for: observers, in: lane)
        client.waiting.append(waiting)
        if client.reads { turns.append(Turn(client: client, lane: lane, bytes: waiting.bytes)) }
        makeRoom(growing: client)
    }

    /// S1: coalescing by observer, name, object and origin, among what is held.
    private mutating func hold(_ post: Post, for client: ModelClient, _ observers: [ModelClient.Observer]) {
        for observer in observers where observer.behavior == .coalesce {
            for index in client.waiting.indices {
                let waiting = client.waiting[index]
                if waiting.lane == nil, waiting.post.name == post.name, waiting.post.object == post.object,
                    waiting.post.origin == post.origin
                {
                    client.waiting[index].observers.removeAll { $0.id == observer.id }
                }
            }
        }
        view.coalesced += UInt64(client.waiting.filter(\.observers.isEmpty).count)
        client.waiting.removeAll { $0.observers.isEmpty }
        client.waiting.append(ModelClient.Waiting(post, for: observers, in: nil))
        makeRoom(growing: client)
    }

    // MARK: Suspension (S2, A2)

    private mutating func change(_ client: ModelClient, word: Bool?) {
        change(client) { $0.word = word }
    }

    /// A1: inactivity counts after a moment, everything else at once.
    private mutating func tell(_ number: Int, _ activity: Activity) {
        guard let client = client(number), client.activity != activity else { return }
        client.activity = activity
        if activity == .inactive {
            client.moments += 1
            outcomes.append(.momentBegan(milliseconds: 250), for: number)
        } else {
            change(client) { $0.counts = activity }
        }
    }

    private mutating func change(_ client: ModelClient, _ change: (ModelClient) -> Void) {
        let before = (client.isSuspended, client.cause)
        change(client)
        guard before != (client.isSuspended, client.cause) else { return }
        tellSuspension(client)
        if before.0, !client.isSuspended { flush(client) }
    }

    /// Who does not read is told when it does.
    private mutating func tellSuspension(_ client: ModelClient) {
        if client.reads, !client.isSuspensionAnnounced {
            client.told = (client.isSuspended, client.cause)
            outcomes.append(.suspensionChanged(client.isSuspended, client.cause), for: client.number)
            count(256, to: client)
            client.probesBehindWord = client.probes.count { !$0 } + (client.messagesSinceProbe > 0 ? 1 : 0)
        }
        client.isWordOwed = !client.isSuspensionAnnounced || client.probesBehindWord > 0
    }

    // MARK: Queues (S2, S4, E1)

    /// What is held goes before anything newer, and what is due already with it, in global order.
    private mutating func flush(_ client: ModelClient) {
        guard client.holds else { return }
        client.waiting.sort { $0.post.serial < $1.post.serial }
        for index in client.waiting.indices { client.waiting[index].lane = .flushed }
        pump(client)
    }

    private mutating func makeRoom(growing client: ModelClient) {
        func isFull() -> Bool {
            client.waiting.count > limits[.queuedPerClient] || client.waitingBytes > limits[.queuedBytesPerClient]
        }
        func isTotalFull() -> Bool { clients.reduce(0, { $0 + $1.waitingBytes }) > limits[.queuedBytes] }
        // Sent with an eighth of it free.
        let isNearlyFull =
            client.waiting.count > limits[.queuedPerClient] - limits[.queuedPerClient] / 8
            || client.waitingBytes > limits[.queuedBytesPerClient] - limits[.queuedBytesPerClient] / 8
        let wasTotalFull = isTotalFull()
        if isNearlyFull, client.reads { sendAll(to: client) }
        while isFull() { loseOldest(of: client, because: .queueFull) }
        guard wasTotalFull else { return }
        sendAllReady()
        while !client.waiting.isEmpty, isTotalFull() {
            // The first by name among those with the most bytes.
            let most = clients.map(\.waitingBytes).max()
            let payer = clients.filter { $0.waitingBytes == most }.min { $0.number < $1.number }!
            if payer.reads { sendAll(to: payer) } else { loseOldest(of: payer, because: .totalQueueFull) }
        }
    }

    private mutating func loseOldest(of client: ModelClient, because reason: DropReason) {
        let oldest = client.waiting.min { $0.post.serial < $1.post.serial }!
        client.waiting.removeAll { $0.post.serial == oldest.post.serial }
        note(1, lostBy: client, oldest.observers, because: reason)
    }

    private mutating func note(
        _ count: UInt64, lostBy client: ModelClient, _ observers: [ModelClient.Observer], because reason: DropReason
    ) {
        client.dropped += count
        view.dropped += count
        if client.lost == nil {
            client.lost = (0, [], reason)
            outcomes.append(.overflowed(reason), for: client.number)
        }
        client.lost!.count += count
        client.lost!.observers.formUnion(observers.map(\.id))
    }

    // MARK: Turns (M6)

    /// A client that reads is first of all told what it lost, and gets what was held; the rest waits for its turn.
    private mutating func pump(_ client: ModelClient) {
        if client.reads { tellSuspension(client) }
        announceLoss(to: client)
        sendWhatIs(in: .flushed, to: client)
        guard client.reads else { return }
        for lane in DeliveryLane.allCases where client.first(in: lane) != nil && !hasTurn(client, lane) {
            turns.append(Turn(client: client, lane: lane, bytes: 0))
        }
    }

    private mutating func announceLoss(to client: ModelClient) {
        guard client.reads, let lost = client.lost else { return }
        client.lost = nil
        client.sequence += lost.count
        outcomes.append(
            .dropped(lost.count, observers: lost.observers.sorted(), lost.reason, sequence: client.sequence),
            for: client.number)
        count(256 + 8 * lost.observers.count, to: client)
    }

    private func hasTurn(_ client: ModelClient, _ lane: DeliveryLane) -> Bool {
        turns.contains { $0.client === client && $0.lane == lane && !$0.isVoid }
    }

    private var maxUrgent: DeliveryLane? { turns.map(\.lane).min() }

    private mutating func settle() {
        if !isBusy { sendAllReady() }
    }

    private mutating func sendAllReady() {
        while let lane = maxUrgent { takeSlot(in: lane) }
    }

    /// - Returns: how many notifications that sent.
    @discardableResult
    private mutating func takeSlot(in lane: DeliveryLane) -> Int {
        let client = turns.remove(at: turns.firstIndex { $0.lane == lane }!).client
        dropVoidTurns(in: lane)
        guard client.reads else { return 0 }
        let count = client.first(in: lane) == nil ? 0 : sendNext(in: lane, to: client)
        if client.reads, client.first(in: lane) != nil, !hasTurn(client, lane) {
            turns.append(Turn(client: client, lane: lane, bytes: 0))
        }
        return count
    }

    /// No line begins with a turn that is void.
    private mutating func dropVoidTurns(in lane: DeliveryLane) {
        while let first = turns.firstIndex(where: { $0.lane == lane }), turns[first].isVoid { turns.remove(at: first) }
    }

    private mutating func sendAll(to client: ModelClient) {
        flush(client)
        pump(client)
        for lane in DeliveryLane.allCases { sendWhatIs(in: lane, to: client) }
    }

    private mutating func sendWhatIs(in lane: DeliveryLane, to client: ModelClient) {
        while client.reads, client.first(in: lane) != nil { sendNext(in: lane, to: client) }
    }

    /// Sends what is first in a lane, and what goes along with it.
    ///
    /// - Returns: how many notifications that was.
    @discardableResult
    private mutating func sendNext(in lane: DeliveryLane, to client: ModelClient) -> Int {
        guard client.batches else {
            let bytes = deliver(at: client.first(in: lane)!, to: client)
            count(bytes, to: client)
            return 1
        }
        // F1: 64, and as many bytes as its window has room for, which is full then.
        let room = max(0, 65_536 - client.bytesSinceProbe)
        var (along, bytes) = (0, 0)
        var isFull = false
        for next in client.waiting where next.lane == lane {
            isFull = along > 0 && bytes + next.bytes > room
            guard !isFull, along < 64 else { break }
            along += 1
            bytes += next.bytes
        }
        outcomes.append(.together(along), for: client.number)
        for _ in 0..<along { _ = deliver(at: client.first(in: lane)!, to: client) }
        // Those that went along need no turns of their own.
        let left = client.waiting.count { $0.lane == lane }
        let own = turns.indices.filter { turns[$0].client === client && turns[$0].lane == lane && !turns[$0].isVoid }
        for index in own.prefix(max(0, own.count - left)) { turns[index].isVoid = true }
        dropVoidTurns(in: lane)
        count(bytes, to: client, fills: isFull)
        return along
    }

    /// - Returns: what it counts.
    private mutating func deliver(at index: Int, to client: ModelClient) -> Int {
        let waiting = client.waiting.remove(at: index)
        client.sequence += 1
        client.delivered += 1
        view.delivered += 1
        outcomes.append(
            .delivered(waiting.post, observers: waiting.observers.map(\.id), sequence: client.sequence),
            for: client.number)
        return waiting.bytes
    }

    private mutating func count(_ bytes: Int, to client: ModelClient, fills: Bool = false) {
        client.messagesSinceProbe += 1
        client.bytesSinceProbe += bytes
        if fills || client.messagesSinceProbe == 64 || client.bytesSinceProbe >= 65_536 { probe(client) }
    }

    // MARK: Flow (A4)

    private mutating func probe(_ client: ModelClient) {
        client.probes.append(false)
        client.messagesSinceProbe = 0
        client.bytesSinceProbe = 0
        outcomes.append(.probed, for: client.number)
    }

    private mutating func answered(_ number: Int) {
        guard let client = client(number) else { return }
        if !client.probes.isEmpty {
            client.hasAnswered = true
            if !client.probes.removeFirst() { client.confirm() }
        }
        pump(client)
    }

    /// Of whoever never answered, and does not get what is for it, is found out in another way whether it reads.
    private mutating func findWitnesses() {
        for client in clients
        where !client.hasAnswered && !client.reads && client.hasPendingMessages && !client.isWitnessed {
            client.isWitnessed = true
            outcomes.append(.backlogProbed, for: client.number)
        }
    }

    /// B6: all that it was asked about has been read, or nothing tells and the oldest counts as read.
    private mutating func backlogProbed(_ number: Int, _ hasRead: Bool) {
        guard let client = client(number), client.isWitnessed else { return }
        client.isWitnessed = false
        if !client.hasAnswered {
            for index in client.probes.indices where !client.probes[index] {
                client.probes[index] = true
                client.confirm()
                if !hasRead { break }
            }
        }
        pump(client)
    }

    // MARK: Recovery (E3)

    /// Clients keep all but their flow; the statistics start again.
    private mutating func restart() {
        // A service that ends in order sends what is ready first.
        sendAllReady()
        findWitnesses()
        turns = []
        isBusy = false
        if lastSerial % 2 == 0 { posters.beginAnew() }
        findExcess(restarted: true)
        view = View()
        clients = clients.map { old in
            let client = ModelClient(old.number)
            client.batches = old.batches
            client.observers = old.observers
            client.word = old.word
            client.override = old.override
            client.isAutomationOn = isAutomationOn
            client.waiting = old.waiting
            client.sequence = old.sequence
            client.delivered = old.delivered
            client.dropped = old.dropped
            client.lost = old.lost
            client.told =
                old.override.map { ($0, .override) } ?? old.word.map { ($0, .explicit) }
                ?? (old.isSuspended ? (true, .activity) : (false, .none))
            if old.isWordOwed { client.told = nil }
            return client
        }
        for client in clients {
            outcomes.append(.watched, for: client.number)
            probe(client)
            // Activity is not taken over: whoever it had suspended is resumed, and told so.
            tellSuspension(client)
            if !client.isSuspended { flush(client) }
            pump(client)
        }
    }

    // MARK: Looking

    var currentView: View {
        var view = view
        for client in clients {
            view.clients[client.number] = View.Client(
                isSuspended: client.isSuspended, cause: client.cause, observers: client.observers.count,
                queued: client.waiting.count, delivered: client.delivered, dropped: client.dropped)
            view.queued += UInt64(client.waiting.count)
            view.queuedBytes += UInt64(client.waitingBytes)
            view.observerCount += UInt64(client.observers.count)
        }
        view.clientCount = UInt64(clients.count)
        view.queuedPosts = UInt64(posters.queued.count)
        view.queuedPostBytes = UInt64(posters.bytes)
        return view
    }

    var last: (serial: UInt64, observer: UInt64) { (lastSerial, lastObserver) }
}
