// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// An event of a random test. Clients, names and objects are numbers of few, so that they meet often.
enum Step {
    case observe(client: Int, name: Int, object: Int, SuspensionBehavior, RunLoopMode)
    /// The same by one that only looks on (B3).
    case monitor(client: Int, name: Int, object: Int, RunLoopMode)
    /// Removes the observer whose place among all that there are, and one that there is not, is `pick`: often one's
    /// own, sometimes a stranger's.
    case remove(client: Int, pick: Int)
    case removeAll(client: Int, name: Int, object: Int)
    /// - Parameter origin: where it comes from (G3); 0 for this session.
    case post(poster: Int, name: Int, object: Int, bytes: Int, immediately: Bool, times: Int, origin: Int = 0)
    /// So many posts that nobody could serve (E4).
    case lose(poster: Int, name: Int, object: Int, UInt64)
    /// A post for the poster's queue, or one that takes the place of what is there (Q7).
    case queue(poster: Int, name: Int, object: Int, bytes: Int, immediately: Bool, PostingStyle, Set<CoalescingKey>)
    /// A poster takes back what it has queued (Q3); of any name, or of any object, where that is 0.
    case withdraw(poster: Int, name: Int, object: Int)
    /// So many posts of a style are taken out of the queues and posted.
    case postQueued(PostingStyle, limit: Int)
    /// More comes than can be sent: what is ready waits until it is sent.
    case busy
    /// So many turns are taken, of this lane and more urgent ones; nil ends being busy.
    case send(upTo: DeliveryLane, limit: Int?)
    case setSuspended(client: Int, Bool)
    case followActivity(client: Int)
    /// Somebody else's word about the client (B3).
    case override(client: Int, Bool?)
    /// The desktop tells about the client's application.
    case tell(client: Int, Activity)
    /// The last moment of inactivity that began for the client is over, or one before it.
    case endMoment(client: Int, isLate: Bool)
    /// The configuration's word about automatic suspension.
    case automation(Bool)
    case answer(client: Int, times: Int)
    /// The timer of the client's probe ends, if there is one.
    case backlogProbe(client: Int, hasRead: Bool)
    case leave(client: Int)
    /// The client's word whether it wants what is due together (F1).
    case batches(client: Int, Bool)
    case limit(Limits.Key, UInt64)
    /// The process ends and another one takes over (E3).
    case restart

    /// The first is "any", or "no object". Two are the same to Swift, and not byte for byte; one is long.
    static let texts = ["", "A", "B", "\u{E9}", "e\u{301}", "long"]
    /// The hosts of those that come from elsewhere, two of which are the same to Swift.
    static let origins = ["", "\u{E9}", "e\u{301}"].map { try! OutsideOrigin(host: $0.isEmpty ? nil : $0, user: nil) }
    static let clients: [ClientName] = [":1.1", ":1.2", ":1.3", ":1.4", ":1.5"]
}

