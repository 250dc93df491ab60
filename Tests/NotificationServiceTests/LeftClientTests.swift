// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// Whatever a client did, nothing of it is left in the service when it has left the bus: no table, wherever it stands, has
/// its name. All objects of the service are looked through, so a new table is looked at as well.
@Suite("D8, E4: complete removal of clients that left", .limited)
struct LeftClientTests {
    /// What makes the service remember a client. Something new is one more case.
    enum Doing: CaseIterable, Sendable {
        case observe, observeRetained, suspend, overflow, overflowOnChannel, interval
        case channel, channelUnread, batches, postQueued, postAtExit, valueWhileConnected
        case refusedUnanswered, refusedWithoutClient, followInterest, followValues, overridden
        case silent, refusedPings, unreadAnswers, removed, busLosses
    }

    /// Places that hold so many names at most, whoever has left, and use them again: where what was sent lately is looked up,
    /// what has the number of a client, and what is given up when there are more.
    private static let bounded = [
        "sentSignals.entries[]", "receipts.some.rowIndexes.rows[]", "effects.heads.rows[]", "center.accounts.changed[]",
        "center.unregisteredPeers[]",
    ]

    private func doIt(_ doing: Doing, _ client: StageClient, _ poster: StageClient, on stage: ServiceStage) throws {
        func postMany(_ count: Int) throws {
            for number in 0..<count { try poster.post("Ding", "\(number)") }
        }
        switch doing {
        case .observe: try client.observe("Ding")
        case .observeRetained:
            var options = PostOptions()
            options.retention = Retention()
            try poster.post("Ding", options: options)
            try client.call(SetSuspended(true))
            try client.observe("Ding", options: ObserverOptions(wantsRetained: true))
        case .suspend:
            try client.observe("Ding", options: ObserverOptions(suspensionBehavior: .hold))
            try client.call(SetSuspended(true))
            try postMany(5)
        case .overflow:
            client.reads = false
            try client.observe("Ding", options: ObserverOptions(suspensionBehavior: .hold))
            try postMany(400)
        case .overflowOnChannel:
            try client.openChannel()
            client.reads = false
            try client.observe("Ding", options: ObserverOptions(suspensionBehavior: .hold))
            try postMany(2000)
        case .interval:
            try client.observe("Ding", options: ObserverOptions(minimumInterval: 60_000))
            try poster.post("Ding")
            try poster.post("Ding")
        case .channel:
            try client.openChannel()
            try client.observe("Ding")
            try postMany(5)
        case .channelUnread:
            try client.observe("Ding")
            let channel = try client.openChannel()
            try postMany(5)
            channel.close()
            stage.settle()
        case .batches:
            try client.call(SetClientOptions(ClientOptionsChange(batches: true, details: [.userID, .host])))
            try client.observe("Ding")
            try postMany(5)
        case .postQueued:
            var options = PostOptions()
            options.postingStyle = .whenIdle
            try client.post("Dong", options: options)
        case .postAtExit:
            var options = PostOptions()
            options.postingStyle = .atExit
            try client.post("Dong", options: options)
        case .valueWhileConnected:
            var options = PostOptions()
            options.retention = Retention(whileConnected: true)
            try client.post("Dong", options: options)
        case .refusedUnanswered:
            try client.observe("Ding")
            try WayOfPosting.post.postUnanswered(.refused, from: client)
        case .refusedWithoutClient: try WayOfPosting.post.postUnanswered(.refused, from: client)
        case .followInterest: try client.call(FollowInterest())
        case .followValues: try client.call(FollowValues())
        case .overridden:
            try client.observe("Ding")
            try poster.call(OverrideSuspension(of: client.name.rawValue, true))
        case .silent:
            client.reads = false
            try client.observe("Ding")
            try postMany(300)
        case .refusedPings:
            stage.refusesPings = true
            try client.observe("Ding")
            try postMany(300)
            stage.settle()
            stage.refusesPings = false
        case .unreadAnswers:
            client.reads = false
            for _ in 0..<3000 { client.send(ListClients().message()) }
        case .removed:
            try client.observe("Ding")
            try postMany(2)
            try client.call(RemoveObservers(name: "", object: ""))
        case .busLosses:
            try client.observe("Ding")
            stage.holdsBarriers = true
            try postMany(3)
            stage.settle()
            stage.holdsBarriers = false
            try stage.disconnect()
        }
        stage.settle()
    }

