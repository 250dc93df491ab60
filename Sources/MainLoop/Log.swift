// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// Structured logging through GLib: to the journal when standard error goes there, to standard error otherwise. All
/// programs and libraries of the package log through it.
///
/// Extra fields become journal fields (`CARILLON_CLIENT=:1.42`), so that `journalctl CARILLON_CLIENT=:1.42` finds the
/// lines about one client. Payloads are never logged. Threads: any.
package enum Log {
    package enum Level: Sendable {
        /// A failure because of which the program can't do its work.
        case critical
        /// A loss or a refusal.
        case warning
        /// A normal event that an administrator wants to see.
        case notice
        /// Shown only with `G_MESSAGES_DEBUG=carillon` (or `all`).
        case info
        case debug
    }

    /// Journal fields; the names are upper case, as the journal requires.
    package typealias Fields = KeyValuePairs<StaticString, String>

    /// Sends every level to standard error, including the levels that GLib would print on standard output.
    package static func useStandardError() {
        g_log_writer_default_set_use_stderr(1)
    }

    /// Shows ``Level/info`` and ``Level/debug`` as well. Call before other threads start.
    package static func showAll() {
        g_setenv("G_MESSAGES_DEBUG", domain, 1)
    }

    /// Whether standard error goes to the journal, which records the level of each line.
    package static var goesToJournal: Bool { g_log_writer_is_journald(2) != 0 }

    /// Stops the output of the level ``Level/notice``. Call before other threads start.
    package static func hideNotices() { hidesNotices.store(true, ordering: .relaxed) }

    private static let hidesNotices = Atomic<Bool>(false)

    /// Sends every line that this thread logs in `body`, of each level, to `sink` instead. A simulation thus records
    /// log lines among its other events.
    package static func redirected<Result>(
        to sink: @escaping (Level, () -> String) -> Void, while body: () throws -> Result
    ) rethrows -> Result {
        let before = sinkOfThread.value
        sinkOfThread.value = Sink(sink)
        defer { sinkOfThread.value = before }
        isRedirected.store(true, ordering: .relaxed)
        return try body()
    }

    /// Whether any thread has ever redirected its log. If not, a log call skips the lookup of the thread's sink.
    private static let isRedirected = Atomic<Bool>(false)
    private static let sinkOfThread = ThreadLocal<Sink>()

    private final class Sink {
        let write: (Level, () -> String) -> Void

        init(_ write: @escaping (Level, () -> String) -> Void) {
            self.write = write
        }
    }

    // The message and the fields are created only when the level is enabled.

    package static func critical(_ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]) {
        write(.critical, message, fields)
    }
    package static func warning(_ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]) {
        write(.warning, message, fields)
    }
    package static func notice(_ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]) {
        write(.notice, message, fields)
    }
    package static func info(_ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]) {
        write(.info, message, fields)
    }
    package static func debug(_ message: @autoclosure () -> String, _ fields: @autoclosure () -> Fields = [:]) {
        write(.debug, message, fields)
    }

    /// Counts an event that may repeat without end, such as a mistake of a client, and decides whether it is logged.
    /// Only the 1st, 2nd, 4th, 8th … event is logged, so that the events do not fill the journal.
    ///
    /// - Parameters:
    ///   - count: the number of events so far, which the caller stores.
    ///   - times: the number of events to add.
    /// - Returns: the new number of events, if the event is to be logged; otherwise nil.
    package static func throttle(_ count: inout UInt64, times: UInt64 = 1) -> UInt64? {
        let before = count
        count += times
        return count.leadingZeroBitCount < before.leadingZeroBitCount ? count : nil
    }

    /// The same limit for events that several clients cause (*culprits*): in addition, the first event of each culprit
    /// is logged, for up to 32 culprits between two doublings of the count.
    package struct Throttle<Culprit: Hashable> {
        private var count: UInt64 = 0
        /// The hashes of the culprits that were logged since the count last doubled. Hashes instead of the culprits
        /// keep no object alive.
        private var named: Set<Int> = []
        private static var maxNamed: Int { 32 }

        package init() {}

        /// Counts an event of a culprit.
        ///
        /// - Returns: the number of events of all culprits, if the event is to be logged; otherwise nil.
        package mutating func note(_ culprit: Culprit, times: UInt64 = 1) -> UInt64? {
            if let count = Log.throttle(&count, times: times) {
                named = [culprit.hashValue]
                return count
            }
            guard named.count < Self.maxNamed, named.insert(culprit.hashValue).inserted else { return nil }
            return count
        }
    }

    private static let domain = "carillon"

    private static func write(_ level: Level, _ message: () -> String, _ fields: () -> Fields) {
        if isRedirected.load(ordering: .relaxed), let sink = sinkOfThread.value { return sink.write(level, message) }
        if level == .notice, hidesNotices.load(ordering: .relaxed) { return }
        let flags = level.glib
        // Most calls have a level that is not shown; they end here, before any text is composed.
        guard g_log_writer_default_would_drop(flags, domain) == 0 else { return }
        var all: [(String, String)] = [
            ("MESSAGE", message()), ("PRIORITY", level.syslogPriority), ("GLIB_DOMAIN", domain),
        ]
        for (name, value) in fields() { all.append((name.description, value)) }
        var copies: [UnsafeMutablePointer<CChar>] = []
        defer { copies.forEach { g_free($0) } }
        func copy(_ string: String) -> UnsafeMutablePointer<CChar> {
            let copy = g_strdup(string)!
            copies.append(copy)
            return copy
        }
        var entries = all.map { GLogField(key: copy($0.0), value: copy($0.1), length: -1) }
        g_log_structured_array(flags, &entries, gsize(entries.count))
    }
}

extension Log.Level {
    fileprivate var glib: GLogLevelFlags {
        switch self {
        case .critical: G_LOG_LEVEL_CRITICAL
        case .warning: G_LOG_LEVEL_WARNING
        case .notice: G_LOG_LEVEL_MESSAGE
        case .info: G_LOG_LEVEL_INFO
        case .debug: G_LOG_LEVEL_DEBUG
        }
    }

    /// The value of the journal's field PRIORITY, by GLib's mapping of its levels: critical is 4, like a warning.
    fileprivate var syslogPriority: String {
        switch self {
        case .critical: "4"
        case .warning: "4"
        case .notice: "5"
        case .info: "6"
        case .debug: "7"
        }
    }
}
