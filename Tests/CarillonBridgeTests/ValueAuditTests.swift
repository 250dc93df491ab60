// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

@Suite("R1: audit of values whose removal was missed", .limited)
struct ValueAuditTests {
    /// An audit with a broker, and a service that has the values that the test says.
    private final class Lab: BrokerStage, ValueAuditDelegate {
        private(set) var audit: ValueAudit!
        private(set) var hosts = HostTable()
        private(set) var wanted = WantedNames()
        private var subscribed: Set<String> = []
        /// The values that the session has, and whether the service tells.
        var values: [FollowValues.Listed] = []
        var isServiceThere = true
        private var isAsked = false
        private(set) var questions = 0
        private(set) var gone: [String] = []

        static let host = Origin(host: "lap", user: "ann")!
        static let other = Origin(host: "tower", user: "ben")!

        init(wanting names: String..., isConnected: Bool = true) throws {
            try super.init()
            audit = ValueAudit(realm: "home", broker: link, context: context)
            audit.delegate = self
            want(names)
            if isConnected { link.connect() }
        }

        func want(_ names: [String]) {
            let imports = [NamePattern.all]
            wanted = WantedNames(observed: names, isAnyObserved: false, imports: imports, maxSubscriptions: 100)
            subscribe()
        }

        private func subscribe() {
            let filters = wanted.filters(in: "home")
            let (new, old) = (filters.subtracting(subscribed), subscribed.subtracting(filters))
            if let id = link.unsubscribe(old.sorted()) { audit.unsubscribed(by: id) }
            let id = link.subscribe(
                new.sorted().map { TopicFilter($0, keepsRetainFlag: true, retainHandling: .always) })
            if id != nil { audit.request() }
            subscribed = link.isConnected ? filters : []
        }

        static func topic(_ name: String, _ object: String = "", of origin: Origin = host) -> String {
            BridgeTopic(value: name, object, of: origin).text(in: "home")
        }

        /// A host says something of itself.
        func tell(_ origin: Origin = host, run: String = "r", mark: String? = nil) {
            let values = mark.map { #", "values": "\#($0)""# } ?? ""
            let payload = #"{"online": true, "protocol": 1, "run": "\#(run)"\#(values)}"#
            let topic = BridgeTopic(.online, of: origin).text(in: "home")
            let publication = Publication(topic: topic, payload: Array(payload.utf8), isRetained: true)
            let before = hosts[origin]
            guard let host = hosts.take(publication, of: origin) else { return }
            audit.follow(origin, host, before: before)
        }

        /// A host that is there, and whose word is taken.
        func certain(_ origin: Origin = host) {
            tell(origin)
            tell(origin, mark: "1")
        }

        /// The session has a value of a host.
        func has(_ name: String, _ object: String = "", of origin: Origin = host, atBroker: Bool = false) {
            values.append(
                .init(
                    name: name, object: object, serial: UInt64(values.count + 1), host: origin.host, user: origin.user))
            if atBroker { publish(name, object, of: origin) }
        }

        func publish(_ name: String, _ object: String = "", of origin: Origin = host, payload: [UInt8] = [1]) {
            broker.publishOfOther(
                Publication(topic: Self.topic(name, object, of: origin), payload: payload, isRetained: true))
        }

        override func pass(seconds: Int64) {
            clock.pass(seconds: seconds, on: context) {
                broker.deliver()
                guard isAsked, isServiceThere else { return }
                isAsked = false
                audit.answered(values)
            }
        }

        func askForValues() {
            questions += 1
            isAsked = true
        }

        func valuesAreGone(_ topics: [String], of origin: Origin) {
            gone += topics.sorted()
            values.removeAll { topics.contains(Self.topic($0.name, $0.object, of: origin)) && $0.host == origin.host }
        }

        func confirm() { hosts.beginConfirming() }

        override func brokerConnected(sessionPresent: Bool) {
            audit.connected(sessionPresent: sessionPresent)
            if !sessionPresent { subscribed = [] }
            subscribe()
        }
        override func brokerDisconnected(because error: MQTTError?) { audit.connectionEnded() }
        override func brokerSent(_ publication: Publication) {
            guard let topic = BridgeTopic(publication.topic, in: "home"), publication.isRetained else { return }
            if case .notification(let name) = topic.subject {
                audit.take(publication, isWanted: wanted.contains(name))
            } else if case .value(let name, _) = topic.subject {
                audit.take(publication, isWanted: wanted.contains(name))
            }
        }
        override func brokerUnsubscribed(_ id: PacketID) { audit.answeredUnsubscription(id) }
    }

