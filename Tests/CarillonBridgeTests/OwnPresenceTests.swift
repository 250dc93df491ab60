// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: a second bridge of the same realm, host and user", .limited)
struct OwnPresenceTests {
    /// Two bridges on one topic, which see all that both publish.
    private struct Pair {
        var bridges = [OwnPresence(run: "b"), OwnPresence(run: "a")]
        private(set) var gaveWay: Set<Int> = []
        private var lastChallenge = 0

        /// Publishes, and has everybody react until nothing more comes.
        mutating func publish(by bridge: Int, asks: Bool) {
            var line = [announcement(by: bridge, answer: nil, asks: asks)]
            var turns = 0
            while !line.isEmpty {
                turns += 1
                guard turns < 20 else {
                    Issue.record("they publish for ever")
                    return
                }
                let next = line.removeFirst()
                for other in bridges.indices where !gaveWay.contains(other) {
                    switch bridges[other].judge(next, isRetained: false) {
                    case .none: break
                    case .disconnectForOther: gaveWay.insert(other)
                    case .correct(let answer): line.append(announcement(by: other, answer: answer, asks: true))
                    }
                }
            }
        }

        mutating func announcement(by bridge: Int, answer: String?, asks: Bool) -> Publication {
            lastChallenge += 1
            return bridges[bridge].announcement(
                answer: answer, asking: asks ? "challenge \(lastChallenge)" : nil, topic: "t")
        }
    }

    @Test("The earlier bridge disconnects when a newer bridge appears", arguments: [0, 1])
    func newcomer(number: Int) {
        var pair = Pair()
        pair.publish(by: number, asks: false)
        #expect(pair.gaveWay == [1 - number])
    }

    @Test(
        "A bridge that reconnects sends a challenge, and disconnects when the other bridge answers", arguments: [0, 1])
    func comesBack(number: Int) {
        var pair = Pair()
        pair.publish(by: number, asks: true)
        #expect(pair.gaveWay == [number])
    }

    @Test("Only one of two bridges that send challenges at the same time disconnects")
    func crossing() {
        var pair = Pair()
        let messages = pair.bridges.indices.map { pair.announcement(by: $0, answer: nil, asks: true) }
        #expect(pair.bridges[0].judge(messages[1], isRetained: false) == .correct(answer: "challenge 2"))
        #expect(pair.bridges[1].judge(messages[0], isRetained: false) == .correct(answer: nil))
        // It asks the same again, so that the answer that is on its way counts.
        let answer = pair.announcement(by: 0, answer: "challenge 2", asks: true)
        _ = pair.announcement(by: 1, answer: nil, asks: true)
        #expect(pair.bridges[1].judge(answer, isRetained: false) == .disconnectForOther)
    }

    @Test("An answer to a closed challenge does not disconnect the bridge")
    func closed() {
        var own = OwnPresence(run: "a")
        _ = own.announcement(answer: nil, asking: "one", topic: "t")
        own.closeChallenge()
        _ = own.announcement(answer: nil, asking: "two", topic: "t")
        var other = OwnPresence(run: "b")
        #expect(
            own.judge(other.announcement(answer: "one", asking: nil, topic: "t"), isRetained: false)
                == .correct(answer: nil))
        #expect(
            own.judge(other.announcement(answer: "two", asking: nil, topic: "t"), isRetained: false)
                == .disconnectForOther)
    }

    @Test("A retained message counts as old only until the broker has shown the bridge's own presence")
    func marked() {
        var (own, other) = (OwnPresence(run: "a"), OwnPresence(run: "b"))
        let theirs = other.announcement(answer: nil, asking: nil, topic: "t")
        let mine = own.announcement(answer: nil, asking: nil, topic: "t")
        #expect(own.judge(theirs, isRetained: true) == .none)
        #expect(own.judge(mine, isRetained: true) == .none)
        #expect(own.judge(theirs, isRetained: true) == .correct(answer: nil))
        own.connected(sessionPresent: true)
        #expect(own.judge(theirs, isRetained: true) == .none)
    }

    @Test("A retained, forged or own presence message does not disconnect the bridge")
    func forged() {
        var (own, other) = (OwnPresence(run: "a"), OwnPresence(run: "b"))
        let mine = own.announcement(answer: nil, asking: "challenge", topic: "t")
        let theirs = other.announcement(answer: nil, asking: nil, topic: "t")
        #expect(own.judge(theirs, isRetained: true) == .none)
        #expect(own.judge(mine, isRetained: false) == .none)
        #expect(own.judge(theirs, isRetained: false) == .correct(answer: nil))
        let guess = other.announcement(answer: "another", asking: nil, topic: "t")
        #expect(own.judge(guess, isRetained: false) == .correct(answer: nil))
        for payload in ["", "offline", "{}", #"{"online": true}"#, #"{"online": false, "run": "a"}"#] {
            let publication = Publication(topic: "t", payload: Array(payload.utf8))
            #expect(own.judge(publication, isRetained: false) == .correct(answer: nil), "\(payload)")
        }
        #expect(own.judge(other.offlineMessage(topic: "t"), isRetained: false) == .correct(answer: nil))
    }
}
