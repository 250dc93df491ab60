// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonDBus

/// The D-Bus method that lists the observers of a client, in the order of their numbers. An unknown client has none.
///
/// If the reply would exceed ``Wire/maxAnswerBytes``, the call fails with LimitExceeded. ``ListObserversFrom`` returns
/// the observers in pages instead.
public struct ListObservers: CenterMethod {
    /// The unique name of the client; a text, as the caller may send any string.
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

/// An observer as the reply of ``ListObservers`` describes it.
public struct ListedObserver: Equatable, Sendable {
    public var id: ObserverID
    /// The observed name; empty for any name.
    public var name: String
    /// The observed object; empty for any object.
    public var object: String
    /// The value of the option `suspension-behavior`, or ``monitor`` for an observer that is never suspended. Later
    /// services may add values.
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

    /// Returns the text of ``suspensionBehavior`` for an observer with these options.
    public static func word(for options: ObserverOptions) -> String {
        options.isMonitor ? monitor : options.suspensionBehavior.rawValue
    }

    /// The text for a monitor.
    public static let monitor = "monitor"

    /// The approximate size in a reply, in bytes: the number, and each text with its length, NUL and padding.
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
