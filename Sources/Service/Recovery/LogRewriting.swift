// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// The rewriting of a log part by part, while the old log is still appended to (E3, E8).
///
/// The new log gets a snapshot of the state at the beginning, and behind it all records that were appended to the old
/// log since then. With the last part it takes the place of the old log. If the process dies before, the old log is
/// complete.
///
/// Each part is bounded. It has at least four times the bytes that were appended since the last part, so that rewriting
/// comes to an end.
final class LogRewriting {
    /// The size of a part when little was appended.
    private static let bytesInPart = 128 << 10
    private static let changesInPart = 512
    private static let changesInRun = 32
    private static let timesAppended = 4

    private let old: RecoveryLog
    private let new: RecoveryLog.NewLog
    private var snapshot: StateSnapshot
    private var encoder = ChangeEncoder()
    /// The slots of the clients in the snapshot.
    private let slots: [ClientName: UInt32]
    private let isWanted: (Change) -> Bool
    private var isTold = false
    /// The offset in the old log behind which its records are not in the new log.
    private var offset: Int
    /// The size of the old log at the last part.
    private var lastSize: Int
    /// The size of the snapshot in the new log, in bytes.
    private(set) var size = 0

    /// Begins to rewrite a log.
    ///
    /// - Parameters:
    ///   - old: the old log. Records that are appended from now on must not refer to earlier ones.
    ///   - snapshot: the state that the log holds.
    ///   - slots: the slots of clients in the counters.
    ///   - isWanted: whether a change is kept.
    ///   - head: writes the records ahead of the state.
    /// - Throws: ``FileError`` when the new log can't be created.
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
    /// - Throws: ``FileError``; with the reason `tooLarge` when the snapshot exceeds `most`. The caller then gives the
    ///   rewriting up.
    func goOn(atMost most: Int) throws(FileError) -> Bool {
        let least = Self.timesAppended * (old.size - lastSize)
        if !isTold { try tell(atLeast: least, atMost: most) }
        if isTold {
            offset = try old.finishReplacing(with: new, from: offset, atMost: max(Self.bytesInPart, least))
        }
        lastSize = old.size
        return isTold && offset == old.size
    }

    private func tell(atLeast least: Int, atMost most: Int) throws(FileError) {
        let start = new.size
        var count = 0
        repeat {
            var failure: FileError?
            isTold = !snapshot.next(Self.changesInRun) { change in
                guard failure == nil, isWanted(change) else { return }
                encoder.encode(change, slot: { slots[$0] ?? 0 }, to: &new.group)
                do throws(FileError) { try new.recordEnded() } catch { failure = error }
            }
            if let failure { throw failure }
            size = new.size
            guard size <= most else { throw new.tooLarge(limit: most) }
            count += Self.changesInRun
        } while !isTold
            && (size - start < least || size - start < Self.bytesInPart && count < Self.changesInPart)
    }

    /// Waits. The next part need not make up for the records that have been appended by now.
    func wait() { lastSize = old.size }

    func giveUp() { new.remove() }
}
