// SPDX-License-Identifier: Apache-2.0
import CCarillonMosquitto
import CarillonMainLoop

/// A client of libmosquitto, for one connection. It outlives a driver that no longer waits for it: the thread that connects
/// can't be stopped while it looks up a name.
///
/// Threads: that of the loop, but between the beginning and the end of connecting, when only the thread that does it may use
/// ``pointer``.
final class LibraryHandle: @unchecked Sendable {
    // Sendable: see above; what both threads use is locked.

    let pointer: OpaquePointer  // struct mosquitto
    /// The driver that gets the callbacks; nil when it is abandoned.
    weak var driver: ClientDriver?
    private let log = Locked(ConnectionLog())

    init(_ settings: MQTTClient.Settings, startsClean: Bool = false) throws(MQTTError) {
        pointer = try Self.makeClient(settings, startsClean: startsClean)
        mosquitto_user_data_set(pointer, Unmanaged.passUnretained(self).toOpaque())
    }

    deinit {
        mosquitto_destroy(pointer)
    }

    /// The reason why connecting failed, for a person; nil where libmosquitto logged none.
    func problem(of settings: MQTTClient.Settings) -> String? { log.withLock { $0.problem(of: settings) } }

    /// Has what libmosquitto finds wrong kept. It makes a text of each packet meanwhile, so it is for connecting only.
    func startLog() {
        mosquitto_log_callback_set(pointer) { _, data, level, text in
            guard level == MOSQ_LOG_ERR || level == MOSQ_LOG_WARNING, let text, let data else { return }
            let line = String(cString: text)
            Unmanaged<LibraryHandle>.fromOpaque(data).takeUnretainedValue().log.withLock { $0.append(line) }
        }
    }

    func stopLog() { mosquitto_log_callback_set(pointer, nil) }
}
