// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// An event of a machine of a realm, or of its broker.
enum RealmAction: Sendable {
    case post(name: Int, count: Int)
    case value(name: Int, object: Int, isBound: Bool)
    case removeValue(object: Int)
    /// The program that has posted values that go with their poster leaves, and another one comes.
    case restartOwner
    case endBridge(seconds: Int)
    case killBridge(operations: Int)
    case reload
    case pauseBridge(milliseconds: Int)
    case killService(operations: Int)
    case endService
    /// The cable is pulled.
    case stall(milliseconds: Int)
    case kick(ReasonCode)
    case expireSession
    /// Somebody else publishes on the topic of the host's presence.
    case forgePresence(isOnline: Bool)
    case stopBroker(seconds: Int)
    case cutBroker(seconds: Int)
    case refuseConnections(ReasonCode, seconds: Int)
    case refusePublications(ReasonCode, seconds: Int)
    /// A name with more parts than a topic can have levels.
    case postDeep
    /// The session ends, and begins again: first the service ends, and then the bridge. The broker drops messages before, which
    /// the bridge notices after five seconds, or not.
    case logOut(milliseconds: Int, isDropping: Bool)
}

/// All that a seed decides of a realm.
struct RealmPlan {
    struct Step: Sendable, CustomStringConvertible {
        /// In microseconds.
        let time: Int64
        let host: Int
        let action: RealmAction

        var description: String { "\(time / 1000) ms: #\(host) \(action)" }
    }

    static let hostNames = ["desk", "laptop", "tower"]
    static let names = ["org.realm.A", "org.realm.B"]
    /// Of values that all machines have, and of those that one machine has, which alone are removed: who removes a value
    /// removes those of others in this session, too.
    static func valueName(_ number: Int, of host: Int) -> String {
        number == 0 ? "org.realm.V" : "org.realm.W.\(hostNames[host])"
    }
    static let allValueNames = ["org.realm.V"] + hostNames.map { "org.realm.W.\($0)" }
    static let objects = ["", "x", "y/z"]
    static let deepName = "org.realm" + String(repeating: ".deep", count: 196)

    let seed: UInt64
    let hostCount: Int
    let manner: SimulatedBroker.Manner
    /// For each host.
    let lists: [String]
    /// The time after which the values of a host that is not there end, in seconds; nil for the standard.
    let absenceExpiry: UInt32?
    var steps: [Step]
    /// A machine that is switched off behind them, and stays so.
    let off: Int?

    /// Everything is connected by then, in microseconds.
    static let start: Int64 = 20_000_000

    init(seed: UInt64) {
        var random = Random(seed: seed, stream: 5 << 40)
        self.seed = seed
        hostCount = random.number(2...3)
        var manner = SimulatedBroker.Manner()
        manner.receiveMaximum = UInt16(random.pick([1, 5, 20, 1_000]))
        manner.maxQueued = random.happens(0.2) ? 20 : 10_000
        manner.sendsForEachSubscription = random.happens(0.5)
        manner.answersFirst = random.happens(0.5)
        manner.timeBetweenSaves = random.happens(0.5) ? Int64(random.number(1...60)) * 1_000_000 : nil
        self.manner = manner
        lists = (0..<hostCount).map { _ in
            let all = (Self.names + Self.allValueNames).joined(separator: ";")
            let list = random.happens(0.5) ? "org.realm.*" : all
            return "export=\(list)\nimport=\(random.happens(0.5) ? "org.realm.*" : all)"
        }
        var expiries = Random(seed: seed, stream: 9 << 40)
        absenceExpiry = expiries.happens(0.3) ? UInt32(expiries.pick([1, 60, 150])) : nil
        let kinds = Self.kinds(&random)
        let seconds = random.number(60...240)
        steps = []
        var time = Self.start
        let rate = random.pick([100_000, 500_000, 2_000_000])
        while time < Self.start + Int64(seconds) * 1_000_000 {
            time += Int64(random.number(0...2 * rate))
            let host = random.number(0...hostCount - 1)
            steps.append(Step(time: time, host: host, action: Self.action(kinds, &random)))
        }
        var moments = Random(seed: seed, stream: 7 << 40)
        off = moments.happens(0.2) ? moments.number(0...hostCount - 1) : nil
        func add(_ action: RealmAction) {
            let step = Step(
                time: Int64(moments.number(Int(Self.start)...Int(time))), host: moments.number(0...hostCount - 1),
                action: action)
            steps.insert(step, at: steps.firstIndex { $0.time > step.time } ?? steps.count)
        }
        if moments.happens(0.15) { add(.postDeep) }
        if moments.happens(0.3) {
            let isDropping = moments.happens(0.3)
            add(
                .logOut(milliseconds: moments.number(isDropping ? 5_500...8_000 : 50...1_500), isDropping: isDropping))
        }
    }

    private typealias Maker = (inout Random) -> RealmAction

    /// The troubles of a run, each of which it has or not.
    private static func kinds(_ random: inout Random) -> [Maker] {
        let troubles: [Maker] = [
            { .endBridge(seconds: $0.pick([0, 1, 5, 20, 100])) }, { .killBridge(operations: $0.number(1...60)) },
            { _ in .reload }, { .pauseBridge(milliseconds: $0.number(10...20_000)) },
            { .killService(operations: $0.number(1...60)) }, { _ in .endService },
            { .stall(milliseconds: $0.pick([100, 3_000, 10_000, 60_000])) },
            {
                .kick(
                    $0.pick([
                        .quotaExceeded, .packetTooLarge, .administrativeAction, .messageRateTooHigh, .unspecified,
                    ]))
            }, { _ in .expireSession }, { .forgePresence(isOnline: $0.happens(0.5)) },
            { .stopBroker(seconds: $0.pick([0, 2, 30])) }, { .cutBroker(seconds: $0.pick([1, 30])) },
            {
                .refuseConnections($0.pick([.serverUnavailable, .badCredentials, .banned]), seconds: $0.number(1...30))
            }, { .refusePublications($0.pick([.quotaExceeded, .notAuthorized]), seconds: $0.number(1...10)) },
        ]
        let share = random.pick([0.0, 0.15, 0.4])
        return troubles.filter { _ in random.happens(share) }
    }

    private static func action(_ troubles: [Maker], _ random: inout Random) -> RealmAction {
        if !troubles.isEmpty, random.happens(0.08) { return random.pick(troubles)(&random) }
        switch random.number(0...9) {
        case 0...4: return .post(name: random.number(0...1), count: random.pick([1, 1, 1, 3, 100]))
        case 5...7:
            return .value(name: random.number(0...1), object: random.number(0...2), isBound: random.happens(0.4))
        case 8: return .removeValue(object: random.number(0...2))
        default: return random.happens(0.3) ? .restartOwner : .post(name: 0, count: 1)
        }
    }
}
