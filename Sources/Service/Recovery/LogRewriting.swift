// SPDX-License-Identifier: Apache-2.0
import CarillonCore
import CarillonMainLoop

/// A log that is written anew part by part, while the one that there is goes on (E3, E8).
///
/// The new one has the state of the moment in which that began, and behind it all that was appended to the old one since.
/// With the last part it takes the place of the old one. A process that dies before leaves that one, which has everything.
///
/// Each part is bounded, and has four times what was appended since the last one, so that this comes to an end.
final class LogRewriting {
    /// What a part has where little was appended.
    private static let bytesInPart = 128 << 10
    private static let changesInPart = 512
    private static let changesInRun = 32
    private static let timesAppended = 4

    private let old: RecoveryLog
    private let new: RecoveryLog.NewLog
    private var snapshot: StateSnapshot
    private var encoder = ChangeEncoder()
    /// Those of the moment of the snapshot.
    private let slots: [ClientName: UInt32]
    private let isWanted: (Change) -> Bool
    private var isTold = false
    /// From there on what the old log has came after the snapshot, and is not in the new one.
    private var offset: Int
    /// The old log's size with the last part.
    private var lastSize: Int
    /// What the snapshot takes in the log.
    private(set) var size = 0

    /// - Parameters:
    ///   - old: nothing that is appended to it from now on may refer to what stands before that.
    ///   - snapshot: of the state that it has.
    ///   - slots: where the counts of clients are.
    ///   - isWanted: whether a change is kept.
    ///   - head: writes the records that stand before the state.
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
    /// - Parameter most: of the bytes of the snapshot.
    /// - Returns: whether it was the last.
    /// - Throws: ``FileError``, of too large a file when there are more; then it is to be given up.
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

    /// Changes that are appended before the first part have no part of their own.
    func wait() { lastSize = old.size }

    func giveUp() { new.remove() }
}
