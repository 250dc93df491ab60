// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The incremental rewriting of a recovery log (log compaction): a new log is written in parts, one per event, while
/// records are still appended to the old log (E3, E8). ``RecoveryStore`` uses it.
///
/// The new log gets a snapshot of the state at the beginning of the rewriting, and behind it a copy of the records that
/// were appended to the old log since then. With the last part it replaces the old log. If the process dies before, the
/// old log is complete.
///
/// A part is bounded, so that no event takes long. It has at least four times the bytes that were appended since the
/// last part, so that rewriting comes to an end.
final class LogRewriting {
    /// The number of bytes, or of changes, after which a part ends if few bytes were appended meanwhile.
    private static let bytesInPart = 128 << 10
    private static let changesInPart = 512
    /// The number of changes between two checks of these limits.
    private static let changesInRun = 32
    /// The minimum size of a part, as a multiple of the bytes that were appended since the last part.
    private static let timesAppended = 4

    private let old: RecoveryLog
    private let new: RecoveryLog.NewLog
    /// The changes of the snapshot that are not written yet.
    private var snapshot: StateSnapshot
    private var encoder = ChangeEncoder()
    /// The slots of the clients in the counters, when the snapshot was taken.
    private let slots: [ClientName: UInt32]
    /// Returns whether a change belongs into the new log.
    private let isWanted: (Change) -> Bool
    /// Whether the whole snapshot is written.
    private var isSnapshotWritten = false
    /// The offset in the old log up to which it is covered by the new log.
    private var offset: Int
    /// The size of the old log at the last part, in bytes.
    private var lastSize: Int
    /// The size of the new log up to the end of the snapshot, in bytes.
    private(set) var size = 0

    /// Begins to rewrite a log.
    ///
    /// - Parameters:
    ///   - old: the old log. Records that are appended from now on must not refer to earlier ones, which are not
    ///     copied.
    ///   - snapshot: the present state, of which the old log is a record.
    ///   - slots: the slots of clients in the counters.
    ///   - isWanted: returns whether a change of the snapshot belongs into the new log.
    ///   - head: writes the records before the snapshot.
    /// - Throws: ``FileError`` if the new log can't be created.
    init(
        of old: RecoveryLog, snapshot: StateSnapshot, slots: [ClientName: UInt32],
        isWanted: @escaping (Change) -> Bool, head: (inout RecordGroup) -> Void
    ) throws(FileError) {
        self.old = old
        self.snapshot = snapshot
        self.slots = slots
        self.isWanted = isWanted
        new = try old.beginReplacing()
        offset = old.size
        lastSize = old.size
        head(&new.group)
    }

    /// Writes the next part.
    ///
    /// - Parameter most: the maximum size of the snapshot, in bytes.
    /// - Returns: whether the part was the last.
    /// - Throws: ``FileError``; with the reason `tooLarge` if the snapshot exceeds `most`. The caller then calls
    ///   ``giveUp()``.
    func writePart(atMost most: Int) throws(FileError) -> Bool {
        let least = Self.timesAppended * (old.size - lastSize)
        if !isSnapshotWritten { try writeSnapshotPart(atLeast: least, atMost: most) }
        if isSnapshotWritten {
            offset = try old.finishReplacing(with: new, from: offset, atMost: max(Self.bytesInPart, least))
        }
        lastSize = old.size
        return isSnapshotWritten && offset == old.size
    }

    /// Writes a part of the snapshot.
    ///
    /// - Parameters:
    ///   - least: the minimum size of the part, in bytes.
    ///   - most: the maximum size of the whole snapshot, in bytes.
    private func writeSnapshotPart(atLeast least: Int, atMost most: Int) throws(FileError) {
        let start = new.size
        var count = 0
        repeat {
            var failure: FileError?
            isSnapshotWritten = !snapshot.next(Self.changesInRun) { change in
                guard failure == nil, isWanted(change) else { return }
                encoder.encode(change, slot: { slots[$0] ?? 0 }, to: &new.group)
                do throws(FileError) { try new.recordEnded() } catch { failure = error }
            }
            if let failure { throw failure }
            size = new.size
            guard size <= most else { throw new.tooLarge(limit: most) }
            count += Self.changesInRun
        } while !isSnapshotWritten
            && (size - start < least || size - start < Self.bytesInPart && count < Self.changesInPart)
    }

    /// Writes no part in this event. The records that were appended by now do not count for the size of the next part.
    func wait() { lastSize = old.size }

    /// Abandons the new log.
    func giveUp() { new.remove() }
}
