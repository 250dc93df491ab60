// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The store of a center's state that survives the service's process (E3): registrations, suspensions, the queues of
/// clients and posters, and counters.
///
/// The state belongs to one bus, identified by the bus's own id, because on another bus the same unique names are other
/// clients. A bus never assigns a unique name twice, so restored state can't reach another client.
///
/// The state is kept in a log of its own format. It is small, can be rewritten from memory at any time, and is read
/// once, when the service starts after a crash. An embedded database would need a transaction for every held
/// notification, a dependency on every machine, and more memory than the rest of the service.
///
/// When an operation fails, for example because the disk is full, the store reports that and suspends itself. It leaves
/// no file behind that would restore a wrong state, and the service goes on without the store. With later events the
/// store tries again, at growing intervals, and writes all state from the center when it can.
///
/// Threads: one at a time. File operations may block.
final class RecoveryStore {
    /// The extent of the state that is kept.
    private enum Extent: Equatable {
        case whole
        /// Registrations, suspensions and counters. Together with the queues the state would be too large.
        case withoutQueues
        /// Nothing, until this time on the store's clock.
        case nothing(until: Duration)
    }

    /// The numbers that are reserved at a time; each reservation is a write to the log.
    private static let block: UInt64 = 4096
    /// The numbers that are reserved when the store suspends itself, because a suspended store can reserve none.
    private static let largeBlock: UInt64 = 1 << 32
    /// The size of a log, in bytes, up to which it is not rewritten, unless ``limit`` is smaller.
    private static let smallSize = 1 << 20
    /// The size of pending records, in bytes, at which they are written, also in the middle of an event.
    private static let maxPending = 4 << 20
    private static let firstWait = Duration.seconds(2)
    private static let longestWait = Duration.seconds(64)

    private let directory: String
    private let files: any StateFiles
    private let busID: String
    private let address: String
    private let path: String
    private let counters: RecoveryCounters
    private let report: (String) -> Void
    private let now: () -> Duration
    private var log: RecoveryLog?
    private var encoder = ChangeEncoder()
    /// The records of the current event that have not been written.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var pending = RecordGroup()
    private var slots: [ClientName: UInt32] = [:]
    /// The slots of clients whose sequence numbers were needed lately.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var knownSlots = ClientTable<UInt32>()
    /// The number of a client's last sequence numbers that do not count as carried, independent of later confirmations.
    private var withheld: [ClientName: UInt64] = [:]
    private var uncounted = UncountedClients()
    private var extent = Extent.whole
    /// Whether a crash would lose the queues, because the state with them is too large.
    var isWithoutQueues: Bool { extent == .withoutQueues }
    /// Whether all state is kept.
    var isWhole: Bool { extent == .whole }
    private var wait = RecoveryStore.firstWait
    /// The size of the log after it was last rewritten.
    private var rewrittenSize = 0
    /// The rewriting of the log, part by part, with its extent. `isSecond`: whether an attempt with queues has failed
    /// before.
    private var rewriting: (work: LogRewriting, extent: Extent, isSecond: Bool)?
    /// The maximum size of the log, in bytes (`state-bytes`).
    private var limit: Int
    private var reserved = (serial: UInt64(0), observer: UInt64(0))

    /// Whether nothing is kept at the moment.
    var isSuspended: Bool { if case .nothing = extent { true } else { false } }

    /// Opens the store of a bus.
    ///
    /// - Parameters:
    ///   - directory: the directory of the files, private to the user; created if it does not exist.
    ///   - files: the file system that has the directory.
    ///   - busID: the result of the bus's method `GetId`.
    ///   - address: the address of the bus, by which a later process finds out whether the bus still exists.
    ///   - limits: the limits of the center.
    ///   - takesLock: see ``RecoveryLog``.
    ///   - now: a monotonic clock.
    ///   - report: called with a line for each failure to restore or keep state.
    /// - Throws: ``FileError`` with `EWOULDBLOCK` when another process has the state. Every other error suspends the
    ///   store.
    init(
        directory: String, in files: any StateFiles = SystemFiles(), busID: String, address: String = "",
        limits: Limits = Limits(), takesLock: Bool = true, now: @escaping () -> Duration = monotonicTime,
        report: @escaping (String) -> Void = { Log.warning($0) }
    ) throws(FileError) {
        self.directory = directory
        self.files = files
        self.busID = busID
        self.address = address
        path = "\(directory)/\(busID).log"
        counters = RecoveryCounters(path: "\(directory)/\(busID).counts", in: files)
        limit = Int(limits[.stateBytes])
        self.now = now
        self.report = report
        do throws(FileError) {
            try files.makeDirectory(directory)
            log = try RecoveryLog(path: path, in: files, takesLock: takesLock)
            try counters.takeUp()
        } catch {
            if error.code == EWOULDBLOCK { throw error }
            suspend(error)
        }
    }

