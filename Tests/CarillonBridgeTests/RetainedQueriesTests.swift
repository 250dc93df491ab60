// SPDX-License-Identifier: Apache-2.0
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import Testing

@testable import CarillonBridge

@Suite("G2: queries for retained messages", .limited)
struct RetainedQueriesTests {
    /// A link that asks, and what the broker sent it.
    private final class Lab: BrokerStage {
        private(set) var received: [String] = []
        private(set) var answers: [Set<String>] = []

        override init() throws {
            try super.init()
            link.connect()
        }

        func retain(_ topics: String...) {
            for topic in topics { broker.retained[topic] = Publication(topic: topic, payload: [1], isRetained: true) }
        }

        func ask(_ filters: String...) { link.showRetained(filters) { [self] answer in note(answer) } }

        func note(_ answer: RetainedQueries.Answer) {
            answers.append(answer.isComplete ? answer.refused : ["incomplete"])
        }

        override func brokerSent(_ publication: Publication) { received.append(publication.topic) }
    }

    @Test("A query is answered behind all its messages, and leaves no subscription")
    func answered() throws {
        let lab = try Lab()
        lab.retain("a/b", "a/c", "d")
        lab.ask("a/+", "e")
        lab.pass(seconds: 2)
        #expect(lab.received == ["a/b", "a/c"] && lab.answers.isEmpty && lab.broker.filters.count == 2)
        #expect(lab.broker.asked.joined().allSatisfy { $0.quality == .atMostOnce && $0.retainHandling == .always })
        lab.pass(seconds: 2)
        #expect(lab.answers == [[]] && lab.broker.filters.isEmpty)
    }

    @Test("Late and unread messages arrive before the answer of their query")
    func late() throws {
        let lab = try Lab()
        lab.retain("a", "b")
        lab.broker.isSlow = true
        lab.ask("a", "b")
        lab.pass(seconds: 2)
        lab.broker.showLate()
        lab.broker.isReadingPaused = true
        lab.pass(seconds: 60)
        #expect(lab.received.isEmpty && lab.answers.isEmpty)
        lab.broker.isReadingPaused = false
        lab.pass(seconds: 1)
        #expect(lab.received == ["a", "b"])
        lab.pass(seconds: 4)
        #expect(lab.answers == [[]])
    }

    @Test("Continuous messages delay the answer of a query by at most half a minute")
    func busy() throws {
        let lab = try Lab()
        lab.ask("a")
        for _ in 0..<14 {
            lab.pass(seconds: 2)
            lab.broker.publishOfOther(Publication(topic: "a", payload: [2], isRetained: true))
        }
        #expect(lab.answers.isEmpty)
        lab.pass(seconds: 8)
        #expect(lab.answers == [[]])
    }

    @Test("Messages of other subscriptions do not delay the answer of a query")
    func others() throws {
        let lab = try Lab()
        lab.retain("x")
        _ = lab.link.subscribe([TopicFilter("x")])
        lab.ask("a/+")
        for _ in 0..<3 {
            lab.pass(seconds: 2)
            lab.broker.publishOfOther(Publication(topic: "x", payload: [2], isRetained: true))
        }
        #expect(lab.answers == [[]] && lab.received.count == 3)
    }

    @Test("A query is incomplete if the broker does not answer or drops the canary")
    func incomplete() throws {
        let lab = try Lab()
        lab.broker.isDeaf = true
        lab.ask("a")
        lab.pass(seconds: 100)
        #expect(lab.answers == [["incomplete"]])
        let other = try Lab()
        other.link.canary = ("own", "+")
        other.retain("own")
        func askWithCanary() {
            other.link.showRetained(["a/b"], usesCanary: true) { answer in other.note(answer) }
            other.pass(seconds: 5)
        }
        askWithCanary()
        #expect(other.answers == [[]] && other.broker.filters.isEmpty)
        other.broker.hides = { $0 == "own" }
        askWithCanary()
        #expect(other.answers.last == ["incomplete"] && other.broker.filters.isEmpty)
        other.broker.refuses = { $0 == "+" }
        askWithCanary()
        #expect(other.answers.last == [], "a broker that does not allow it has no canary")
    }

    @Test("Queries run one after the other if the broker does not support subscription identifiers")
    func oneAtATime() throws {
        let lab = try Lab()
        lab.broker.hasIdentifiers = false
        lab.broker.end()
        lab.pass(seconds: 10)
        lab.link.canary = ("own", "+")
        lab.retain("own", "a/b")
        func ask(_ filter: String) { lab.link.showRetained([filter], usesCanary: true) { answer in lab.note(answer) } }
        lab.broker.forgetAsked()
        ask("a/b")
        ask("a/c")
        ask("a/d")
        lab.pass(seconds: 1)
        #expect(lab.broker.asked.map(\.count) == [2])
        lab.broker.hides = { $0 == "own" }
        lab.pass(seconds: 4)
        lab.broker.hides = { _ in false }
        lab.pass(seconds: 20)
        #expect(lab.broker.topicsAsked.filter { $0 != "+" } == ["a/b", "a/c", "a/d"])
        #expect(lab.answers == [[], ["incomplete"], []] && lab.broker.filters.isEmpty)
        // With the connection those end that wait.
        ask("a/b")
        ask("a/c")
        lab.broker.end()
        lab.pass(seconds: 20)
        #expect(lab.answers.count == 3 && lab.broker.filters.isEmpty)
    }

