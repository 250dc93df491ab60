// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The table of counters per client that change with every delivery, in memory and in a file that survives the process.
///
/// ``RecoveryStore`` uses it beside its log, because a log record for each delivery would cost more. A client has a
/// slot of 64 bytes, which is overwritten in place, with these fields:
///
/// - `owner`: a hash of the client's name
/// - `sequence`: the client's last used sequence number
/// - `serial`: the serial of the notification with that number, which is its position among all posts
/// - `confirmed`: the last sequence number that the bus has carried
/// - `delivered`, `dropped`: the numbers of deliveries and of reported losses
/// - `waiting`: the length of the client's queue plus its unreported losses, if the log has no queues
///
/// Slot 0 has the name of the format, and the number of posts in posters' queues, if the log has no queues.
///
/// A sequence number is written before the message with it is sent, and `confirmed` when the bus has carried the
/// message (``DeliveryReceipts``). If the process dies at any moment, the messages up to `confirmed` were carried, and
/// those from there to `sequence` may be lost. The next process reports them as losses.
///
/// The file is written and not mapped into memory, because a store into a mapped file ends the process if another
/// program has truncated the file. A slot never crosses a page, so a kill leaves no half slot. Of several slots that
/// are written together, a kill may leave some.
///
/// Threads: one at a time. File operations may block.
final class RecoveryCounters {
    private static let format = Array("Carillon cnts 2\n".utf8)
    /// The size of a slot, in bytes.
    private static let slotSize = 64
    /// The number of 64-bit fields in a slot.
    private static let fields = slotSize / 8
    /// The maximum number of slots in the file of an earlier process.
    private static let maxSlots = 1 << 17

    /// The fields of a slot, by index.
    private enum Field: Int {
        case owner = 0
        case sequence
        case serial
        case confirmed
        case delivered
        case dropped
        case waiting
    }

    private let path: String
    private let files: any StateFiles
    /// The file; nil while it can't be written. Counting then goes on in memory.
    private var file: (any StateFile)?
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    /// The content of the file: all slots, one after the other.
    private var table: [UInt64]
    private var freeSlots: [UInt32] = []
    private var nextSlot: UInt32 = 1
    /// The slots that were changed and not written; a slot may occur several times.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var changedSlots: [UInt32] = []
    /// Whether ``writeCounts()`` has slots to write.
    var hasChanges: Bool { !changedSlots.isEmpty }
    /// The distance of changed slots up to which they are written with one system call, together with the slots between
    /// them.
    private static let maxSlotGap: UInt32 = 16
    /// The content of the file that an earlier process left.
    private var earlier: [UInt64] = []
    /// The field of slot 0 with the number of posts in posters' queues.
    private static let waitingPosts = fields - 1

    init(path: String, in files: any StateFiles) {
        self.path = path
        self.files = files
        table = Array(repeating: 0, count: 128 * Self.fields)
        table.withUnsafeMutableBytes { $0.copyBytes(from: Self.format) }
    }

    /// Opens the file, and reads the counters of an earlier process from it. A file that is not valid is replaced.
    ///
    /// - Throws: ``FileError`` when the file can be neither read nor replaced.
    func load() throws(FileError) {
        guard let file = try? files.open(path, for: .table), let size = try? file.size(),
            size <= Self.maxSlots * Self.slotSize, let bytes = try? file.read(at: 0, atMost: size),
            bytes.starts(with: Self.format)
        else { return try replace() }
        earlier = Array(repeating: 0, count: bytes.count / Self.slotSize * Self.fields)
        earlier.withUnsafeMutableBytes { $0.copyBytes(from: bytes.prefix($0.count)) }
        let count = max(earlier.count, table.count)
        table += Array(repeating: 0, count: count - table.count)
        // The earlier counters stay in the file until their slots are set again. If this process dies before it has
        // rewritten the log, the next process needs them.
        try file.allocate(count * 8)
        self.file = file
    }

    /// Creates a new file in place of the existing one.
    func replace() throws(FileError) {
        let file = try files.open(path, for: .newTable)
        try file.allocate(table.count * 8)
        self.file = file
        try write(0..<table.count)
    }

    /// Stops writing to the file, because the store is suspended. ``replace()`` ends this.
    func suspend() {
        file = nil
    }

