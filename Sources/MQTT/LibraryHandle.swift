// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto
import CarillonMainLoop

/// A client of libmosquitto, for one connection. It outlives an abandoned driver: the thread that connects can't be
/// stopped during a name lookup.
///
/// Threads: the loop's thread, except between the beginning and the end of connecting. Then only the connecting thread
/// may use ``pointer``.
final class LibraryHandle: @unchecked Sendable {
    // Sendable: see above; a lock protects the log, which both threads use.

    let pointer: OpaquePointer  // struct mosquitto
    /// The driver that receives the callbacks; nil when it is abandoned.
    weak var driver: ClientDriver?
    private let log = Locked(ConnectionLog())

    init(_ settings: MQTTClient.Settings, startsClean: Bool = false) throws(MQTTError) {
        pointer = try Self.makeClient(settings, startsClean: startsClean)
        mosquitto_user_data_set(pointer, Unmanaged.passUnretained(self).toOpaque())
    }

    deinit {
        mosquitto_destroy(pointer)
    }

    /// Returns the reason why connecting failed, as a text for people; nil if libmosquitto logged none.
    func problem(of settings: MQTTClient.Settings) -> String? { log.withLock { $0.problem(of: settings) } }

    /// Keeps errors and warnings of libmosquitto. Meanwhile libmosquitto formats a text for each packet, so this is for
    /// connecting only.
    func startLog() {
        mosquitto_log_callback_set(pointer) { _, data, level, text in
            guard level == MOSQ_LOG_ERR || level == MOSQ_LOG_WARNING, let text, let data else { return }
            let line = String(cString: text)
            Unmanaged<LibraryHandle>.fromOpaque(data).takeUnretainedValue().log.withLock { $0.append(line) }
        }
    }

    func stopLog() { mosquitto_log_callback_set(pointer, nil) }
}
