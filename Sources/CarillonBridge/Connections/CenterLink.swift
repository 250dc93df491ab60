// SPDX-License-Identifier: Apache-2.0
import Collections
import DBus
import MainLoop
import NotificationCore
import NotificationWire
import ServiceClient

/// What a ``CenterLink`` tells of the session. Called on the loop's thread.
protocol CenterLinkDelegate: AnyObject {
    func arrived(_ notification: ArrivedNotification)
    /// Notifications for the bridge did not come.
    func missed(_ count: UInt64)
    func serviceChanged(isThere: Bool)
    func interestChanged()
    func valuesRemoved()
}

/// The bridge as a client of the session's service: the same client as every other (F1, E3).
final class CenterLink: @unchecked Sendable {
    // Sendable: the bridge has one thread, on which everything here runs.

    weak var delegate: (any CenterLinkDelegate)?
    private let outbox = SharedOutbox()
    private var session: ServiceSession!
    private(set) var isThere = false
    /// Why nothing can be exported; nil when it can.
    private(set) var refusal: String?

    init(address: String, context: MainContext) {
        session = ServiceSession(
            bus: LoopBus(address: { address }, context: context), wish: TransportWish(ofUser: .ofEnvironment),
            outbox: outbox, receiver: self)
    }

    /// Registers for what is exported, with the values that there are.
    ///
    /// A name is observed as by everybody, so that its posters learn that somebody gets it. For the beginnings of names,
    /// which the service does not match, the bridge looks at everything as a monitor: so it counts for nobody's interest,
    /// and nobody's post has one receiver more.
    func start(exporting exports: [NamePattern]) {
        outbox.add(.details([.host, .user, .retained, .time, .kept, .expiry]))
        var options = ObserverOptions(
            suspensionBehavior: .deliverImmediately, automaticSuspension: false, wantsRetained: true)
        for case .exactly(let name) in Set(exports) {
            outbox.add(.register(RegistrationKey(name: ExactText(name), object: nil, options: options)))
        }
        let isExact = exports.allSatisfy { if case .exactly = $0 { true } else { false } }
        if !isExact {
            options.suspensionBehavior = .coalesce
            options.isMonitor = true
            outbox.add(.register(RegistrationKey(name: nil, object: nil, options: options)))
        }
        session.start()
    }

    func stop() {
        isThere = false
        session.stop()
    }

    func submit(_ request: Request) {
        outbox.add(request)
        session.pump()
    }

    /// Posts something of the bridge itself.
    ///
    /// - Parameter isValue: whether it stays until the bridge leaves the bus.
    func tell(_ name: String, about object: String = "", _ userInfo: [String: PropertyList], isValue: Bool = false) {
        var options = PostOptions()
        if isValue { options.retention = Retention(whileConnected: true) }
        do throws(CenterError) {
            submit(.post(try OutgoingPost(name: name, object: object, userInfo: userInfo, options: options)))
        } catch {
            Log.warning("\(name) can't be posted: \(error)")
        }
    }
}

extension CenterLink: AskedService {
    func ask<Method: CenterMethod>(
        _ method: Method, completion: @escaping @Sendable (Result<Method.Reply, ServiceError>) -> Void
    ) {
        submit(.call(method, completion: completion))
    }
}

extension SharedOutbox {
    /// What waits here is bounded by its senders.
    fileprivate func add(_ request: Request) {
        do throws(ServiceError) {
            try append(request)
        } catch {
            Log.warning("the service was not asked: \(error)")
        }
    }
}

extension CenterLink: ServiceReceiver {
    func received(_ notification: ArrivedNotification, for _: [RegistrationKey]) { delegate?.arrived(notification) }

    func stateChanged(_ state: ConnectionState) {
        let isThere = state == .connected
        guard isThere != self.isThere else { return }
        self.isThere = isThere
        delegate?.serviceChanged(isThere: isThere)
    }

    func mayHaveMissed(_ gap: Gap) {
        switch gap {
        case .dropped(let count, _), .missing(let count), .overflow(let count): delegate?.missed(count)
        case .undecodable: delegate?.missed(1)
        // What was lost with a service it says itself.
        case .serviceChanged: break
        }
    }

    func registrationRefused(_ key: RegistrationKey, because error: ServiceError) {
        let name = key.name?.text ?? "any name"
        Log.warning("\(name) is not exported: \(error)", ["CARILLON_REASON": error.description])
        refusal = "\(name): \(error)"
    }

    func detailsRefused(because error: ServiceError) {
        // Without them nobody can tell what came from outside, and must not go round in circles.
        Log.warning("nothing is exported, as the service does not tell what comes from outside: \(error)")
        refusal = "the service does not tell what comes from outside: \(error)"
    }

    func lostPost(because error: ServiceError) {
        Log.warning("the service did not take a post of the bridge: \(error)")
    }
    func suspensionChanged(_: Bool, cause _: String) {}
    func interestChanged() { delegate?.interestChanged() }
    func valuesRemoved() { delegate?.valuesRemoved() }
}
