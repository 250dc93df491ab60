// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMQTT
import CarillonMainLoop
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonBridge

@Suite("G2: posts of messages from other machines", .limited)
struct InwardPostsTests {
    /// A service that answers as the test says, and keeps what it was told to.
    private final class Service: PostingService {
        enum Kind: Equatable {
            case post(String)
            case removal(String)
            case question(String)
        }

        private struct Call {
            let kind: Kind
            let answer: (ServiceError?) -> Void
        }

        var isThere = true
        var knowsAllSessions = true
        /// What the posts of these names are known by in other sessions, as far as that was told.
        private(set) var identities: [String: String] = [:]
        private var calls: [Call] = []
        /// All that was asked for, in order.
        private(set) var log: [Kind] = []
        /// The seconds after which posts expire, by name.
        private(set) var lifetimes: [String: UInt32] = [:]
        /// The values, by name.
        var values: [String: [String: PropertyList]] = [:]

        func post(
            _ post: PostCall, completion: @escaping @Sendable (Result<Int, ServiceError>) -> Void
        ) throws(CenterError) {
            let value = post.userInfo["n"].map { "\($0)".filter(\.isNumber) } ?? ""
            let isRetainedValue = post.options.retention != nil
            lifetimes[post.name] = post.options.expiresAfter
            identities[post.name] = post.options.deduplicationID
            add(.post("\(post.name)=\(value.suffix(1))")) { [self] error in
                if error == nil, isRetainedValue { values[post.name] = post.userInfo }
                completion(error.map { .failure($0) } ?? .success(1))
            }
        }

        func ask<Method: CenterMethod>(
            _ method: Method, completion: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void
        ) {
            if let get = method as? Get {
                add(.question(get.name)) { [self] error in
                    let kept = values[get.name].map {
                        [
                            RetainedValueInfo(
                                name: get.name, object: "", userInfo: $0,
                                details: ["host": .string("lap"), "user": .string("ann")])
                        ]
                    }
                    completion(error.map { .failure($0) } ?? .success((kept ?? []) as! Method.Reply))
                }
            } else if let removal = method as? RemoveRetainedFrom {
                add(.removal(removal.name)) { [self] error in
                    if error == nil { values[removal.name] = nil }
                    completion(error.map { .failure($0) } ?? .success(1 as! Method.Reply))
                }
            } else {
                Issue.record("\(method) was asked")
            }
        }

        private func add(_ kind: Kind, _ answer: @escaping (ServiceError?) -> Void) {
            log.append(kind)
            calls.append(Call(kind: kind, answer: answer))
        }

        /// The first call that is unanswered is carried out, and answered.
        func answer() { calls.removeFirst().answer(nil) }
        func fail(_ error: ServiceError = .disconnected("no answer")) { calls.removeFirst().answer(error) }
        func failLast() { calls.removeLast().answer(.disconnected("no answer")) }
        func answerAll() { while !calls.isEmpty { answer() } }
        var unanswered: [Kind] { calls.map(\.kind) }
    }

    private let service = Service()
    private let clock = StageClock()
    private let context: MainContext
    private let posts: InwardPosts
    private let losses = Losses()
    private let now = Now()

    private final class Now {
        var time: Int64 = 0
    }

    private final class Losses {
        var all: [String] = []
    }

    init() {
        context = MainContext(clock: clock)
        posts = InwardPosts(service, context: context, time: { [now] in now.time }) { [losses] count, name, _, reason in
            losses.all.append("\(count) \(name ?? "") \(reason.rawValue)")
        }
    }