    /// Writes all counters again if another program has truncated the file.
    func mend() throws(FileError) {
        guard let file, try file.size() < table.count * 8 else { return }
        try file.allocate(table.count * 8)
        try write(0..<table.count)
    }

    /// Removes the file, unless another process has replaced it.
    func remove() {
        if let file, file.isInPlace { file.remove() }
    }

    // MARK: Counters of an earlier process

    /// Returns the counters of a client that an earlier process left.
    ///
    /// - Parameters:
    ///   - client: the client.
    ///   - slot: the slot that the log names.
    ///   - written: the counters in the client's log record, which are used if the slot is corrupt or of another
    ///     client.
    ///   - hasQueues: whether the log has the queues, so that the queue length in the slot has no meaning.
    func counts(of client: ClientName, in slot: UInt32, written: ClientCounts, hasQueues: Bool) -> ClientCounts {
        func field(_ field: Field) -> UInt64 { earlier[Int(slot) * Self.fields + field.rawValue] }
        // A number above a quarter of the range comes from corrupt bytes, and its sums could overflow.
        guard slot > 0, Int(slot) < earlier.count / Self.fields, field(.owner) == Self.owner(client),
            field(.sequence) >= written.sequence, field(.confirmed) <= field(.sequence),
            field(.sequence) <= UInt64.max / 4, field(.delivered) <= field(.sequence),
            field(.dropped) <= UInt64.max / 4, field(.waiting) <= UInt64(UInt32.max)
        else { return written }
        var counts = ClientCounts(
            sequence: field(.sequence), delivered: field(.delivered), dropped: field(.dropped))
        counts.unconfirmed = field(.sequence) - field(.confirmed)
        counts.lastSerial = field(.serial)
        counts.unkept = hasQueues ? 0 : field(.waiting)
        return counts
    }

    /// The number of posts in the posters' queues of an earlier process whose log has no queues. They are lost.
    var earlierPosts: UInt64 {
        guard earlier.count > Self.waitingPosts else { return 0 }
        return earlier[Self.waitingPosts] <= UInt64(UInt32.max) ? earlier[Self.waitingPosts] : 0
    }

    /// Marks a slot that the log names as used.
    ///
    /// - Returns: false if the index is not valid, or the slot is used already.
    func reserve(_ slot: UInt32) -> Bool {
        guard slot > 0, slot < Self.maxSlots else { return false }
        if slot >= nextSlot {
            freeSlots += nextSlot..<slot
            nextSlot = slot + 1
            return true
        }
        guard let index = freeSlots.firstIndex(of: slot) else { return false }
        freeSlots.remove(at: index)
        return true
    }

    // MARK: Slots

    /// Returns an unused slot, and marks it as used.
    func allocate() -> UInt32 {
        if let slot = freeSlots.popLast() { return slot }
        nextSlot += 1
        return nextSlot - 1
    }

    /// Marks a slot as unused.
    func free(_ slot: UInt32) {
        freeSlots.append(slot)
    }

    /// Assigns a slot to a client, and writes these counters. All sequence numbers so far count as carried.
    func set(
        _ counts: ClientCounts, waiting: UInt64 = 0, of client: ClientName, in slot: UInt32
    ) throws(FileError) {
        // The table in memory grows first, so that counting goes on if the file can't grow.
        let hasGrown = growTable(toHold: Int(slot))
        let first = Int(slot) * Self.fields
        for field in 0..<Self.fields { table[first + field] = 0 }
        self[slot, .owner] = Self.owner(client)
        self[slot, .sequence] = counts.sequence
        self[slot, .confirmed] = counts.sequence
        self[slot, .delivered] = counts.delivered
        self[slot, .dropped] = counts.dropped
        self[slot, .waiting] = waiting
        if hasGrown { try file?.allocate(table.count * 8) }
        try write(first..<first + Self.fields)
    }

    // MARK: Counting

    /// Records that a sequence number is used. ``writeCounts()`` has to follow before the message is sent.
    ///
    /// - Parameter serial: the serial of the notification; 0 for a report of losses, and for a notification that did
    ///   not come from the client's queue.
    func count(_ sequence: UInt64, serial: UInt64, in slot: UInt32) {
        // A report of losses may have a lower number than earlier messages, for example when a channel ends. It is
        // ignored.
        guard sequence >= self[slot, .sequence] else { return }
        self[slot, .sequence] = sequence
        self[slot, .serial] = serial
        changedSlots.append(slot)
    }

