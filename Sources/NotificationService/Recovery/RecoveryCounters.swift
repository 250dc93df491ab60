import NotificationCore

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Counts that change with every delivery, in a file that is mapped into memory: keeping one costs a store, and the
/// file outlives the process.
///
/// Layout: slots of 32 bytes. Slot 0 has the last serial and the last observer's number; each other slot a client's
/// sequence, deliveries and losses. Each number is one aligned 8-byte store, so that it is never half written.
final class RecoveryCounters {
    private static let slotSize = 32
    private let descriptor: Int32
    private let path: String
    private var memory: UnsafeMutableRawPointer
    private var slotCount: Int
    private var freeSlots: [UInt32] = []
    private var nextSlot: UInt32 = 1

    /// Opens the file at `path`, or makes it.
    init(path: String) throws(RecoveryLog.Failure) {
        self.path = path
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw RecoveryLog.Failure(operation: "open \(path)", code: errno) }
        var status = stat()
        fstat(descriptor, &status)
        let slotCount = max(128, Int(status.st_size) / Self.slotSize)
        do throws(RecoveryLog.Failure) {
            memory = try Self.map(descriptor, slotCount: slotCount, path)
        } catch {
            close(descriptor)
            throw error
        }
        self.descriptor = descriptor
        self.slotCount = slotCount
    }

    deinit {
        munmap(memory, slotCount * Self.slotSize)
        close(descriptor)
    }

    /// The last serial that was used.
    var serial: UInt64 {
        get { load(0, 0) }
        set { store(newValue, 0, 0) }
    }

    /// The last observer's number that was used.
    var observer: UInt64 {
        get { load(0, 1) }
        set { store(newValue, 0, 1) }
    }

    /// The counts in a slot that an earlier process used; nil when the file has no such slot.
    func counts(in slot: UInt32) -> ClientCounts? {
        guard slot > 0, slot < slotCount else { return nil }
        return ClientCounts(sequence: load(slot, 0), delivered: load(slot, 1), dropped: load(slot, 2))
    }

    func set(_ counts: ClientCounts, in slot: UInt32) {
        store(counts.sequence, slot, 0)
        store(counts.delivered, slot, 1)
        store(counts.dropped, slot, 2)
    }

    func countDelivery(_ sequence: UInt64, in slot: UInt32) {
        store(sequence, slot, 0)
        store(load(slot, 1) + 1, slot, 1)
    }

    func countLoss(_ sequence: UInt64, _ count: UInt64, in slot: UInt32) {
        store(sequence, slot, 0)
        store(load(slot, 2) + count, slot, 2)
    }

    /// A slot that nobody uses, with all counts zero.
    func allocate() throws(RecoveryLog.Failure) -> UInt32 {
        let slot = freeSlots.popLast() ?? nextSlot
        if slot == nextSlot {
            nextSlot += 1
            try grow(toHold: Int(slot))
        }
        set(ClientCounts(), in: slot)
        return slot
    }

    /// Marks a slot that an earlier process used as in use.
    func reserve(_ slot: UInt32) {
        if slot >= nextSlot { freeSlots += nextSlot..<slot }
        freeSlots.removeAll { $0 == slot }
        nextSlot = max(nextSlot, slot + 1)
    }

    func free(_ slot: UInt32) {
        freeSlots.append(slot)
    }

    func remove() {
        unlink(path)
    }

    private func load(_ slot: UInt32, _ field: Int) -> UInt64 {
        memory.load(fromByteOffset: Int(slot) * Self.slotSize + 8 * field, as: UInt64.self)
    }

    private func store(_ value: UInt64, _ slot: UInt32, _ field: Int) {
        memory.storeBytes(of: value, toByteOffset: Int(slot) * Self.slotSize + 8 * field, as: UInt64.self)
    }

    private func grow(toHold slot: Int) throws(RecoveryLog.Failure) {
        guard slot >= slotCount else { return }
        let larger = try Self.map(descriptor, slotCount: 2 * slotCount, path)
        munmap(memory, slotCount * Self.slotSize)
        memory = larger
        slotCount *= 2
    }

    private static func map(
        _ descriptor: Int32, slotCount: Int, _ path: String
    ) throws(RecoveryLog.Failure) -> UnsafeMutableRawPointer {
        let size = slotCount * slotSize
        // Allocated, not only made longer: a store into a page that a full file system can't give would be a SIGBUS.
        let code = posix_fallocate(descriptor, 0, off_t(size))
        guard code == 0 else { throw RecoveryLog.Failure(operation: "allocate \(path)", code: code) }
        let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
        guard let memory, memory != MAP_FAILED else {
            throw RecoveryLog.Failure(operation: "map \(path)", code: errno)
        }
        return memory
    }
}