    @Test("An audit removes exactly the values that the broker does not have, and is not repeated")
    func gone() throws {
        let lab = try Lab(wanting: "N", "M")
        lab.has("N", "a", atBroker: true)
        lab.has("N", "b")
        lab.has("N")
        lab.has("M", atBroker: true)
        lab.has("Unwanted")
        lab.certain()
        lab.pass(seconds: 30)
        #expect(lab.gone == [Lab.topic("N"), Lab.topic("N", "b")])
        #expect(lab.questions == 1)
        lab.pass(seconds: 200)
        #expect(lab.questions == 1 && !lab.clock.isAwaited, "nothing is in doubt")
        #expect(lab.broker.filters.count == 4, "those of two names")
    }

    @Test("A host's statement from before the connection counts when hosts have had time to connect")
    func trusted() throws {
        let lab = try Lab(wanting: "N", isConnected: false)
        lab.has("N")
        lab.tell(mark: "1")
        lab.link.connect()
        lab.pass(seconds: 94)
        #expect(lab.gone.isEmpty && lab.questions == 0)
        lab.pass(seconds: 20)
        #expect(lab.gone == [Lab.topic("N")])
    }

    @Test("Values of a host that is unconfirmed or has not announced complete values are not removed")
    func unconfirmed() throws {
        let lab = try Lab(wanting: "N", isConnected: false)
        lab.has("N")
        lab.has("N", of: Lab.other)
        lab.tell(mark: "1")
        lab.tell(Lab.other)
        lab.confirm()
        lab.link.connect()
        lab.pass(seconds: 400)
        #expect(lab.gone.isEmpty)
        // It is there after all, and nothing is new about it.
        lab.tell(mark: "1")
        lab.audit.hostsAreConfirmed()
        lab.pass(seconds: 30)
        #expect(lab.gone == [Lab.topic("N")])
    }

    @Test("A value that ended while its name was unwanted is removed when the name is wanted again")
    func unwantedMeanwhile() throws {
        let lab = try Lab(wanting: "N", "M")
        lab.has("N", atBroker: true)
        lab.certain()
        lab.pass(seconds: 100)
        lab.want(["M"])
        lab.pass(seconds: 1)
        lab.publish("N", payload: [])
        lab.pass(seconds: 100)
        #expect(lab.gone.isEmpty, "nobody wants it")
        lab.want(["M", "N"])
        lab.pass(seconds: 30)
        #expect(lab.gone == [Lab.topic("N")])
    }

    @Test("A message that was in flight when its name became unwanted does not prove a value")
    func overtaken() throws {
        let lab = try Lab(wanting: "N", "M")
        lab.has("N")
        lab.certain()
        lab.publish("N")
        lab.want(["M"])
        lab.broker.retained[Lab.topic("N")] = nil
        lab.want(["M", "N"])
        lab.pass(seconds: 30)
        #expect(lab.gone == [Lab.topic("N")])
    }

    @Test("A message from the session's queue does not prove a value, because its removal may be missing")
    func queued() throws {
        let lab = try Lab(wanting: "N")
        lab.has("N", "a", atBroker: true)
        lab.certain()
        lab.pass(seconds: 100)
        lab.broker.end()
        lab.pass(seconds: 5)
        #expect(lab.link.isConnected && lab.broker.connections == 2)
        lab.has("N", "b")
        lab.audit.take(Publication(topic: Lab.topic("N", "b"), payload: [1], isRetained: true), isWanted: true)
        lab.certain()
        lab.audit.request()
        lab.pass(seconds: 100)
        #expect(lab.gone == [Lab.topic("N", "b")])
    }

    @Test("A message from the session's queue that arrives during the audit does not prove a value")
    func queuedMeanwhile() throws {
        let lab = try Lab(wanting: "N")
        lab.has("N", "a")
        lab.certain()
        lab.broker.end()
        lab.pass(seconds: 5)
        lab.link.isReadingPaused = true
        lab.pass(seconds: 100)
        lab.link.isReadingPaused = false
        lab.pass(seconds: 1)
        #expect(lab.questions == 1 && lab.link.mayBeQueued)
        var queued = Publication(topic: Lab.topic("N", "a"), payload: [1], isRetained: true)
        queued.subscriptions = [1]
        lab.audit.take(queued, isWanted: true)
        lab.pass(seconds: 30)
        #expect(lab.gone == [Lab.topic("N", "a")])
    }

