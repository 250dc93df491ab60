// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto
import CarillonMainLoop

/// The owner of one client object of libmosquitto (`struct mosquitto`), used for one connection by one
/// ``ClientDriver``. A separate object from the driver, because the thread that looks up a name may still use
/// libmosquitto after the driver was abandoned: a name lookup can't be stopped.
///
/// Threads: the loop's thread. Exception: from the beginning of a connection attempt until the name lookup has finished
/// only the thread of the lookup may use ``pointer``.
final class LibraryHandle: @unchecked Sendable {
    // Sendable: only one thread at a time uses it, as described above. A lock protects the log, which both threads use.

    let pointer: OpaquePointer  // struct mosquitto
    /// The driver that receives the callbacks; nil when it is abandoned.
    weak var driver: ClientDriver?
    private let log = Locked(ConnectionLog())

    /// Creates a client object with the settings.
    ///
    /// - Parameter startsClean: whether the broker is to discard its session of this client.
    init(_ settings: MQTTClient.Settings, startsClean: Bool = false) throws(MQTTError) {
        pointer = try Self.makeClient(settings, startsClean: startsClean)
        mosquitto_user_data_set(pointer, Unmanaged.passUnretained(self).toOpaque())
    }

    deinit {
        mosquitto_destroy(pointer)
    }

    /// Returns the reason why connecting failed, as a text for people, from the lines that libmosquitto logged; nil if
    /// there are none.
    func problem(of settings: MQTTClient.Settings) -> String? { log.withLock { $0.problem(of: settings) } }

    /// Collects errors and warnings that libmosquitto logs. With a log callback libmosquitto formats a text for each
    /// packet, so the log runs only while connecting.
    func startLog() {
        mosquitto_log_callback_set(pointer) { _, data, level, text in
            guard level == MOSQ_LOG_ERR || level == MOSQ_LOG_WARNING, let text, let data else { return }
            let line = String(cString: text)
            Unmanaged<LibraryHandle>.fromOpaque(data).takeUnretainedValue().log.withLock { $0.append(line) }
        }
    }

    /// Ends the collection of log lines.
    func stopLog() { mosquitto_log_callback_set(pointer, nil) }
}
