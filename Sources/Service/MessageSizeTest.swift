// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A test of whether the bus carries a message of a given size.
///
/// A bus has a maximum message size that it does not publish, and closes a connection that sends a larger message. When
/// the bus has closed the connection of the service, ``ServiceLink`` therefore tests the size of the largest message in
/// flight. The test uses a connection of its own, which the bus may close, and sends the message to that connection
/// itself.
final class MessageSizeTest {
    /// The size in bytes that every bus carries.
    static let safeSize = 16 << 10
    /// The bytes that are added to the size for the message header and for parts that the core counts approximately.
    private static let margin = 1024

    private var connection: Connection?
    private var completion: ((Bool) -> Void)?

    /// Begins the test.
    ///
    /// - Parameters:
    ///   - size: the size of a notification, in bytes.
    ///   - completion: called once: with true if the bus carries the size or the test is not possible, and with false
    ///     if the bus closes the test connection.
    init(size: Int, machine: Machine, context: MainContext, completion: @escaping (Bool) -> Void) {
        self.completion = completion
        do throws(BusError) {
            connection = try machine.connect(context, .default)
        } catch {
            end(true)
        }
        connection?.hello { [weak self] result in
            guard let self, let connection, case .success(let name) = result else {
                self?.end(true)
                return
            }
            connection.onDisconnect = { [weak self] in self?.end(false) }
            let message = Message.signal(
                to: name, path: Wire.path, interface: "org.carillon.Internal1", member: "Size")
            var writer = MessageWriter(message)
            writer.append(fixedArray: [UInt64](repeating: 0, count: (size + Self.margin) / 8))
            connection.send(message)
            // The reply to a later call shows that the bus has accepted the message.
            connection.busID { [weak self] result in if case .success = result { self?.end(true) } }
        }
    }

    /// Reports the first result.
    private func end(_ isCarried: Bool) {
        let completion = completion
        self.completion = nil
        completion?(isCarried)
    }
}
