// SPDX-License-Identifier: Apache-2.0

/// The queue of events for the delegate of an ``MQTTClient``. libmosquitto reports them inside its functions, where the
/// delegate may not be called.
///
/// A client has a new *driver* (``ClientDriver``) for each connection. The queue belongs to the client and is shared by
/// these drivers, so that events stay in order when one driver replaces another.
final class EventQueue {
    /// An event; each case is a method of ``MQTTClientDelegate``.
    enum Event {
        case connected(sessionPresent: Bool, BrokerLimits)
        case disconnected(MQTTError)
        case received(Publication)
        case acknowledged(PacketID, ReasonCode)
        case subscribed(PacketID, [ReasonCode])
        case unsubscribed(PacketID)
    }

    /// The receiver of the events.
    weak var delegate: (any MQTTClientDelegate)?
    /// The events since the queue was last empty.
    private var events: [Event] = []
    /// The index of the first undelivered event in `events`.
    private var next = 0
    /// Whether ``deliver()`` is running.
    private var isDelivering = false
    /// The number of events that were ever appended. ``ClientDriver`` compares it to see whether a read has caused an
    /// event.
    private(set) var count = 0

    /// Whether ``deliver()`` has to be called.
    var isWaiting: Bool { next < events.count && !isDelivering }

    /// Appends an event, to be delivered by ``deliver()``.
    func append(_ event: Event) {
        events.append(event)
        count &+= 1
    }

    /// Delivers the events to the delegate. If the delegate runs a nested loop that calls this again, the inner call
    /// does nothing and the outer one continues afterwards.
    func deliver() {
        guard !isDelivering else { return }
        isDelivering = true
        defer { isDelivering = false }
        while next < events.count {
            let event = events[next]
            next += 1
            switch event {
            case .connected(let isPresent, let limits): delegate?.connected(sessionPresent: isPresent, limits: limits)
            case .disconnected(let error): delegate?.disconnected(error)
            case .received(let publication): delegate?.received(publication)
            case .acknowledged(let id, let reason): delegate?.acknowledged(id, reason)
            case .subscribed(let id, let reasons): delegate?.subscribed(id, reasons)
            case .unsubscribed(let id): delegate?.unsubscribed(id)
            }
        }
        events.removeAll(keepingCapacity: true)
        next = 0
    }
}
