// SPDX-License-Identifier: Apache-2.0
import CarillonCollections

/// The registration of an observer: the subscription of a client to a name, an object, both or neither. A registration
/// matches a post if both parts match.
public struct Registration: Sendable {
    public let id: ObserverID
    public let client: ClientName
    /// The wanted name; nil for any name.
    public let name: String?
    /// The wanted object; nil for any object, and for posts without an object.
    public let object: String?
    public let options: ObserverOptions

    public init(id: ObserverID, client: ClientName, name: String?, object: String?, options: ObserverOptions) {
        self.id = id
        self.client = client
        self.name = name
        self.object = object
        self.options = options
    }

    /// Whether the registration matches a post. Texts are compared byte for byte.
    ///
    /// - Parameter object: the object of the post; the empty string means "no object".
    public func matches(name: String, object: String) -> Bool {
        ExactText.matches(self.name, name) && ExactText.matches(self.object, object)
    }

    /// The size that counts against the limits, in bytes: its texts, and a fixed size for its entries in tables.
    var byteCount: Int {
        (name?.utf8.count ?? 0) + (object?.utf8.count ?? 0) + Self.overhead
    }

    /// The estimated size of the entry in the index and in other tables, with headers of objects, in bytes.
    private static let overhead = 512
}
