// SPDX-License-Identifier: Apache-2.0
/// What somebody said about the suspension of another client, to test its application (B3).
public struct SuspensionOverride: Sendable {
    public let isSuspended: Bool
    /// Who said so; nil when that was before this process.
    public let author: ClientName?
    /// Who that is, as it was known then: a command has left a moment later.
    public let identity: Identity?

    public init(isSuspended: Bool, author: ClientName? = nil, identity: Identity? = nil) {
        self.isSuspended = isSuspended
        self.author = author
        self.identity = identity
    }
}
