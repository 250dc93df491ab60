// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The absent hosts, and the end of their values after a long absence (R8): a machine that is gone for good leaves
/// nothing behind. Times are wall-clock times in microseconds since 1970, because they outlive processes.
///
/// A host that this bridge knows as offline may have been online while the bridge was away. Its time therefore does not
/// end before the broker has had time to show which hosts are online.
final class AbsentHosts {
    private let expiry: Int64
    private let context: MainContext
    private let time: () -> Int64
    private let end: ([Origin]) -> Void
    private var since: [Origin: Int64] = [:]
    private var machines = MachineCounts(max: HostTable.most)
    /// The hosts whose time is over; `told` has the hosts among them whose values this process has ended.
    private var over: Set<Origin> = []
    private var told: Set<Origin> = []
    /// The time at which the broker has shown which hosts are online; nil without a connection.
    private var trusted: SuspendingClock.Instant?
    private var timer: EventSource?

    /// The time for the broker to show which hosts are online, and for hosts to connect to it, in microseconds.
    private static let trust: Int64 = 95_000_000
    /// The beginning of 2020, in microseconds since 1970. A clock with an earlier time is not set yet.
    private static let earliest: Int64 = 1_577_836_800_000_000
    /// The maximum of a timer, in milliseconds: the wall clock may be set meanwhile.
    private static let maxWait: Int64 = 86_400_000

    /// - Parameters:
    ///   - seconds: the time after which the values of an absent host end; 0 for never.
    ///   - time: returns microseconds since 1970 in UTC.
    ///   - end: receives hosts whose time is over. Called from the loop.
    init(after seconds: UInt32, context: MainContext, time: @escaping () -> Int64, end: @escaping ([Origin]) -> Void) {
        expiry = Int64(seconds) * 1_000_000
        self.context = context
        self.time = time
        self.end = end
    }

    /// Returns the time since when each host is absent.
    ///
    /// - Parameter present: the hosts that are online. If they are offline when the next process starts, this process
    ///   was the last to see them.
    func saved(present: some Sequence<Origin> = []) -> [Origin: Int64] {
        var saved = since
        for origin in present where saved[origin] == nil { saved[origin] = time() }
        return saved
    }

    /// Restores the absences that an earlier bridge knew.
    ///
    /// - Parameter isPresent: whether an earlier bridge of this process knows a host as online.
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

    /// Notes whether a host is online.
    ///
    /// - Returns: whether it is online again, and its values have ended or are not taken.
    func follow(_ origin: Origin, isOnline: Bool) -> Bool {
        guard isOnline else {
            guard since[origin] == nil, machines.hasRoom(for: origin) else { return false }
            machines.add(origin)
            since[origin] = time()
            // Its time is over later than that of all hosts that the timer is for.
            if timer == nil { watch() }
            return false
        }
        return forget(origin)
    }

    /// Forgets the absence of a host.
    ///
    /// - Returns: whether its values have ended, or are not taken.
    @discardableResult
    func forget(_ origin: Origin) -> Bool {
        guard since.removeValue(forKey: origin) != nil else { return false }
        machines.remove(origin)
        told.remove(origin)
        return over.remove(origin) != nil
    }

    /// The absent hosts.
    var hosts: [Origin] { Array(since.keys) }

    /// Whether the bridge ignores values of the host that the broker still has.
    func isOver(_ origin: Origin) -> Bool { over.contains(origin) }

    func connected() {
        trusted = context.now + .microseconds(Self.trust)
        watch()
    }

    func connectionEnded() { (trusted, timer) = (nil, nil) }

    private func dueTime(_ since: Int64, _ trusted: Int64) -> Int64 {
        // An absence that was seen on this connection is certain.
        since + Self.trust < trusted ? max(since + expiry, trusted) : since + expiry
    }

    /// The wall-clock time at which the broker has shown which hosts are online; nil without a connection, and while
    /// the clock is not set.
    private var trustedTime: Int64? {
        let now = time()
        guard let trusted, now >= Self.earliest else { return nil }
        return now + (trusted - context.now).microseconds
    }

    /// Sets absences from before the clock was set to begin now.
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
