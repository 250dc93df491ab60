// SPDX-License-Identifier: Apache-2.0
import CarillonCollections
import CarillonCore
import CarillonMainLoop

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
/// When anything fails (the disk is full, say) the store says so, leaves nothing behind that would bring back a wrong
/// state, and suspends itself: the service goes on without. With the events that come it tries again, ever more seldom,
/// and writes all of it from the center when it can.
final class RecoveryStore {
    /// What is kept at the moment.
    private enum Extent: Equatable {
        case whole
        /// Registrations, suspensions and counts: with what waits it would be more than it may be.
        case withoutQueues
        /// Nothing, until a time on the store's clock.
        case nothing(until: Duration)
    }

    /// The numbers that are reserved at a time: a write of the log for so many.
    private static let block: UInt64 = 4096
    /// While nothing is kept no number can be reserved, so that many are when that begins.
    private static let largeBlock: UInt64 = 1 << 32
    /// A log up to this size is left alone.
    private static let smallSize = 1 << 20
    /// A group is written when it is so large, also in the middle of an event.
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
    /// Changes of the event that is about to be carried out, not written yet.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var pending = RecordGroup()
    private var slots: [ClientName: UInt32] = [:]
    /// The same, of those whose numbers were needed lately.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var knownSlots = ClientTable<UInt32>()
    /// How many of a client's last numbers do not count as carried, whatever the bus has read since.
    private var withheld: [ClientName: UInt64] = [:]
    private var uncounted = UncountedClients()
    private var extent = Extent.whole
    /// Whether what waits would be lost with the process, for want of room.
    var isWithoutQueues: Bool { extent == .withoutQueues }
    /// Whether all is kept.
    var isWhole: Bool { extent == .whole }
    private var wait = RecoveryStore.firstWait
    /// The size of the log when it was last written anew.
    private var rewrittenSize = 0
    /// While it is written anew, part by part: with what extent, and whether another one was given up for it.
    private var rewriting: (work: LogRewriting, extent: Extent, isSecond: Bool)?
    /// Bytes that the log may have.
    private var limit: Int
    private var reserved = (serial: UInt64(0), observer: UInt64(0))

    /// Whether nothing is kept at the moment.
    var isSuspended: Bool { if case .nothing = extent { true } else { false } }

    /// Opens the store of a bus.
    ///
    /// - Parameters:
    ///   - directory: private to the user; made if it does not exist.
    ///   - files: where it is.
    ///   - busID: what the bus's method `GetId` answers.
    ///   - address: of the bus, by which a later process sees whether it is still there.
    ///   - limits: of the center that it is for.
    ///   - takesLock: see ``RecoveryLog``.
    ///   - now: a clock that never goes back.
    ///   - report: gets a line for each thing that could not be taken up or kept.
    /// - Throws: ``FileError`` with `EWOULDBLOCK` when another process has it; everything else only suspends it.
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

    // MARK: Taking up

