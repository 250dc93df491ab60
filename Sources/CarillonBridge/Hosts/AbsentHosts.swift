// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The hosts that are offline, and the end of their values in this session after a long absence (R8, `absence-expiry`).
/// A machine that is gone for good thus leaves nothing behind. ``Importer`` uses it. Times are wall-clock times in
/// microseconds since 1970, because they outlive processes.
///
/// A host that the saved state calls absent may have been online while this bridge was away. Its values therefore do
/// not end before the broker has had time to show the hosts that are online.
final class AbsentHosts {
    /// The maximum absence, in microseconds; 0 for no limit.
    private let expiry: Int64
    private let context: MainContext
    /// Returns the wall-clock time.
    private let time: () -> Int64
    /// Ends the values of hosts in the session.
    private let end: ([Origin]) -> Void
    /// The absent hosts, with the beginning of each absence.
    private var since: [Origin: Int64] = [:]
    /// The quota of each machine in `since`.
    private var machines = MachineCounts(max: HostTable.maxHosts)
    /// The hosts whose values have ended, in this process or an earlier one. Values that the broker still has of them
    /// are ignored.
    private var over: Set<Origin> = []
    /// The hosts whose values this process has ended.
    private var reported: Set<Origin> = []
    /// The time at which the broker has shown the hosts that are online; nil without a connection.
    private var trusted: SuspendingClock.Instant?
    /// Runs until the next values end.
    private var timer: EventSource?

    /// The time from a connection until the broker has shown the hosts that are online, in microseconds: the 90 seconds
    /// of ``HostConfirmation``, in which hosts connect again, and 5 seconds for its query.
    private static let trust: Int64 = 95_000_000
    /// The beginning of 2020, in microseconds since 1970. A wall clock with an earlier time is not set yet.
    private static let earliest: Int64 = 1_577_836_800_000_000
    /// The maximum length of the timer, in milliseconds. The wall clock may be set meanwhile.
    private static let maxWait: Int64 = 86_400_000

    /// Creates a table without hosts.
    ///
    /// - Parameters:
    ///   - seconds: the time after which the values of an absent host end; 0 for never.
    ///   - time: returns microseconds since 1970 in UTC.
    ///   - end: receives hosts whose values are to end. Called from the loop.
    init(after seconds: UInt32, context: MainContext, time: @escaping () -> Int64, end: @escaping ([Origin]) -> Void) {
        expiry = Int64(seconds) * 1_000_000
        self.context = context
        self.time = time
        self.end = end
    }

    /// Returns the absences for the next process.
    ///
    /// - Parameter present: the hosts that are online. For the next process their absence begins now.
    func saved(present: some Sequence<Origin> = []) -> [Origin: Int64] {
        var saved = since
        for origin in present where saved[origin] == nil { saved[origin] = time() }
        return saved
    }

    /// Restores the absences that an earlier bridge has saved.
    ///
    /// - Parameter isPresent: returns whether a host is online, so that it is not absent.
    func restore(_ saved: [Origin: Int64], unless isPresent: (Origin) -> Bool = { _ in false }) {
        let now = time()
        for (origin, time) in saved
        where since[origin] == nil && !isPresent(origin) && machines.hasSpace(for: origin) {
            machines.add(origin)
            // A time in the future would delay the end. A wall clock that is not set can't correct it.
            since[origin] = now < Self.earliest ? time : min(time, now)
            if expiry > 0, now - time >= expiry { over.insert(origin) }
        }
        watch()
    }

    /// Notes whether a host is online.
    ///
    /// - Returns: whether it is online again after its values have ended, so that they have to be fetched.
    func follow(_ origin: Origin, isOnline: Bool) -> Bool {
        guard isOnline else {
            guard since[origin] == nil, machines.hasSpace(for: origin) else { return false }
            machines.add(origin)
            since[origin] = time()
            // This absence ends later than those for which the timer runs already.
            if timer == nil { watch() }
            return false
        }
        return forget(origin)
    }

    /// Forgets the absence of a host.
    ///
    /// - Returns: whether its values have ended.
    @discardableResult
    func forget(_ origin: Origin) -> Bool {
        guard since.removeValue(forKey: origin) != nil else { return false }
        machines.remove(origin)
        reported.remove(origin)
        return over.remove(origin) != nil
    }

    /// The absent hosts.
    var hosts: [Origin] { Array(since.keys) }

    /// Whether the values of a host have ended, so that the bridge ignores the values that the broker still has.
    func isOver(_ origin: Origin) -> Bool { over.contains(origin) }

    /// Begins the time in which the broker shows the hosts that are online.
    func connected() {
        trusted = context.now + .microseconds(Self.trust)
        watch()
    }

    /// Stops the timer. Without a connection no absence is certain.
    func connectionEnded() { (trusted, timer) = (nil, nil) }

    /// Returns the wall-clock time at which the values of a host end.
    private func dueTime(_ since: Int64, _ trusted: Int64) -> Int64 {
        // The connection began at `trusted` minus `trust`. An absence that began on it is certain. An earlier one also
        // needs the broker's confirmation.
        since + Self.trust < trusted ? max(since + expiry, trusted) : since + expiry
    }

    /// The time of `trusted` on the wall clock; nil without a connection, and while the wall clock is not set.
    private var trustedTime: Int64? {
        let now = time()
        guard let trusted, now >= Self.earliest else { return nil }
        return now + (trusted - context.now).microseconds
    }

    /// Sets the absences that began before the wall clock was set to begin now.
    private func beginUnknown() {
        let now = time()
        for (origin, time) in since where time < Self.earliest { since[origin] = now }
    }

    /// Starts the timer for the next values that end.
    private func watch() {
        timer = nil
        guard expiry > 0, !since.isEmpty, trusted != nil else { return }
        guard let trusted = trustedTime else { return wait(Self.trust / 1_000) }
        beginUnknown()
        let now = time()
        let next = since.lazy.filter { [reported] in !reported.contains($0.key) }.map {
            self.dueTime($0.value, trusted)
        }.min()
        guard let next else { return }
        wait(min(max(0, next - now) / 1_000 + 1, Self.maxWait))
    }

    /// Starts the timer.
    private func wait(_ milliseconds: Int64) {
        timer = .once(milliseconds: UInt32(milliseconds), on: context) { [unowned self] in
            timer = nil
            look()
        }
    }

    /// Ends the values of the hosts whose time is over.
    private func look() {
        guard let trusted = trustedTime else { return watch() }
        beginUnknown()
        let now = time()
        let due = since.filter { !reported.contains($0.key) && dueTime($0.value, trusted) <= now }.keys
        reported.formUnion(due)
        over.formUnion(due)
        if !due.isEmpty { end(due.sorted { $0.text < $1.text }) }
        watch()
    }
}
