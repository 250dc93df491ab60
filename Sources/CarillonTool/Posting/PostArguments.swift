// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The content and the options of a post, as the arguments of `carillon post` give them. With `--lines` and `--repeat`
/// they serve several posts.
struct PostArguments: Sendable {
    let name: String
    let object: String
    let userInfo: [String: PropertyList]
    let options: PostOptions
    /// Whether the result of each post is printed.
    let isVerbose: Bool

    /// Returns the post as a request for the client, without a handler for its result.
    ///
    /// - Parameter more: further entries of userInfo, which replace those of the command line.
    func outgoing(adding more: [String: PropertyList] = [:]) throws(UsageError) -> OutgoingPost {
        do throws(CenterError) {
            let userInfo = userInfo.merging(more) { $1 }
            return try OutgoingPost(name: name, object: object, userInfo: userInfo, options: options)
        } catch {
            throw UsageError(error.description)
        }
    }

    /// Prints the number of matched clients if requested. A post with another style than `now` is only queued by then.
    func report(_ receivers: Int, on session: CommandSession) {
        guard isVerbose else { return }
        session.print(
            options.postingStyle == .now ? "\(receivers) \(receivers == 1 ? "client" : "clients")" : "queued")
    }
}
