// SPDX-License-Identifier: Apache-2.0
import CCarillonDBus
import CarillonMainLoop

/// The bridge between libdbus and a ``MainContext``. It maps watches, timeouts, dispatch status and wake-ups of libdbus
/// to one GLib source and some timers, without a thread or polling.
///
/// libdbus holds the driver as its user data and releases it through the destroy notify, so the driver lives exactly as
/// long as the callbacks. The driver reads only during authentication.
final class ConnectionDriver: PolledSourceDelegate {
    /// The maximum number of writes by libdbus per loop iteration. Each moves about 4 KiB, so one write per iteration
    /// would cost a large message several polls.
    private static let transfersPerTurn = 64

    private let connection: OpaquePointer  // DBusConnection; not retained: the connection outlives its user data
    private let context: MainContext
    private var source: PolledSource!
    private var watches: [Watch] = []
    private var timeouts: [OpaquePointer: EventSource] = [:]  // by DBusTimeout

    private struct Watch {
        let pointer: OpaquePointer  // DBusWatch
        var tag: PolledSource.Tag?  // nil while libdbus has the watch disabled
    }

    private init(connection: OpaquePointer, context: MainContext, priority: EventSource.Priority) {
        self.connection = connection
        self.context = context
        source = PolledSource(delegate: self, priority: priority, context: context)
    }

    /// Makes `context` drive `connection` until it is finalized or closed.
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

    private static func from(_ data: UnsafeMutableRawPointer?) -> ConnectionDriver {
        Unmanaged<ConnectionDriver>.fromOpaque(data!).takeUnretainedValue()
    }

    // MARK: Dispatching

    /// Called once when the bus has authenticated this process. The bus sends nothing before the first message.
    var onAuthenticated: (() -> Void)?
    /// Called before libdbus closes the socket.
    var onClosing: (() -> Void)?
    private var isAuthenticated = false

    func hasPendingWork() -> Bool { dbus_connection_get_dispatch_status(connection) == DBUS_DISPATCH_DATA_REMAINS }

    func dispatch() {
        // A handler may close the connection, which has to outlive this iteration.
        let connection = connection
        dbus_connection_ref(connection)
        defer { dbus_connection_unref(connection) }
        handleReadyWatches()
        lookWhetherAuthenticated()
        if hasPendingWork() { dbus_connection_dispatch(connection) }
    }

    private func lookWhetherAuthenticated() {
        guard !isAuthenticated, dbus_connection_get_is_authenticated(connection) != 0 else { return }
        isAuthenticated = true
        for watch in watches { toggled(watch: watch.pointer) }
        onAuthenticated?()
    }

    private func handleReadyWatches() {
        // Handling a watch may remove or disable others, so each is looked up again.
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

    /// Continues to write while the socket accepts bytes.
    private func writeMore(_ watch: OpaquePointer) {
        var left = dbus_connection_get_outgoing_size(connection)
        for _ in 1..<Self.transfersPerTurn where left > 0 && dbus_watch_get_enabled(watch) != 0 {
            dbus_watch_handle(watch, DBUS_WATCH_WRITABLE.rawValue)
            let rest = dbus_connection_get_outgoing_size(connection)
            guard rest < left else { return }
            left = rest
        }
    }

    /// The loop's own thread checks the source before it waits; only other threads need a wake-up.
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

    private func toggled(watch: OpaquePointer) {
        guard let index = watches.firstIndex(where: { $0.pointer == watch }) else { return }
        // A disabled watch leaves the poll, which would otherwise report a hang-up repeatedly.
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
