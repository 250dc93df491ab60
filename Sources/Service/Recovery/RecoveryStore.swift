// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The persistence of the core's state, from which the next process continues after a crash (E3): registrations,
/// suspensions, the queues of clients and posters, and counters.
///
/// Two files in the directory have the state of one bus, and its ID in their names:
///
/// - The *log* (`ID.log`, ``RecoveryLog``) has a record for each change of state. Its replay restores the state. When
///   most of it is obsolete, it is rewritten from a snapshot of the core (log compaction).
/// - The *counters* (`ID.counts`, ``RecoveryCounters``) change with every delivery, so they are overwritten in place.
///   Each client has a *slot* there; the log records its index.
///
/// ``EffectRunner`` passes the effects of each event before it carries them out, so the state is written ahead of each
/// message that depends on it. ``CenterDriver`` calls ``tidy(from:)`` at the end of the event.
///
/// If the state exceeds `state-bytes`, the store keeps it without the queues, and only counts their lengths. If an
/// operation fails, for example because the disk is full, the store suspends itself: it leaves no file that would
/// restore a wrong state, and the service runs on. With later events it tries again, at growing intervals, and then
/// writes all state from the core.
///
/// The state belongs to one bus, because on another bus the same unique names are other clients. A bus never assigns a
/// unique name twice, so restored state can't reach another client.
///
/// A log of an own format suffices, because the state is small, is all in memory, and is read only once. An embedded
/// database would need a transaction for each queued notification, and more memory than the rest of the service.
///
/// Threads: one at a time. File operations may block.
final class RecoveryStore {
    /// The part of the state that is kept.
    private enum Extent: Equatable {
        case whole
        /// Registrations, suspensions and counters. Together with the queues the state would be too large.
        case withoutQueues
        /// Nothing: the store is suspended, and tries again at this time on its clock.
        case nothing(until: Duration)
    }

    /// The quantity of numbers that are reserved at a time. A number in use is always below the reservation in the log,
    /// so a crash causes no number to be assigned twice. A reservation per number would cost too many writes.
    private static let block: UInt64 = 4096
    /// The quantity of numbers that are reserved when the store suspends itself, because it can reserve none meanwhile.
    private static let numbersForSuspension: UInt64 = 1 << 32
    /// The size of a log, in bytes, up to which it is not rewritten however little state it has, unless ``limit`` is
    /// smaller.
    private static let smallSize = 1 << 20
    /// The size of pending records, in bytes, at which they are written also in the middle of an event.
    private static let maxPending = 4 << 20
    /// The first and the longest time before a suspended store tries again. The time doubles after each attempt.
    private static let firstWait = Duration.seconds(2)
    private static let longestWait = Duration.seconds(64)

    private let directory: String
    private let files: any StateFiles
    private let busID: String
    private let address: String
    private let path: String
    private let counters: RecoveryCounters
    /// Logs a failure.
    private let report: (String) -> Void
    /// The store's clock.
    private let now: () -> Duration
    /// The log; nil while it could not be opened.
    private var log: RecoveryLog?
    /// The encoder of records for ``log``.
    private var encoder = ChangeEncoder()
    /// The records of the current event that have not been written.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var pending = RecordGroup()
    /// The slot of each client in the counters.
    private var slots: [ClientName: UInt32] = [:]
    /// A cache of ``slots`` by client number, for deliveries.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var knownSlots = ClientTable<UInt32>()
    /// For each client with a possible loss, the quantity of its last sequence numbers that may be lost and are
    /// unreported. They never count as carried, whatever later receipts confirm.
    private var withheld: [ClientName: UInt64] = [:]
    /// The clients whose queue lengths are still to be written into the counters, while the queues are not kept.
    private var uncounted = UncountedClients()
    private var extent = Extent.whole
    /// Whether a crash would lose the queues, because the state with them is too large.
    var isWithoutQueues: Bool { extent == .withoutQueues }
    /// Whether all state is kept.
    var isWhole: Bool { extent == .whole }
    /// The time before the next attempt of a suspended store.
    private var wait = RecoveryStore.firstWait
    /// The size of the log when it was last rewritten, in bytes.
    private var rewrittenSize = 0
    /// The running incremental rewriting of the log, with the extent of the new log. `isSecond`: whether an attempt
    /// with queues was too large before.
    private var rewriting: (work: LogRewriting, extent: Extent, isSecond: Bool)?
    /// The maximum size of the log, in bytes (`state-bytes`).
    private var limit: Int
    /// The numbers up to which the log reserves serials of notifications and numbers of observers. A serial is the
    /// position of a notification among all posts.
    private var reserved = (serial: UInt64(0), observer: UInt64(0))

