import MainLoop
import NotificationCore

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The state of a center that outlives the service's process (E3): registrations, suspensions, queues of clients and of
/// posters, counts.
///
/// It belongs to one bus, by the bus's own id: on another bus the same unique names are other clients. On one bus a
/// unique name is never given twice, so what comes back can't reach a stranger.
///
/// Why a log of our own: what is kept is small, rewritten from memory at any time, and read once, when the service
/// starts after a crash. An embedded database would do that as well, with a transaction for every held notification,
/// a dependency on every machine, and more memory than the rest of the service.
///
/// When anything fails (the disk is full, say) the store says so once in the log and does nothing from then on: the
/// service goes on without.
final class RecoveryStore {
    private let log: RecoveryLog
    private let counters: RecoveryCounters
    private var encoder = ChangeEncoder()
    private var slots: [ClientName: UInt32] = [:]
    /// The size of the log when it was last written anew.
    private var rewrittenSize = 0
    /// A log up to this size is left alone.
    private static let smallSize = 1 << 20
    private(set) var hasFailed = false
    private let report: (String) -> Void

    /// Opens the store of a bus.
    ///
    /// - Parameters:
    ///   - directory: private to the user; made if it does not exist.
    ///   - busID: what the bus's method `GetId` answers.
    ///   - report: gets a line for each thing that could not be taken up or kept.
    init(
        directory: String, busID: String, report: @escaping (String) -> Void = { Log.warning($0) }
    ) throws(RecoveryLog.Failure) {
        self.report = report
        if mkdir(directory, 0o700) != 0 && errno != EEXIST {
            throw RecoveryLog.Failure(operation: "make \(directory)", code: errno)
        }
        log = try RecoveryLog(path: "\(directory)/\(busID).log")
        counters = try RecoveryCounters(path: "\(directory)/\(busID).counts")
    }

    /// Replays what an earlier process left into `center`, which is new, and starts the log anew from there.
    ///
    /// - Returns: how many clients came back. They have to be watched: ``DistributedCenter/finishRestoring(effects:)``.
    func restore(into center: DistributedCenter) -> Int {
        var decoder = ChangeDecoder()
        var misfits = 0
        attempt {
            () throws(RecoveryLog.Failure) in
            let rest = try log.read { record in
                do throws(RecordReader.Malformed) {
                    guard let change = try decoder.decode(record, counts: { takeSlot($1, for: $0) }) else {
                        return true
                    }
                    if case .clientGone(let name) = change, let slot = slots.removeValue(forKey: name) {
                        counters.free(slot)
                    }
                    if !center.restore(change) { misfits += 1 }
                    return true
                } catch {
                    return false
                }
            }
            if rest > 0 {
                report("the last \(rest) bytes of the state of an earlier carillond are of no use, and ignored")
            }
            if misfits > 0 {
                report("\(misfits) changes in the state of an earlier carillond do not fit, and are ignored")
            }
            center.restoreNumbers(lastSerial: counters.serial, lastObserver: counters.observer)
            try rewrite(from: center)
        }
        return slots.count
    }

    private func takeSlot(_ slot: UInt32, for client: ClientName) -> ClientCounts? {
        guard slots[client] == nil, !slots.values.contains(slot), let counts = counters.counts(in: slot) else {
            return nil
        }
        slots[client] = slot
        counters.reserve(slot)
        return counts
    }

    // MARK: Keeping

    /// Keeps a change. It is safe from the end of the process when this returns.
    func remember(_ change: Change) {
        guard !hasFailed else { return }
        attempt { () throws(RecoveryLog.Failure) in
            switch change {
            case .client(let name, _) where slots[name] == nil: slots[name] = try counters.allocate()
            case .observer(let registration): counters.observer = max(counters.observer, registration.id.rawValue)
            case .queuedDue(_, let notification, _, _), .held(_, let notification, _, _):
                counters.serial = notification.serial
            default: break
            }
            try write(change) { record throws(RecoveryLog.Failure) in try log.append(record) }
            if case .clientGone(let name) = change, let slot = slots.removeValue(forKey: name) { counters.free(slot) }
        }
    }

    func countDelivery(to client: ClientName, sequence: UInt64, serial: UInt64) {
        guard !hasFailed, let slot = slots[client] else { return }
        counters.serial = serial
        counters.countDelivery(sequence, in: slot)
    }

    func countLoss(of client: ClientName, sequence: UInt64, count: UInt64) {
        guard !hasFailed, let slot = slots[client] else { return }
        counters.countLoss(sequence, count, in: slot)
    }

    /// Writes the log anew when most of it is past. Call when all changes so far have been remembered.
    func tidy(from center: DistributedCenter) {
        guard !hasFailed, log.size > Self.smallSize else { return }
        let statistics = center.statistics
        let needed = Int(statistics.queuedBytes + statistics.queuedPostBytes) + 128 * Int(statistics.observers)
        // Writing costs what is needed, so at least as much has to have been appended since the last time.
        guard log.size > Self.smallSize + 2 * needed, log.size > rewrittenSize + needed else { return }
        attempt { () throws(RecoveryLog.Failure) in try rewrite(from: center) }
    }

    /// Leaves as little as possible behind: the process ends.
    func finish(from center: DistributedCenter) {
        guard !hasFailed else { return }
        attempt { () throws(RecoveryLog.Failure) in try rewrite(from: center) }
    }

    /// The bus is gone, and with it everyone this was for.
    func remove() {
        log.remove()
        counters.remove()
    }

    private func rewrite(from center: DistributedCenter) throws(RecoveryLog.Failure) {
        encoder = ChangeEncoder()
        try log.replace { append throws(RecoveryLog.Failure) in
            var failure: RecoveryLog.Failure?
            center.forEachRememberedChange { change in
                do throws(RecoveryLog.Failure) {
                    if failure == nil { try write(change, append) }
                } catch {
                    failure = error
                }
            }
            if let failure { throw failure }
        }
        rewrittenSize = log.size
    }

    private func write(
        _ change: Change, _ append: ([UInt8]) throws(RecoveryLog.Failure) -> Void
    ) throws(RecoveryLog.Failure) {
        var failure: RecoveryLog.Failure?
        encoder.encode(change, slot: { slots[$0] ?? 0 }) { record in
            do throws(RecoveryLog.Failure) {
                if failure == nil { try append(record) }
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
    }

    private func attempt(_ body: () throws(RecoveryLog.Failure) -> Void) {
        do throws(RecoveryLog.Failure) {
            try body()
        } catch {
            hasFailed = true
            // What is half there would bring back the wrong state.
            remove()
            report("state can't be kept, so that a crash of the service would lose registrations: \(error)")
        }
    }
}
