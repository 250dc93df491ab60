// SPDX-License-Identifier: Apache-2.0

/// A step that another session of the machine takes, or that befalls the system bus (G1). Sessions are named by their
/// places in the plan.
enum SessionDeed {
    case join(Int)
    case leave(Int, abruptly: Bool)
    case post(Int, PostPlan)
    /// Sends so many at once, without waiting for confirmations.
    case flood(Int, PostPlan, count: Int)
    /// Reads nothing from now on, or goes on.
    case stop(Int, Bool)
    /// Reads, and confirms nothing; or confirms again.
    case mute(Int, Bool)
    case lie(Int, SessionLie)
    /// A number of connections of one user, or of many, say that they are sessions, and leave after a time.
    case crowd(user: UInt32?, count: Int, milliseconds: Int)
    /// The system bus closes the service's connection.
    case cut
    /// Nobody can connect to the system bus, or everybody can again.
    case unreachable(Bool)
    case slow(Int)
}

/// A lie of another session.
enum SessionLie: CaseIterable {
    /// The last notification again, with its number.
    case replay
    /// A notification without a number.
    case unnumbered
    /// A notification that names another user as its sender.
    case claim
    /// More bytes than a notification may have.
    case tooLarge
    /// A type that no notification has.
    case wrongTypes
    /// A notification from a connection that has not said that it is a session.
    case stranger
    /// A notification to all connections of the bus.
    case broadcast
    /// Confirms notifications that it was not sent.
    case confirmsMore
    /// Wants more names than a session may, and all of them.
    case wantsTooMuch
    /// Says many times that it is there.
    case presence
}

extension SessionDeed: CustomStringConvertible {
    var description: String {
        switch self {
        case .join(let session): "session \(session) joins"
        case .leave(let session, let abruptly): "session \(session) \(abruptly ? "is killed" : "leaves")"
        case .post(let session, let post): "session \(session) sends \(post)" + (post.isSentRetained ? ", kept" : "")
        case .flood(let session, let post, let count): "session \(session) sends \(count) times \(post)"
        case .stop(let session, let isStopped): "session \(session) \(isStopped ? "stops" : "goes on")"
        case .mute(let session, let isMute): "session \(session) confirms \(isMute ? "nothing" : "again")"
        case .lie(let session, let lie): "session \(session) lies: \(lie)"
        case .crowd(let user, let count, let milliseconds):
            "\(count) connections of \(user.map { "user \($0)" } ?? "many users") crowd the system bus for "
                + "\(milliseconds) ms"
        case .cut: "system bus: closes the service's connection"
        case .unreachable(let isUnreachable): "system bus: \(isUnreachable ? "cannot be reached" : "is there again")"
        case .slow(let factor): "system bus: \(factor) times slower"
        }
    }
}