    /// Records that the bus has carried all messages up to `sequence`. ``writeCounts()`` writes it.
    ///
    /// - Parameters:
    ///   - delivered: the number of notifications in these messages, since the last call.
    ///   - dropped: the number of losses that these messages reported.
    ///   - count: the quantity of the last used sequence numbers that do not count as carried nevertheless.
    func confirm(
        _ sequence: UInt64, delivered: UInt64, dropped: UInt64, withholding count: UInt64 = 0, in slot: UInt32
    ) {
        self[slot, .confirmed] = min(max(self[slot, .confirmed], sequence), maxConfirmed(withholding: count, in: slot))
        self[slot, .delivered] += delivered
        self[slot, .dropped] += dropped
        changedSlots.append(slot)
    }

    /// Writes the changed slots. Slots near each other are written with one call, as after a notification to many
    /// clients.
    func writeCounts() throws(FileError) {
        defer { changedSlots.removeAll(keepingCapacity: changedSlots.count <= Self.maxKept) }
        guard file != nil, !changedSlots.isEmpty else { return }
        if changedSlots.count > 1 { changedSlots.sort() }
        var (first, last) = (changedSlots[0], changedSlots[0])
        for slot in changedSlots.dropFirst() {
            if slot - last > Self.maxSlotGap {
                try write(first, through: last)
                first = slot
            }
            last = slot
        }
        try write(first, through: last)
    }

    /// The capacity of ``changedSlots`` beyond which its memory is released.
    private static let maxKept = 256

    /// Records that the last `count` used numbers do not count as carried. ``writeCounts()`` writes it.
    func withhold(_ count: UInt64, in slot: UInt32) {
        self[slot, .confirmed] = min(self[slot, .confirmed], maxConfirmed(withholding: count, in: slot))
        changedSlots.append(slot)
    }

    /// Returns the maximum of `confirmed` if the last `count` used numbers do not count as carried.
    private func maxConfirmed(withholding count: UInt64, in slot: UInt32) -> UInt64 {
        self[slot, .sequence] - min(count, self[slot, .sequence])
    }

    /// Sets the length of a client's queue, which the log does not have. ``writeCounts()`` writes it.
    func setWaiting(_ count: UInt64, in slot: UInt32) throws(FileError) {
        try grow(toHold: Int(slot))
        guard self[slot, .waiting] != count else { return }
        self[slot, .waiting] = count
        changedSlots.append(slot)
    }

    /// Writes the number of posts in posters' queues, which the log does not have.
    func setWaitingPosts(_ count: UInt64) throws(FileError) {
        // 0 is written in any case, because the file may still have the number of an earlier process.
        guard table[Self.waitingPosts] != count || count == 0 else { return }
        table[Self.waitingPosts] = count
        try write(Self.waitingPosts..<Self.waitingPosts + 1)
    }

    private subscript(slot: UInt32, field: Field) -> UInt64 {
        get { table[Int(slot) * Self.fields + field.rawValue] }
        set { table[Int(slot) * Self.fields + field.rawValue] = newValue }
    }

    /// Grows the table and the file to have a slot.
    private func grow(toHold slot: Int) throws(FileError) {
        if growTable(toHold: slot) { try file?.allocate(table.count * 8) }
    }

    /// Grows the table in memory to have a slot.
    ///
    /// - Returns: whether the table has grown.
    private func growTable(toHold slot: Int) -> Bool {
        let count = (slot + 1) * Self.fields
        guard count > table.count else { return false }
        table += Array(repeating: 0, count: max(count, 2 * table.count) - table.count)
        return true
    }

    private func write(_ first: UInt32, through last: UInt32) throws(FileError) {
        try write(Int(first) * Self.fields..<(Int(last) + 1) * Self.fields)
    }

    private func write(_ range: Range<Int>) throws(FileError) {
        try file?.write(table[range], at: range.lowerBound * 8)
    }

    /// Returns the hash of a client that identifies its slot (FNV-1a). It is never 0, the owner of an unused slot.
    private static func owner(_ client: ClientName) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in client.rawValue.utf8 { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
        return hash | 1
    }
}
