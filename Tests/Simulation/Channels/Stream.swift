// SPDX-License-Identifier: Apache-2.0
/// A model of a pair of connected stream sockets, as unix(7) has them: bounded both ways, and cut at any byte where there is
/// no room for more.
final class Stream {
    enum Reading: Equatable {
        case bytes(Int)
        case nothing
        case end
        /// The other end was closed with something unread in it. Told once, behind all that it wrote.
        case reset
    }

    /// One of its two ends.
    final class End {
        fileprivate(set) weak var other: End?
        /// What the other end may write until this one reads, in bytes.
        let capacity: Int
        /// Told when something has changed that may be waited for.
        var onChange: (() -> Void)?
        /// What was written by the other end and not read, from `first` on.
        private var inbox: [UInt8] = []
        private var first = 0
        private(set) var isOpen = true
        private var readsNoMore = false
        private var writesNoMore = false
        private var isResetDue = false

        fileprivate init(capacity: Int) {
            self.capacity = capacity
        }

        var unreadBytes: Int { inbox.count - first }

        /// Whether a read would not wait.
        var isReadable: Bool { unreadBytes > 0 || readsNoMore || isResetDue }
        /// Whether there is room as poll(2) sees it: a quarter of what is there at most is unread.
        var isWritable: Bool { (other?.unreadBytes ?? 0) * 4 <= (other?.capacity ?? 0) }
        var isHungUp: Bool { readsNoMore && writesNoMore }
        var hasError: Bool { isResetDue }
        /// Whether something that was written lies unread in the other end.
        var isAnythingUnread: Bool { (other?.unreadBytes ?? 0) > 0 }
        /// How much of what comes next would be taken; nil where nobody reads it.
        var room: Int? {
            guard isOpen, !writesNoMore, let other, other.isOpen, !other.readsNoMore else { return nil }
            return max(0, other.capacity - other.unreadBytes)
        }

        /// - Returns: how many bytes were taken; nil when nobody reads them.
        func write(_ bytes: UnsafeRawBufferPointer) -> Int? {
            guard let room, let other else { return nil }
            let count = min(room, bytes.count)
            guard count > 0 else { return 0 }
            other.inbox += bytes[..<count]
            other.onChange?()
            return count
        }

        func read(into memory: UnsafeMutableRawBufferPointer) -> Reading {
            guard isOpen else { return .end }
            let count = min(memory.count, unreadBytes)
            guard count > 0 else {
                guard isResetDue else { return readsNoMore ? .end : .nothing }
                isResetDue = false
                return .reset
            }
            inbox.withUnsafeBytes { bytes in
                memory.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[first..<first + count]))
            }
            first += count
            if first == inbox.count || first > 64 << 10 {
                inbox.removeFirst(first)
                first = 0
            }
            // Whoever waits for room is woken when there is enough, and once.
            if (unreadBytes + count) * 4 > capacity, unreadBytes * 4 <= capacity { other?.onChange?() }
            return .bytes(count)
        }

        /// The other end can't write any more; what it has written can be read.
        func stopReading() {
            readsNoMore = true
            other?.writesNoMore = true
            other?.onChange?()
        }

        /// The other end reads its end behind what was written.
        func stopWriting() {
            writesNoMore = true
            other?.readsNoMore = true
            other?.onChange?()
        }

        func close() {
            guard isOpen else { return }
            isOpen = false
            onChange = nil
            let isAnythingLost = unreadBytes > 0
            (inbox, first) = ([], 0)
            guard let other else { return }
            (other.readsNoMore, other.writesNoMore) = (true, true)
            if isAnythingLost { other.isResetDue = true }
            other.onChange?()
        }
    }

    let service: End
    let client: End

    /// - Parameters:
    ///   - toService: what the service may leave unread, in bytes.
    ///   - toClient: the same for the client.
    init(toService: Int, toClient: Int) {
        service = End(capacity: toService)
        client = End(capacity: toClient)
        service.other = client
        client.other = service
    }
}
