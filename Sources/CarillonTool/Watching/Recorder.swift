// SPDX-License-Identifier: Apache-2.0
import CarillonJSON
import CarillonMainLoop
import CarillonWire

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The output of `--record FILE`: appends notifications and events to a file, one JSON object on each line.
/// ``ReplayCommand`` posts them again.
final class Recorder: NotificationOutput {
    private unowned let session: CommandSession
    private let path: String
    private let descriptor: Int32

    /// - Throws: an error if the file can't be written.
    init(_ path: String, on session: CommandSession) throws(UsageError) {
        // Only the user may read a new file, because notifications may be confidential.
        descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0o600)
        guard descriptor >= 0 else { throw UsageError("--record: \(path): \(String(cString: strerror(errno)))") }
        self.path = path
        self.session = session
    }

    deinit { close(descriptor) }

    func take(_ arrival: Arrival) { write(NotificationFormat.json(arrival), at: arrival.time) }
    func take(_ event: ObservationEvent) { write(event.json, at: WallClock.microseconds()) }

    /// Writes a line. A failure ends the run.
    ///
    /// - Parameters:
    ///   - object: a JSON object, to which the time is added.
    ///   - time: the time in microseconds since 1970.
    private func write(_ object: String, at time: Int64) {
        let line = "{\"time\": \(JSON.quoted(ISO8601Date.text(time))), " + object.dropFirst()
        do throws(StreamError) {
            try writeLine(line, to: descriptor)
        } catch {
            printError("carillon: \(path): \(error)")
            session.finish(.outputFailed)
        }
    }
}
