// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The counters that change with every delivery, in memory and in a file that survives the process.
///
/// A client has a slot of 64 bytes with these fields:
///
/// - its owner, a hash of the client's name
/// - the last sequence number that was assigned, and the serial of its notification
/// - the last sequence number that the bus has carried
/// - the numbers of deliveries and of losses
/// - the length of its queue, where the log has no queues
///
/// Slot 0 names the format, and has the number of posts in posters' queues, where the log has no queues.
///
/// A sequence number is written before it is used, and the carried number again when the bus has carried the message
/// (``DeliveryReceipts``). A process that dies at any moment therefore leaves, for each client, the messages that were
/// certainly carried, and those of the last moments that may not have been.
///
/// The file is written, not mapped. If another program truncates it, a write fails or the next one mends the file,
/// while a store into mapped memory would end the process. A slot never crosses a page, so a kill leaves no half slot.
/// Of several slots that are written together, a kill may leave some.
///
/// Threads: one at a time. File operations may block.
final class RecoveryCounters {
    private static let format = Array("Carillon cnts 2\n".utf8)
    private static let slotSize = 64
    private static let fields = slotSize / 8
    private static let maxSlots = 1 << 17

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
    /// The file; nil while none can be written.
    private var file: (any StateFile)?
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var table: [UInt64]
    private var freeSlots: [UInt32] = []
    private var nextSlot: UInt32 = 1
    /// The slots that were changed and not written.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var changedSlots: [UInt32] = []
    /// Whether ``writeCounts()`` has slots to write.
    var hasChanges: Bool { !changedSlots.isEmpty }
    /// The distance between slots up to which they are written together, with the slots between them.
    private static let nearness: UInt32 = 16
    /// The counters of an earlier process.
    private var earlier: [UInt64] = []
    private static let waitingPosts = fields - 1

    init(path: String, in files: any StateFiles) {
        self.path = path
        self.files = files
        table = Array(repeating: 0, count: 128 * Self.fields)
        table.withUnsafeMutableBytes { $0.copyBytes(from: Self.format) }
    }

    /// Opens the file of an earlier process if it is valid, or replaces it.
    ///
    /// - Throws: ``FileError`` when the file can be neither read nor replaced.
    func takeUp() throws(FileError) {
        guard let file = try? files.open(path, for: .table), let size = try? file.size(),
            size <= Self.maxSlots * Self.slotSize, let bytes = try? file.read(at: 0, atMost: size),
            bytes.starts(with: Self.format)
        else { return try replace() }
        earlier = Array(repeating: 0, count: bytes.count / Self.slotSize * Self.fields)
        earlier.withUnsafeMutableBytes { $0.copyBytes(from: bytes.prefix($0.count)) }
        let count = max(earlier.count, table.count)
        table += Array(repeating: 0, count: count - table.count)
        // The earlier counters stay until their slots get new owners, because this process may die before it has a log
        // of its own.
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

    /// Stops writing to the file.
    func suspend() {
        file = nil
    }

    /// Writes all counters if the file has been truncated.
    func mend() throws(FileError) {
        guard let file, try file.size() < table.count * 8 else { return }
        try file.allocate(table.count * 8)
        try write(0..<table.count)
    }

    func remove() {
        if let file, file.isInPlace { file.remove() }
    }

    // MARK: Counters of an earlier process

    /// Returns the counters of an earlier process for a client.
    ///
    /// - Parameters:
    ///   - client: the client.
    ///   - slot: the slot that the log names.
    ///   - written: the counters in the log, for a slot that is damaged or not the client's.
    ///   - hasQueues: whether the log has the queues.
    func counts(of client: ClientName, in slot: UInt32, written: ClientCounts, hasQueues: Bool) -> ClientCounts {
        func field(_ field: Field) -> UInt64 { earlier[Int(slot) * Self.fields + field.rawValue] }
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

    /// The number of posts in the posters' queues of an earlier process; for a log without queues.
    var earlierPosts: UInt64 {
        guard earlier.count > Self.waitingPosts else { return 0 }
        return earlier[Self.waitingPosts] <= UInt64(UInt32.max) ? earlier[Self.waitingPosts] : 0
    }

    /// Marks a slot as used. Its earlier counters stay until ``set(_:waiting:of:in:)``.
    ///
    /// - Returns: false if there is no such slot, or it is used.
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

    /// Returns an unused slot.
    func allocate() -> UInt32 {
        if let slot = freeSlots.popLast() { return slot }
        nextSlot += 1
        return nextSlot - 1
    }

    func free(_ slot: UInt32) {
        freeSlots.append(slot)
    }

    /// Assigns a slot to a client with these counters.
    func set(
        _ counts: ClientCounts, waiting: UInt64 = 0, of client: ClientName, in slot: UInt32
    ) throws(FileError) {
        // If the file can't grow, counting goes on in memory.
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

    /// Counts a sequence number that is used after ``writeCounts()``.
    ///
    /// - Parameter serial: the serial of the notification; 0 for a loss.
    func count(_ sequence: UInt64, serial: UInt64, in slot: UInt32) {
        // A report of losses may have a lower number than messages that were counted before, for example when a channel
        // ends.
        guard sequence >= self[slot, .sequence] else { return }
        self[slot, .sequence] = sequence
        self[slot, .serial] = serial
        changedSlots.append(slot)
    }

    /// Counts all numbers up to `sequence` as carried; ``writeCounts()`` writes that.
    ///
    /// - Parameter count: the number of the last sequence numbers that do not count as carried.
    func confirm(
        _ sequence: UInt64, delivered: UInt64, dropped: UInt64, withholding count: UInt64 = 0, in slot: UInt32
    ) {
        self[slot, .confirmed] = min(max(self[slot, .confirmed], sequence), most(withholding: count, in: slot))
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
            if slot - last > Self.nearness {
                try write(first, through: last)
                first = slot
            }
            last = slot
        }
        try write(first, through: last)
    }

    private static let maxKept = 256

    /// Records that the last `count` numbers do not count as carried; ``writeCounts()`` writes that.
    func withhold(_ count: UInt64, in slot: UInt32) {
        self[slot, .confirmed] = min(self[slot, .confirmed], most(withholding: count, in: slot))
        changedSlots.append(slot)
    }

    private func most(withholding count: UInt64, in slot: UInt32) -> UInt64 {
        self[slot, .sequence] - min(count, self[slot, .sequence])
    }

    /// Sets the length of a client's queue, which is not in the log; ``writeCounts()`` writes it.
    func setWaiting(_ count: UInt64, in slot: UInt32) throws(FileError) {
        try grow(toHold: Int(slot))
        guard self[slot, .waiting] != count else { return }
        self[slot, .waiting] = count
        changedSlots.append(slot)
    }

    /// Writes the number of posts in posters' queues, which are not in the log.
    func setWaitingPosts(_ count: UInt64) throws(FileError) {
        guard table[Self.waitingPosts] != count || count == 0 else { return }
        table[Self.waitingPosts] = count
        try write(Self.waitingPosts..<Self.waitingPosts + 1)
    }

    private subscript(slot: UInt32, field: Field) -> UInt64 {
        get { table[Int(slot) * Self.fields + field.rawValue] }
        set { table[Int(slot) * Self.fields + field.rawValue] = newValue }
    }

    private func grow(toHold slot: Int) throws(FileError) {
        if growTable(toHold: slot) { try file?.allocate(table.count * 8) }
    }

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