    /// Whether nothing is kept at the moment.
    var isSuspended: Bool { if case .nothing = extent { true } else { false } }

    /// Opens the files of a bus, or creates them. ``restore(into:)`` follows.
    ///
    /// - Parameters:
    ///   - directory: the directory of the files, private to the user; created if it does not exist.
    ///   - files: the file system that has the directory.
    ///   - busID: the result of the bus's method `GetId`.
    ///   - address: the address of the bus, by which a later process finds out whether the bus still exists.
    ///   - limits: the limits of the center.
    ///   - takesLock: whether to lock the log against other processes (``RecoveryLog``).
    ///   - now: a monotonic clock.
    ///   - report: called with a text for each failure to restore or keep state.
    /// - Throws: ``FileError`` with `EWOULDBLOCK` if another process has the log locked. Any other error is not thrown,
    ///   but suspends the store.
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
            try counters.load()
        } catch {
            if error.code == EWOULDBLOCK { throw error }
            suspend(error)
        }
    }

    // MARK: Restoring

    /// Replays the log of an earlier process into `center`, which is new, and then rewrites the log from its state.
    ///
    /// The caller calls ``DistributedCenter/finishRestoring(effects:)`` later, which watches the restored clients.
    ///
    /// - Returns: the number of restored clients.
    func restore(into center: DistributedCenter) -> Int {
        AbandonedState.remove(in: directory, of: files, except: busID, address: address, atMost: limit)
        guard let log, !isSuspended else { return 0 }
        var decoder = ChangeDecoder()
        // The number of changes that do not fit the state before them.
        var misfits = 0
        var isDamaged = false
        var hasQueues = true
        // The reserved numbers of the earlier process.
        var used = (serial: UInt64(0), observer: UInt64(0))
        do throws(FileError) {
            // All complete records are read, even if the log exceeds the present limit. A lowered limit must not lose
            // the existing state.
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
            // The discarded bytes may have recorded a client's last suspension, so each client is sent its suspension
            // again.
            #if CARILLON_PLANTED
                let resendsSuspensions = !PlantedFault.strikes(.damageUnreported)
            #else
                let resendsSuspensions = true
            #endif
            if resendsSuspensions { center.markSuspensionsUnacked() }
            // They may also have reserved numbers. The numbers therefore continue from the present time in
            // microseconds: no service assigns a million numbers per second, so all earlier numbers are lower.
            #if CARILLON_PLANTED
                let skipsNumbers = !PlantedFault.strikes(.damageReusesNumbers)
            #else
                let skipsNumbers = true
            #endif
            let skippedNumbers = skipsNumbers ? UInt64(max(0, center.clock.time())) : 0
            used = (max(used.serial, skippedNumbers), max(used.observer, skippedNumbers))
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
        // The log is written before the counters are reset. It then records the possible losses, which the old counters
        // show.
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

    /// Assigns a restored client the slot that its record names. Returns the client's counters: those in the slot, or
    /// else `written`, those in the record. Nil if the slot is in use, so that the record is corrupt.
    private func takeSlot(
        _ slot: UInt32, for client: ClientName, written: ClientCounts, hasQueues: Bool
    ) -> ClientCounts? {
        guard slots[client] == nil, counters.reserve(slot) else { return nil }
        slots[client] = slot
        return counters.counts(of: client, in: slot, written: written, hasQueues: hasQueues)
    }

    // MARK: Keeping

    /// Adds a record that reserves further numbers, if the core has assigned numbers beyond the reservation. Call
    /// before the effects of an event are carried out.
    func reserveNumbers(of center: DistributedCenter) {
        let last = center.lastNumbers
        guard last.serial > reserved.serial || last.observer > reserved.observer, !isSuspended else { return }
        reserved = (last.serial + Self.block, last.observer + Self.block)
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &pending)
    }

    /// Writes the changes and the sequence numbers of an event. Call before an effect of the event leaves the process.
    ///
    /// After a crash before the write, the next process has the state before the event. After a crash between the write
    /// and the sending, it reports the numbered notifications as lost. No sequence number is used twice.
    func keep(_ effects: [Effect]) {
        for effect in effects {
            switch effect {
            case .deliver(let delivery):
                countDelivery(
                    to: delivery.client, delivery.clientNumber, sequence: delivery.sequence,
                    serial: Self.serial(of: delivery))
            case .deliverTogether(let client, let batch):
                // The bus carries the whole batch or nothing of it, so it is enough to write its last number.
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

    /// Returns the serial of a notification that left the client's queue of due notifications; 0 for others.
    ///
    /// After a crash, the next process removes the notifications up to this serial from the queue in the log. A
    /// retained value, or a throttled notification, did not come from this queue, so its serial must not remove
    /// anything there.
    private static func serial(of delivery: Delivery) -> UInt64 {
        delivery.isRetained || delivery.isDelayed ? 0 : delivery.notification.serial
    }

    /// Adds a change to the pending records. ``flush()`` writes it, together with all earlier changes.
    func remember(_ change: Change) {
        // A new client gets a slot.
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
        if countsQueueLengths, let client = change.clientWhoseQueueChanges { uncounted.touch(client) }
        switch extent {
        case .nothing: return
        case .whole: break
        case .withoutQueues:
            // A log without queues omits changes of queues, unless a new log with queues is being written: that one
            // copies these records.
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

    /// Writes all pending counters and records. Call before an effect of them leaves the process.
    ///
    /// The counters are written first. After a crash between the two writes, the next process takes the new sequence
    /// numbers as used, and reports them as lost. In the other order it would not know that a notification, which the
    /// log has already removed from a queue, was lost.
    func flush() {
        if counters.hasChanges { attempt { () throws(FileError) in try counters.writeCounts() } }
        guard !pending.isEmpty else { return }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.lateLog), pending.byteCount < 2048 { return }
        #endif
        attempt { () throws(FileError) in try log?.append(pending) }
        pending.removeAll()
    }

    /// Records that a sequence number of a client is used. The notification with it is sent after ``flush()``.
    ///
    /// - Parameters:
    ///   - number: the core's small number of the client; nil where it is not known.
    ///   - sequence: the sequence number.
    ///   - serial: the serial of the notification; 0 if it did not come from the client's queue.
    func countDelivery(to client: ClientName, _ number: Int? = nil, sequence: UInt64, serial: UInt64) {
        count(sequence, serial: serial, of: client, number)
    }

    /// Records that a report of losses uses the sequence numbers up to this one. The report is sent after ``flush()``.
    func countLoss(of client: ClientName, sequence: UInt64) {
        count(sequence, serial: 0, of: client, nil)
    }

    /// Returns the slot of a client, from the cache if its small number is given.
    private func slot(of client: ClientName, _ number: Int?) -> UInt32? {
        guard let number else { return slots[client] }
        if let slot = knownSlots[client, number] { return slot }
        let slot = slots[client]
        knownSlots[client, number] = slot
        return slot
    }

    private func count(_ sequence: UInt64, serial: UInt64, of client: ClientName, _ number: Int?) {
        guard let slot = slot(of: client, number) else { return }
        if countsQueueLengths { uncounted.touch(client) }
        counters.count(sequence, serial: serial, in: slot)
    }

    /// Records messages that the bus has carried, so that they are no possible losses after a crash. ``flush()`` writes
    /// it.
    func confirm(_ sent: DeliveryReceipts.Sent, of client: ClientName) {
        guard let slot = slots[client] else { return }
        counters.confirm(
            sent.sequence, delivered: sent.delivered, dropped: sent.dropped, withholding: withheld[client] ?? 0,
            in: slot)
    }

    /// Records that a client may not have received its last `count` numbers, because the bus refused the messages, and
    /// that this loss is not reported yet. After a crash the next process reports it. 0 means that the loss is
    /// reported.
    func withhold(_ count: UInt64, of client: ClientName) {
        guard let slot = slots[client] else { return }
        withheld[client] = count > 0 ? count : nil
        if count > 0 { counters.withhold(count, in: slot) }
    }

    /// Ends an event: writes its changes, continues or begins to rewrite a long log, and lets a suspended store try
    /// again.
    func tidy(from center: DistributedCenter) {
        flush()
        // The limit may have been reloaded.
        limit = Int(center.limit(.stateBytes))
        switch extent {
        case .nothing(let until): if now() >= until { resume(from: center) }
        case .whole where rewriting == nil && !isLong: break
        case .whole, .withoutQueues:
            attempt { () throws(FileError) in
                try writeQueueLengths(in: center)
                if rewriting != nil || isLong { try rewritePart(of: center) }
            }
        }
    }

    /// Whether the log is to be rewritten: it has more than twice its size after the last rewriting and 1 MiB, or it
    /// has reached the limit. Rewriting thus costs no more than appending did.
    private var isLong: Bool {
        guard let log else { return false }
        return log.size > min(2 * rewrittenSize + Self.smallSize, limit)
    }

    /// Lets a suspended store try again before its time, because the process ends. A store whose file another process
    /// has replaced stays suspended.
    func tryAgain(from center: DistributedCenter) {
        guard case .nothing(let until) = extent, until < Self.never else { return }
        resume(from: center, isLast: true)
    }

    /// Rewrites the log for the end of the process, so that it is as small as possible and records the exact last
    /// numbers. If the new log is too large or the disk is full, the present log stays, which has the state as after a
    /// crash.
    func finish(from center: DistributedCenter) {
        flush()
        giveUpRewriting()
        guard !isSuspended else { return }
        let isInLog = log != nil && extent == .whole
        attempt { () throws(FileError) in
            try writeQueueLengths(in: center)
            do throws(FileError) {
                try rewrite(
                    from: center, numbers: (center.lastSerial, center.lastObserver),
                    mayGiveUpQueues: !isInLog)
            } catch {
                // The present log has all state, and stays. A rewritten one would exceed two thirds of the limit.
                if case .tooLarge = error.reason, isInLog { return }
                // The present log also stays if the disk has no space for a second one.
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

    /// Continues to rewrite the log incrementally, or begins to, within the work of one event.
    ///
    /// Meanwhile the old log may grow beyond the limit by a quarter, and by a half if the first attempt was too large.
    /// That is enough: the snapshot has at most two thirds of the limit and is written at four times the rate of
    /// appending, so the log grows by a sixth of the limit until then. Copying the appended records takes less than the
    /// rest. If the log grows more nevertheless, it is rewritten at once.
    private func rewritePart(of center: DistributedCenter) throws(FileError) {
        let maxSize = limit / 4 * (rewriting?.isSecond == true ? 6 : 5)
        guard let log, log.size <= maxSize else { return try rewrite(from: center) }
        do throws(FileError) {
            if rewriting == nil {
                // A removal in slices is logged with its last slice, and a snapshot before that would have a part of
                // it. Rewriting therefore begins later, but not if the log has grown to nine eighths of the limit.
                guard !center.isRemovalInSlices || log.size > limit / 8 * 9 else { return }
                let extent = extent == .whole || mayHaveQueues(center) ? Extent.whole : .withoutQueues
                try beginRewriting(log, extent, of: center)
            }
            guard let (work, extent, _) = rewriting else { return }
            // A log without queues is finished only when the queue lengths of all clients are in the counters.
            guard uncounted.areAllCounted else { return work.wait() }
            guard try work.writePart(atMost: maxRewritten) else { return }
            rewriting = nil
            rewrittenSize = work.size
            kept(extent)
        } catch {
            // If the state with queues is too large, rewriting starts again without them.
            let wasWhole = rewriting?.extent == .whole
            giveUpRewriting()
            guard case .tooLarge = error.reason, wasWhole else { throw error }
            try beginRewriting(log, .withoutQueues, of: center, isSecond: true)
        }
    }

    /// Begins incremental rewriting from a snapshot of the core.
    private func beginRewriting(
        _ log: RecoveryLog, _ extent: Extent, of center: DistributedCenter, isSecond: Bool = false
    ) throws(FileError) {
        try counters.mend()
        // Records from now on are copied to the new log, so they must not refer to notifications in the old one.
        encoder = ChangeEncoder()
        let work = try LogRewriting(
            of: log, snapshot: center.snapshot(withQueues: extent == .whole), slots: slots,
            isWanted: { change in extent == .whole || !change.isOfQueues },
            head: { appendHead(extent, to: &$0) })
        rewriting = (work, extent, isSecond)
        if extent == .withoutQueues, self.extent != extent { uncounted.begin(slots.keys) }
    }

    /// Abandons incremental rewriting, if it is under way. The old log is complete.
    private func giveUpRewriting() {
        uncounted.begin([])
        rewriting.take()?.work.giveUp()
    }

    /// Takes over the extent of a log that was just rewritten, and logs a change of it.
    ///
    /// - Parameter reason: the reason why the log has no queues; nil if the state exceeds the limit.
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

    /// Appends the records at the beginning of a log: the bus's address, the extent, the reserved numbers.
    private func appendHead(_ extent: Extent, to group: inout RecordGroup) {
        encoder.bus(address: address, to: &group)
        if extent == .withoutQueues { encoder.queuesUnkept(to: &group) }
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &group)
    }

    /// The maximum size of a rewritten log, in bytes.
    private var maxRewritten: Int { limit / 3 * 2 }

    /// Whether the queues, which the log does not have, have become small enough for the log: a quarter of the limit.
    /// That is well below the maximum of two thirds, so that the queues do not leave the log again soon.
    private func mayHaveQueues(_ center: DistributedCenter) -> Bool {
        let statistics = center.statistics
        return Int(clamping: statistics.queuedBytes + statistics.queuedPostBytes) < limit / 4
    }

    /// Rewrites the log at once, in one event: with all state if that is at most two thirds of the limit, otherwise
    /// without queues.
    ///
    /// - Parameters:
    ///   - numbers: the last assigned numbers, if no more will be assigned; nil to reserve further ones.
    ///   - countsFirst: whether the queue lengths are written into the counters before a log without queues replaces
    ///     one with them. False while a log without queues is restored, because the queue lengths of the earlier
    ///     process are still needed.
    ///   - mayGiveUpQueues: whether the log may be written without queues. Otherwise a log that is too large is an
    ///     error.
    private func rewrite(
        from center: DistributedCenter, numbers: (serial: UInt64, observer: UInt64)? = nil, countsFirst: Bool = true,
        mayGiveUpQueues: Bool = true
    ) throws(FileError) {
        // The incremental attempt with queues was too large already.
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

    /// Writes a new log with the state, and replaces the old one.
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
            // The log could not be opened so far. By now the path may be usable, or another process may have a log
            // there.
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

    /// Whether the queue lengths are kept in the counters, because the log has no queues, or the log that is being
    /// written has none. After a crash the next process reports that many losses. While the log has queues the lengths
    /// are ignored.
    private var countsQueueLengths: Bool { extent == .withoutQueues || rewriting?.extent == .withoutQueues }

    /// Writes the queue lengths of the clients whose queues have changed, and of some clients that were not counted
    /// before.
    private func writeQueueLengths(in center: DistributedCenter) throws(FileError) {
        guard countsQueueLengths else { return uncounted.removeAll() }
        try count(uncounted.next(), in: center)
    }

    /// Writes the queue lengths of these clients, and the number of queued posts, into the counters.
    private func count(_ clients: some Sequence<ClientName>, in center: DistributedCenter) throws(FileError) {
        for client in clients {
            guard let slot = slots[client] else { continue }
            try counters.setWaiting(center.waiting(for: client), in: slot)
        }
        try counters.writeCounts()
        try counters.setWaitingPosts(UInt64(center.queuedPosts))
    }

    // MARK: Failure and retry

    /// Runs an operation. An error suspends the store.
    private func attempt(_ body: () throws(FileError) -> Void) {
        guard !isSuspended else {
            // A suspended store updates only its counters in memory, so errors have no meaning.
            return (try? body()) ?? ()
        }
        do throws(FileError) {
            try body()
        } catch {
            suspend(error)
        }
    }

    /// Suspends the store after an error: discards the state on disk except the numbers.
    private func suspend(_ error: FileError) {
        giveUpRewriting()
        counters.suspend()
        pending.removeAll()
        uncounted.removeAll()
        reduceToNumbers()
        extent = .nothing(until: retryTime(after: error))
        report(
            "the state can't be saved, so a crash of the service would lose registrations; retrying later: \(error)")
    }

    /// Returns the time of the next attempt. If another process has replaced or locked the log, it has the state now,
    /// and this store never tries again.
    private func retryTime(after error: FileError) -> Duration {
        error.code == ESTALE || error.code == EWOULDBLOCK ? Self.never : now() + wait
    }

    private static let never = Duration.seconds(Int64.max / 2)

    /// Reduces the log to the reserved numbers: an outdated state must not be restored, and no number may be assigned
    /// twice. The file stays locked, because no other process may have the state before this one has ended.
    private func reduceToNumbers() {
        var numbers = RecordGroup()
        encoder.bus(address: address, to: &numbers)
        reserved.serial += Self.numbersForSuspension
        reserved.observer += Self.numbersForSuspension
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

    /// Lets a suspended store write all state again.
    ///
    /// - Parameter isLast: whether the process is ending. If the disk has no space for all state, the state without
    ///   queues is then better than nothing.
    private func resume(from center: DistributedCenter, isLast: Bool = false) {
        wait = min(wait * 2, Self.longestWait)
        do throws(FileError) {
            try files.makeDirectory(directory)
            try counters.replace()
            // If writing fails, the reservation for the suspension is added to these numbers.
            reserved = (center.lastSerial, center.lastObserver)
            extent = .whole
            try isLast ? rewriteAsFarAsFits(from: center) : rewrite(from: center)
            Log.notice("the state is saved again")
            wait = Self.firstWait
        } catch {
            counters.suspend()
            reduceToNumbers()
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