extension Step: CustomStringConvertible {
    var description: String {
        func client(_ number: Int) -> ClientName { Self.clients[number] }
        func text(_ number: Int) -> String { number == 3 ? "'\\u{E9}'" : "'\(Self.texts[number])'" }
        switch self {
        case .observe(let number, let name, let object, let behavior, let mode):
            return "\(client(number)) observes \(text(name)) of \(text(object)), \(behavior.rawValue), \(mode.rawValue)"
        case .monitor(let number, let name, let object, let mode):
            return "\(client(number)) monitors \(text(name)) of \(text(object)), \(mode.rawValue)"
        case .queue(let number, let name, let object, let bytes, let immediately, let style, let coalescing):
            return "\(client(number)) posts \(text(name)) of \(text(object)), \(style.rawValue), coalescing on "
                + "\(coalescing.map(\.rawValue).sorted()), \(bytes) bytes" + (immediately ? ", immediately" : "")
        case .withdraw(let number, let name, let object):
            return "\(client(number)) withdraws \(text(name)) of \(text(object))"
        case .postQueued(let style, let limit): return "\(limit) queued posts, \(style.rawValue), are posted"
        case .busy: return "what is ready waits"
        case .send(let lane, let limit): return "\(limit.map { "\($0)" } ?? "all") are sent up to \(lane)"
        case .remove(let number, let pick): return "\(client(number)) removes the observer at place \(pick)"
        case .removeAll(let number, let name, let object):
            return "\(client(number)) removes all of its observers of \(text(name)) of \(text(object))"
        case .post(let poster, let name, let object, let bytes, let immediately, let times, let origin):
            return "\(client(poster)) posts \(text(name)) of \(text(object))"
                + (bytes > 0 ? ", \(bytes) bytes" : "") + (immediately ? ", immediately" : "")
                + (times > 1 ? ", \(times) times" : "") + (origin > 0 ? ", from elsewhere: \(origin)" : "")
        case .lose(let poster, let name, let object, let count):
            return "\(count) posts by \(client(poster)) of \(text(name)) of \(text(object)) are lost"
        case .setSuspended(let number, let isSuspended): return "\(client(number)) is suspended: \(isSuspended)"
        case .tell(let number, let activity): return "the application of \(client(number)) is \(activity.rawValue)"
        case .endMoment(let number, let isLate):
            return "the \(isLate ? "last but one" : "last") moment of inactivity of \(client(number)) is over"
        case .automation(let isOn): return "automatic suspension is \(isOn ? "on" : "off")"
        case .followActivity(let number): return "\(client(number)) follows activity"
        case .override(let number, let isSuspended):
            return "the suspension of \(client(number)) is overridden: \(isSuspended.map { "\($0)" } ?? "no longer")"
        case .answer(let number, let times): return "\(client(number)) answers" + (times > 1 ? " \(times) times" : "")
        case .backlogProbe(let number, let hasRead):
            return hasRead
                ? "it is found that \(client(number)) reads" : "nothing tells whether \(client(number)) reads"
        case .leave(let number): return "\(client(number)) leaves"
        case .batches(let number, let isWanted): return "\(client(number)) wants batches: \(isWanted)"
        case .limit(let key, let value): return "limit \(key.rawValue) = \(value)"
        case .restart: return "the service restarts"
        }
    }
}

// MARK: Random sequences

/// SplitMix64: small, and the same everywhere.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
    }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }
}

extension Step {
    /// A sequence that begins with small limits and some observers.
    ///
    /// - Parameter restarts: whether the service may restart.
    static func sequence(seed: UInt64, count: Int, restarts: Bool) -> [Step] {
        var generator = SeededGenerator(seed: seed)
        var steps: [Step] = [.limit(.clients, 4), .limit(.observersPerClient, 5), .limit(.observers, 14)]
        // In a third of the sequences clients read well, in another third hardly at all.
        let answers = [30, 150, 320][Int(seed % 3)]
        for key in [
            Limits.Key.queuedPerClient, .queuedBytesPerClient, .queuedBytes, .queuedPostsPerClient, .queuedPostBytes,
        ] {
            if Bool.random(using: &generator) { steps.append(randomLimit(key, &generator)) }
        }
        for client in 0..<3 { steps.append(observe(client, &generator)) }
        // No bus gives a name again. Whose turn it is, where one had left posts behind and came again, is no rule.
        var (untilExit, left): (Set<Int>, Set<Int>) = ([], [])
        while steps.count < count {
            let step = random(&generator, answers: answers, restarts: restarts, monitors: seed % 2 == 0)
            switch step {
            case .leave(let client) where untilExit.remove(client) != nil: left.insert(client)
            case .queue(let client, _, _, _, _, let style, _):
                guard !left.contains(client) else { continue }
                if style == .atExit { untilExit.insert(client) }
            default: break
            }
            steps.append(step)
        }
        return steps
    }