    @Test("Values that the broker shows late, or between continuous changes, are not removed")
    func slow() throws {
        let lab = try Lab(wanting: "N", "M")
        lab.broker.isSlow = true
        lab.has("N", "a", atBroker: true)
        lab.has("N", "b")
        lab.has("M", atBroker: true)
        lab.certain()
        for round in 0..<120 {
            lab.pass(seconds: 1)
            if round % 2 == 0 { lab.broker.showLate() }
            if round % 3 == 0 { lab.publish("M") }
        }
        #expect(lab.gone == [Lab.topic("N", "b")])
    }

    @Test("A value is not removed if the broker refuses the query for it")
    func refused() throws {
        let lab = try Lab(wanting: "N")
        lab.broker.refuses = { !$0.contains("+") }
        lab.has("N")
        lab.certain()
        lab.pass(seconds: 300)
        #expect(lab.gone.isEmpty && lab.questions == 1)
    }

    @Test("An audit waits for an answer of the service without a timer")
    func unanswered() throws {
        let lab = try Lab(wanting: "N")
        lab.has("N")
        lab.isServiceThere = false
        lab.certain()
        lab.pass(seconds: 200)
        #expect(lab.questions == 1 && !lab.clock.isAwaited)
        lab.isServiceThere = true
        lab.pass(seconds: 10)
        #expect(lab.gone == [Lab.topic("N")])
    }

    @Test("Repeated announcements of a host cause few audits, and only of its own values")
    func restless() throws {
        let lab = try Lab(wanting: "N")
        lab.certain()
        lab.certain(Lab.other)
        lab.pass(seconds: 100)
        lab.broker.forgetAsked()
        let before = lab.questions
        for mark in 0..<600 {
            lab.tell(mark: "\(mark + 10)")
            lab.pass(seconds: 1)
        }
        #expect((2...11).contains(lab.questions - before))
        #expect(lab.broker.topicsAsked.allSatisfy { $0.contains("/lap/ann/") }, "only its own values are fetched")
        #expect(!lab.broker.topicsAsked.isEmpty)
    }

    @Test("Values of a host with irregular topics are not removed")
    func irregular() throws {
        let lab = try Lab(wanting: "N")
        lab.has("N", "door")
        lab.audit.irregular.insert(Lab.host)
        lab.certain()
        lab.pass(seconds: 100)
        #expect(lab.gone.isEmpty)
    }

    @Test("The limit of irregular hosts keeps space for other machines when one machine has many users")
    func manyIrregular() throws {
        var many = IrregularHosts()
        for number in 0..<5_000 { many.insert(Origin(host: "greedy", user: "\(number)")!) }
        #expect(many.origins.count == 3_584)
        many.insert(Lab.host)
        many.insert(Lab.host)
        #expect(many.contains(Lab.host))
        many.remove(Lab.host)
        #expect(!many.contains(Lab.host) && many.origins.count == 3_584)
    }

    @Test("A broker that drops retained messages ends no value, and is queried at growing intervals")
    func dropping() throws {
        let lab = try Lab(wanting: "N")
        lab.has("N")
        lab.has("N", "a", atBroker: true)
        lab.certain()
        lab.link.canary = ("own/online", "own/+")
        lab.pass(seconds: 4_000)
        #expect(lab.gone.isEmpty && (3...8).contains(lab.questions))
        lab.broker.retained["own/online"] = Publication(topic: "own/online", payload: [1], isRetained: true)
        lab.pass(seconds: 4_000)
        #expect(lab.gone == [Lab.topic("N")] && !lab.clock.isAwaited)
        #expect(lab.broker.filters.count == 2)
    }

    @Test("A value that its host publishes again during an audit is not removed")
    func setAnew() throws {
        let lab = try Lab(wanting: "N")
        for number in 0..<100 { lab.has("N", "\(number)") }
        lab.certain()
        lab.pass(seconds: 13)
        #expect(lab.gone.isEmpty)
        lab.publish("N", "0")
        lab.pass(seconds: 30)
        #expect(lab.gone.count == 99 && !lab.gone.contains(Lab.topic("N", "0")))
    }

