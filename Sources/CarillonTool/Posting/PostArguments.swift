// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCore
import CarillonMainLoop
import CarillonWire

/// The arguments of a post on the command line.
struct PostArguments: Sendable {
    let name: String
    let object: String
    let userInfo: [String: PropertyList]
    let options: PostOptions
    let isVerbose: Bool

    /// Returns the post, without a completion.
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

    func report(_ receivers: Int, on session: CommandSession) {
        guard isVerbose else { return }
        session.print(
            options.postingStyle == .now ? "\(receivers) \(receivers == 1 ? "client" : "clients")" : "queued")
    }
}
