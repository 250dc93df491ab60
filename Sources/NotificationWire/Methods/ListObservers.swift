import DBus
import NotificationCore

/// The observers of a client, in the order of their numbers; none for one that the service does not know.
public struct ListObservers: CenterMethod {
    /// A text, as the caller may ask for anything.
    public var client: String

    public init(of client: String) {
        self.client = client
    }

    public static let member: MemberName = "ListObservers"
    public static let inputs: [Interface.Argument] = [.init("client", "s")]
    public static let outputs: [Interface.Argument] = [.init("observers", "a(tsss)")]

    public init(from arguments: inout MessageReader) throws(BusError) {
        client = try arguments.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(client)
    }

    public static func readReply(from reader: inout MessageReader) throws(BusError) -> [ListedObserver] {
        var observers: [ListedObserver] = []
        var rows = try reader.readContainer(.array)
        while !rows.isAtEnd {
            var row = try rows.readContainer(.structure)
            observers.append(
                ListedObserver(
                    id: ObserverID(rawValue: try row.read()), name: try row.read(), object: try row.read(),
                    suspensionBehavior: try row.read()))
        }
        return observers
    }

    public static func append(_ reply: [ListedObserver], to writer: inout MessageWriter) {
        writer.array(of: "(tsss)") { writer in
            for observer in reply {
                writer.structure { writer in
                    writer.append(observer.id.rawValue)
                    writer.append(observer.name)
                    writer.append(observer.object)
                    writer.append(observer.suspensionBehavior)
                }
            }
        }
    }
}

/// An observer as the service shows it to others.
public struct ListedObserver: Equatable, Sendable {
    public var id: ObserverID
    /// Empty for any.
    public var name: String
    /// Empty for any.
    public var object: String
    /// The word of the option; later services may have more of them.
    public var suspensionBehavior: String

    public init(id: ObserverID, name: String, object: String, suspensionBehavior: String) {
        self.id = id
        self.name = name
        self.object = object
        self.suspensionBehavior = suspensionBehavior
    }
}