    @Test("A canary from another subscription, or one published during the query, does not complete the query")
    func foreignCanaries() throws {
        let lab = try Lab()
        lab.link.canary = ("own", "+")
        lab.retain("own")
        lab.broker.hides = { [broker = lab.broker] topic in topic == "own" && broker.asked.count > 1 }
        _ = try lab.link.publish(Publication(topic: "own", payload: [1], isRetained: true))
        _ = lab.link.subscribe([TopicFilter("own", retainHandling: .always)])
        lab.link.showRetained(["a/b"], usesCanary: true) { answer in lab.note(answer) }
        lab.pass(seconds: 1)
        lab.broker.hides = { _ in false }
        lab.broker.publishOfOther(Publication(topic: "own", payload: [2], isRetained: true))
        lab.pass(seconds: 5)
        #expect(lab.received.contains("own") && lab.answers == [["incomplete"]])
    }

    @Test(
        "A query whose answer the broker dropped renews the connection, less and less often, when no query is open"
    )
    func renewal() throws {
        let lab = try Lab()
        lab.link.canary = ("own", "+")
        lab.retain("own")
        func ask() { lab.link.showRetained(["a/b"], usesCanary: true) { answer in lab.note(answer) } }
        ask()
        lab.pass(seconds: 100)
        #expect(lab.answers == [[]] && lab.broker.connections == 1 && !lab.clock.isAwaited)
        lab.broker.hides = { $0 == "own" }
        ask()
        lab.pass(seconds: 2)
        ask()
        lab.pass(seconds: 2)
        #expect(lab.answers.count == 2 && lab.broker.connections == 1, "another one is open")
        lab.pass(seconds: 3)
        #expect(lab.answers.count == 3 && lab.broker.connections == 2 && lab.link.isConnected)
        // The next one has to be older, and then one is enough.
        ask()
        lab.pass(seconds: 15)
        #expect(lab.broker.connections == 2)
        lab.pass(seconds: 10)
        #expect(lab.broker.connections == 3)
        lab.pass(seconds: 100)
        #expect(lab.broker.connections == 3 && !lab.clock.isAwaited)
        // While an answer is waited for it is put off, not for ever.
        ask()
        lab.waitsForBroker = true
        lab.pass(seconds: 20)
        #expect(lab.broker.connections == 3)
        lab.pass(seconds: 20)
        #expect(lab.broker.connections == 4)
        lab.waitsForBroker = false
        // After an hour it is quick again.
        lab.pass(seconds: 4_000)
        ask()
        lab.pass(seconds: 5)
        #expect(lab.broker.connections == 5)
        ask()
        lab.link.keepConnection()
        lab.pass(seconds: 4_000)
        #expect(lab.broker.connections == 5 && !lab.clock.isAwaited)
    }

    @Test("A missing canary does not renew the connection if the broker has never shown the canary")
    func hiddenCanary() throws {
        let lab = try Lab()
        lab.link.canary = ("own", "+")
        lab.link.showRetained(["a/b"], usesCanary: true) { answer in lab.note(answer) }
        lab.pass(seconds: 4_000)
        #expect(lab.answers == [["incomplete"]] && lab.broker.connections == 1 && !lab.clock.isAwaited)
    }

    @Test("A late canary counts until the broker has answered the end of the query")
    func lateCanary() throws {
        let lab = try Lab()
        lab.link.canary = ("own", "+")
        lab.retain("own")
        lab.link.showRetained(["a/b"], usesCanary: true) { answer in lab.note(answer) }
        lab.broker.deliver(1)
        lab.broker.isReadingPaused = true
        lab.pass(seconds: 20)
        lab.broker.isReadingPaused = false
        lab.pass(seconds: 5)
        #expect(lab.answers == [[]])
    }

    @Test("A message published during a query arrives only once")
    func copies() throws {
        let lab = try Lab()
        _ = lab.link.subscribe([TopicFilter("+")])
        lab.ask("a")
        lab.pass(seconds: 1)
        lab.broker.publishOfOther(Publication(topic: "a", payload: [1]))
        lab.pass(seconds: 1)
        #expect(lab.received.count == 1)
    }

    @Test("The answer of a query contains the filters that the broker has refused")
    func refused() throws {
        let lab = try Lab()
        lab.broker.refuses = { $0 == "b" }
        lab.ask("a", "b")
        lab.pass(seconds: 5)
        #expect(lab.answers == [["b"]])
    }

    @Test("A query interrupted by a lost connection has no answer and leaves no subscription")
    func cut() throws {
        let lab = try Lab()
        lab.ask("a")
        lab.pass(seconds: 1)
        lab.broker.end()
        #expect(lab.broker.filters.count == 1, "a session keeps them")
        lab.link.connect()
        // Also when the next connection ends before it has answered.
        lab.broker.end()
        lab.link.connect()
        lab.pass(seconds: 60)
        #expect(lab.broker.filters.isEmpty && lab.answers.isEmpty)
        lab.ask("b")
        lab.link.end(as: .stopped, nil)
        #expect(lab.broker.filters.isEmpty, "nor does an end in order")
        lab.ask("c")
        lab.pass(seconds: 60)
        #expect(lab.answers.isEmpty)
    }

    @Test("Two queries for one filter leave no subscription after a lost connection, nor do their canaries")
    func twice() throws {
        let lab = try Lab()
        lab.link.canary = (topic: "own", filter: "ow+")
        for isSecondLate in [false, true] {
            lab.ask("a")
            lab.pass(seconds: isSecondLate ? 3 : 1)
            lab.ask("a")
            lab.pass(seconds: 2)
            lab.broker.end()
            lab.link.connect()
            lab.pass(seconds: 10)
            #expect(lab.broker.filters.isEmpty, "\(lab.broker.filters.keys)")
        }
    }
}