    private func append(
        _ name: String, _ number: Int64? = 1, isRetainedValue: Bool = false, isAnew: Bool = false,
        expiresAfter seconds: UInt32? = nil
    ) throws {
        let topic = try #require(BridgeTopic("carillon/1/home/lap/ann/n/\(name)", in: "home"))
        let publication = Publication(
            topic: "carillon/1/home/lap/ann/n/\(name)", payload: number.map { Array(#"{"n": \#($0)}"#.utf8) } ?? [],
            isRetained: isRetainedValue, expiry: seconds)
        posts.append(try InwardMessage(publication, on: topic).marked(anew: isAnew))
        posts.pump()
    }

    @Test(
        "G1: the bridge posts the ID of an all-sessions post from this machine, if the service supports that"
    )
    func ofThisMachine() throws {
        func append(_ name: String, of host: String, _ key: MessageProperties.Key? = .allSessions) throws {
            var properties = MessageProperties()
            properties.identity = key.map { _ in "1000/1/\(name)" }
            let text = "carillon/1/home/\(host)/ben/n/\(name)"
            let topic = try #require(BridgeTopic(text, in: "home"))
            let publication = Publication(
                topic: text, payload: Array("{}".utf8), isRetained: false, userProperties: properties.all)
            posts.append(try InwardMessage(publication, on: topic))
            posts.pump()
        }
        posts.host = "desk"
        try append("A", of: "desk")
        try append("B", of: "lap")
        try append("C", of: "desk", nil)
        service.knowsAllSessions = false
        try append("D", of: "desk")
        #expect(service.log.count == 4 && service.identities == ["A": "1000/1/A"])
    }

    private func pass(seconds: Int64) { clock.pass(seconds: seconds, on: context) }

    @Test("Messages are posted in order, and an old value only if the session does not have it")
    func inOrder() throws {
        try append("A")
        try append("V", 2, isRetainedValue: true, isAnew: true)
        try append("B")
        service.answer()
        #expect(service.log == [.post("A=1"), .question("V")], "all behind it wait")
        service.answer()
        #expect(service.log.suffix(2) == [.post("V=2"), .post("B=1")])
        service.answerAll()
        try append("V", 2, isRetainedValue: true, isAnew: true)
        service.answerAll()
        #expect(service.log.count == 5 && posts.isIdle && posts.alreadyPresent == 1 && posts.imported == 3)
        try append("V", nil, isRetainedValue: true)
        service.answerAll()
        #expect(service.log.last == .removal("V") && losses.all.isEmpty && posts.refused == 0)
    }

    @Test("A value whose post has no answer is not posted again over a later value")
    func later() throws {
        try append("V", 1, isRetainedValue: true)
        try append("V", 2, isRetainedValue: true)
        #expect(service.log == [.post("V=1"), .post("V=2")])
        service.fail()
        service.answerAll()
        #expect(service.log.count == 2 && service.values["V"] == ["n": .int64(2)])
        #expect(losses.all == ["1 V uncertain"] && posts.isIdle)
        // The same where the later one was found there.
        try append("V", 3, isRetainedValue: true)
        try append("V", 2, isRetainedValue: true, isAnew: true)
        #expect(service.unanswered == [.post("V=3"), .question("V")])
        service.failLast()
        #expect(service.unanswered == [.post("V=3")])
        pass(seconds: 2)
        #expect(service.unanswered == [.post("V=3"), .question("V")])
        service.fail()
        service.answer()
        service.answerAll()
        #expect(service.values["V"] == ["n": .int64(2)] && posts.isIdle)
    }

    @Test("After two values without answers the later one is posted again, in any order of the failures")
    func bothUncertain() throws {
        try append("V", 1, isRetainedValue: true)
        try append("V", 2, isRetainedValue: true)
        service.failLast()
        service.fail()
        service.answerAll()
        #expect(service.log.suffix(2) == [.question("V"), .post("V=2")])
        #expect(losses.all == ["1 V uncertain"])
    }

    @Test("A message behind a value without an answer waits until that value's outcome is certain")
    func waits() throws {
        try append("V", 1, isRetainedValue: true)
        try append("A")
        service.fail()
        try append("V", 2, isRetainedValue: true)
        #expect(service.unanswered == [.post("A=1")])
        service.answer()
        // The later one is the one that counts.
        #expect(service.unanswered == [.post("V=2")] && losses.all == ["1 V uncertain"])
    }

    @Test("A notification without an answer is reported as a loss and never posted again")
    func notifications() throws {
        try append("A")
        service.fail()
        #expect(losses.all == ["1 A uncertain"] && posts.isIdle && posts.refused == 1)
        try append("B")
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        #expect(losses.all.last == "1 B refused" && service.log.count == 2)
    }

    @Test("A value refused for lack of space is reported as a loss, and reported for a later attempt")
    func noRoom() throws {
        var marked: [String] = []
        posts.noteNoSpace = { message in
            marked.append(message.name)
            return marked.count == 1
        }
        try append("V", 1, isRetainedValue: true)
        try append("W", 1, isRetainedValue: true)
        try append("A")
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        service.fail(.refused(.init(.invalidName, message: "never")))
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        service.answerAll()
        try append("V", 1, isRetainedValue: true)
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        service.answerAll()
        #expect(marked == ["V", "V"] && losses.all == ["1 V refused", "1 W refused", "1 A refused"] && posts.isIdle)
    }

    @Test("R1: an earlier value is removed if its replacement is refused, unless a newer one has arrived")
    func noRoomForChange() throws {
        try append("V", 1, isRetainedValue: true)
        service.answer()
        try append("V", 2, isRetainedValue: true)
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        service.answerAll()
        #expect(service.log == [.post("V=1"), .post("V=2"), .removal("V")] && service.values["V"] == nil)
        try append("V", 3, isRetainedValue: true)
        try append("V", 4, isRetainedValue: true)
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        service.answerAll()
        #expect(service.log.suffix(2) == [.post("V=3"), .post("V=4")] && service.values["V"] == ["n": .int64(4)])
        // While another one is compared, which goes on as itself; and the same one, which is later.
        for (other, expected) in [("W", Service.Kind.removal("V")), ("V", .post("V=6"))] {
            try append("V", 5, isRetainedValue: true)
            try append(other, 6, isRetainedValue: true, isAnew: true)
            service.fail(.refused(.init(.limitExceeded, message: "full")))
            service.answer()
            #expect(service.unanswered.contains(.post("\(other)=6")) && service.unanswered.last == expected)
            service.answerAll()
            #expect(service.values[other] == ["n": .int64(6)])
        }
        // The removal itself finds none either.
        try append("V", 5, isRetainedValue: true)
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        service.fail(.refused(.init(.limitExceeded, message: "full")))
        #expect(service.unanswered == [] && posts.isIdle)
    }

    @Test("A value that is too large ends the earlier value, and a busy service gets the call again later")
    func otherLimits() throws {
        var full: [String] = []
        posts.noteNoSpace = { message in
            full.append(message.name)
            return true
        }
        try append("V", 1, isRetainedValue: true)
        service.answer()
        try append("V", 2, isRetainedValue: true)
        service.fail(.refused(.init(.limitExceeded(.userInfoBytes, value: 10))))
        service.answerAll()
        #expect(service.values["V"] == nil && losses.all == ["1 V refused"] && full == [])
        try append("W", 1, isRetainedValue: true)
        service.fail(.refused(.init(.limitExceeded(.retained, value: 10))))
        service.answerAll()
        #expect(full == ["W"])
        try append("U", 1, isRetainedValue: true)
        let busy = ServiceError.refused(.init(.limitExceeded(.waitingCallBytes, value: 4096)))
        service.fail(busy)
        #expect(service.unanswered == [] && !posts.isIdle)
        pass(seconds: 2)
        service.answerAll()
        #expect(service.values["U"] == ["n": .int64(1)] && posts.isIdle && losses.all.count == 2)
        // Also where it was to end, or to be compared.
        try append("U", nil, isRetainedValue: true)
        service.fail(busy)
        #expect(service.unanswered == [] && !posts.isIdle)
        pass(seconds: 2)
        service.answerAll()
        #expect(service.values["U"] == nil && posts.isIdle && losses.all.count == 2)
        try append("U", 2, isRetainedValue: true, isAnew: true)
        service.fail(busy)
        #expect(service.unanswered == [] && !posts.isIdle)
        pass(seconds: 2)
        service.answerAll()
        #expect(service.values["U"] == ["n": .int64(2)] && posts.isIdle && losses.all.count == 2)
    }

    @Test("An unanswered comparison is repeated at growing intervals, and no later message is posted meanwhile")
    func comparison() throws {
        try append("V", 1, isRetainedValue: true, isAnew: true)
        try append("A")
        var pauses: [Int64] = []
        for _ in 0..<8 {
            service.fail()
            let start = clock.microseconds
            while service.unanswered.isEmpty { pass(seconds: 1) }
            pauses.append((clock.microseconds - start) / 1_000_000)
        }
        #expect(pauses == [1, 2, 4, 8, 16, 32, 60, 60])
        #expect(service.log.allSatisfy { $0 == .question("V") } && posts.refused == 0 && losses.all.isEmpty)
        // Another service is asked at once.
        service.isThere = false
        service.fail()
        service.isThere = true
        posts.serviceAppeared()
        service.answerAll()
        #expect(service.log.suffix(3) == [.question("V"), .post("V=1"), .post("A=1")])
        pass(seconds: 100)
        #expect(service.log.count == 12 && !clock.isAwaited)
    }

    @Test("At the end every unanswered message is either saved or reported as a loss")
    func close() throws {
        try append("V", 1, isRetainedValue: true)
        try append("W", 1, isRetainedValue: true)
        try append("W", 2, isRetainedValue: true)
        try append("A")
        service.fail()
        try append("B")
        let left = posts.close()
        #expect(left.map(\.name) == ["V", "W", "B"] && left.map(\.mayBeOld) == [true, true, false])
        #expect(losses.all.sorted() == ["1 A uncertain", "1 W uncertain"])
        service.answerAll()
        #expect(posts.imported == 0 || losses.all.count == 2)
    }

    @Test("Names that may no longer be imported are discarded, except for a value in comparison")
    func unwanted() throws {
        try append("V", 1, isRetainedValue: true, isAnew: true)
        try append("A")
        try append("B")
        posts.removeAll { $0.name != "B" }
        service.answerAll()
        #expect(service.log == [.question("V"), .post("V=1"), .post("B=1")])
    }

    @Test("The lifetime of a message continues while the message waits")
    func lifetimes() throws {
        service.isThere = false
        try append("V", 1, isRetainedValue: true, expiresAfter: 60)
        try append("N", 2, expiresAfter: 10)
        try append("M", 3, expiresAfter: 60)
        try append("W", 4, isRetainedValue: true, expiresAfter: 5)
        now.time = 30_500_000
        service.isThere = true
        posts.pump()
        service.answerAll()
        #expect(service.log == [.post("V=1"), .post("M=3"), .post("W=4")] && losses.all.isEmpty && posts.isIdle)
        #expect(service.lifetimes == ["V": 30, "M": 30, "W": 1])
    }
}
