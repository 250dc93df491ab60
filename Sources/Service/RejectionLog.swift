// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The counters and the log of refused calls, refused posts, and signals that the bus rejected.
///
/// A caller that expects no reply gets no error. So that its mistake is not silent, the refusal is logged at a limited
/// rate, and the poster of refused posts gets the signal `PostsRefused` (``RefusalNotices``) (D3). Refusals with a
/// reply are only counted, and logged for debugging.
final class RejectionLog {
    /// The number of refused calls and posts.
    private(set) var refused: UInt64 = 0
    /// The number of signals that the bus rejected because of its limits.
    private(set) var rejected: UInt64 = 0
    private unowned let driver: CenterDriver
    private let clients: ClientRegistry
    /// The reports to posters.
    let notices: RefusalNotices

    /// - Parameters:
    ///   - driver: the driver of the core; the caller keeps it and the bus.
    ///   - bus: the bus on which posters are notified.
    init(driver: CenterDriver, clients: ClientRegistry, bus: any MessageBus) {
        self.driver = driver
        self.clients = clients
        notices = RefusalNotices(bus: bus)
    }

    /// Notes a refused call, or one refused post of a call.
    ///
    /// - Parameter post: the name of the refused post of a `PostMany` call; nil if the whole call is refused.
    func note(_ call: MethodCall, _ error: BusError, post: String? = nil) {
        refused += 1
        let sender = call.sender
        let isPost = post != nil || Self.isOfPosts(call.message)
        if isPost { driver.center.postWasRefused(of: sender) }
        guard call.message.expectsNoReply else {
            return Log.debug("refused a call of \(sender): \(error.name)", fields(of: call, error, post))
        }
        if isPost { notices.note(post == nil ? Self.posts(in: call.message) : 1, error, of: sender) }
        guard let count = clients.countRefusal(of: sender) else { return }
        // The error's message may name keys of a userInfo, which only the poster may see.
        Log.warning(
            "refused a call of \(sender) that expects no reply (\(count) so far): \(error.name)",
            fields(of: call, error, post))
    }

    /// Notes a refused post on a channel.
    func note(_ post: ChannelPost, _ error: BusError, name: String) {
        refused += 1
        let sender = post.channel.client
        driver.center.postWasRefused(of: sender)
        let fields: Log.Fields = [
            "CARILLON_CLIENT": sender.rawValue, "CARILLON_NAME": String(name.prefix(256)),
            "CARILLON_REASON": error.name.rawValue,
        ]
        // A post without a number expects no answer.
        guard post.number == 0 else { return Log.debug("refused a post of \(sender): \(error.name)", fields) }
        notices.note(1, error, of: sender)
        guard let count = clients.countRefusal(of: sender) else { return }
        Log.warning(
            "refused a post of \(sender) that expects no reply (\(count) so far): \(error.name)", fields)
    }

    /// Notes the posts in a lost `PostMany` call that are invalid or not allowed by policy. The call was lost as a
    /// whole because calls arrive too fast, and its sender wanted no reply. Its other posts do not count as refused.
    ///
    /// - Parameter count: the number of these posts.
    func noteRefusedInLostCall(_ count: Int, of sender: UniqueName) {
        refused += UInt64(count)
        driver.center.postWasRefused(of: sender, count: UInt64(count))
        let words = "calls arrive faster than they can be served, and these posts are invalid"
        notices.note(count, BusError(.limitExceeded, message: words), of: sender)
        guard let calls = clients.countRefusal(of: sender) else { return }
        Log.warning(
            "refused \(count) posts in a call of \(sender) that expects no reply (\(calls) so far)",
            ["CARILLON_CLIENT": sender.rawValue, "CARILLON_REASON": "overload"])
    }

    /// Notes a call that was dropped without an error reply, because its sender has too many unread replies.
    func noteUnserved(_ call: Message, of sender: UniqueName) {
        refused += 1
        if Self.isOfPosts(call) {
            driver.center.postWasRefused(of: sender)
            // Posts that want no reply are reported by the signal, as in ``note(_:_:post:)``.
            if call.expectsNoReply { notices.note(Self.posts(in: call), ChannelPosts.unread, of: sender) }
        }
        guard let count = clients.countRefusal(of: sender) else { return }
        Log.warning(
            "\(sender) does not read its replies: its calls are refused (\(count) so far)",
            ["CARILLON_CLIENT": sender.rawValue, "CARILLON_REASON": "answers"])
    }

    /// Whether a call makes posts. A `PostMany` call that is refused as a whole counts as one refused post in the
    /// statistics.
    private static func isOfPosts(_ call: Message) -> Bool {
        call.hasMember(PostCall.member) || call.hasMember(PostMany.member) || call.hasMember(PostJSON.member)
    }

    /// Returns the number of posts in a call that was refused as a whole.
    private static func posts(in call: Message) -> Int {
        guard call.hasMember(PostMany.member), call.hasSignature(PostMany.inputs[0].signature) else { return 1 }
        var reader = MessageReader(call)
        guard var posts = try? reader.readContainer(.array) else { return 1 }
        var count = 0
        while !posts.isAtEnd {
            posts.skip()
            count += 1
        }
        return count
    }

    /// Notes a signal that the bus rejected. That happens only if the limits of the bus are lower than usual: a window
    /// of notifications, or the largest userInfo, exceeds them.
    func noteRejection(_ error: BusError) {
        guard let count = Log.throttle(&rejected) else { return }
        Log.warning("the bus rejected \(count) signals so far: \(error)", ["CARILLON_REASON": "bus-limits"])
    }

    /// Returns the fields of a log entry: the caller, the error, and the first argument of the call if it is a text,
    /// which is the notification's name in most calls. No other part of a call is logged, because it may be private.
    private func fields(of call: MethodCall, _ error: BusError, _ post: String?) -> Log.Fields {
        var arguments = call.arguments
        let name = post ?? (try? arguments.readString()) ?? ""
        return [
            "CARILLON_CLIENT": call.sender.rawValue, "CARILLON_NAME": String(name.prefix(256)),
            "CARILLON_REASON": error.name.rawValue,
        ]
    }
}
