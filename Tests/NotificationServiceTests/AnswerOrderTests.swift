// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus
import CarillonTestLimits
import CarillonWire
import Testing

@testable import CarillonService

/// Whoever waits for the answer to a call knows that all is on its way that was posted before. It holds for every method
/// but those of suspension, which comes ahead of what is due, and however long the call had to wait itself.
@Suite("M6: replies behind the notifications of earlier posts", .limited)
struct AnswerOrderTests {
    /// Why calls are not served as they come.
    enum Delay: CaseIterable, Sendable {
        case none
        /// Those before took long.
        case calls
        /// It was not known whose connection it is.
        case identity
        /// The service was between two connections to the bus.
        case connection
    }

    /// What is called at last. A new method is one more case.
    enum Last: CaseIterable, Sendable {
        case post, postJSON, postMany, channel, addObserver, removeObserver, removeObservers, listClients, listPosters,
            listObservers
        case listObserversFrom, setClientOptions, getClient, explain, followInterest, followValues, get, removeRetained
        case withdrawPosts, openChannel, overrideSuspension, reload, properties, ping, unknown

        func message(of client: StageClient) throws -> Message {
            switch self {
            case .post: try PostCall(name: "Ding").message()
            case .postJSON: PostJSON(name: "Ding").message()
            case .postMany: PostMany([try PostCall(name: "Ding")]).message()
            case .addObserver: AddObserver(name: "Other", object: "").message()
            case .removeObserver: RemoveObserver(ObserverID(rawValue: 4711)).message()
            case .removeObservers: RemoveObservers(name: "Other", object: "").message()
            case .listClients: ListClients().message()
            case .listPosters: ListPosters(most: 10).message()
            case .listObservers: ListObservers(of: client.name.rawValue).message()
            case .listObserversFrom: ListObserversFrom(of: client.name.rawValue).message()
            case .setClientOptions: SetClientOptions(ClientOptionsChange(batches: true)).message()
            case .getClient: GetClient(client.name.rawValue).message()
            case .explain: Explain(client.name.rawValue, name: "Ding").message()
            case .followInterest: FollowInterest().message()
            case .followValues: FollowValues().message()
            case .get: Get(name: "Ding", object: "").message()
            case .removeRetained: RemoveRetained(name: "Ding", object: "").message()
            case .withdrawPosts: WithdrawPosts(name: "", object: "").message()
            case .openChannel, .channel: OpenChannel().message()
            case .overrideSuspension: OverrideSuspension(of: ":1.4711", true).message()
            case .reload: ReloadConfiguration().message()
            case .properties: CenterProperties.getAll()
            case .ping:
                Message.methodCall(
                    to: Wire.busName, path: Wire.path, interface: "org.freedesktop.DBus.Peer", member: "Ping")
            case .unknown: Wire.methodCall("NoSuchMethod")
            }
        }
    }

    private static let count = 12

    @Test(
        "M6: the reply to any method arrives behind the notifications of earlier posts, after any delay of the call",
        arguments: Last.allCases, Delay.allCases)
    func order(last: Last, delay: Delay) throws {
        // What goes on a channel ends with the connection, and nobody gets a channel from a service that has none.
        guard !(delay == .connection && [.channel, .openChannel].contains(last)) else { return }
        // Without a channel before it was known whose.
        guard !(delay == .identity && last == .channel) else { return }
        let stage = try ServiceStage()
        let observer = stage.join()
        try observer.observe("Ding")
        let poster = stage.join()
        if delay != .identity {
            // It is known.
            try poster.post("Dong")
            if last == .channel { try poster.openChannel() }
        }
        stage.settle()
        switch delay {
        case .none: break
        case .calls: stage.slowCalls = 3
        case .identity: stage.holdsCredentials = true
        case .connection: stage.main.close()
        }
        func post() throws { poster.send(try PostCall(name: "Ding").message(wantsAnswer: false)) }
        if last == .channel {
            let body = RawPost().body
            for _ in 1..<Self.count { poster.channel?.post(body, wantsOutcome: false) }
            let outcome = try #require(poster.channel).outcome(of: poster.channel!.post(body))
            #expect(outcome.receivers == 1)
            #expect(observer.notifications.count == Self.count)
            return
        }
        if delay == .connection { try stage.run("new connections") { stage.lines.count == 4 } }
        for _ in 0..<Self.count { try post() }
        let serial = poster.send(try last.message(of: poster))
        if delay == .identity {
            stage.settle()
            #expect(observer.notifications.isEmpty, "nobody is served before it is known whose connection it is")
            stage.releaseCredentials()
        }
        var seen: Int?
        poster.onAnswer = { if $0 == serial { seen = observer.notifications.count } }
        try stage.run("an answer to \(last)") { seen != nil }
        // A post is answered behind itself.
        #expect(seen == Self.count + ([.post, .postJSON, .postMany].contains(last) ? 1 : 0))
    }
}
