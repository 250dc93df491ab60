// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A caller of methods of the session's bridge to other machines, on a connection of its own. It does not start the
/// bridge. `carillon bridge`, `status` and `top` use it. It connects with the first call, and again after a loss of the
/// bus.
///
/// One call is pending at a time: a second one during the registration would send Hello again, which the bus refuses.
///
/// Threads: all on the thread that runs the default context.
final class BridgeInquirer: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// The default time limit for a reply. It is longer than the 10 seconds after which the bridge gives up its test
    /// message.
    static let timeLimit = ReplyTimeout.milliseconds(15_000)

    private var connection: Connection?
    /// Whether the bus has registered the connection, by Hello.
    private var isRegistered = false

    /// Calls a method of the bridge without arguments.
    ///
    /// - Parameters:
    ///   - timeLimit: the maximum time until the reply. The registration of the connection does not count.
    ///   - answer: receives the bridge's reply, or the error of the bridge or the bus.
    func ask(
        _ member: MemberName, within timeLimit: ReplyTimeout = timeLimit,
        _ answer: @escaping (Result<Message, BusError>) -> Void
    ) {
        ask(BridgeWire.methodCall(member), within: timeLimit, answer)
    }

    /// Sends a method call to the bridge.
    func ask(
        _ message: Message, within timeLimit: ReplyTimeout, _ answer: @escaping (Result<Message, BusError>) -> Void
    ) {
        do throws(BusError) {
            let connection = try connected()
            connection.onDisconnect = { [weak self] in self?.stop() }
            let call = { connection.call(message, timeout: timeLimit, completion: answer) }
            guard !isRegistered else { return call() }
            connection.hello { [weak self] result in
                if case .failure(let error) = result { return answer(.failure(error)) }
                self?.isRegistered = true
                call()
            }
        } catch {
            answer(.failure(error))
        }
    }

    /// Whether there is a connection to a bus.
    var isConnected: Bool { connection != nil }

    /// Returns the connection, which is created if there is none.
    private func connected() throws(BusError) -> Connection {
        if let connection { return connection }
        let connection = try Connection(address: try Connection.sessionBusAddress(), context: .default)
        self.connection = connection
        return connection
    }

    /// Requests the status of the bridge.
    ///
    /// - Parameter answer: receives nil if there is no bridge.
    func askStatus(
        within timeLimit: ReplyTimeout = timeLimit, _ answer: @escaping (Result<BridgeStatus?, BusError>) -> Void
    ) {
        ask(BridgeWire.getStatus, within: timeLimit) { result in
            if case .failure(let error) = result, error.meansNoService { return answer(.success(nil)) }
            answer(result.flatMap { reply in Result { () throws(BusError) in try BridgeStatus(in: reply) } })
        }
    }

    /// Closes the connection.
    func stop() {
        isRegistered = false
        connection = nil
    }
}
