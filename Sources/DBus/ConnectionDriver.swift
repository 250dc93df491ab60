// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonMainLoop

/// The adapter between a connection object of libdbus and a ``MainContext``, used by ``SocketTransport``. It maps
/// watches, timeouts, dispatch status and wake-ups of libdbus to one GLib source and some timers, without a thread.
///
/// libdbus reads only during authentication; then ``SocketReader`` reads. libdbus still writes messages with
/// descriptors, which ``SocketWriter`` passes to it.
///
/// libdbus holds the driver as the user data of its callbacks, and releases it through their destroy functions. The
/// driver therefore lives exactly as long as the callbacks.
final class ConnectionDriver: PolledSourceDelegate {
    /// The maximum number of writes by libdbus per loop iteration. Each moves about 4 KiB, so with one write per
    /// iteration a large message would need many polls.
    private static let writesPerIteration = 64

    private let connection: OpaquePointer  // DBusConnection; not retained: the connection outlives its user data
    private let context: MainContext
    private var source: PolledSource!
    private var watches: [Watch] = []
    private var timeouts: [OpaquePointer: EventSource] = [:]  // by DBusTimeout

    /// A request of libdbus to poll a descriptor.
    private struct Watch {
        let pointer: OpaquePointer  // DBusWatch
        var tag: PolledSource.Tag?  // nil while libdbus has the watch disabled
    }

