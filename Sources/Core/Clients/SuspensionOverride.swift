// SPDX-License-Identifier: Apache-2.0
/// The suspension that a program set for another client, to test that client's application (B3).
public struct SuspensionOverride: Sendable {
    public let isSuspended: Bool
    /// The client that set it; nil when that was before this process.
    public let author: ClientName?
    /// The identity of that client at the time, since a command leaves a moment later.
    public let identity: Identity?

    public init(isSuspended: Bool, author: ClientName? = nil, identity: Identity? = nil) {
        self.isSuspended = isSuspended
        self.author = author
        self.identity = identity
    }
}
