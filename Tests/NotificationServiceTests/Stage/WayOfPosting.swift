// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonWire

/// Every way by which a client of the service posts. What a post may be, and what is said of one that is refused, is the
/// same by each: a test of that goes through all of them, and a new way is one more case here.
enum WayOfPosting: CaseIterable, Sendable {
    case post
    /// One of several in a call of `PostMany`, behind one that is refused.
    case postMany
    case channel

    /// What became of a post.
    struct Verdict: Equatable {
        var receivers: Int
        /// Empty for a post that was accepted.
        var error: String
        /// Nil where the way has no words.
        var message: String?

        static func accepted(by receivers: Int) -> Verdict { Verdict(receivers: receivers, error: "") }

        var isAccepted: Bool { error.isEmpty }
    }

    /// Posts that the way itself brings, and that are refused.
    var refusedBefore: UInt64 { self == .postMany ? 1 : 0 }

    /// Posts, and waits for what becomes of it.
    func post(_ post: RawPost, from client: StageClient) throws -> Verdict {
        switch self {
        case .post:
            do {
                let reply = try client.ask(post.call)
                return .accepted(by: try PostCall.reply(in: reply))
            } catch let error as BusError {
                return Verdict(receivers: 0, error: error.name.rawValue, message: error.message)
            }
        case .postMany:
            let outcome = try PostMany.reply(in: client.ask(RawPost.together([.refused, post])))[1]
            return Verdict(receivers: outcome.receivers, error: outcome.errorName)
        case .channel:
            let channel = try client.channel ?? client.openChannel()
            let outcome = try channel.outcome(of: channel.post(post.body))
            return Verdict(
                receivers: outcome.receivers, error: outcome.errorName,
                message: outcome.errorName.isEmpty ? nil : outcome.message)
        }
    }

    /// Posts, and wants to hear nothing of it. It lies before the service when this returns.
    func postUnanswered(_ post: RawPost, from client: StageClient) throws {
        switch self {
        case .post, .postMany:
            let call = self == .post ? post.call : RawPost.together([.refused, post])
            call.expectsNoReply = true
            client.send(call)
        case .channel: try (client.channel ?? client.openChannel()).post(post.body, wantsOutcome: false)
        }
    }
}

/// A post as its bytes may have it, also one that no library makes.
struct RawPost: Sendable {
    typealias Entries = @Sendable (inout MessageWriter) -> Void

    var name = "Ding"
    var object = ""
    var userInfo: Entries = { _ in }
    var options: Entries = { _ in }

    /// One that nobody may make.
    static let refused = RawPost(name: "")

    private func append(to writer: inout MessageWriter) {
        writer.append(name)
        writer.append(object)
        writer.array(of: "{sv}", userInfo)
        writer.array(of: "{sv}", options)
    }

    /// A call of `Post`.
    var call: Message {
        let call = Wire.methodCall(PostCall.member)
        var writer = MessageWriter(call)
        append(to: &writer)
        return call
    }

    /// What stands in a frame.
    var body: [UInt8] { call.marshalledBody }

    /// A call of `PostMany`.
    static func together(_ posts: [RawPost]) -> Message {
        let call = Wire.methodCall(PostMany.member)
        var writer = MessageWriter(call)
        writer.array(of: "(ssa{sv}a{sv})") { writer in
            for post in posts { writer.structure { post.append(to: &$0) } }
        }
        return call
    }
}
