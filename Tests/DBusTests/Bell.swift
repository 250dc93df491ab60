// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonTestSupport

/// An object on a bus, and someone who calls it, both driven by the test's loop.
final class Bell {
    let bus: PrivateBus
    let loop = Loop()
    let caller: Connection
    /// What onRefusal was told.
    private(set) var refusals: [BusError] = []
    /// The caller of the last Add.
    private(set) var sender: UniqueName?
    /// Calls of Later, to be answered by the test.
    var deferred: [MethodCall] = []
    private let callee: Connection
    private var exporter: ObjectExporter!

    init(_ kind: BusKind) throws {
        bus = try PrivateBus(kind)
        caller = try loop.connect(to: bus)
        callee = try loop.connect(to: bus)
        exporter = ObjectExporter(path: Sample.path, interface: interface())
        exporter.onRefusal = { [unowned self] _, error in refusals.append(error) }
        callee.onMessage = { [unowned self] message in exporter.handle(message, from: callee) }
    }

    /// The unique name of the object's connection.
    var name: UniqueName { callee.uniqueName! }

    /// Calls a method of the bell.
    @discardableResult
    func call(_ member: MemberName, _ arguments: [Int32] = []) throws -> Message {
        try loop.call(
            Sample.call(member, to: name) { writer in arguments.forEach { writer.append($0) } }, on: caller)
    }

    /// Calls a method of the interface Properties.
    @discardableResult
    func properties(
        _ member: MemberName, _ arguments: [String], _ body: (inout MessageWriter) -> Void = { _ in }
    ) throws -> Message {
        let message = Message.methodCall(
            to: name, path: Sample.path, interface: "org.freedesktop.DBus.Properties", member: member)
        var writer = MessageWriter(message)
        arguments.forEach { writer.append($0) }
        body(&writer)
        return try loop.call(message, on: caller)
    }

    func introspect(_ path: ObjectPath) throws -> String {
        let message = Message.methodCall(
            to: name, path: path, interface: "org.freedesktop.DBus.Introspectable", member: "Introspect")
        var reader = MessageReader(try loop.call(message, on: caller))
        return try reader.readString()
    }

    private func interface() -> Interface {
        Interface(
            name: Sample.interface,
            methods: [
                Interface.Method("Add", in: [.init("left", "i"), .init("right", "i")], out: [.init("sum", "i")]) {
                    [unowned self] call throws(BusError) in
                    var reader = call.arguments
                    let sum = try reader.read(Int32.self) + reader.read(Int32.self)
                    sender = call.sender
                    call.reply { $0.append(sum) }
                },
                Interface.Method("Fail") { call throws(BusError) in
                    throw BusError(name: "org.example.Error.Cracked", message: "it is cracked")
                },
                Interface.Method("Later", out: [.init("text", "s")]) { [unowned self] call in
                    deferred.append(call)
                },
            ],
            signals: [Interface.Signal("Rang", [.init("how", "s"), .init("more", "a{sv}")])],
            properties: [
                Interface.Property("Pitch", "d", change: .never) { $0.append(440.0) },
                Interface.Property("Tags", "as", change: .announced) { writer in
                    writer.array(of: "s") { $0.append("bronze") }
                },
            ])
    }
}
