import DBus
import MainLoop
import NotificationWire

/// Questions to a service that runs; none of them starts one.
extension BusSession {
    /// Calls a method of the service.
    func ask<Method: CenterMethod>(_ method: Method, _ answer: @escaping (Method.Reply) -> Void) {
        ask(method.message(startsService: false)) { reply throws(BusError) in answer(try Method.reply(in: reply)) }
    }

    /// All properties of the service.
    func askProperties(_ answer: @escaping (CenterProperties) -> Void) {
        ask(CenterProperties.getAll(startsService: false)) { reply throws(BusError) in
            answer(try CenterProperties(in: reply))
        }
    }

    private func ask(_ message: Message, _ answer: @escaping (Message) throws(BusError) -> Void) {
        connection.call(message) { [unowned self] result in
            do throws(BusError) {
                try answer(try result.get())
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
