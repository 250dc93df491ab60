// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop

/// What a service would be that does nothing but read: who waits longer than behind this one waits for the bus.
final class LoadSink: LoadClient {
    private let name: WellKnownName

    init(_ options: LoadOptions) throws(BusError) {
        guard let name = WellKnownName(rawValue: options.name) else {
            throw .invalidArgs("'\(options.name)' is no bus name")
        }
        self.name = name
        try super.init()
    }

    override func start() {
        connection.onMessage = { [unowned self] message in
            guard message.kind == .methodCall else { return false }
            if !message.expectsNoReply { connection.send(zero(for: message)) }
            return true
        }
        connection.requestName(name) { [unowned self] result in
            switch result {
            case .success(.acquired): printLine("ready \(connection.uniqueName?.rawValue ?? "")")
            case .success: fail(.failed("the name has an owner"))
            case .failure(let error): fail(error)
            }
        }
    }

    private func zero(for call: Message) -> Message {
        let reply = call.methodReturn()
        var writer = MessageWriter(reply)
        writer.append(UInt32(0))
        return reply
    }
}
