// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The D-Bus interface between the services of several sessions, on the system bus, version 1 (G1). It consists of
/// signals only, since the system bus denies method calls between users.
///
/// A service announces itself with ``HereSignal``, requests names with ``WantsSignal``, receives numbered messages
/// (``SessionNotification`` and others), and acknowledges them with ``TakenSignal``.
public enum SessionsWire {
    public static let path: ObjectPath = "/org/carillon/Sessions1"
    public static let interface: InterfaceName = "org.carillon.Sessions1"

    /// The maximum number of names that a session may request from another session.
    public static let maxWanted = 256
    /// The maximum total size of these names, in bytes.
    public static let maxWantedBytes = 32 << 10

    /// The whole interface, for introspection.
    public static var table: Interface {
        Interface(
            name: interface, methods: [],
            signals: [
                Interface.Signal(HereSignal.self), Interface.Signal(WantsSignal.self),
                Interface.Signal(SessionNotification.member, SessionNotification.arguments),
                Interface.Signal(TakenSignal.self), Interface.Signal(UnderstandsSignal.self),
                Interface.Signal(RemovedSignal.self), Interface.Signal(ValuesSignal.self),
                Interface.Signal(LostSignal.self),
            ], properties: [])
    }

    /// The match rule for the broadcasts of other sessions.
    public static let matchRule =
        "type='signal',path='\(path)',interface='\(interface)',member='\(HereSignal.member)'"
}

/// A signal between the services of two sessions: a value holds its arguments, and the type encodes and decodes them.
public protocol SessionsSignal: Sendable {
    /// The name of the signal on the bus.
    static var member: MemberName { get }
    /// The names and types of the arguments.
    static var arguments: [Interface.Argument] { get }

    /// Decodes the arguments.
    ///
    /// - Throws: InvalidArgs if the next values are not of the types in ``arguments``.
    init(from reader: inout MessageReader) throws(BusError)
    func append(to writer: inout MessageWriter)
}

extension SessionsSignal {
    /// Decodes a received signal.
    ///
    /// - Throws: InvalidArgs if the arguments violate the contract.
    public init(_ message: Message) throws(BusError) {
        var reader = MessageReader(message)
        try self.init(from: &reader)
    }

    /// Returns the message of the signal.
    ///
    /// - Parameter session: The receiver; nil for a broadcast.
    public func message(to session: UniqueName?) -> Message {
        let message = Message.signal(
            to: session, path: SessionsWire.path, interface: SessionsWire.interface, member: Self.member)
        var writer = MessageWriter(message)
        append(to: &writer)
        return message
    }
}

extension Interface.Signal {
    fileprivate init<Signal: SessionsSignal>(_: Signal.Type) {
        self.init(Signal.member, Signal.arguments)
    }
}

/// `Here`: the sender is the service of a session. A service broadcasts the signal when it connects, and sends it to
/// each service that broadcasts it later.
public struct HereSignal: SessionsSignal, Equatable {
    public init() {}

    public static let member: MemberName = "Here"
    public static let arguments: [Interface.Argument] = []

    public init(from reader: inout MessageReader) throws(BusError) {}

    public func append(to writer: inout MessageWriter) {}
}

/// `Wants`: the names that the sender imports from the receiver's user. Each is a whole name, or a prefix with a star
/// at its end.
public struct WantsSignal: SessionsSignal, Equatable {
    public var names: [String]

    public init(_ names: [String]) {
        self.names = names
    }

    public static let member: MemberName = "Wants"
    public static let arguments: [Interface.Argument] = [.init("names", "as")]

    public init(from reader: inout MessageReader) throws(BusError) {
        names = []
        var elements = try reader.readContainer(.array)
        while !elements.isAtEnd { names.append(try elements.readString()) }
    }

    public func append(to writer: inout MessageWriter) {
        writer.array(of: "s") { writer in for name in names { writer.append(name) } }
    }
}

/// `Taken`: the sender acknowledges all messages of the receiver up to this sequence number.
public struct TakenSignal: SessionsSignal, Equatable {
    public var number: UInt64

    public init(upTo number: UInt64) {
        self.number = number
    }

    public static let member: MemberName = "Taken"
    public static let arguments: [Interface.Argument] = [.init("number", "t")]

    public init(from reader: inout MessageReader) throws(BusError) {
        number = try reader.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(number)
    }
}