    // MARK: Restoring

    /// Replays the state of an earlier process into `center`, which is new, and rewrites the log from there.
    ///
    /// - Returns: the number of restored clients, which have to be watched:
    ///   ``DistributedCenter/finishRestoring(effects:)``.
    func restore(into center: DistributedCenter) -> Int {
        AbandonedState.remove(in: directory, of: files, except: busID, address: address, atMost: limit)
        guard let log, !isSuspended else { return 0 }
        var decoder = ChangeDecoder()
        var misfits = 0
        var isDamaged = false
        var hasQueues = true
        var used = (serial: UInt64(0), observer: UInt64(0))
        do throws(FileError) {
            // All whole records are read, independent of the current limit. A lowered limit, or a configuration that
            // can't be read at the moment, does not lose the existing state.
            let rest = try log.read { record in
                let content = try? decoder.decode(record) { client, slot, written in
                    takeSlot(slot, for: client, written: written, hasQueues: hasQueues)
                }
                switch content {
                case nil: return false
                case .part, .bus: break
                case .queuesUnkept: hasQueues = false
                case .numbers(let serial, let observer): used = (serial, observer)
                case .change(let change) where change.isOfQueues && !hasQueues: break
                case .change(let change):
                    if case .clientGone(let name) = change, let slot = slots.removeValue(forKey: name) {
                        counters.free(slot)
                    }
                    if !center.restore(change) { misfits += 1 }
                }
                return true
            }
            if rest > 0 {
                isDamaged = true
                report("discarded the last \(rest) bytes of the state of an earlier carillond, which are corrupt")
            }
        } catch {
            isDamaged = true
            report("discarded the state of an earlier carillond, which can't be read: \(error)")
        }
        if misfits > 0 {
            isDamaged = true
            report("discarded \(misfits) changes in the state of an earlier carillond, which are inconsistent")
        }
        if isDamaged {
            // The discarded bytes may hold a client's last suspension.
            #if CARILLON_PLANTED
                let isTold = !PlantedFault.strikes(.damageUntold)
            #else
                let isTold = true
            #endif
            if isTold { center.markSuspensionsUnacked() }
            // They may also hold the last numbers, so the numbers continue from the current time in microseconds. No
            // service assigns a number for each microsecond.
            #if CARILLON_PLANTED
                let mayPassOver = !PlantedFault.strikes(.damageReusesNumbers)
            #else
                let mayPassOver = true
            #endif
            let passedOver = mayPassOver ? UInt64(max(0, center.clock.time())) : 0
            used = (max(used.serial, passedOver), max(used.observer, passedOver))
        }
        center.restoreNumbers(lastSerial: used.serial, lastObserver: used.observer)
        if !hasQueues, counters.earlierPosts > 0 {
            center.countLostPosts(counters.earlierPosts)
            report(
                """
                \(counters.earlierPosts) posts in posters' queues were lost with an earlier carillond, because its \
                state exceeded state-bytes
                """)
        }
        // The log is written first: it records possible losses before the counters forget them.
        attempt { () throws(FileError) in try rewrite(from: center, countsFirst: hasQueues) }
        for (client, slot) in slots {
            let waiting = extent == .withoutQueues ? center.waiting(for: client) : 0
            attempt { () throws(FileError) in
                try counters.set(
                    center.announcedCounts(of: client) ?? ClientCounts(), waiting: waiting, of: client, in: slot)
            }
        }
        let waitingPosts = extent == .withoutQueues ? center.queuedPosts : 0
        attempt { () throws(FileError) in try counters.setWaitingPosts(UInt64(waitingPosts)) }
        return slots.count
    }

    private func takeSlot(
        _ slot: UInt32, for client: ClientName, written: ClientCounts, hasQueues: Bool
    ) -> ClientCounts? {
        guard slots[client] == nil, counters.reserve(slot) else { return nil }
        slots[client] = slot
        return counters.counts(of: client, in: slot, written: written, hasQueues: hasQueues)
    }

    // MARK: Keeping

