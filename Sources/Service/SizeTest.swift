// SPDX-License-Identifier: Apache-2.0
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A test of whether the bus carries a message of some size, on an expendable connection: a bus closes the connection
/// that sends a larger message than it allows, and does not publish its limit.
final class SizeTest {
    /// The size in bytes that every bus carries.
    static let harmless = 16 << 10
    /// The message header and parts that are not counted exactly, in bytes.
    private static let margin = 1024

    private var connection: Connection?
    private var completion: ((Bool) -> Void)?

    /// - Parameter completion: gets the result, from the loop. A size that can't be tested counts as carried.
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
            connection.busID { [weak self] result in if case .success = result { self?.end(true) } }
        }
    }

    private func end(_ isCarried: Bool) {
        let completion = completion
        self.completion = nil
        completion?(isCarried)
    }
}
