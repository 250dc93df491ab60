// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A client of the session's bridge to other machines, on a connection of its own. It does not start the bridge.
///
/// Threads: all on the thread that runs the default context.
final class BridgeInquirer: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.

    /// The time limit for an answer. It is longer than the 10 seconds of the bridge's test message.
    static let patience = ReplyTimeout.milliseconds(15_000)

    private var connection: Connection?
    private var isGreeted = false

    /// - Parameter answer: receives the bridge's answer, or the error of the bus.
    func ask(
        _ member: MemberName, within patience: ReplyTimeout = patience,
        _ answer: @escaping (Result<Message, BusError>) -> Void
    ) {
        ask(BridgeWire.methodCall(member), within: patience, answer)
    }

    func ask(
        _ message: Message, within patience: ReplyTimeout, _ answer: @escaping (Result<Message, BusError>) -> Void
    ) {
        do throws(BusError) {
            let connection = try connected()
            connection.onDisconnect = { [weak self] in self?.stop() }
            let call = { connection.call(message, timeout: patience, completion: answer) }
            guard !isGreeted else { return call() }
            connection.hello { [weak self] result in
                if case .failure(let error) = result { return answer(.failure(error)) }
                self?.isGreeted = true
                call()
            }
        } catch {
            answer(.failure(error))
        }
    }

    /// Whether there is a connection to a bus.
    var isConnected: Bool { connection != nil }

    private func connected() throws(BusError) -> Connection {
        if let connection { return connection }
        let connection = try Connection(address: try Connection.sessionBusAddress(), context: .default)
        self.connection = connection
        return connection
    }

    /// - Parameter answer: receives nil if there is no bridge.
    func askStatus(
        within patience: ReplyTimeout = patience, _ answer: @escaping (Result<BridgeStatus?, BusError>) -> Void
    ) {
        ask(BridgeWire.getStatus, within: patience) { result in
            if case .failure(let error) = result, error.meansNoService { return answer(.success(nil)) }
            answer(result.flatMap { reply in Result { () throws(BusError) in try BridgeStatus(in: reply) } })
        }
    }

    func stop() {
        isGreeted = false
        connection = nil
    }
}