    /// Replays what an earlier process left into `center`, which is new, and starts the log anew from there.
    ///
    /// - Returns: how many clients came back. They have to be watched: ``DistributedCenter/finishRestoring(effects:)``.
    func restore(into center: DistributedCenter) -> Int {
        AbandonedState.remove(in: directory, of: files, except: busID, address: address, atMost: limit)
        guard let log, !isSuspended else { return 0 }
        var decoder = ChangeDecoder()
        var misfits = 0
        var isDamaged = false
        var hasQueues = true
        var used = (serial: UInt64(0), observer: UInt64(0))
        do throws(FileError) {
            // Whatever the limit is now: one that was lowered since, or a configuration that can't be read at the moment,
            // does not cost the state that there is.
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
                report("the last \(rest) bytes of the state of an earlier carillond are of no use, and ignored")
            }
        } catch {
            isDamaged = true
            report("the state of an earlier carillond is of no use, and ignored: \(error)")
        }
        if misfits > 0 {
            isDamaged = true
            report("\(misfits) changes in the state of an earlier carillond do not fit, and are ignored")
        }
        if isDamaged {
            // A client's last word may be in what is of no use.
            #if CARILLON_PLANTED
                let isTold = !PlantedFault.strikes(.damageUntold)
            #else
                let isTold = true
            #endif
            if isTold { center.doubtSuspensions() }
            // So may the numbers. Nobody has given one for each microsecond.
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
                \(counters.earlierPosts) posts that waited in posters' queues were lost with an earlier carillond, as its \
                state was larger than state-bytes allowed
                """)
        }
        // The log first: what may have been lost stands in it before the counters say no more of it.
        attempt { () throws(FileError) in try rewrite(from: center, countsFirst: hasQueues) }
        for (client, slot) in slots {
            let waiting = extent == .withoutQueues ? center.waiting(for: client) : 0
            attempt { () throws(FileError) in
                try counters.set(
                    center.toldCounts(of: client) ?? ClientCounts(), waiting: waiting, of: client, in: slot)
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

    /// Reserves numbers where the center has given some that were not. Call before what an event decided is carried out.
    func reserveNumbers(of center: DistributedCenter) {
        let last = center.lastNumbers
        guard last.serial > reserved.serial || last.observer > reserved.observer, !isSuspended else { return }
        reserved = (last.serial + Self.block, last.observer + Self.block)
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &pending)
    }

    /// Writes all of an event that shall survive the process, before anything of it leaves that: a crash before leaves what
    /// was before the event, and one behind it a hole that is announced, but no number that comes twice.
    func keep(_ effects: [Effect]) {
        for effect in effects {
            switch effect {
            case .deliver(let delivery):
                countDelivery(
                    to: delivery.client, delivery.clientNumber, sequence: delivery.sequence,
                    serial: Self.serial(of: delivery))
            case .deliverTogether(let client, let batch):
                // The whole batch goes or does not, so all of its numbers are counted with the last.
                guard let last = batch.last else { preconditionFailure("nobody is sent nothing") }
                countDelivery(
                    to: client, last.clientNumber, sequence: last.sequence, serial: Self.serial(of: last))
            case .dropped(let client, _, _, _, let sequence): countLoss(of: client, sequence: sequence)
            case .possibleLoss(let client, let count): withhold(count, of: client)
            case .remember(let change): remember(change)
            case .export, .exportEnded, .suspensionChanged, .revoked, .interestChanged, .valuesRemoved, .probe,
                .witness, .sendAnswer,
                .probeReplies, .witnessReplies, .sendReply,
                .startInactivityTimer, .startIntervalTimer, .overflowed, .watch, .watchDeparture, .forget:
                break
            }
        }
        flush()
    }

    /// Of one that came out of the client's queue. A value that stays did not, nor did what waited for an interval, and that
    /// it was sent says nothing of one with its serial that may wait there.
    private static func serial(of delivery: Delivery) -> UInt64 {
        delivery.isRetained || delivery.isDelayed ? 0 : delivery.notification.serial
    }

    /// Keeps a change. It is safe from the end of the process when ``flush()`` returns, together with those before it.
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
            // Of no use to who reads the log that there is, but the next one gets it as well.
            guard !change.isOfQueues || rewriting?.extent == .whole else { return }
        }
        encoder.encode(change, slot: { slots[$0] ?? 0 }, to: &pending)
        if pending.byteCount > Self.maxPending { flush() }
    }

    /// Gives up what is kept of clients that are gone (E8).
    func releaseRoom() {
        slots.releaseRoom()
        knownSlots.removeAll()
        withheld.releaseRoom()
        uncounted.releaseRoom()
    }

    /// Writes what is counted and remembered, once for all that there is. Nothing of it may have left the process before.
    ///
    /// The counts first: a crash in between leaves numbers that are announced and were not used, and does not lose what
    /// was taken from a queue to be sent.
    func flush() {
        if counters.hasChanges { attempt { () throws(FileError) in try counters.writeCounts() } }
        guard !pending.isEmpty else { return }
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.lateLog), pending.byteCount < 2048 { return }
        #endif
        attempt { () throws(FileError) in try log?.append(pending) }
        pending.removeAll()
    }

    /// A notification is to be sent, with this number, after ``flush()``.
    ///
    /// - Parameter number: the client's; nil where it is not known.
    func countDelivery(to client: ClientName, _ number: Int? = nil, sequence: UInt64, serial: UInt64) {
        count(sequence, serial: serial, of: client, number)
    }

    /// A client is to be told of a loss, up to this number, after ``flush()``.
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

    /// The bus has carried this: it survives the process after ``flush()``.
    func confirm(_ sent: DeliveryReceipts.Sent, of client: ClientName) {
        guard let slot = slots[client] else { return }
        counters.confirm(
            sent.sequence, delivered: sent.delivered, dropped: sent.dropped, withholding: withheld[client] ?? 0,
            in: slot)
    }

    /// So many of the client's last numbers may not have reached it, as the bus refused what had them, and it was not told
    /// yet: were this the end, the next process would have to.
    func withhold(_ count: UInt64, of client: ClientName) {
        guard let slot = slots[client] else { return }
        withheld[client] = count > 0 ? count : nil
        if count > 0 { counters.withhold(count, in: slot) }
    }

    /// Ends an event: writes what it changed, and the log anew when most of that is past. Call when all changes so far
    /// have been remembered.
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

    /// Whether the log has as much of what is past as of what it has to hold, so that writing it anew costs no more than
    /// writing it did; or is as long as it may be.
    private var isLong: Bool {
        guard let log else { return false }
        return log.size > min(2 * rewrittenSize + Self.smallSize, limit)
    }

    /// The process is about to end: where state can't be kept, it is tried once more, whenever that was tried last.
    func tryAgain(from center: DistributedCenter) {
        guard case .nothing(let until) = extent, until < Self.never else { return }
        resume(from: center, isLast: true)
    }

    /// Leaves as little as possible behind, and no less than a crash would: the process ends.
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
                // The log has all of it, which is more than may be kept for the time to come, or than there is room for twice.
                if case .tooLarge = error.reason, isInLog { return }
                guard error.isForWantOfRoom, isInLog || extent == .withoutQueues else { throw error }
            }
        }
    }

    /// The bus is gone, and with it everyone this was for.
    func remove() {
        giveUpRewriting()
        log?.remove()
        counters.remove()
    }

    // MARK: Writing anew

    /// Goes on with writing the log anew, or begins it, as far as an event may. It is in time: of the quarter that the log may be
    /// longer meanwhile the state takes a sixth, at four times what is appended, and what is appended meanwhile less.
    private func rewritePart(of center: DistributedCenter) throws(FileError) {
        let maxSize = limit / 4 * (rewriting?.isSecond == true ? 6 : 5)
        guard let log, log.size <= maxSize else { return try rewrite(from: center) }
        do throws(FileError) {
            if rewriting == nil {
                // Changes that are made in parts are remembered with the last of them: until then all of it is in the log that there
                // is. But that may not become longer and longer, as long as somebody has something done so.
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

    /// The log has so much of the state from now on.
    ///
    /// - Parameter reason: why it is not all of it; nil where that is more than it may be.
    private func kept(_ new: Extent, because reason: String? = nil) {
        guard new != extent else { return }
        extent = new
        guard new == .withoutQueues else { return Log.notice("what waits for clients is kept again") }
        report(
            """
            \(reason ?? "the state is larger than state-bytes allows (\(limit))"): what waits for clients and in posters' \
            queues is not kept, so that a crash of the service would lose it
            """)
    }

    private func appendHead(_ extent: Extent, to group: inout RecordGroup) {
        encoder.bus(address: address, to: &group)
        if extent == .withoutQueues { encoder.queuesUnkept(to: &group) }
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &group)
    }

    /// When it is written anew, the log has no more than this of what it may have.
    private var maxRewritten: Int { limit / 3 * 2 }

    /// Whether what waits, which is not kept, has become so little that it is tried again.
    private func mayHaveQueues(_ center: DistributedCenter) -> Bool {
        let statistics = center.statistics
        return Int(clamping: statistics.queuedBytes + statistics.queuedPostBytes) < limit / 4
    }

    /// Writes the log anew at once: all of it, or, where that is more than two thirds of what it may be, without queues.
    ///
    /// - Parameters:
    ///   - countsFirst: whether what waits is counted before a log without queues takes the place of one with them. Not where
    ///     the counts of an earlier process are still of use.
    ///   - mayGiveUpQueues: whether it is written without queues where it is too large with them.
    private func rewrite(
        from center: DistributedCenter, numbers: (serial: UInt64, observer: UInt64)? = nil, countsFirst: Bool = true,
        mayGiveUpQueues: Bool = true
    ) throws(FileError) {
        // It is known to be too large then.
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
            // Where there was no place for one so far, another process may have found one since.
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

    /// Whether it is counted what waits, as the log has it not, or the next one won't. Counts are of no effect while it has.
    private var countsWaiting: Bool { extent == .withoutQueues || rewriting?.extent == .withoutQueues }

    /// Counts what waits for the clients for whom that may have changed, and for some of those for whom it was not yet.
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

    // MARK: Failing, and coming back

    private func attempt(_ body: () throws(FileError) -> Void) {
        guard !isSuspended else {
            // In memory the counts go on; there is no file to fail.
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
            "state can't be kept, so that a crash of the service would lose registrations; tried again later: \(error)")
    }

    /// When to try again. One whose place another process has taken has nothing to come back to.
    private func retryTime(after error: FileError) -> Duration {
        error.code == ESTALE || error.code == EWOULDBLOCK ? Self.never : now() + wait
    }

    private static let never = Duration.seconds(Int64.max / 2)

    /// What is half there would bring back the wrong state. Only the numbers stay: none is given twice. So does the lock,
    /// as another process has no state before this one has ended.
    private func leaveNumbers() {
        var numbers = RecordGroup()
        encoder.bus(address: address, to: &numbers)
        reserved.serial += Self.largeBlock
        reserved.observer += Self.largeBlock
        encoder.numbers(serial: reserved.serial, observer: reserved.observer, to: &numbers)
        log?.reduce(to: numbers)
    }

    /// Writes all of it, or, where the disk has no room for that, without queues.
    private func rewriteAsFarAsFits(from center: DistributedCenter) throws(FileError) {
        do throws(FileError) {
            try rewrite(from: center)
        } catch {
            guard error.isForWantOfRoom, extent == .whole else { throw error }
            try count(slots.keys, in: center)
            try write(center, .withoutQueues)
            kept(.withoutQueues, because: "there is no room for all of the state (\(error))")
        }
    }

    /// - Parameter isLast: whether there is no later: then a part is better than nothing.
    private func resume(from center: DistributedCenter, isLast: Bool = false) {
        wait = min(wait * 2, Self.longestWait)
        do throws(FileError) {
            try files.makeDirectory(directory)
            try counters.replace()
            reserved = (center.lastSerial, center.lastObserver)
            extent = .whole
            try isLast ? rewriteAsFarAsFits(from: center) : rewrite(from: center)
            Log.notice("state is kept again")
            wait = Self.firstWait
        } catch {
            counters.suspend()
            leaveNumbers()
            extent = .nothing(until: retryTime(after: error))
            Log.info("state can't be kept yet: \(error)")
        }
    }
}

extension FileError {
    /// Whether there was no room on the disk, or for this file.
    fileprivate var isForWantOfRoom: Bool { [ENOSPC, EDQUOT, EFBIG].contains(code) }
}

/// Since some moment before the process began.
private func monotonicTime() -> Duration {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Duration.seconds(time.tv_sec) + Duration.nanoseconds(time.tv_nsec)
}
