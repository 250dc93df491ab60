// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// A client that calls methods of the service and passes each result to its caller, errors included. It never makes the
/// bus start a service.
///
/// ``TopPoll`` uses it, which continues without a service, and so does ``ServiceCompletions``, which reports no errors.
/// Other commands use ``CommandSession``, which ends the process after an error.
///
/// Threads: all on the thread that runs the default context.
final class ServiceInquirer: @unchecked Sendable {
    // Sendable: the command has one thread, on which everything here runs.
    private let outbox = SharedOutbox()
    private var session: ServiceSession!
    /// Called whenever a service becomes available, also for each new service after another.
    var onConnected: () -> Void = {}
    /// The reason why no service is connected; nil while one is, and before the reason is known.
    private(set) var absence: ServiceError?

    init() {
        session = ServiceSession(
            bus: LoopBus(address: { () throws(BusError) in try Connection.sessionBusAddress() }, context: .default),
            startsService: false, outbox: outbox, receiver: self)
    }

    func start() { session.start() }

    /// Closes the connection. The results of pending calls are not delivered any more.
    func stop() { session.stop() }

    /// Calls a method of the service.
    func ask<Method: CenterMethod>(
        _ method: Method, _ answer: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void
    ) {
        ask(method.message(startsService: false), reading: Method.reply(in:), answer)
    }

    /// Requests all properties of the service.
    func askProperties(_ answer: @escaping @Sendable (Result<CenterProperties, ServiceError>) -> Void) {
        ask(CenterProperties.getAll(startsService: false), reading: CenterProperties.init(in:), answer)
    }

    /// Requests the process ID of the service; nil if it is unknown.
    func findServiceProcess(_ answer: @escaping (UInt32?) -> Void) {
        session.findServiceProcess(answer)
    }

    /// - Parameter read: decodes the reply.
    private func ask<Reply>(
        _ message: Message, reading read: @escaping @Sendable (Message) throws(BusError) -> Reply,
        _ answer: @escaping @Sendable (Result<Reply, ServiceError>) -> Void
    ) {
        let request = Request.call(message) { result in
            answer(
                result.flatMap { reply in
                    Result { () throws(BusError) in try read(reply) }.mapError(ServiceError.init)
                })
        }
        do throws(ServiceError) {
            try outbox.append(request)
            // The session sends the requests that the outbox holds.
            session.pump()
        } catch {
            answer(.failure(error))
        }
    }
}

extension ServiceInquirer: ServiceReceiver {
    func stateChanged(_ state: ConnectionState) {
        switch state {
        case .connected:
            absence = nil
            onConnected()
        // The service was asked for its registrations, and has not answered.
        case .connecting: absence = .disconnected("the reply is pending")
        case .serviceUnavailable(let reason): absence = .unavailable(reason)
        case .nameTaken(let reason): absence = .nameTaken(reason)
        case .notAnswering(let reason), .disconnected(let reason): absence = .disconnected(reason)
        }
    }

    // These reports never occur: the inquirer registers no observers, and posts nothing.
    func received(_: ArrivedNotification, for _: [RegistrationKey]) {}
    func mayHaveMissed(_: Gap) {}
    func registrationRefused(_: RegistrationKey, because _: ServiceError) {}
    func detailsRefused(because _: ServiceError) {}
    func lostPosts(_: Int, because _: ServiceError) {}
    func suspensionChanged(_: Bool, cause _: String) {}
}
