import MainLoop
import NotificationCore
import NotificationWire

/// What the command line says of a post.
struct PostArguments: Sendable {
    let name: String
    let object: String
    let userInfo: [String: PropertyList]
    let options: PostOptions
    let isVerbose: Bool

    /// The call.
    ///
    /// - Parameter more: entries beside those of the command line, which they replace.
    func call(adding more: [String: PropertyList] = [:]) throws(UsageError) -> PostCall {
        do throws(CenterError) {
            let userInfo = userInfo.merging(more) { $1 }
            return try PostCall(name: name, object: object, userInfo: userInfo, options: options)
        } catch {
            throw UsageError(error.description)
        }
    }

    func report(_ receivers: Int, on session: CommandSession) {
        guard isVerbose else { return }
        session.print(
            options.postingStyle == .now ? "\(receivers) \(receivers == 1 ? "client" : "clients")" : "queued")
    }
}
