// SPDX-License-Identifier: Apache-2.0

/// The queue of events that are not delivered yet: libmosquitto reports them inside its functions, where calls are not
/// allowed.
final class EventQueue {
    enum Event {
        case connected(sessionPresent: Bool, BrokerLimits)
        case disconnected(MQTTError)
        case received(Publication)
        case acknowledged(PacketID, ReasonCode)
        case subscribed(PacketID, [ReasonCode])
        case unsubscribed(PacketID)
    }

    weak var delegate: (any MQTTClientDelegate)?
    private var events: [Event] = []
    private var next = 0
    private var isDelivering = false
    /// The number of events so far.
    private(set) var count = 0

    /// Whether ``deliver()`` has to be called.
    var isWaiting: Bool { next < events.count && !isDelivering }

    func append(_ event: Event) {
        events.append(event)
        count &+= 1
    }

    /// Delivers the events to the delegate. In a loop inside the delegate it does nothing: the outer call continues.
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
