// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// Counts that change with every delivery: in memory, and in a file that outlives the process.
///
/// A client has a slot of 64 bytes: whose it is; the last number that it was given, with the serial of what that was
/// for; the last that the bus has carried; deliveries; losses; and how much waits, where that is not in the log. Slot 0
/// names the format, and has how many posts wait in posters' queues, where these are not in the log.
///
/// A number is written before it is used, and again when the bus has carried what has it (``DeliveryReceipts``). So a
/// process that died at any moment leaves, for each client, what surely was carried and what may not have been: what was
/// sent in the last moments.
///
/// The file is written, not mapped: one that somebody makes shorter is an error of a write, or mended by the next, where
/// a store into it would end the process. A slot never crosses a page, so that no kill leaves half of one; of several
/// that are written together it may leave some.
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
    /// Nil while there is none that can be written.
    private var file: (any StateFile)?
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var table: [UInt64]
    private var freeSlots: [UInt32] = []
    private var nextSlot: UInt32 = 1
    /// What was counted and not written yet.
    #if !DEBUG && !CARILLON_METER
        @exclusivity(unchecked)
    #endif
    private var changedSlots: [UInt32] = []
    /// Whether there is something to write for ``writeCounts()``.
    var hasChanges: Bool { !changedSlots.isEmpty }
    /// Slots so near to each other are written together with those between them.
    private static let nearness: UInt32 = 16
    /// What an earlier process left.
    private var earlier: [UInt64] = []
    private static let waitingPosts = fields - 1

    init(path: String, in files: any StateFiles) {
        self.path = path
        self.files = files
        table = Array(repeating: 0, count: 128 * Self.fields)
        table.withUnsafeMutableBytes { $0.copyBytes(from: Self.format) }
    }

    /// Takes up the file that an earlier process left, if it is one.
    ///
    /// - Throws: ``FileError``, when it can be neither read nor replaced.
    func takeUp() throws(FileError) {
        guard let file = try? files.open(path, for: .table), let size = try? file.size(),
            size <= Self.maxSlots * Self.slotSize, let bytes = try? file.read(at: 0, atMost: size),
            bytes.starts(with: Self.format)
        else { return try replace() }
        earlier = Array(repeating: 0, count: bytes.count / Self.slotSize * Self.fields)
        earlier.withUnsafeMutableBytes { $0.copyBytes(from: bytes.prefix($0.count)) }
        let count = max(earlier.count, table.count)
        table += Array(repeating: 0, count: count - table.count)
        // What is there stays until its slot gets a new owner: this process may die before it has a log of its own.
        try file.allocate(count * 8)
        self.file = file
    }

    /// Puts a new file into the place of whatever is there.
    func replace() throws(FileError) {
        let file = try files.open(path, for: .newTable)
        try file.allocate(table.count * 8)
        self.file = file
        try write(0..<table.count)
    }

    /// From now on nothing is written.
    func suspend() {
        file = nil
    }

    /// Writes all of it, if somebody has made the file shorter.
    func mend() throws(FileError) {
        guard let file, try file.size() < table.count * 8 else { return }
        try file.allocate(table.count * 8)
        try write(0..<table.count)
    }

    func remove() {
        if let file, file.isInPlace { file.remove() }
    }

    // MARK: An earlier process's

    /// What an earlier process counted for a client.
    ///
    /// - Parameters:
    ///   - written: what its log says instead, for a slot that is not the client's, or was damaged.
    ///   - hasQueues: whether its log has what waits.
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

    /// How many posts waited in posters' queues; of use where the log does not have them.
    var earlierPosts: UInt64 {
        guard earlier.count > Self.waitingPosts else { return 0 }
        return earlier[Self.waitingPosts] <= UInt64(UInt32.max) ? earlier[Self.waitingPosts] : 0
    }

    /// Marks a slot as in use. Its old counts stay until ``set(_:of:in:)``.
    ///
    /// - Returns: whether there is such a slot, which nobody uses.
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

    /// A slot that nobody uses.
    func allocate() -> UInt32 {
        if let slot = freeSlots.popLast() { return slot }
        nextSlot += 1
        return nextSlot - 1
    }

    func free(_ slot: UInt32) {
        freeSlots.append(slot)
    }

    /// Gives a slot to a client that has these counts.
    func set(
        _ counts: ClientCounts, waiting: UInt64 = 0, of client: ClientName, in slot: UInt32
    ) throws(FileError) {
        // All goes on in memory, also where the file can't grow.
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

    /// A number is about to be used, when it was written: ``writeCounts()``.
    ///
    /// - Parameter serial: of what it is for; 0 for a loss.
    func count(_ sequence: UInt64, serial: UInt64, in slot: UInt32) {
        // A word about losses may stand before what has its numbers already, as where a channel ends.
        guard sequence >= self[slot, .sequence] else { return }
        self[slot, .sequence] = sequence
        self[slot, .serial] = serial
        changedSlots.append(slot)
    }

    /// The bus has carried all up to this number; to be written by ``writeCounts()``.
    ///
    /// - Parameter count: of the last numbers, which do not count as carried.
    func confirm(
        _ sequence: UInt64, delivered: UInt64, dropped: UInt64, withholding count: UInt64 = 0, in slot: UInt32
    ) {
        self[slot, .confirmed] = min(max(self[slot, .confirmed], sequence), most(withholding: count, in: slot))
        self[slot, .delivered] += delivered
        self[slot, .dropped] += dropped
        changedSlots.append(slot)
    }

    /// Writes what was counted: what goes to many clients at once with one call, as their slots are near each other.
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

    /// So many of the last numbers do not count as carried; to be written by ``writeCounts()``.
    func withhold(_ count: UInt64, in slot: UInt32) {
        self[slot, .confirmed] = min(self[slot, .confirmed], most(withholding: count, in: slot))
        changedSlots.append(slot)
    }

    private func most(withholding count: UInt64, in slot: UInt32) -> UInt64 {
        self[slot, .sequence] - min(count, self[slot, .sequence])
    }

    /// So much waits for the client that is not in the log; to be written by ``writeCounts()``.
    func setWaiting(_ count: UInt64, in slot: UInt32) throws(FileError) {
        try grow(toHold: Int(slot))
        guard self[slot, .waiting] != count else { return }
        self[slot, .waiting] = count
        changedSlots.append(slot)
    }

    /// So many posts wait in posters' queues that are not in the log.
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

    /// - Returns: whether it had to.
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

    /// By which a slot is known to be the client's (FNV-1a). Never 0, which is in a slot of nobody.
    private static func owner(_ client: ClientName) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in client.rawValue.utf8 { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
        return hash | 1
    }
}
