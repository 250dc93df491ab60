// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonWire

/// What is true: which notifications were posted, and what became of each.
final class Ledger {
    enum Outcome: Equatable {
        /// Nobody said.
        case unknown
        case accepted(receivers: Int, at: Int64)
        case refused
    }

    struct PostRecord {
        let plan: PostPlan
        let poster: UniqueName
        let time: Int64
        var outcome = Outcome.unknown
        /// Whether the poster was still there at the end.
        var posterStayed = true
        /// Those of one poster and stretch have an order.
        var stretch = 0
        /// Which service the bus gave it to.
        var service: UniqueName?
        /// Whether the configuration surely let it go to other sessions until it was accepted (G1).
        var isSurelyExported = false
    }

    /// A poster takes back what it has queued.
    private struct Withdrawal {
        let poster: UniqueName
        /// Nil for all names.
        let name: Int?
        let asked: Int64
        var isAcknowledged = false
    }

    let world: World
    private var withdrawals: [Withdrawal] = []
    private(set) lazy var values = ValueLedger(self)
    private(set) lazy var policy = PolicyLedger(self)
    private(set) lazy var imports = ImportLedger(self)
    private(set) var posts: [PostRecord] = []
    /// Which post a serial means.
    private var postsBySerial: [UInt64: Int] = [:]
    /// Those of all clients that there are or were.
    var witnesses: () -> [Witness] = { [] }
    /// Unique names that services had.
    var services: Set<UniqueName> = []
    /// How many processes of the service there have been.
    var incarnations = 0
    /// When a service ended whose state on disk may be of no use: what was registered or accepted before may be gone.
    private(set) var stateLosses: [Int64] = []
    /// Whether the service was ever killed, stopped or cut off: calls without answers may be lost with it.
    var wasServiceTroubled = false
    /// Whether the bus ever had little room: what it refused is told late, and by dbus-broker perhaps never.
    var wasBusCrowded = false
    var mayBusDiscard = false
    var wasBusSlow = false
    /// Whether the bus ever refused the service's own calls, or carried them late.
    var wereCallsTroubled = false
    /// Of the service.
    var limits = Limits()
    /// Whether losses of the state are noticed by whoever reads it, as single bits of it have changed.
    var isStateOnlyDamaged: () -> Bool = { false }
    /// Clients that have or had a channel.
    var channelClients: Set<UniqueName> = []
    private var reportedLosses: [UniqueName: Int] = [:]
    private var stretches: [UniqueName: Int] = [:]
    private var lastPattern: (plan: PostPlan, pattern: MessagePattern)?
    /// Notifications that arrived at anybody.
    private(set) var received = 0
    /// How many were announced as lost.
    private(set) var announced: UInt64 = 0

    init(_ world: World) {
        self.world = world
    }

    /// Whether anything ever was the matter that makes answers late, or loses them.
    var wasAnythingTheMatter: Bool { wasServiceTroubled || wasBusCrowded || wasBusSlow || wereCallsTroubled }

    func loseState() {
        stateLosses.append(world.now)
    }

    func wasStateLost(since time: Int64) -> Bool { stateLosses.contains { $0 >= time } }

    /// A service has to tell a client whether it is suspended: one that reads learns it soon.
    ///
    /// - Parameters:
    ///   - isOfSuspended: only to one that was told last that it is.
    ///   - time: in which it is told, in microseconds.
    ///   - isOwed: whether it still is to be told by then.
    ///   - what: it has to be told.
    func expectControlSignal(
        to client: UniqueName, ifSuspended isOfSuspended: Bool = false, within time: Int64 = timeOfWords,
        while isOwed: @escaping () -> Bool = { true }, _ what: String
    ) {
        guard let witness = witnesses().first(where: { $0.client == client }), !witness.hasLeft,
            witness.isToldSuspended || !isOfSuspended
        else { return }
        witness.expectsWord = true
        let incarnation = incarnations
        world.after(time) { [self] in
            guard witness.expectsWord, !witness.hasLeft, incarnation == incarnations, !wasBusCrowded, !wasBusSlow,
                witness.isReading(), isOwed(), !isOfSuspended || !wasStateLost(since: witness.joined)
            else { return }
            world.violate("E3", "\(client) is not told \(what)")
        }
    }

    /// In which a client that reads is told what it has to know.
    private static let timeOfWords: Int64 = 15_000_000