/// `Understands`: the features that the sender supports beyond the first version of this contract.
public struct UnderstandsSignal: SessionsSignal, Equatable {
    public var features: [String]

    /// The removal and the snapshot of retained values: ``RemovedSignal``, ``ValuesSignal``, and the options
    /// `while-connected` and `kept`.
    public static let values = "values"
    /// The report of losses by name: ``LostSignal``.
    public static let losses = "losses"
    /// The deduplication ID of notifications (``SessionIdentity``): the options `serial` and `time`.
    public static let identities = "identities"

    public init(_ features: [String]) {
        self.features = features
    }

    public static let member: MemberName = "Understands"
    public static let arguments: [Interface.Argument] = [.init("features", "as")]

    public init(from reader: inout MessageReader) throws(BusError) {
        features = []
        var elements = try reader.readContainer(.array)
        while !elements.isAtEnd { features.append(try elements.readString()) }
    }

    public func append(to writer: inout MessageWriter) {
        writer.array(of: "s") { writer in for feature in features { writer.append(feature) } }
    }
}

/// `Removed`: the sender's retained value of this name and object was removed or has expired.
public struct RemovedSignal: SessionsSignal, Equatable {
    /// The sequence number, from the same sequence as ``SessionNotification/Options/number``.
    public var number: UInt64
    public var name: String
    /// The object; empty for none.
    public var object: String

    public init(_ number: UInt64, name: String, object: String) {
        self.number = number
        self.name = name
        self.object = object
    }

    public static let member: MemberName = "Removed"
    public static let arguments: [Interface.Argument] = [
        .init("number", "t"), .init("name", "s"), .init("object", "s"),
    ]

    public init(from reader: inout MessageReader) throws(BusError) {
        number = try reader.read()
        name = try reader.readString()
        object = try reader.readString()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(number)
        writer.append(name)
        writer.append(object)
    }
}

/// `Values`: the beginning or the end of a snapshot of all retained values that the receiver may import from the
/// sender. The values are ``SessionNotification`` signals in between.
public struct ValuesSignal: SessionsSignal, Equatable {
    /// The sequence number, from the same sequence as ``SessionNotification/Options/number``.
    public var number: UInt64
    /// Whether the snapshot begins. At its end, the receiver removes values of the sender that are not in the snapshot.
    public var isBeginning: Bool

    public init(_ number: UInt64, isBeginning: Bool) {
        self.number = number
        self.isBeginning = isBeginning
    }

    public static let member: MemberName = "Values"
    public static let arguments: [Interface.Argument] = [.init("number", "t"), .init("is_beginning", "b")]

    public init(from reader: inout MessageReader) throws(BusError) {
        number = try reader.read()
        isBeginning = try reader.read()
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(number)
        writer.append(isBeginning)
    }
}

/// `Lost`: posts that the sender discarded because its queue for the receiver was full.
public struct LostSignal: SessionsSignal, Equatable {
    /// Lost posts of one name and object.
    public struct Entry: Equatable, Sendable {
        /// The name; empty if unknown.
        public var name: String
        /// The object; empty for none, and if unknown.
        public var object: String
        public var count: UInt64

        public init(name: String, object: String, count: UInt64) {
            self.name = name
            self.object = object
            self.count = count
        }
    }

    /// The sequence number, from the same sequence as ``SessionNotification/Options/number``.
    public var number: UInt64
    public var entries: [Entry]

    public init(_ number: UInt64, _ entries: [Entry]) {
        self.number = number
        self.entries = entries
    }

    /// The maximum number of entries.
    public static let maxEntries = 64
    public static let member: MemberName = "Lost"
    public static let arguments: [Interface.Argument] = [.init("number", "t"), .init("lost", "a(sst)")]

    public init(from reader: inout MessageReader) throws(BusError) {
        number = try reader.read()
        entries = []
        var elements = try reader.readContainer(.array)
        // One entry more than the maximum is read, so that the receiver can refuse a signal with too many.
        while !elements.isAtEnd, entries.count <= Self.maxEntries {
            var entry = try elements.readContainer(.structure)
            entries.append(
                Entry(name: try entry.readString(), object: try entry.readString(), count: try entry.read()))
        }
    }

    public func append(to writer: inout MessageWriter) {
        writer.append(number)
        writer.array(of: "(sst)") { writer in
            for entry in entries {
                writer.structure { writer in
                    writer.append(entry.name)
                    writer.append(entry.object)
                    writer.append(entry.count)
                }
            }
        }
    }
}
