// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The registration of an observer: its client, the wanted name and object, and its options.
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

    /// Whether the registration matches a notification; an empty `object` means "no object".
    public func matches(name: String, object: String) -> Bool {
        ExactText.matches(self.name, name) && ExactText.matches(self.object, object)
    }

    /// The size that counts against the limits, in bytes: its texts, and the overhead of an entry of the index.
    var byteCount: Int {
        (name?.utf8.count ?? 0) + (object?.utf8.count ?? 0) + Self.overhead
    }

    /// The estimated size of a node of the index, places in tables, objects and headers, in bytes.
    private static let overhead = 512
}