    @Test(
        "D8: no object of the service contains the name of a client that left, for any use of the service",
        arguments: Doing.allCases)
    func nothing(doing: Doing) throws {
        let stage = try ServiceStage { configuration in
            configuration.limits[.queuedPerClient] = 100
        }
        // So that the service has others as well.
        let (other, poster) = (stage.join(), stage.join())
        try other.observe("Else")
        let client = stage.join()
        try doIt(doing, client, poster, on: stage)
        let before = Remains(of: client.name, in: stage.service as Any)
        #expect(!before.places.isEmpty, "it is known while it is there")
        stage.leave(client)
        stage.settle()
        // Who was behind a connection is remembered for a minute, and given up when another one leaves.
        stage.pass(milliseconds: 70_000)
        let last = stage.join()
        try last.observe("Else")
        stage.settle()
        stage.leave(last)
        stage.settle()
        // What was queued at its exit, or kept with it, is gone from those that got it, too.
        let remains = Remains(of: client.name, in: stage.service as Any)
        #expect(remains.places.filter { place in !Self.bounded.contains { place.contains($0) } } == [])
        #expect(Remains(of: other.name, in: stage.service as Any).places.count > 3, "others are as they were")
    }

    /// As commands do that post and end; nobody tells the service that they do.
    @Test("E4: no state is kept of callers that left before the bus reported their identity")
    func leftBeforeAsked() throws {
        let stage = try ServiceStage()
        stage.holdsCredentials = true
        for _ in 0..<2000 {
            let client = stage.join()
            let post = RawPost().call
            post.expectsNoReply = true
            client.send(post)
            stage.turn()
            stage.leave(client)
        }
        stage.releaseCredentials()
        stage.settle()
        let kept = try #require(stage.service?.kept)
        #expect(
            kept.contains { $0.what.hasPrefix("identified connections") } && kept.allSatisfy { $0.count == 0 },
            "\(kept)")
    }
}

/// Where a name is found in an object and all that it holds.
private struct Remains {
    private(set) var places: [String] = []
    private var visited: Set<ObjectIdentifier> = []
    private let name: String
    private var left = 2_000_000

    init(of name: UniqueName, in root: Any) {
        self.name = name.rawValue
        look(root, at: "service", depth: 0)
        precondition(left > 0, "not all was looked at")
    }

    private mutating func look(_ value: Any, at place: String, depth: Int) {
        guard left > 0, depth < 200 else { return }
        left -= 1
        switch value {
        case let text as String:
            if text == name { places.append(place) }
            return
        case is ServiceStage, is StageLine, is StageClient, is [UInt8], is Substring, is any FixedWidthInteger, is Bool:
            return
        default: break
        }
        let mirror = Mirror(reflecting: value)
        if mirror.displayStyle == .class || type(of: value) is AnyClass {
            guard visited.insert(ObjectIdentifier(value as AnyObject)).inserted else { return }
        }
        if let elements = value as? any Collection {
            return look(elements: elements, at: place, depth: depth)
        }
        var next: Mirror? = mirror
        while let mirror = next {
            for child in mirror.children {
                look(child.value, at: "\(place).\(child.label ?? "")", depth: depth + 1)
            }
            next = mirror.superclassMirror
        }
    }

    private mutating func look(elements: any Collection, at place: String, depth: Int) {
        for element in elements { look(element as Any, at: place + "[]", depth: depth + 1) }
    }
}
