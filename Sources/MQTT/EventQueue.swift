// SPDX-License-Identifier: Apache-2.0

/// What has happened and is not told yet: libmosquitto tells of it from inside its functions, where nothing can be called.
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
    private var isTelling = false
    /// How many there have been.
    private(set) var count = 0

    /// Whether somebody has to call ``tell()``.
    var isWaiting: Bool { next < events.count && !isTelling }

    func append(_ event: Event) {
        events.append(event)
        count &+= 1
    }

    /// Tells the delegate. In a loop inside of the delegate it does nothing: the one outside goes on.
    func tell() {
        guard !isTelling else { return }
        isTelling = true
        defer { isTelling = false }
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
