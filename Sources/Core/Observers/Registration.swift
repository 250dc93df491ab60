// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// One registration: who wants what, and how.
public struct Registration: Sendable {
    public let id: ObserverID
    public let client: ClientName
    /// Nil means any.
    public let name: String?
    /// Nil means any.
    public let object: String?
    public let options: ObserverOptions

    public init(id: ObserverID, client: ClientName, name: String?, object: String?, options: ObserverOptions) {
        self.id = id
        self.client = client
        self.name = name
        self.object = object
        self.options = options
    }

    /// Whether it wants a notification; an empty `object` is none.
    public func matches(name: String, object: String) -> Bool {
        ExactText.matches(self.name, name) && ExactText.matches(self.object, object)
    }

    /// What it counts against the limits, in bytes: its texts, and what an entry of the index costs.
    var byteCount: Int {
        (name?.utf8.count ?? 0) + (object?.utf8.count ?? 0) + Self.overhead
    }

    /// Node of the index, places in its tables and in the client's, objects and headers, roughly.
    private static let overhead = 512
}
