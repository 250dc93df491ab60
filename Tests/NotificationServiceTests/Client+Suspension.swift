import DBus
import NotificationWire
import TestSupport

extension Client {
    @discardableResult
    func addObserver(_ name: String, behavior: String) throws -> UInt64 {
        let reply = try call("AddObserver") { writer in
            writer.append(name)
            writer.append("")
            writer.array(of: "{sv}") { $0.entry("suspension-behavior", behavior) }
        }
        var reader = MessageReader(reply)
        return try reader.read()
    }

    func setSuspended(_ isSuspended: Bool) throws {
        try call("SetSuspended") { $0.append(isSuspended) }
    }

    /// Posts with a number in its userInfo.
    ///
    /// - Returns: how many clients matched; nil when the service went away before it answered.
    func post(_ name: String, number: Int64) throws -> UInt32? {
        do {
            let reply = try call("Post") { writer in
                writer.append(name)
                writer.append("")
                writer.array(of: "{sv}") { $0.entry("number", number) }
                writer.array(of: "{sv}") { _ in }
            }
            var reader = MessageReader(reply)
            return try reader.read()
        } catch let error as BusError where error.name == BusError.noReplyName {
            return nil
        }
    }

    /// Queues a post with a number in its userInfo, and waits for no answer.
    func postQueued(_ name: String, number: Int64, style: String) throws {
        let message = Wire.methodCall("Post")
        message.expectsNoReply = true
        var writer = MessageWriter(message)
        writer.append(name)
        writer.append("")
        writer.array(of: "{sv}") { $0.entry("number", number) }
        writer.array(of: "{sv}") { $0.entry("posting-style", style) }
        connection.send(message)
    }

    /// The numbers that arrived, in their order.
    var numbers: [Int64] {
        signals.compactMap { signal in
            guard case .int64(let number)? = signal.userInfo["number"] else { return nil }
            return number
        }
    }
}