    @Test("A host with many ended values does not delay the audit of other hosts until all are removed")
    func greedy() throws {
        let lab = try Lab(wanting: "N")
        for number in 0..<3_000 { lab.has("N", "\(number)") }
        lab.has("N", of: Lab.other)
        lab.certain()
        lab.certain(Lab.other)
        lab.pass(seconds: 130)
        #expect(lab.gone.count == 1_025 && lab.gone.contains(Lab.topic("N", of: Lab.other)))
        lab.pass(seconds: 1_000)
        #expect(lab.gone.count == 3_001 && !lab.clock.isAwaited)
    }

    @Test("Only the values that the broker has not shown are queried again")
    func many() throws {
        let lab = try Lab(wanting: "N")
        for number in 0..<1_000 { lab.has("N", "\(number)", atBroker: number % 100 != 0) }
        // The broker sent them before this connection.
        lab.broker.isForgetful = false
        lab.certain()
        lab.audit.requestAfterDrops()
        lab.broker.forgetAsked()
        lab.pass(seconds: 60)
        #expect(lab.gone.count == 10)
        #expect(lab.broker.topicsAsked.count < 1_020)
    }

    @Test("Values that the broker had lacked, by the announcement of their host, are fetched once")
    func lacked() throws {
        let lab = try Lab(wanting: "N")
        lab.certain()
        lab.pass(seconds: 100)
        #expect(
            lab.broker.topicsAsked.count == 2 && !lab.audit.mustFetch, "the first word of a host tells of nothing new")
        lab.broker.forgetAsked()
        lab.tell(mark: "2")
        #expect(lab.audit.mustFetch)
        lab.pass(seconds: 100)
        #expect(lab.broker.topicsAsked.count == 2 && !lab.audit.mustFetch)
        lab.pass(seconds: 1_000)
        #expect(lab.broker.topicsAsked.count == 2)
    }

    @Test("Values of a host are fetched when a new run of its bridge announces complete values")
    func restarted() throws {
        let lab = try Lab(wanting: "N")
        lab.certain()
        lab.pass(seconds: 100)
        lab.broker.forgetAsked()
        lab.tell(run: "s")
        #expect(lab.audit.mustFetch, "it will say when all its values are there")
        lab.pass(seconds: 100)
        #expect(lab.broker.topicsAsked.isEmpty && lab.audit.mustFetch)
        lab.tell(run: "s", mark: "1")
        lab.pass(seconds: 100)
        #expect(!lab.broker.topicsAsked.isEmpty && !lab.audit.mustFetch)
    }

    @Test("Values that the broker has shown incompletely are fetched again, also after a reconnection")
    func lackedAgain() throws {
        let lab = try Lab(wanting: "N")
        lab.certain()
        lab.pass(seconds: 100)
        lab.broker.isDeaf = true
        lab.tell(mark: "2")
        lab.pass(seconds: 10)
        #expect(!lab.audit.mustFetch, "it is asked for")
        lab.broker.end()
        #expect(lab.audit.mustFetch)
        lab.broker.isDeaf = false
        lab.link.connect()
        lab.certain()
        lab.link.canary = ("own/online", "own/+")
        lab.pass(seconds: 100)
        #expect(lab.audit.mustFetch, "what the bridge itself has there was not shown")
        lab.broker.retained["own/online"] = Publication(topic: "own/online", payload: [1], isRetained: true)
        lab.pass(seconds: 300)
        #expect(!lab.audit.mustFetch)
    }

    @Test("An audit interrupted by a lost connection starts again with the next connection")
    func cut() throws {
        let lab = try Lab(wanting: "N")
        lab.has("N")
        lab.certain()
        lab.pass(seconds: 7)
        #expect(lab.gone.isEmpty)
        lab.broker.end()
        lab.link.connect()
        lab.tell()
        lab.tell(mark: "2")
        lab.pass(seconds: 90)
        #expect(lab.gone.isEmpty, "what has come may be of the session's queue")
        lab.pass(seconds: 30)
        #expect(lab.gone == [Lab.topic("N")])
        #expect(lab.broker.filters.count == 2, "no other subscription is left")
    }

    @Test("Values of a host whose announcement becomes incomplete during an audit are kept until a later audit")
    func goneMeanwhile() throws {
        let lab = try Lab(wanting: "N")
        lab.has("N")
        lab.certain()
        lab.pass(seconds: 7)
        lab.tell()
        lab.pass(seconds: 20)
        #expect(lab.gone.isEmpty)
        lab.tell(mark: "2")
        lab.pass(seconds: 20)
        #expect(lab.gone.isEmpty, "looked at within the last minute")
        lab.pass(seconds: 60)
        #expect(lab.gone == [Lab.topic("N")])
    }
}