    private init(connection: OpaquePointer, context: MainContext, priority: EventSource.Priority) {
        self.connection = connection
        self.context = context
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    /// Makes `context` drive `connection` until ``detach(_:)``, or until libdbus finalizes the connection.
    static func attach(
        _ connection: OpaquePointer, to context: MainContext, priority: EventSource.Priority
    ) -> ConnectionDriver {
        let driver = ConnectionDriver(connection: connection, context: context, priority: priority)
        func retained() -> UnsafeMutableRawPointer { Unmanaged.passRetained(driver).toOpaque() }
        check(
            dbus_connection_set_watch_functions(
                connection,
                { watch, data in
                    ConnectionDriver.from(data).add(watch: watch!)
                    return 1
                },
                { watch, data in ConnectionDriver.from(data).remove(watch: watch!) },
                { watch, data in ConnectionDriver.from(data).toggled(watch: watch!) },
                retained(), release))
        check(
            dbus_connection_set_timeout_functions(
                connection,
                { timeout, data in
                    ConnectionDriver.from(data).update(timeout: timeout!)
                    return 1
                },
                { timeout, data in ConnectionDriver.from(data).timeouts[timeout!] = nil },
                { timeout, data in ConnectionDriver.from(data).update(timeout: timeout!) },
                retained(), release))
        dbus_connection_set_dispatch_status_function(
            connection, { _, _, data in ConnectionDriver.from(data).wakeUp() }, retained(), release)
        dbus_connection_set_wakeup_main_function(
            connection, { data in ConnectionDriver.from(data).wakeUp() }, retained(), release)
        return driver
    }

    /// Removes each callback from libdbus, which then releases the driver.
    static func detach(_ connection: OpaquePointer) {
        check(dbus_connection_set_watch_functions(connection, nil, nil, nil, nil, nil))
        check(dbus_connection_set_timeout_functions(connection, nil, nil, nil, nil, nil))
        dbus_connection_set_dispatch_status_function(connection, nil, nil, nil)
        dbus_connection_set_wakeup_main_function(connection, nil, nil, nil)
    }

    /// Returns the driver behind the user data of a callback.
    private static func from(_ data: UnsafeMutableRawPointer?) -> ConnectionDriver {
        Unmanaged<ConnectionDriver>.fromOpaque(data!).takeUnretainedValue()
    }

    // MARK: Dispatching

    /// Called once when the bus has authenticated this process. Another reader can then take over the socket, since the
    /// bus sends nothing before the first message of this process.
    var onAuthenticated: (() -> Void)?
    /// Called before libdbus closes the socket, once for each of its watches, which it removes only then.
    var onClosing: (() -> Void)?
    private var isAuthenticated = false

    func hasPendingWork() -> Bool { dbus_connection_get_dispatch_status(connection) == DBUS_DISPATCH_DATA_REMAINS }

    func dispatch() {
        // A handler may release the connection, which has to outlive this iteration.
        let connection = connection
        dbus_connection_ref(connection)
        defer { dbus_connection_unref(connection) }
        handleReadyWatches()
        checkAuthentication()
        if hasPendingWork() { dbus_connection_dispatch(connection) }
    }

    /// Detects the end of the authentication, and then removes the reading watches from the poll.
    private func checkAuthentication() {
        guard !isAuthenticated, dbus_connection_get_is_authenticated(connection) != 0 else { return }
        isAuthenticated = true
        for watch in watches { toggled(watch: watch.pointer) }
        onAuthenticated?()
    }

    private func handleReadyWatches() {
        // A callback within this loop may remove or disable watches, so the array is read again at each step.
        var index = 0
        while index < watches.count {
            let watch = watches[index]
            if let tag = watch.tag {
                let occurred = source.occurred(on: tag)
                if !occurred.isEmpty { dbus_watch_handle(watch.pointer, occurred.dbusFlags) }
                if occurred.contains(.writable) { writeMore(watch.pointer) }
            }
            index += 1
        }
    }

    /// Makes libdbus write again while the socket accepts bytes, since each call of libdbus writes only once.
    private func writeMore(_ watch: OpaquePointer) {
        var left = dbus_connection_get_outgoing_size(connection)
        for _ in 1..<Self.writesPerIteration where left > 0 && dbus_watch_get_enabled(watch) != 0 {
            dbus_watch_handle(watch, DBUS_WATCH_WRITABLE.rawValue)
            let rest = dbus_connection_get_outgoing_size(connection)
            guard rest < left else { return }
            left = rest
        }
    }

    /// Wakes the loop up from another thread. On its own thread the loop checks ``hasPendingWork()`` before it waits.
    private func wakeUp() {
        if !context.isOwner { context.wakeUp() }
    }

    // MARK: Watches

    private func add(watch: OpaquePointer) {
        watches.append(Watch(pointer: watch, tag: nil))
        toggled(watch: watch)
    }

    private func remove(watch: OpaquePointer) {
        guard let index = watches.firstIndex(where: { $0.pointer == watch }) else { return }
        if let tag = watches[index].tag { source.remove(tag) }
        watches.remove(at: index)
        onClosing?()
    }

    /// Updates the registration of a watch in the poll, after libdbus has enabled or disabled it. Watches for reading
    /// stay out of the poll after the authentication.
    private func toggled(watch: OpaquePointer) {
        guard let index = watches.firstIndex(where: { $0.pointer == watch }) else { return }
        // A disabled watch has to leave the poll, which would otherwise report a hang-up again and again.
        if let tag = watches[index].tag { source.remove(tag) }
        watches[index].tag = nil
        let flags = dbus_watch_get_flags(watch)
        guard dbus_watch_get_enabled(watch) != 0, !isAuthenticated || flags & DBUS_WATCH_READABLE.rawValue == 0
        else { return }
        watches[index].tag = source.add(
            descriptor: dbus_watch_get_unix_fd(watch), waitingFor: PolledSource.Conditions(dbusFlags: flags))
        wakeUp()
    }

    // MARK: Timeouts

    /// Starts, restarts or stops the timer of a timeout of libdbus.
    private func update(timeout: OpaquePointer) {
        timeouts[timeout] = nil
        guard dbus_timeout_get_enabled(timeout) != 0 else { return }
        let milliseconds = UInt32(max(0, dbus_timeout_get_interval(timeout)))
        timeouts[timeout] = .timer(milliseconds: milliseconds, on: context) {
            dbus_timeout_handle(timeout)
            return .keep  // libdbus removes the timeout itself
        }
    }
}

private func release(_ data: UnsafeMutableRawPointer?) {
    Unmanaged<ConnectionDriver>.fromOpaque(data!).release()
}

extension PolledSource.Conditions {
    fileprivate init(dbusFlags flags: UInt32) {
        self = [.error, .hangUp]
        if flags & DBUS_WATCH_READABLE.rawValue != 0 { insert(.readable) }
        if flags & DBUS_WATCH_WRITABLE.rawValue != 0 { insert(.writable) }
    }

    fileprivate var dbusFlags: UInt32 {
        var flags: UInt32 = 0
        if contains(.readable) { flags |= DBUS_WATCH_READABLE.rawValue }
        if contains(.writable) { flags |= DBUS_WATCH_WRITABLE.rawValue }
        if contains(.error) { flags |= DBUS_WATCH_ERROR.rawValue }
        if contains(.hangUp) { flags |= DBUS_WATCH_HANGUP.rawValue }
        return flags
    }
}
