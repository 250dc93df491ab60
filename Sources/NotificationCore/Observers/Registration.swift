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
}
