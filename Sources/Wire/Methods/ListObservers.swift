// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The observers of a client, in the order of their numbers; none for one that the service does not know.
///
/// An answer beyond ``Wire/maxAnswerBytes`` is refused with LimitExceeded: ``ListObserversFrom`` has them piece by
/// piece.
public struct ListObservers: CenterMethod {
    /// A text, as the caller may ask for anything.
    public var client: String

    public init(of client: String) {
        self.client = client
    }

    public static let member: MemberName = "ListObservers"
    public static let inputs: [Interface.Argument] = [.init("client", "s")]
    public static let outputs: [Interface.Argument] = [
        .init("observers", "a(tsss)", qtType: "QList<CarillonObserver>")
    ]

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
            observers.append(try ListedObserver(from: &row))
        }
        return observers
    }

    public static func append(_ reply: [ListedObserver], to writer: inout MessageWriter) {
        writer.array(of: "(tsss)") { writer in
            for observer in reply {
                writer.structure { observer.append(to: &$0) }
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
    /// The word of the option, or ``monitor`` for one that is never suspended; later services may have more of them.
    public var suspensionBehavior: String

    public init(id: ObserverID, name: String, object: String, suspensionBehavior: String) {
        self.id = id
        self.name = name
        self.object = object
        self.suspensionBehavior = suspensionBehavior
    }

    public init(_ registration: Registration) {
        self.init(
            id: registration.id, name: registration.name ?? "", object: registration.object ?? "",
            suspensionBehavior: Self.word(for: registration.options))
    }

    /// What ``suspensionBehavior`` says of an observer with these options.
    public static func word(for options: ObserverOptions) -> String {
        options.isMonitor ? monitor : options.suspensionBehavior.rawValue
    }

    public static let monitor = "monitor"

    /// About what it takes in an answer, in bytes: the number, and each text with its length, NUL and padding.
    public var byteCount: Int { 48 + name.utf8.count + object.utf8.count + suspensionBehavior.utf8.count }

    init(from row: inout MessageReader) throws(BusError) {
        self.init(
            id: ObserverID(rawValue: try row.read()), name: try row.read(), object: try row.read(),
            suspensionBehavior: try row.read())
    }

    func append(to writer: inout MessageWriter) {
        writer.append(id.rawValue)
        writer.append(name)
        writer.append(object)
        writer.append(suspensionBehavior)
    }
}