    /// A post is about to be sent.
    ///
    /// - Returns: its number, which goes with it.
    func post(_ plan: PostPlan, from poster: UniqueName) -> Int {
        posts.append(PostRecord(plan: plan, poster: poster, time: world.now, stretch: stretches[poster, default: 0]))
        if plan.options.retention != nil { values.noteMade(posts.count - 1) }
        return posts.count - 1
    }

    /// A poster goes on another way without waiting for what it sent before (docs/channel.md).
    func beginStretch(of poster: UniqueName) {
        stretches[poster, default: 0] += 1
    }

    /// A post that was not sent goes with those that are made now.
    func postpone(_ number: Int) {
        posts[number].stretch = stretches[posts[number].poster, default: 0]
    }

    func settle(_ number: Int, _ outcome: Outcome) {
        posts[number].outcome = outcome
        guard case .accepted = outcome else { return }
        policy.judgePost(number, isAccepted: true)
        if posts[number].plan.options.goesToAllSessions {
            let name = posts[number].plan.nameText
            posts[number].isSurelyExported = policy.verdict(since: posts[number].time) { $0.exports(name) } == .allowed
        }
        guard let flaw = posts[number].plan.flaw else { return }
        world.violate("E1", "post \(number) \(flaw.rawValue) is accepted")
    }

    /// A post is answered with an error. One of the bus says nothing of what became of it.
    func refuse(_ number: Int, because error: BusError) {
        if error.centerError == .notAllowed { policy.judgePost(number, isAccepted: false) }
        if error.centerError == .limitExceeded, error.message.contains(Limits.Key.retainedPerClient.rawValue) {
            values.judgeRoom(for: number, error)
        }
        if error.centerError != nil { settle(number, .refused) }
    }

    /// F1: one post of several is refused, and the call was served: that needs a reason in this post.
    func judgeRefusal(of number: Int, _ error: BusError) {
        let plan = posts[number].plan
        let isExcused =
            switch error.centerError {
            case .limitExceeded, .invalidOption:
                plan.flaw != nil || plan.options.postingStyle != .now || plan.options.retention != nil
            case .notAllowed: policy.verdict(ofPost: number) != .allowed
            default: false
            }
        guard !isExcused else { return }
        world.violate("F1", "post \(number) of several is refused, and nothing is wrong with it: \(error): \(plan)")
    }

    /// The library told a poster who wants no answers that one of its posts was not made. It does not say which.
    func reportLoss(to poster: UniqueName) {
        reportedLosses[poster, default: 0] += 1
    }

    /// How many of these posts their posters were not told of, at least.
    func untold(_ numbers: [Int]) -> Int {
        var counts: [UniqueName: Int] = [:]
        for number in numbers { counts[posts[number].poster, default: 0] += 1 }
        return counts.reduce(0) { $0 + max(0, $1.value - reportedLosses[$1.key, default: 0]) }
    }

    func carried(_ number: Int, to service: UniqueName?) {
        guard posts.indices.contains(number) else { return }
        posts[number].service = service
    }

    /// Whether a later one of the same poster may have taken the place of one that was queued, or the poster may have
    /// taken it back (Q3).
    func mayHaveReplaced(_ number: Int) -> Bool {
        let queued = posts[number]
        return posts[(number + 1)...].contains {
            $0.poster == queued.poster && !$0.plan.options.coalescing.isEmpty && $0.plan.name == queued.plan.name
        } || withdrawals.contains { $0.poster == queued.poster && ($0.name == nil || $0.name == queued.plan.name) }
    }

    /// Whether all others of its kind were surely posted before it.
    func isLastOfKind(_ number: Int) -> Bool {
        let last = posts[number]
        guard last.plan.options.postingStyle == .now else { return false }
        // Most have later ones.
        return posts.indices.reversed().allSatisfy { index in
            let other = posts[index]
            guard index != number, other.plan.kind == last.plan.kind, other.outcome != .refused else { return true }
            guard case .accepted(_, let time) = other.outcome else { return false }
            return other.plan.options.postingStyle == .now && time <= last.time
        }
    }

    /// - Parameter name: nil means all.
    /// - Returns: the number of the withdrawal.
    func withdraw(_ name: Int?, of poster: UniqueName) -> Int {
        withdrawals.append(Withdrawal(poster: poster, name: name, asked: world.now))
        return withdrawals.count - 1
    }

    func acknowledgeWithdrawal(_ number: Int) {
        withdrawals[number].isAcknowledged = true
    }

