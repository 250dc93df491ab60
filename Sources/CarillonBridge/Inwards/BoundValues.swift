// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMQTT

/// The retained values of other hosts that are bound to their posters: such a value ends when its poster leaves the bus
/// there (R8). Its message names the run (one process) of the bridge that published it. Here the value is present while
/// that host is online with that run. ``Importer`` uses it; it does no input and output.
///
/// An ended value is remembered, because a presence message may be false or old. The host's bridge corrects it within a
/// second, and the value then returns.
struct BoundValues {
    /// A remembered value.
    struct Value {
        /// The message that set the value.
        let message: InwardMessage
        /// Whether the session has the value.
        var isHere: Bool
        /// The expiry time, in microseconds since 1970; nil for never.
        let expiry: Int64?

        init(message: InwardMessage, isHere: Bool, now: Int64) {
            self.message = message
            self.isHere = isHere
            expiry = message.expiresAfter.map { now + Int64($0) * 1_000_000 }
        }

        /// Returns the message with its remaining lifetime; nil if the value has expired.
        func remaining(at now: Int64) -> InwardMessage? {
            guard let expiry else { return message }
            return now < expiry ? message.expiring(after: UInt32(clamping: (expiry - now + 999_999) / 1_000_000)) : nil
        }
    }

    /// The maximum number of remembered values. A machine may have at most seven times the free number, so that space
    /// remains for other machines.
    static let maxCount = 16_384
    /// The maximum size of all remembered values, in bytes. The same rule for one machine applies.
    static let maxByteCount = 16 << 20

    /// The treatment of a message.
    enum Verdict {
        /// The message is to be posted.
        case post
        /// The value is remembered and not posted: its host is not online with the value's run.
        case wait
        /// Too many values are remembered, and the message is discarded.
        case refuse
    }

    /// A number of values, and their approximate size in bytes.
    private struct Share {
        var count = 0
        var byteCount = 0
    }

    /// The remembered values of each host, by name and object.
    private var values: [Origin: [ValueKey: Value]] = [:]
    /// The share of each machine: of all its users together, because a machine may claim any number of them.
    private var shares: [String: Share] = [:]
    /// The sum of all shares.
    private var all = Share()

    /// Processes a message, and remembers it if it sets a value that is bound to its poster.
    ///
    /// - Parameters:
    ///   - host: the presence of the message's host; nil for a host that is not known.
    ///   - now: microseconds since 1970.
    mutating func take(_ message: InwardMessage, host: HostTable.Host?, now: Int64) -> Verdict {
        // A retained message replaces or removes the earlier value, also if only that was bound to its poster.
        guard message.isRetainedValue else { return .post }
        let kind = ValueKey(message.name, message.object)
        remove(message.origin, kind)
        guard message.isBound else { return .post }
        if !hasSpace(for: message) { removeExpired(at: now) }
        guard hasSpace(for: message) else { return .refuse }
        let isHere = !message.isOver(with: host)
        values[message.origin, default: [:]][kind] = Value(message: message, isHere: isHere, now: now)
        charge(message, 1)
        return isHere ? .post : .wait
    }

    /// Whether the limits allow another value of the message's machine.
    private func hasSpace(for message: InwardMessage) -> Bool {
        let own = shares[message.origin.host] ?? Share()
        return all.count < Self.maxCount && own.count + 1 <= 7 * (Self.maxCount - all.count)
            && own.byteCount + message.byteCount <= 7 * (Self.maxByteCount - all.byteCount - message.byteCount)
    }

    /// Adds a message to the shares (sign 1), or subtracts it (sign -1).
    private mutating func charge(_ message: InwardMessage, _ sign: Int) {
        var own = shares[message.origin.host] ?? Share()
        for share in [\Share.count: sign, \Share.byteCount: sign * message.byteCount] {
            own[keyPath: share.key] += share.value
            all[keyPath: share.key] += share.value
        }
        shares[message.origin.host] = own.count == 0 ? nil : own
    }

    /// Forgets a value.
    private mutating func remove(_ origin: Origin, _ kind: ValueKey) {
        guard let value = values[origin]?.removeValue(forKey: kind) else { return }
        charge(value.message, -1)
        if values[origin]?.isEmpty == true { values[origin] = nil }
    }

    /// Forgets the values that meet a condition.
    ///
    /// - Returns: the messages of the forgotten values that the session has.
    mutating func removeAll(where isOver: (Value) -> Bool) -> [InwardMessage] {
        let over = saved.filter(isOver)
        for value in over { remove(value.message.origin, ValueKey(value.message.name, value.message.object)) }
        return over.filter(\.isHere).map(\.message)
    }

    /// Forgets expired values. The service ends them in the session by itself.
    private mutating func removeExpired(at now: Int64) { _ = removeAll { $0.remaining(at: now) == nil } }

    /// Follows a change of a host's presence.
    ///
    /// - Returns: the messages of values that end now in the session, and of values that are present again, in order.
    mutating func follow(
        _ origin: Origin, _ host: HostTable.Host?, now: Int64
    ) -> (over: [InwardMessage], again: [InwardMessage]) {
        var result: (over: [InwardMessage], again: [InwardMessage]) = ([], [])
        guard let known = values[origin] else { return result }
        // A fault of test builds (E7).
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.presenceStays), host?.isOnline != true { return result }
        #endif
        for (kind, value) in known.sorted(by: { $0.key < $1.key }) {
            guard let message = value.remaining(at: now) else {
                remove(origin, kind)
                continue
            }
            let isOver = message.isOver(with: host)
            guard isOver == value.isHere else { continue }
            values[origin]![kind]!.isHere = !isOver
            if isOver { result.over.append(message) } else { result.again.append(message) }
        }
        return result
    }

    /// The hosts with remembered values.
    var origins: [Origin] { values.keys.sorted { $0.text < $1.text } }

    /// All remembered values, in a fixed order.
    private var saved: [Value] {
        origins.flatMap { origin in values[origin]!.sorted { $0.key < $1.key }.map(\.value) }
    }

    /// Returns all values for saving, with the remaining lifetime of each.
    func saved(at now: Int64) -> [Value] {
        saved.compactMap { value in
            value.remaining(at: now).map { Value(message: $0, isHere: value.isHere, now: now) }
        }
    }

    /// Remembers a value that an earlier bridge has saved.
    mutating func restore(_ value: Value, now: Int64) {
        let message = value.message
        guard message.isRetainedValue, message.isBound, take(message, host: nil, now: now) != .refuse else { return }
        values[message.origin]?[ValueKey(message.name, message.object)]?.isHere = value.isHere
    }
}

extension InwardMessage {
    /// Whether the message sets a value that is bound to its poster.
    fileprivate var isBound: Bool {
        if case .notification = content { properties.boundTo != nil } else { false }
    }

    /// Whether a value that is bound to its poster has ended, by the presence of its host.
    fileprivate func isOver(with host: HostTable.Host?) -> Bool {
        host?.isOnline != true || host?.run != properties.boundTo
    }
}
