// SPDX-License-Identifier: Apache-2.0
/// A suspension or resumption of a client that another program has set, to test the client's application (B3). It has
/// precedence over the client's own choice and over activity.
public struct SuspensionOverride: Sendable {
    /// False keeps the client resumed.
    public let isSuspended: Bool
    /// The connection of the program; nil for an override from an earlier process of the service.
    public let author: ClientName?
    /// The identity of the program when it set the override. It is stored here, because a command leaves the bus a
    /// moment later.
    public let identity: Identity?

    public init(isSuspended: Bool, author: ClientName? = nil, identity: Identity? = nil) {
        self.isSuspended = isSuspended
        self.author = author
        self.identity = identity
    }
}