    /// R4: a post that waits for its poster's exit arrives at somebody.
    private func checkExit(_ number: Int) {
        let post = posts[number]
        guard post.plan.options.postingStyle == .atExit else { return }
        if post.posterStayed {
            world.violate("R4", "post \(number) waits for the exit of \(post.poster), and arrives before that")
        }
        guard case .accepted(_, let time) = post.outcome, !wasStateLost(since: post.time) else { return }
        let isWithdrawn = withdrawals.contains {
            $0.poster == post.poster && ($0.name == nil || $0.name == post.plan.name) && $0.asked >= time
                && $0.isAcknowledged
        }
        if isWithdrawn { world.violate("R4", "post \(number) was taken back, and arrives") }
    }

    func leave(_ poster: UniqueName) {
        for index in posts.indices where posts[index].poster == poster { posts[index].posterStayed = false }
    }

    /// A notification arrived somewhere.
    ///
    /// - Returns: the number of its post; nil when it is none, which is a violation.
    func identify(_ signal: Receipt) -> Int? {
        received += 1
        guard let number = signal.number, number < posts.count else {
            let number = signal.number.map(String.init) ?? "without a number"
            world.violate("N1", "a notification that nobody posted: \(signal.name), \(number)")
            return nil
        }
        let post = posts[Int(number)]
        let isFromPoster =
            post.plan.user == nil ? post.poster == signal.poster : services.contains(signal.poster)
        guard isFromPoster, post.plan.nameText == signal.name, post.plan.objectText == signal.object
        else {
            world.violate("D6", "post \(number) of \(post.poster) arrives as \(signal.name) of \(signal.poster)")
            return nil
        }
        if post.outcome == .refused || post.plan.flaw != nil {
            world.violate("E1", "post \(number) was to be refused, and arrives: \(post.plan)")
        }
        if let lie = post.plan.lie {
            world.violate("G1", "post \(number) was to be refused (\(lie)), and arrives: \(post.plan)")
        }
        imports.noteArrival(of: Int(number))
        checkExit(Int(number))
        if signal.isAltered { world.violate("N1", "post \(number) arrives with another payload") }
        // A service that knows nothing of its predecessor counts from one; behind a damaged log it goes on with the time.
        if let known = postsBySerial.updateValue(Int(number), forKey: signal.serial), known != Int(number),
            stateLosses.isEmpty || isStateOnlyDamaged()
        {
            world.violate("D4", "serial \(signal.serial) is that of posts \(known) and \(number)")
        }
        return Int(number)
    }

    /// G3: somebody is told where a post is from.
    ///
    /// - Parameter mayOmit: whether that of one from outside may be left out.
    func judgeOrigin(_ origin: OutsideOrigin?, of number: Int, mayOmit: Bool = false) {
        let real = posts[number].plan.options.origin
        guard origin != real, !mayOmit || origin != nil else { return }
        world.violate("G3", "post \(number) is from \(Names.place(real)), and told as from \(Names.place(origin))")
    }

    /// The number of the post that a value comes from; nil when it is none.
    static func number(of userInfo: [String: PropertyList]) -> Int? {
        guard case .uint64(let number)? = userInfo[numberKey] else { return nil }
        return Int(number)
    }

    func noteAnnounced(_ count: UInt64) {
        announced += count
    }

    static let numberKey = "n"

    /// Calls for the posts of a plan, which differ in their numbers. A burst has many of one plan.
    func pattern(for plan: PostPlan) -> MessagePattern {
        if let lastPattern, lastPattern.plan == plan { return lastPattern.pattern }
        let message = call(for: plan, number: Self.numberInPattern).message(wantsAnswer: plan.wantsAnswer)
        let pattern = MessagePattern(message, varying: UInt64(Self.numberInPattern))!
        lastPattern = (plan, pattern)
        return pattern
    }

    /// Bytes that no name and no payload has.
    private static let numberInPattern = 0x01f2_e3d4_c5b6_a798

    /// What is posted for a plan.
    func call(for plan: PostPlan, number: Int) -> PostCall {
        var userInfo: [String: PropertyList] = [Self.numberKey: .uint64(UInt64(number))]
        if plan.byteCount > 0 { userInfo["x"] = .data([UInt8](repeating: 7, count: plan.byteCount)) }
        do throws(CenterError) {
            return try PostCall(
                name: plan.nameText, object: plan.objectText, userInfo: userInfo, options: plan.options)
        } catch {
            fatalError("a post that no client can make: \(error)")
        }
    }
}
