import Carillon
import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// Questions to a service that runs; none of them starts one.
extension BusSession {
    /// Calls a method of the service whose reply is one value.
    func ask(
        _ member: MemberName, _ arguments: (inout MessageWriter) -> Void = { _ in },
        _ answer: @escaping (inout MessageReader) throws(BusError) -> Void
    ) {
        let message = Message.methodCall(
            to: Wire.busName, path: Wire.path, interface: Wire.interface, member: member, startsService: false)
        var writer = MessageWriter(message)
        arguments(&writer)
        ask(message, answer)
    }

    /// All properties of the service.
    func askProperties(_ answer: @escaping ([String: PropertyList]) -> Void) {
        let message = Message.methodCall(
            to: Wire.busName, path: Wire.path, interface: "org.freedesktop.DBus.Properties", member: "GetAll",
            startsService: false)
        var writer = MessageWriter(message)
        writer.append(Wire.interface.rawValue)
        ask(message) { reader throws(BusError) in answer(try UserInfoCoding.read(from: &reader)) }
    }

    /// The clients that the service knows, as ListClients tells them.
    func askClients(_ answer: @escaping ([[String: PropertyList]]) -> Void) {
        ask("ListClients") { reader throws(BusError) in
            var clients: [[String: PropertyList]] = []
            var entries = try reader.readContainer(.array)
            while !entries.isAtEnd { clients.append(try UserInfoCoding.read(from: &entries)) }
            answer(clients)
        }
    }

    private func ask(_ message: Message, _ answer: @escaping (inout MessageReader) throws(BusError) -> Void) {
        connection.call(message) { [unowned self] result in
            do throws(BusError) {
                var reader = MessageReader(try result.get())
                try answer(&reader)
            } catch {
                guard error.name != BusError.nameHasNoOwnerName else {
                    printError("carillon: the service does not run")
                    return finish(.unavailable)
                }
                fail(error)
            }
        }
    }
}

extension PropertyList {
    /// As people read it: a string as it is, everything else as JSON.
    var readable: String {
        if case .string(let text) = self { text } else { PropertyListJSON.text(self) }
    }
}
