// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonBusNames

/// An object on the bus with one interface of its own and the standard interfaces Introspectable, Peer and Properties.
/// The service and the bridge export their objects with it.
///
/// Its owner passes received messages to ``handle(_:from:)``, which dispatches each call to the handler in the table of
/// the ``Interface``. The signature of the arguments is checked before the handler runs. The introspection data is
/// generated from the same table. Threads: that of the connection.
public final class ObjectExporter {
    private let path: ObjectPath
    private let interface: Interface
    private let methods: [String: Row]
    private let properties: [String: Interface.Property]
    /// The method of the last call. Most calls repeat it, and are dispatched without creating a string.
    private var last: Row?

    /// A row of the method table. It is a class, so that a lookup copies nothing.
    private final class Row {
        let method: Interface.Method

        init(_ method: Interface.Method) {
            self.method = method
        }
    }

    /// Called with each method call that got an error, also if its sender requested no reply. The service counts and
    /// logs them.
    public var onRefusal: ((MethodCall, BusError) -> Void)?

    public init(path: ObjectPath, interface: Interface) {
        self.path = path
        self.interface = interface
        methods = Dictionary(uniqueKeysWithValues: interface.methods.map { ($0.name.rawValue, Row($0)) })
        properties = Dictionary(uniqueKeysWithValues: interface.properties.map { ($0.name, $0) })
    }

    /// Handles `message` if it is a method call. An error is sent as the reply.
    ///
    /// Calls of `org.freedesktop.DBus.Peer` are answered on each path. The connection answers them before this method,
    /// unless ``Connection/routePeerCalls()`` was called.
    ///
    /// - Parameter bus: The connection on which the message arrived, for the reply.
    /// - Returns: Whether the message is a method call.
    public func handle(_ message: Message, from bus: any MessageBus) -> Bool {
        guard let call = MethodCall(message, bus: bus) else { return false }
        do throws(BusError) {
            if message.hasInterface(Self.peer) { try Self.answerPeer(call) } else { try dispatch(call) }
        } catch {
            call.reply(with: error)
            onRefusal?(call, error)
        }
        return true
    }

    /// Replies to `message` with an error if it is a method call, of any method.
    public func refuse(_ message: Message, with error: BusError, from bus: any MessageBus) {
        guard let call = MethodCall(message, bus: bus) else { return }
        call.reply(with: error)
        onRefusal?(call, error)
    }

    /// Replies to `message`, if it is a method call, for a connection without objects. Such a connection implements
    /// only `org.freedesktop.DBus.Peer`.
    public static func answerWithoutObject(_ message: Message, from bus: any MessageBus) -> Bool {
        guard let call = MethodCall(message, bus: bus) else { return false }
        do throws(BusError) {
            guard message.hasInterface(peer) else {
                throw .unknownObject("there is no object \(message.path?.rawValue ?? "")")
            }
            try answerPeer(call)
        } catch {
            call.reply(with: error)
        }
        return true
    }

    /// Returns the broadcast signal for changed properties.
    public func propertiesChanged(_ names: Set<String>) -> Message {
        let signal = Message.signal(path: path, interface: Self.propertiesInterface, member: "PropertiesChanged")
        var writer = MessageWriter(signal)
        writer.append(interface.name.rawValue)
        let changed = interface.properties.filter { names.contains($0.name) }
        writer.array(of: "{sv}") { append(changed.filter { $0.change != .invalidated }, to: &$0, for: nil) }
        writer.array(of: "s") { writer in
            for property in changed where property.change == .invalidated { writer.append(property.name) }
        }
        return signal
    }

    /// Appends dictionary entries with properties and their values for a reader; nil for all readers.
    private func append(_ properties: [Interface.Property], to writer: inout MessageWriter, for reader: UniqueName?) {
        for property in properties {
            writer.dictEntry { writer in
                writer.append(property.name)
                writer.variant(of: property.signature) { property.write(&$0, for: reader) }
            }
        }
    }

    /// Runs the handler of a call. The steps are:
    /// 1. A call to another path is answered for an ancestor of the object, or refused.
    /// 2. A call of the method that was called last needs no search.
    /// 3. A call without an interface, or of the object's own interface, searches the object's methods.
    /// 4. A call without an interface that matches none of them, and a call of a standard interface, is answered as
    ///    one.
    private func dispatch(_ call: MethodCall) throws(BusError) {
        let message = call.message
        guard message.hasPath(path) else {
            guard let child = childName(below: message.path) else {
                throw .unknownObject("there is no object \(message.path?.rawValue ?? "")")
            }
            return try answerAncestor(call, child: child)
        }
        let isOurs = message.hasInterface(interface.name)
        if isOurs, let last, message.hasMember(last.method.name) { return try self.call(last, with: call) }
        let member = message.member?.rawValue ?? ""
        switch isOurs ? interface.name : message.interface {
        case nil, interface.name?:
            guard let method = methods[member] else {
                guard message.interface == nil else {
                    throw .unknownMethod("interface \(interface.name) has no method \(member)")
                }
                return try answerStandard(call, member)
            }
            last = method
            try self.call(method, with: call)
        case Self.introspectable?, Self.propertiesInterface?:
            try answerStandard(call, member)
        case let other?:
            throw .unknownInterface("object \(path) has no interface \(other)")
        }
    }