    private static func random(
        _ generator: inout SeededGenerator, answers: Int, restarts: Bool, monitors: Bool
    ) -> Step {
        func number(_ range: Range<Int>) -> Int { .random(in: range, using: &generator) }
        let client = number(0..<20) == 0 ? 4 : number(0..<4)
        switch number(0..<1000) {
        case ..<50:
            // In half of the sequences one observer in five monitors.
            return monitors && number(0..<5) == 0
                ? .monitor(
                    client: client, name: text(&generator), object: text(&generator),
                    RunLoopMode.allCases.randomElement(using: &generator)!)
                : observe(client, &generator)
        case ..<80: return .remove(client: client, pick: number(0..<16))
        case ..<90: return .removeAll(client: client, name: text(&generator), object: text(&generator))
        case ..<190: return .setSuspended(client: client, number(0..<10) < 6)
        case ..<205: return .followActivity(client: client)
        case ..<(205 + answers): return .answer(client: client, times: number(0..<6) == 0 ? 3 : 1)
        case ..<(255 + answers): return .backlogProbe(client: client, hasRead: number(0..<3) == 0)
        case ..<(263 + answers): return .leave(client: client)
        case ..<(278 + answers): return randomLimit(Limits.Key.allCases.randomElement(using: &generator)!, &generator)
        case ..<(286 + answers) where restarts: return .restart
        case ..<(316 + answers): return .busy
        case ..<(366 + answers):
            return .send(
                upTo: DeliveryLane.allCases.randomElement(using: &generator)!,
                limit: number(0..<4) == 0 ? nil : number(1..<5))
        case ..<(426 + answers):
            return .queue(
                poster: client, name: number(0..<50) == 0 ? number(0..<6) : number(1..<4), object: text(&generator),
                bytes: number(0..<4) == 0 ? number(1..<20) * 1000 : 0, immediately: number(0..<8) == 0,
                PostingStyle.allCases.randomElement(using: &generator)!,
                [[], [], [.name], [.object], [.name, .object]].randomElement(using: &generator)!)
        case ..<(446 + answers):
            return .postQueued(number(0..<2) == 0 ? .asap : .whenIdle, limit: number(0..<3) == 0 ? 100 : number(1..<4))
        case ..<(486 + answers):
            // Inactive as often as not: most of it ends before its moment is over.
            let activity = number(0..<2) == 0 ? .inactive : Activity.allCases.randomElement(using: &generator)!
            return .tell(client: client, activity)
        case ..<(526 + answers): return .endMoment(client: client, isLate: number(0..<6) == 0)
        case ..<(530 + answers): return .automation(number(0..<4) > 0)
        case ..<(545 + answers):
            return .lose(
                poster: client, name: number(0..<20) == 0 ? number(0..<6) : number(1..<5), object: text(&generator),
                UInt64(number(1..<4)))
        case ..<(555 + answers): return .batches(client: client, number(0..<3) > 0)
        case ..<(563 + answers):
            return .withdraw(poster: client, name: number(0..<3) == 0 ? 0 : number(1..<4), object: text(&generator))
        case ..<(578 + answers): return .override(client: client, [true, false, nil, nil][number(0..<4)])
        default:
            let isBurst = number(0..<60) == 0
            return .post(
                poster: client, name: number(0..<50) == 0 ? number(0..<6) : number(1..<5), object: text(&generator),
                bytes: number(0..<3) == 0 ? number(1..<40) * 1000 : 0, immediately: number(0..<12) == 0,
                times: isBurst ? number(30..<80) : number(0..<8) == 0 ? number(2..<6) : 1,
                origin: number(0..<3) == 0 ? number(0..<3) : 0)
        }
    }

    private static func observe(_ client: Int, _ generator: inout SeededGenerator) -> Step {
        .observe(
            client: client, name: text(&generator), object: text(&generator),
            SuspensionBehavior.allCases.randomElement(using: &generator)!,
            Bool.random(using: &generator) ? .default : RunLoopMode.allCases.randomElement(using: &generator)!)
    }

    /// Any, or none, as often as not.
    private static func text(_ generator: inout SeededGenerator) -> Int {
        let number = Int.random(in: 0..<40, using: &generator)
        return number == 0 ? 5 : number < 20 ? 0 : 1 + number % 4
    }

    private static func randomLimit(_ key: Limits.Key, _ generator: inout SeededGenerator) -> Step {
        let values: ClosedRange<UInt64>
        switch key {
        case .clients: values = 2...5
        case .observers: values = 6...16
        case .observersPerClient: values = 2...6
        case .observerBytes, .observerBytesPerClient: values = 1_000_000...2_000_000
        case .queuedPerClient: values = 1...12
        case .queuedBytesPerClient: values = 500...100_000
        case .queuedBytes: values = 1000...150_000
        case .queuedPostsPerClient: values = 1...4
        case .queuedPostBytesPerClient: values = 500...40_000
        case .queuedPostBytes: values = 1000...40_000
        // Answers and waiting calls are no part of these sequences, and what is on its way has tests of its own.
        case .answerBytesPerClient, .answerBytes, .inFlightBytes, .waitingCallBytes: values = 1 << 30...1 << 30
        // Nothing is retained in these sequences.
        case .retained, .retainedPerClient, .retainedBytes, .retainedBytesPerClient: values = 1...1
        case .stateBytes: values = 1...1  // the store's
        // It has tests of its own.
        case .memoryBytes: values = 1 << 30...1 << 30
        case .nameLength, .objectLength: values = 2...4
        case .userInfoBytes, .userInfoDepth, .postsPerCall, .channelsPerProcess: values = 1...1
        }
        return .limit(key, .random(in: values, using: &generator))
    }
}
