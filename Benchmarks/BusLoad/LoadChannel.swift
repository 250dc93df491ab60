// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonWire

/// How notifications get from a poster to an observer.
protocol LoadChannel {
    /// Registers for a name; `completion` comes when the registration is in force.
    func register(
        _ name: String, _ options: LoadOptions, on connection: Connection, completion: @escaping (BusError?) -> Void)
    /// A post of this name, for the caller to append userInfo to.
    func post(_ name: String) -> Message
    /// Completes the message after its userInfo.
    func finish(_ message: Message)
    /// Sends a post; `completion` comes when it was taken from the sender, which bounds what is on the way.
    func send(_ post: Message, on connection: Connection, completion: @escaping (BusError?) -> Void)
    /// Sends a post without any answer.
    func send(_ post: Message, on connection: Connection)
    func arrival(_ message: Message) -> Arrival?
}

/// What an observer got.
enum Arrival {
    /// - Parameters:
    ///   - userInfo: a reader at the `a{sv}`.
    ///   - sequence: nil where there is none.
    case notification(name: String, userInfo: MessageReader, sequence: UInt64?, serial: UInt64?)
    case dropped(UInt64)
}

/// Through the service, as any client does it.
///
/// Calls wait for as long as it takes: an answer behind a flood comes when the machine has carried the flood, and
/// whoever runs the load bounds its time.
struct CenterChannel: LoadChannel {
    func register(
        _ name: String, _ options: LoadOptions, on connection: Connection, completion: @escaping (BusError?) -> Void
    ) {
        let call = AddObserver(name: name, object: "", options: .init(suspensionBehavior: options.behavior))
        connection.call(call.message(), timeout: .never) { completion($0.fault) }
    }

    func post(_ name: String) -> Message {
        // By hand, as what a poster in C would do: the load is to be cheap.
        let message = Wire.methodCall(PostCall.member)
        var writer = MessageWriter(message)
        writer.append(name)
        writer.append("")
        return message
    }

    func finish(_ message: Message) {
        var writer = MessageWriter(message)
        writer.array(of: "{sv}") { _ in }
    }

    func send(_ post: Message, on connection: Connection, completion: @escaping (BusError?) -> Void) {
        connection.call(post, timeout: .never) { completion($0.fault) }
    }

    func send(_ post: Message, on connection: Connection) {
        post.expectsNoReply = true
        connection.send(post)
    }

    func arrival(_ message: Message) -> Arrival? {
        if let signal = try? DroppedSignal(message) { return .dropped(signal.count) }
        guard message.isSignal(Wire.interface, NotificationSignal.member) else { return nil }
        var reader = MessageReader(message)
        guard let name = try? reader.readString() else { return nil }
        reader.skip()
        let userInfo = reader
        for _ in 0..<3 { reader.skip() }
        guard let serial = try? reader.read(UInt64.self), let sequence = try? reader.read(UInt64.self) else {
            return nil
        }
        return .notification(name: name, userInfo: userInfo, sequence: sequence, serial: serial)
    }
}

/// A broadcast signal with the same name, object and userInfo, matched by the bus.
struct BroadcastChannel: LoadChannel {
    private static let path: ObjectPath = "/org/carillon/BusLoad"
    private static let interface: InterfaceName = "org.carillon.BusLoad"

    func register(
        _ name: String, _ options: LoadOptions, on connection: Connection, completion: @escaping (BusError?) -> Void
    ) {
        let rule = "type='signal',interface='\(Self.interface)',member='Notification',arg0='\(name)'"
        connection.addMatch(rule) { completion($0.fault) }
    }

    func post(_ name: String) -> Message {
        let message = Message.signal(path: Self.path, interface: Self.interface, member: "Notification")
        var writer = MessageWriter(message)
        writer.append(name)
        writer.append("")
        return message
    }

    func finish(_ message: Message) {}

    /// Signals are not answered, so the bus is asked something behind it: the same pace as through the service.
    func send(_ post: Message, on connection: Connection, completion: @escaping (BusError?) -> Void) {
        connection.send(post)
        let ping = Message.methodCall(
            to: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus.Peer",
            member: "Ping")
        connection.call(ping, timeout: .never) { completion($0.fault) }
    }

    func send(_ post: Message, on connection: Connection) {
        connection.send(post)
    }

    func arrival(_ message: Message) -> Arrival? {
        guard message.isSignal(Self.interface, "Notification") else { return nil }
        var reader = MessageReader(message)
        guard let name = try? reader.readString() else { return nil }
        reader.skip()
        return .notification(name: name, userInfo: reader, sequence: nil, serial: nil)
    }
}

extension Result where Failure == BusError {
    fileprivate var fault: BusError? {
        if case .failure(let error) = self { error } else { nil }
    }
}