    private func call(_ row: Row, with call: MethodCall) throws(BusError) {
        try expect(row.method.inputSignature, in: call.message, of: row.method.name)
        try row.method.handler(call)
    }

    private func expect(_ signature: Signature, in message: Message, of member: MemberName) throws(BusError) {
        guard message.hasSignature(signature) else {
            throw .invalidArgs("\(member) takes '\(signature)', not '\(message.signature)'")
        }
    }

    // MARK: Standard interfaces

    private static let introspectable: InterfaceName = "org.freedesktop.DBus.Introspectable"
    private static let propertiesInterface: InterfaceName = "org.freedesktop.DBus.Properties"
    package static let peer: InterfaceName = "org.freedesktop.DBus.Peer"

    /// Replies to a call of Introspectable (`Introspect`) or Properties (`Get`, `GetAll`, `Set`). A call without an
    /// interface matches the methods of both. `Set` checks its arguments and then fails, because all properties are
    /// read-only.
    private func answerStandard(_ call: MethodCall, _ member: String) throws(BusError) {
        let interfaceName = call.message.interface
        try call.expectNoDescriptors()
        switch member {
        case "Introspect" where interfaceName != Self.propertiesInterface:
            try expect("", in: call.message, of: "Introspect")
            call.reply { $0.append(interface.introspectionDocument(standard: true)) }
        case "Get" where interfaceName != Self.introspectable:
            try expect("ss", in: call.message, of: "Get")
            var reader = call.arguments
            try checkPropertyInterface(try reader.readString())
            let property = try property(try reader.readString())
            call.reply { writer in
                writer.variant(of: property.signature) { property.write(&$0, for: call.sender) }
            }
        case "GetAll" where interfaceName != Self.introspectable:
            try expect("s", in: call.message, of: "GetAll")
            var reader = call.arguments
            let interfaceName = try reader.readString()
            // The standard interfaces have no properties.
            if !isStandard(interfaceName) { try checkPropertyInterface(interfaceName) }
            call.reply { writer in
                writer.array(of: "{sv}") {
                    append(isStandard(interfaceName) ? [] : interface.properties, to: &$0, for: call.sender)
                }
            }
        case "Set" where interfaceName != Self.introspectable:
            try expect("ssv", in: call.message, of: "Set")
            var reader = call.arguments
            try checkPropertyInterface(try reader.readString())
            let property = try property(try reader.readString())
            throw .propertyReadOnly("property \(property.name) is read-only")
        default:
            throw .unknownMethod("interface \(interfaceName ?? interface.name) has no method \(member)")
        }
    }

    private static func answerPeer(_ call: MethodCall) throws(BusError) {
        let member = call.message.member?.rawValue ?? ""
        try call.expectNoDescriptors()
        switch member {
        case "Ping": call.reply()
        case "GetMachineId":
            guard let id = localMachineID() else {
                throw BusError(name: "org.freedesktop.DBus.Error.Failed", message: "this machine has no id")
            }
            call.reply { $0.append(id) }
        default: throw .unknownMethod("interface \(peer) has no method \(member)")
        }
    }

    private func isStandard(_ name: String) -> Bool {
        [Self.introspectable, Self.propertiesInterface, Self.peer].contains { $0.rawValue == name }
    }

    /// Checks the interface in a call of Properties. The specification allows an empty one, for any interface.
    private func checkPropertyInterface(_ name: String) throws(BusError) {
        guard name.isEmpty || name == interface.name.rawValue else {
            throw .unknownInterface("object \(path) has no interface \(name) with properties")
        }
    }

    private func property(_ name: String) throws(BusError) -> Interface.Property {
        guard let property = properties[name] else {
            throw .unknownProperty("interface \(interface.name) has no property \(name)")
        }
        return property
    }

    // MARK: Ancestor objects for introspection from the root

    /// Returns the name of the next node from an ancestor towards the object; nil if the path is no ancestor. Tools
    /// find objects by introspection from the root `/`, so each ancestor has to list its child.
    private func childName(below ancestor: ObjectPath?) -> Substring? {
        guard let ancestor = ancestor?.rawValue else { return nil }
        let prefix = ancestor == "/" ? "/" : ancestor + "/"
        guard path.rawValue.hasPrefix(prefix) else { return nil }
        return path.rawValue.dropFirst(prefix.count).prefix { $0 != "/" }
    }

    private func answerAncestor(_ call: MethodCall, child: Substring) throws(BusError) {
        guard call.message.interface == nil || call.message.interface == Self.introspectable,
            call.message.member == "Introspect"
        else {
            throw .unknownInterface("object \(call.message.path?.rawValue ?? "") can only be introspected")
        }
        try expect("", in: call.message, of: "Introspect")
        call.reply { $0.append(Interface.introspectionDocument(child: String(child))) }
    }
}

/// Returns the id of the machine as the D-Bus specification defines it; nil if the machine has none.
private func localMachineID() -> String? {
    guard let id = dbus_try_get_local_machine_id(nil) else { return nil }
    defer { dbus_free(id) }
    return String(cString: id)
}
