// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The hosts that are not there, and the end of their values when that was so for long (R8): a machine that is gone for good
/// leaves nothing behind for ever. Times are those of the day, in microseconds since 1970, as they outlive processes.
///
/// A host that this bridge has heard of as offline may have been there while the bridge was away. So its time is not over before
/// the broker has had time to show who is there.
final class AbsentHosts {
    private let expiry: Int64
    private let context: MainContext
    private let time: () -> Int64
    private let end: ([Origin]) -> Void
    private var since: [Origin: Int64] = [:]
    private var machines = MachineCounts(max: HostTable.most)
    /// Those whose time is over, and those of them whose values were ended by this process.
    private var over: Set<Origin> = []
    private var told: Set<Origin> = []
    /// When the broker has shown who is there; nil without a connection.
    private var trusted: SuspendingClock.Instant?
    private var timer: EventSource?

    /// The broker's time to show who is there, and theirs to connect to it.
    private static let trust: Int64 = 95_000_000
    /// The beginning of 2020. A machine whose clock shows an earlier time does not know it yet.
    private static let earliest: Int64 = 1_577_836_800_000_000
    /// The maximum of a timer, in milliseconds: the time of the day may be set.
    private static let maxWait: Int64 = 86_400_000

    /// - Parameters:
    ///   - seconds: after which the values of a host end; 0 for never.
    ///   - time: microseconds since 1970 in UTC.
    ///   - end: gets hosts whose time is over. Called from the loop.
    init(after seconds: UInt32, context: MainContext, time: @escaping () -> Int64, end: @escaping ([Origin]) -> Void) {
        expiry = Int64(seconds) * 1_000_000
        self.context = context
        self.time = time
        self.end = end
    }

    /// Since when each is not there.
    ///
    /// - Parameter present: those that are there: if they are not when the next process starts, this one was the last to know.
    func saved(present: some Sequence<Origin> = []) -> [Origin: Int64] {
        var saved = since
        for origin in present where saved[origin] == nil { saved[origin] = time() }
        return saved
    }

    /// Goes on with what an earlier bridge knew.
    ///
    /// - Parameter isPresent: whether a host is known to be there, by an earlier bridge of this process.
    func restore(_ saved: [Origin: Int64], unless isPresent: (Origin) -> Bool = { _ in false }) {
        let now = time()
        for (origin, time) in saved
        where since[origin] == nil && !isPresent(origin) && machines.hasRoom(for: origin) {
            machines.add(origin)
            since[origin] = now < Self.earliest ? time : min(time, now)
            if expiry > 0, now - time >= expiry { over.insert(origin) }
        }
        watch()
    }

    /// Something is new about a host.
    ///
    /// - Returns: whether it is there again, and its values have ended or are not taken.
    func follow(_ origin: Origin, isOnline: Bool) -> Bool {
        guard isOnline else {
            guard since[origin] == nil, machines.hasRoom(for: origin) else { return false }
            machines.add(origin)
            since[origin] = time()
            // Its time is over later than that of all that are waited for.
            if timer == nil { watch() }
            return false
        }
        return forget(origin)
    }

    /// - Returns: whether its values have ended, or are not taken.
    @discardableResult
    func forget(_ origin: Origin) -> Bool {
        guard since.removeValue(forKey: origin) != nil else { return false }
        machines.remove(origin)
        told.remove(origin)
        return over.remove(origin) != nil
    }

    /// Those that are not there.
    var hosts: [Origin] { Array(since.keys) }

    /// Whether values of the host that the broker still has are not to be taken.
    func isOver(_ origin: Origin) -> Bool { over.contains(origin) }

    func connected() {
        trusted = context.now + .microseconds(Self.trust)
        watch()
    }

    func connectionEnded() { (trusted, timer) = (nil, nil) }

    private func dueTime(_ since: Int64, _ trusted: Int64) -> Int64 {
        // The word of this connection is certain.
        since + Self.trust < trusted ? max(since + expiry, trusted) : since + expiry
    }

    /// When the broker has shown who is there, by the time of the day; nil without a connection, and while that is not known.
    private var trustedTime: Int64? {
        let now = time()
        guard let trusted, now >= Self.earliest else { return nil }
        return now + (trusted - context.now).microseconds
    }

    /// The time is known: those that were heard of before are not there since now.
    private func beginUnknown() {
        let now = time()
        for (origin, time) in since where time < Self.earliest { since[origin] = now }
    }

    private func watch() {
        timer = nil
        guard expiry > 0, !since.isEmpty, trusted != nil else { return }
        guard let trusted = trustedTime else { return wait(Self.trust / 1_000) }
        beginUnknown()
        let now = time()
        let next = since.lazy.filter { [told] in !told.contains($0.key) }.map { self.dueTime($0.value, trusted) }.min()
        guard let next else { return }
        wait(min(max(0, next - now) / 1_000 + 1, Self.maxWait))
    }

    private func wait(_ milliseconds: Int64) {
        timer = .once(milliseconds: UInt32(milliseconds), on: context) { [unowned self] in
            timer = nil
            look()
        }
    }

    private func look() {
        guard let trusted = trustedTime else { return watch() }
        beginUnknown()
        let now = time()
        let due = since.filter { !told.contains($0.key) && dueTime($0.value, trusted) <= now }.keys
        told.formUnion(due)
        over.formUnion(due)
        if !due.isEmpty { end(due.sorted { $0.text < $1.text }) }
        watch()
    }
}