    /// Reserves numbers if the center has assigned numbers beyond the reservation. Call before the effects of an event
    /// are carried out.
    func reserveNumbers(of center: DistributedCenter) {
        let last = center.lastNumbers
        guard last.serial > reserved.serial || last.observer > reserved.observer, !isSuspended else { return }
        reserved = (last.serial + Self.block, last.observer + Self.block)
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &pending)
    }

    /// Writes all changes of an event that must survive the process. Call before any effect of the event leaves the
    /// process. A crash before the write leaves the state before the event. A crash after it leaves a gap in the
    /// sequence that is announced, but no number that is assigned twice.
    func keep(_ effects: [Effect]) {
        for effect in effects {
            switch effect {
            case .deliver(let delivery):
                countDelivery(
                    to: delivery.client, delivery.clientNumber, sequence: delivery.sequence,
                    serial: Self.serial(of: delivery))
            case .deliverTogether(let client, let batch):
                // The bus carries the whole batch or nothing of it, so all its numbers are counted with the last one.
                guard let last = batch.last else { preconditionFailure("nobody is sent nothing") }
                countDelivery(
                    to: client, last.clientNumber, sequence: last.sequence, serial: Self.serial(of: last))
            case .dropped(let client, _, _, _, let sequence): countLoss(of: client, sequence: sequence)
            case .possibleLoss(let client, let count): withhold(count, of: client)
            case .remember(let change): remember(change)
            case .export, .exportEnded, .suspensionChanged, .revoked, .interestChanged, .valuesRemoved, .probe,
                .backlogProbe, .sendAnswer,
                .probeReplies, .probeReplyBacklog, .sendReply,
                .startInactivityTimer, .startIntervalTimer, .overflowed, .watch, .watchDeparture, .forget:
                break
            }
        }
        flush()
    }

    /// Returns the serial of a delivery from the client's queue; 0 for others. A retained value, or a notification that
    /// was delayed by an interval, did not come from the queue. Its delivery must not remove a queued notification with
    /// the same serial.
    private static func serial(of delivery: Delivery) -> UInt64 {
        delivery.isRetained || delivery.isDelayed ? 0 : delivery.notification.serial
    }

    /// Adds a change to the pending records. It survives the process when ``flush()`` has returned, together with all
    /// earlier changes.
    func remember(_ change: Change) {
        attempt { () throws(FileError) in
            if case .client(let name, let counts) = change, slots[name] == nil {
                let slot = counters.allocate()
                slots[name] = slot
                try counters.set(counts, of: name, in: slot)
            }
        }
        defer {
            if case .clientGone(let name) = change, let slot = slots.removeValue(forKey: name) {
                counters.free(slot)
                knownSlots.removeAll()
                uncounted.remove(name)
                withheld[name] = nil
            }
        }
        if countsWaiting, let client = change.clientWhoseQueueChanges { uncounted.touch(client) }
        switch extent {
        case .nothing: return
        case .whole: break
        case .withoutQueues:
            // A log without queues has no use for the change, but the log that is being written does.
            guard !change.isOfQueues || rewriting?.extent == .whole else { return }
        }
        encoder.encode(change, slot: { slots[$0] ?? 0 }, to: &pending)
        if pending.byteCount > Self.maxPending { flush() }
    }

    /// Releases the memory of clients that are gone (E8).
    func releaseMemory() {
        slots.releaseMemory()
        knownSlots.removeAll()
        withheld.releaseMemory()
        uncounted.releaseMemory()
    }

    /// Writes all pending counts and records. Call before any effect of them leaves the process.
    ///
    /// The counts are written first. A crash between the two writes then leaves announced numbers that were not used,
    /// and keeps a notification that was removed from a queue to be sent.
    func flush() {
        if counters.hasChanges { attempt { () throws(FileError) in try counters.writeCounts() } }
        guard !pending.isEmpty else { return }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.lateLog), pending.byteCount < 2048 { return }
        #endif
        attempt { () throws(FileError) in try log?.append(pending) }
        pending.removeAll()
    }

    /// Counts a notification that is sent with this number after ``flush()``.
    ///
    /// - Parameters:
    ///   - number: the small number of the client; nil where it is not known.
    ///   - sequence: the sequence number of the notification.
    ///   - serial: the serial of the notification; 0 if it did not come from the client's queue.
    func countDelivery(to client: ClientName, _ number: Int? = nil, sequence: UInt64, serial: UInt64) {
        count(sequence, serial: serial, of: client, number)
    }

    /// Counts a loss, up to this sequence number, that is reported to the client after ``flush()``.
    func countLoss(of client: ClientName, sequence: UInt64) {
        count(sequence, serial: 0, of: client, nil)
    }

    private func slot(of client: ClientName, _ number: Int?) -> UInt32? {
        guard let number else { return slots[client] }
        if let slot = knownSlots[client, number] { return slot }
        let slot = slots[client]
        knownSlots[client, number] = slot
        return slot
    }

    private func count(_ sequence: UInt64, serial: UInt64, of client: ClientName, _ number: Int?) {
        guard let slot = slot(of: client, number) else { return }
        if countsWaiting { uncounted.touch(client) }
        counters.count(sequence, serial: serial, in: slot)
    }

    /// Counts messages that the bus has carried. The count survives the process after ``flush()``.
    func confirm(_ sent: DeliveryReceipts.Sent, of client: ClientName) {
        guard let slot = slots[client] else { return }
        counters.confirm(
            sent.sequence, delivered: sent.delivered, dropped: sent.dropped, withholding: withheld[client] ?? 0,
            in: slot)
    }

    /// Records that the client may not have got its last `count` numbers, because the bus refused the messages, and
    /// that this is unreported. If the process ended now, the next one would have to report the loss. 0 ends this.
    func withhold(_ count: UInt64, of client: ClientName) {
        guard let slot = slots[client] else { return }
        withheld[client] = count > 0 ? count : nil
        if count > 0 { counters.withhold(count, in: slot) }
    }

    /// Ends an event: writes its changes, and rewrites the log when most of it is obsolete. Call when all changes of
    /// the event have been passed to ``remember(_:)``.
    func tidy(from center: DistributedCenter) {
        flush()
        limit = Int(center.limit(.stateBytes))
        switch extent {
        case .nothing(let until): if now() >= until { resume(from: center) }
        case .whole where rewriting == nil && !isLong: break
        case .whole, .withoutQueues:
            attempt { () throws(FileError) in
                try noteWaiting(in: center)
                if rewriting != nil || isLong { try rewritePart(of: center) }
            }
        }
    }

    /// Whether the log is to be rewritten. Either as much of it is obsolete as it has to hold, so that rewriting costs
    /// no more than appending did, or it has reached the limit.
    private var isLong: Bool {
        guard let log else { return false }
        return log.size > min(2 * rewrittenSize + Self.smallSize, limit)
    }

    /// Tries once more to keep the state before the process ends, if the store is suspended, without waiting for the
    /// retry time.
    func tryAgain(from center: DistributedCenter) {
        guard case .nothing(let until) = extent, until < Self.never else { return }
        resume(from: center, isLast: true)
    }

    /// Rewrites the log for the end of the process. The log then holds as little as possible, but no less than after a
    /// crash.
    func finish(from center: DistributedCenter) {
        flush()
        giveUpRewriting()
        guard !isSuspended else { return }
        let isInLog = log != nil && extent == .whole
        attempt { () throws(FileError) in
            try noteWaiting(in: center)
            do throws(FileError) {
                try rewrite(
                    from: center, numbers: (center.lastSerial, center.lastObserver),
                    mayGiveUpQueues: !isInLog)
            } catch {
                // The log holds all state, which exceeds the permanent limit, or the space on disk for a second copy.
                if case .tooLarge = error.reason, isInLog { return }
                guard error.isDiskFull, isInLog || extent == .withoutQueues else { throw error }
            }
        }
    }

    /// Removes the state, because its bus and all clients are gone.
    func remove() {
        giveUpRewriting()
        log?.remove()
        counters.remove()
    }

    // MARK: Rewriting

    /// Continues to rewrite the log, or begins to, within the work slice of one event.
    ///
    /// Rewriting ends in time. The log may grow by a quarter of the limit meanwhile. The state has two thirds of the
    /// limit at most and is written at four times the rate of appending, so the log grows by a sixth of the limit
    /// meanwhile. Copying the appended bytes takes less than the rest.
    private func rewritePart(of center: DistributedCenter) throws(FileError) {
        let maxSize = limit / 4 * (rewriting?.isSecond == true ? 6 : 5)
        guard let log, log.size <= maxSize else { return try rewrite(from: center) }
        do throws(FileError) {
            if rewriting == nil {
                // Changes that are made in parts are remembered with their last part, and until then the old log has
                // the state before them. The log must not grow without bound while clients keep making such changes.
                guard !center.isAnythingInParts || log.size > limit / 8 * 9 else { return }
                let extent = extent == .whole || mayHaveQueues(center) ? Extent.whole : .withoutQueues
                try beginRewriting(log, extent, of: center)
            }
            guard let (work, extent, _) = rewriting else { return }
            guard uncounted.areOnlyTouched else { return work.wait() }
            guard try work.goOn(atMost: maxRewritten) else { return }
            rewriting = nil
            rewrittenSize = work.size
            kept(extent)
        } catch {
            let wasWhole = rewriting?.extent == .whole
            giveUpRewriting()
            guard case .tooLarge = error.reason, wasWhole else { throw error }
            try beginRewriting(log, .withoutQueues, of: center, isSecond: true)
        }
    }

    private func beginRewriting(
        _ log: RecoveryLog, _ extent: Extent, of center: DistributedCenter, isSecond: Bool = false
    ) throws(FileError) {
        try counters.mend()
        encoder = ChangeEncoder()
        let work = try LogRewriting(
            of: log, snapshot: center.snapshot(withQueues: extent == .whole), slots: slots,
            isWanted: { change in extent == .whole || !change.isOfQueues },
            head: { appendHead(extent, to: &$0) })
        rewriting = (work, extent, isSecond)
        if extent == .withoutQueues, self.extent != extent { uncounted.begin(slots.keys) }
    }

    private func giveUpRewriting() {
        uncounted.begin([])
        rewriting.take()?.work.giveUp()
    }

    /// Records the extent of the state that the log has from now on.
    ///
    /// - Parameter reason: the reason why it is not all of the state; nil where the state exceeds the limit.
    private func kept(_ new: Extent, because reason: String? = nil) {
        guard new != extent else { return }
        extent = new
        guard new == .withoutQueues else { return Log.notice("the queues of clients and posters are saved again") }
        report(
            """
            \(reason ?? "the state exceeds state-bytes (\(limit))"): queues of clients and posters are not saved, so a \
            crash of the service would lose them
            """)
    }

    private func appendHead(_ extent: Extent, to group: inout RecordGroup) {
        encoder.bus(address: address, to: &group)
        if extent == .withoutQueues { encoder.queuesUnkept(to: &group) }
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &group)
    }

    /// The maximum size of a rewritten log, in bytes.
    private var maxRewritten: Int { limit / 3 * 2 }

    /// Whether the unkept queues have become small enough to be kept again.
    private func mayHaveQueues(_ center: DistributedCenter) -> Bool {
        let statistics = center.statistics
        return Int(clamping: statistics.queuedBytes + statistics.queuedPostBytes) < limit / 4
    }

    /// Rewrites the log at once, with all state if that is at most two thirds of the limit, otherwise without queues.
    ///
    /// - Parameters:
    ///   - numbers: the last numbers to record; nil to reserve further ones.
    ///   - countsFirst: whether the lengths of the queues are counted before a log without queues takes the place of a
    ///     log with them. False while the counts of an earlier process are still needed.
    ///   - mayGiveUpQueues: whether the log is written without queues if it is too large with them.
    private func rewrite(
        from center: DistributedCenter, numbers: (serial: UInt64, observer: UInt64)? = nil, countsFirst: Bool = true,
        mayGiveUpQueues: Bool = true
    ) throws(FileError) {
        // The attempt with queues has failed already.
        let isTooLarge = rewriting?.isSecond == true
        giveUpRewriting()
        pending.removeAll()
        reserved = numbers ?? (center.lastSerial + Self.block, center.lastObserver + Self.block)
        try counters.mend()
        if !isTooLarge, extent == .whole || mayHaveQueues(center) {
            do throws(FileError) {
                try write(center, .whole)
                return kept(.whole)
            } catch {
                guard case .tooLarge = error.reason, mayGiveUpQueues else { throw error }
            }
        }
        if countsFirst, extent != .withoutQueues { try count(slots.keys, in: center) }
        try write(center, .withoutQueues)
        kept(.withoutQueues)
    }

    private func write(_ center: DistributedCenter, _ extent: Extent) throws(FileError) {
        encoder = ChangeEncoder()
        let most = maxRewritten
        func records(_ log: RecoveryLog.NewLog) throws(FileError) {
            appendHead(extent, to: &log.group)
            var failure: FileError?
            center.forEachRememberedChange { change in
                guard failure == nil, extent == .whole || !change.isOfQueues else { return }
                encoder.encode(change, slot: { slots[$0] ?? 0 }, to: &log.group)
                do throws(FileError) {
                    guard log.size <= most else { throw log.tooLarge(limit: most) }
                    try log.recordEnded()
                } catch {
                    failure = error
                }
            }
            if let failure { throw failure }
        }
        if log == nil {
            // There was no place for a log so far. Another process may have found one since.
            do throws(FileError) {
                log = try RecoveryLog(path: path, in: files)
            } catch {
                if error.code == EWOULDBLOCK { throw error }
            }
        }
        if let log {
            try log.replace(with: records)
        } else {
            log = try RecoveryLog(path: path, in: files, records: records)
        }
        rewrittenSize = log?.size ?? 0
    }

    /// Whether the lengths of the queues are counted, because the log has no queues or the next log will have none. The
    /// counts have no effect while the log has queues.
    private var countsWaiting: Bool { extent == .withoutQueues || rewriting?.extent == .withoutQueues }

    /// Counts the queues of the clients whose queues may have changed, and of some clients that were not counted
    /// before.
    private func noteWaiting(in center: DistributedCenter) throws(FileError) {
        guard countsWaiting else { return uncounted.removeAll() }
        try count(uncounted.next(), in: center)
    }

    private func count(_ clients: some Sequence<ClientName>, in center: DistributedCenter) throws(FileError) {
        for client in clients {
            guard let slot = slots[client] else { continue }
            try counters.setWaiting(center.waiting(for: client), in: slot)
        }
        try counters.writeCounts()
        try counters.setWaitingPosts(UInt64(center.queuedPosts))
    }

    // MARK: Failure and retry

    private func attempt(_ body: () throws(FileError) -> Void) {
        guard !isSuspended else {
            // A suspended store goes on counting in memory. There is no file that could fail.
            return (try? body()) ?? ()
        }
        do throws(FileError) {
            try body()
        } catch {
            suspend(error)
        }
    }

    private func suspend(_ error: FileError) {
        giveUpRewriting()
        counters.suspend()
        pending.removeAll()
        uncounted.removeAll()
        leaveNumbers()
        extent = .nothing(until: retryTime(after: error))
        report(
            "the state can't be saved, so a crash of the service would lose registrations; retrying later: \(error)")
    }

    /// Returns the time of the next attempt. A store whose place another process has taken never tries again.
    private func retryTime(after error: FileError) -> Duration {
        error.code == ESTALE || error.code == EWOULDBLOCK ? Self.never : now() + wait
    }

    private static let never = Duration.seconds(Int64.max / 2)

    /// Reduces the log to the numbers, because partial state would restore a wrong state. The numbers stay, so that
    /// none is assigned twice. The lock stays as well, because no other process may take the state before this one has
    /// ended.
    private func leaveNumbers() {
        var numbers = RecordGroup()
        encoder.bus(address: address, to: &numbers)
        reserved.serial += Self.largeBlock
        reserved.observer += Self.largeBlock
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &numbers)
        log?.reduce(to: numbers)
    }

    /// Writes all state, or the state without queues if the disk has no space for all of it.
    private func rewriteAsFarAsFits(from center: DistributedCenter) throws(FileError) {
        do throws(FileError) {
            try rewrite(from: center)
        } catch {
            guard error.isDiskFull, extent == .whole else { throw error }
            try count(slots.keys, in: center)
            try write(center, .withoutQueues)
            kept(.withoutQueues, because: "the disk has no space for all of the state (\(error))")
        }
    }

    /// Tries to keep the state again.
    ///
    /// - Parameter isLast: whether the process is ending. A part of the state is then better than nothing.
    private func resume(from center: DistributedCenter, isLast: Bool = false) {
        wait = min(wait * 2, Self.longestWait)
        do throws(FileError) {
            try files.makeDirectory(directory)
            try counters.replace()
            reserved = (center.lastSerial, center.lastObserver)
            extent = .whole
            try isLast ? rewriteAsFarAsFits(from: center) : rewrite(from: center)
            Log.notice("the state is saved again")
            wait = Self.firstWait
        } catch {
            counters.suspend()
            leaveNumbers()
            extent = .nothing(until: retryTime(after: error))
            Log.info("the state still can't be saved: \(error)")
        }
    }
}

extension FileError {
    /// Whether the disk is full, or the file can't grow.
    fileprivate var isDiskFull: Bool { [ENOSPC, EDQUOT, EFBIG].contains(code) }
}

/// Returns the time since a fixed moment before the process began.
private func monotonicTime() -> Duration {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Duration.seconds(time.tv_sec) + Duration.nanoseconds(time.tv_nsec)
}
