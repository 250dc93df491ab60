// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The encoder of the records of a recovery log, in their order. ``ChangeDecoder`` is its counterpart.
///
/// A record may refer to earlier ones of the same log: a notification that is queued for many clients is written once,
/// and a repeated long list of observers is not written again. The encoder of a log must therefore encode all its
/// records.
struct ChangeEncoder {
    /// The serial of the last notification in the log. It is enough to remember one, because a post is queued for all
    /// its clients before the next post.
    private var lastNotification: UInt64 = 0
    /// The last long list of observers of each client.
    private var lists: [ClientName: [ObserverID]] = [:]

    /// Appends the record of the reserved numbers: no greater serial or observer number has been assigned.
    func numbers(serial: UInt64, observer: UInt64, to records: inout RecordGroup) {
        records.beginRecord()
        records.append(RecordKind.numbers.rawValue)
        records.append(serial)
        records.append(observer)
        records.endRecord()
    }

    /// Appends the record that the log has no queues.
    func queuesUnkept(to records: inout RecordGroup) {
        records.beginRecord()
        records.append(RecordKind.queuesUnkept.rawValue)
        records.endRecord()
    }

    /// Appends the record of the bus's address.
    func bus(address: String, to records: inout RecordGroup) {
        records.beginRecord()
        records.append(RecordKind.bus.rawValue)
        records.append(address)
        records.endRecord()
    }

    /// Appends a change, as one record, or as two if its notification is not in the log yet.
    ///
    /// - Parameters:
    ///   - change: the change.
    ///   - slot: returns the slot of a client in the counters file (``RecoveryCounters``).
    ///   - records: the group to append to.
    mutating func encode(_ change: Change, slot: (ClientName) -> UInt32, to records: inout RecordGroup) {
        switch change {
        case .queuedDue(_, let notification, _, _), .held(_, let notification, _, _), .retained(let notification, _),
            .throttled(_, let notification, _):
            encode(notification, to: &records)
        default: break
        }
        records.beginRecord()
        defer { records.endRecord() }
        // Appends the type of the record and the name of the client.
        func begin(_ kind: RecordKind, _ client: ClientName) {
            records.append(kind.rawValue)
            records.append(client.rawValue)
        }
        switch change {
        case .client(let name, let counts):
            begin(.client, name)
            records.append(slot(name))
            records.append(counts.sequence)
            records.append(counts.delivered)
            records.append(counts.dropped)
        case .clientGone(let name):
            begin(.clientGone, name)
            lists[name] = nil
        case .observer(let registration):
            begin(registration.options.isMonitor ? .monitor : .observer, registration.client)
            records.append(registration)
        case .observersRemoved(let name, let observers):
            begin(.observersRemoved, name)
            records.append(observers.lazy.map(\.rawValue))
        case .observersRevoked(let name, let observers):
            begin(.observersRevoked, name)
            records.append(observers.lazy.map(\.rawValue))
        case .revocationsKnown(let name): begin(.revocationsKnown, name)
        case .suspension(let name, let isSuspended):
            begin(.suspension, name)
            records.append(optional: isSuspended)
        case .suspensionOverridden(let name, let isSuspended):
            begin(.suspensionOverridden, name)
            records.append(optional: isSuspended)
        case .suspendedByActivity(let name, let isSuspended):
            begin(.suspendedByActivity, name)
            records.append(isSuspended)
        case .suspensionNoticePending(let name, let isPending):
            begin(.suspensionNoticePending, name)
            records.append(isPending)
        case .interestFollowed(let name): begin(.interestFollowed, name)
        case .valuesFollowed(let name): begin(.valuesFollowed, name)
        case .options(let name, let options):
            begin(.options, name)
            records.append(options.batches)
            records.append(UInt32(options.details.rawValue))
        case .queuedDue(let name, let notification, let observers, let lane):
            begin(.queuedDue, name)
            records.append(notification.serial)
            append(observers, of: name, to: &records)
            records.append(UInt8(lane.rawValue))
        case .held(let name, let notification, let observers, let coalescing):
            begin(.held, name)
            records.append(notification.serial)
            append(observers, of: name, to: &records)
            if coalescing == observers {
                records.append(ListCoding.same.rawValue)
            } else {
                records.append(ListCoding.whole.rawValue)
                records.append(coalescing.lazy.map(\.rawValue))
            }
        case .throttled(let name, let notification, let observers):
            begin(.throttled, name)
            records.append(notification.serial)
            append(observers, of: name, to: &records)
        case .throttleEnded(let client, let key, let observers):
            begin(.throttleEnded, client)
            records.append(key.name)
            records.append(key.object)
            append(observers, of: client, to: &records)
            if let origin = key.origin { records.append(origin) }
        case .flushed(let name): begin(.flushed, name)
        case .popped(let name, let lane):
            begin(.popped, name)
            records.append(UInt8(lane.rawValue))
        case .lost(let name, let reason):
            begin(.lost, name)
            records.append(reason.rawValue)
        case .unreportedLoss(let name, let count, let observers, let reason):
            begin(.unreportedLoss, name)
            records.append(count)
            records.append(observers.ids.lazy.map(\.rawValue))
            records.append(reason.rawValue)
        case .lossAnnounced(let name): begin(.lossAnnounced, name)
        case .retained(let notification, let retention):
            begin(.retained, notification.poster)
            records.append(notification.serial)
            records.append(retention)
        case .unretained(let poster, let key):
            begin(.unretained, poster)
            records.append(key.name)
            records.append(key.object)
            if let origin = key.origin { records.append(origin) }
        case .replays(let name, let replays):
            begin(.replays, name)
            records.append(replays.observer.rawValue)
            records.append(replays.after)
            records.append(replays.through)
            records.append(replays.isHeld)
        case .postQueued(let poster, let post, let coalescing):
            begin(.postQueued, poster)
            records.append(post, coalescing: coalescing)
        case .postsReplaced(let poster, let name, let object, let coalescing):
            begin(.postsReplaced, poster)
            records.append(name)
            records.append(object)
            records.append(coalescing)
        case .postsWithdrawn(let poster, let name, let object):
            begin(.postsWithdrawn, poster)
            records.append(name)
            records.append(object)
        case .postTaken(let poster, let style):
            begin(.postTaken, poster)
            records.append(style.rawValue)
        case .excess(let key, let excess):
            records.append(RecordKind.excess.rawValue)
            records.append(key.rawValue)
            records.append(UInt64(excess.amount))
            records.append(UInt64(excess.limit))
        }
    }

    /// Appends a list of observers of a client (``ListCoding``).
    private mutating func append(_ observers: [ObserverID], of client: ClientName, to records: inout RecordGroup) {
        let isLong = observers.count >= ListCoding.long
        guard !isLong || lists[client] != observers else { return records.append(ListCoding.again.rawValue) }
        if isLong { lists[client] = observers }
        records.append(ListCoding.whole.rawValue)
        records.append(observers.lazy.map(\.rawValue))
    }

    /// Appends the record of a notification, unless it was the last one.
    private mutating func encode(_ notification: Notification, to records: inout RecordGroup) {
        guard notification.serial != lastNotification else { return }
        lastNotification = notification.serial
        records.beginRecord()
        records.append(RecordKind.notification.rawValue)
        records.append(notification)
        records.endRecord()
    }
}
