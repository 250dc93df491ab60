// SPDX-License-Identifier: Apache-2.0
import CCarillonXCB
import CarillonMainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A non-blocking connection to an X server, driven by the loop. Each request has a closure for its reply; the closures
/// are called in the order of the requests. Events go to ``onEvent``. ``X11Source`` uses it.
///
/// Replies and events are only polled, and the requests are small enough for the socket buffer, so no function blocks.
/// Threads: all members on the thread that runs the context. No callback follows ``onEnd``.
final class XCBConnection: PolledSourceDelegate {
    typealias Window = XCBLibrary.Window
    typealias Atom = XCBLibrary.Atom

    /// The predefined atom WM_CLIENT_MACHINE.
    static let clientMachine = Atom(XCB_ATOM_WM_CLIENT_MACHINE.rawValue)

    /// The predefined atom WM_TRANSIENT_FOR.
    static let transientFor = Atom(XCB_ATOM_WM_TRANSIENT_FOR.rawValue)

    enum Event: Equatable {
        case propertyChanged(Window, Atom)
        case destroyed(Window)
        /// The window itself was mapped (shown) or unmapped. A change of an ancestor causes no event for this window.
        case mapped(Window)
        /// The window has another parent now.
        case reparented(Window)
    }

    var onEvent: ((Event) -> Void)?
    /// Called once with the reason when the server is gone.
    var onEnd: ((String) -> Void)?

    /// The root window of the screen.
    let root: Window
    private let library: XCBLibrary
    private let connection: XCBLibrary.Connection
    private var source: PolledSource?
    /// The requests without a reply, in their order.
    private var pending: [Pending] = []
    /// Whether libxcb's buffer has requests that are not sent yet.
    private var hasUnsent = false

    /// A request whose reply is pending.
    private struct Pending {
        /// The number of the request.
        let sequence: UInt32
        /// Receives the reply, or nil for an error. The pointer is valid only during the call.
        let handle: (UnsafeRawPointer?) -> Void
    }

    /// Takes ownership of an established connection.
    init(_ success: XCBConnector.Success, context: MainContext) {
        library = success.library
        connection = success.connection
        var screens = library.roots(library.setup(connection))
        for _ in 0..<max(0, success.screen) where screens.rem > 1 { library.nextScreen(&screens) }
        root = screens.rem > 0 ? screens.data.pointee.root : 0
        let source = PolledSource(delegate: self, priority: .default, context: context)
        _ = source.add(descriptor: library.fileDescriptor(connection), waitingFor: .readable)
        self.source = source
    }

    deinit {
        source = nil
        library.disconnect(connection)
    }

    // MARK: Loop

    /// Whether there are unsent requests, which have to be sent before the loop waits.
    func hasPendingWork() -> Bool { hasUnsent }

    func dispatch() {
        var hasProgress = true
        // libxcb may read from the socket in each of these calls. Data that it has read does not make the socket
        // readable again, so all work is repeated until none is left.
        while hasProgress, source != nil {
            hasProgress = false
            if hasUnsent {
                hasUnsent = false
                _ = library.flush(connection)
            }
            while source != nil, let event = library.pollForEvent(connection) {
                hasProgress = true
                handle(event)
                free(event)
            }
            while source != nil, takeReply() { hasProgress = true }
            if hasUnsent { hasProgress = true }
        }
        guard source != nil else { return }
        let error = library.hasError(connection)
        if error != 0 { end("the X server is gone (error \(error))") }
    }

    private func end(_ reason: String) {
        source = nil
        pending = []
        onEvent = nil
        let onEnd = onEnd
        self.onEnd = nil
        onEnd?(reason)
    }

    /// Passes an event of the server to ``onEvent``.
    private func handle(_ event: UnsafeRawPointer) {
        // The highest bit of the type marks an event sent by another client; such an event matches no case.
        switch Int32(event.load(as: xcb_generic_event_t.self).response_type) {
        case XCB_PROPERTY_NOTIFY:
            let change = event.load(as: xcb_property_notify_event_t.self)
            onEvent?(.propertyChanged(change.window, change.atom))
        case XCB_DESTROY_NOTIFY: onEvent?(.destroyed(event.load(as: xcb_destroy_notify_event_t.self).window))
        case XCB_MAP_NOTIFY: onEvent?(.mapped(event.load(as: xcb_map_notify_event_t.self).window))
        case XCB_UNMAP_NOTIFY: onEvent?(.mapped(event.load(as: xcb_unmap_notify_event_t.self).window))
        case XCB_REPARENT_NOTIFY:
            onEvent?(.reparented(event.load(as: xcb_reparent_notify_event_t.self).window))
        // Errors of requests without replies arrive here, too, for example for a window that is gone.
        default: break
        }
    }

    /// Takes a reply. Replies come in the order of the requests, so only the first request can have one.
    private func takeReply() -> Bool {
        guard let first = pending.first else { return false }
        var reply: UnsafeMutableRawPointer?
        var error: UnsafeMutablePointer<xcb_generic_error_t>?
        guard library.pollForReply(connection, first.sequence, &reply, &error) != 0 else { return false }
        pending.removeFirst()
        first.handle(reply)
        free(reply)
        free(error)
        return true
    }

    /// Registers the closure for the reply to a request.
    private func expect(_ sequence: UInt32, _ handle: @escaping (UnsafeRawPointer?) -> Void) {
        pending.append(Pending(sequence: sequence, handle: handle))
        hasUnsent = true
    }

    // MARK: Requests

    /// Requests the atom of a name; 0 on failure.
    func atom(_ name: String, completion: @escaping (Atom) -> Void) {
        expect(library.internAtom(connection, 0, UInt16(name.utf8.count), name).sequence) { reply in
            completion(reply?.load(as: xcb_intern_atom_reply_t.self).atom ?? 0)
        }
    }

    /// Subscribes to events of a window.
    ///
    /// - Parameters:
    ///   - propertyChanges: Whether to receive ``Event/propertyChanged(_:_:)``.
    ///   - structure: Whether to receive ``Event/destroyed(_:)``, ``Event/mapped(_:)`` and ``Event/reparented(_:)``.
    func select(propertyChanges: Bool, structure: Bool, of window: Window) {
        let mask =
            (propertyChanges ? XCB_EVENT_MASK_PROPERTY_CHANGE.rawValue : 0)
            | (structure ? XCB_EVENT_MASK_STRUCTURE_NOTIFY.rawValue : 0)
        _ = library.changeWindowAttributes(connection, window, XCB_CW_EVENT_MASK.rawValue, [mask])
        hasUnsent = true
    }

    /// Requests the first `limit` values of a property of 32-bit numbers; nil if the window or the property does not
    /// exist.
    func numbers(_ property: Atom, of window: Window, limit: Int = 1, completion: @escaping ([UInt32]?) -> Void) {
        expect(library.getProperty(connection, 0, window, property, 0, 0, UInt32(limit)).sequence) { reply in
            guard let reply else { return completion(nil) }
            let header = reply.load(as: xcb_get_property_reply_t.self)
            guard header.format == 32 else { return completion(nil) }
            let values = reply + MemoryLayout<xcb_get_property_reply_t>.size
            completion(
                (0..<min(Int(header.value_len), limit)).map {
                    values.loadUnaligned(fromByteOffset: $0 * 4, as: UInt32.self)
                })
        }
    }

    /// Requests whether a window and all its ancestors are mapped; nil if the window does not exist.
    func isViewable(_ window: Window, completion: @escaping (Bool?) -> Void) {
        expect(library.getWindowAttributes(connection, window).sequence) { reply in
            let state = reply?.load(as: xcb_get_window_attributes_reply_t.self).map_state
            completion(state.map { UInt32($0) == XCB_MAP_STATE_VIEWABLE.rawValue })
        }
    }

    /// Requests the parent of a window; nil for a root window, and for a window that does not exist.
    func parent(of window: Window, completion: @escaping (Window?) -> Void) {
        expect(library.queryTree(connection, window).sequence) { reply in
            let parent = reply?.load(as: xcb_query_tree_reply_t.self).parent
            completion(parent == 0 ? nil : parent)
        }
    }

    /// Requests the first 256 bytes of a text property; nil if the window or the property does not exist.
    func text(_ property: Atom, of window: Window, completion: @escaping (String?) -> Void) {
        expect(library.getProperty(connection, 0, window, property, 0, 0, 64).sequence) { reply in
            guard let reply else { return completion(nil) }
            let header = reply.load(as: xcb_get_property_reply_t.self)
            guard header.format == 8 else { return completion(nil) }
            let bytes = UnsafeRawBufferPointer(
                start: reply + MemoryLayout<xcb_get_property_reply_t>.size, count: min(Int(header.value_len), 256))
            completion(String(decoding: bytes, as: UTF8.self))
        }
    }

    /// Requests whether the server has an extension.
    func isPresent(_ name: String, completion: @escaping (Bool) -> Void) {
        expect(library.queryExtension(connection, UInt16(name.utf8.count), name).sequence) { reply in
            completion(reply.map { $0.load(as: xcb_query_extension_reply_t.self).present != 0 } ?? false)
        }
    }

    /// Requests whether the server supports X-Resource 1.2, which reports the processes of clients. Call it before
    /// ``processID(of:completion:)``.
    func prepareProcessIDs(completion: @escaping (Bool) -> Void) {
        library.prefetchExtension(connection, library.resourceExtension)
        // `extensionData` below would block until the prefetched data arrives. The reply to this later request implies
        // that the data has arrived.
        isPresent("X-Resource") { [unowned self] isPresent in
            guard isPresent, let data = library.extensionData(connection, library.resourceExtension),
                data.pointee.present != 0
            else { return completion(false) }
            expect(library.resourceVersion(connection, 1, 2).sequence) { reply in
                guard let reply else { return completion(false) }
                let version = reply.load(as: xcb_res_query_version_reply_t.self)
                completion((version.server_major, version.server_minor) >= (1, 2))
            }
        }
    }

    /// Requests the process of the client that owns a window, as the kernel reported it to the server; nil if unknown.
    func processID(of window: Window, completion: @escaping (UInt32?) -> Void) {
        let localClientPID = XCB_RES_CLIENT_ID_MASK_LOCAL_CLIENT_PID.rawValue
        var spec = xcb_res_client_id_spec_t(client: window, mask: localClientPID)
        expect(library.resourceClients(connection, 1, &spec).sequence) { reply in
            guard let reply else { return completion(nil) }
            let header = reply.load(as: xcb_res_query_client_ids_reply_t.self)
            // The reply is a sequence of heads, each followed by its value. This code checks the count and the lengths
            // that the server sent; libxcb's iterators do not.
            let headSize = MemoryLayout<xcb_res_client_id_value_t>.size
            var position = MemoryLayout<xcb_res_query_client_ids_reply_t>.size
            let end = position + Int(header.length) * 4
            for _ in 0..<header.num_ids {
                guard position + headSize <= end else { break }
                let head = reply.loadUnaligned(fromByteOffset: position, as: xcb_res_client_id_value_t.self)
                position += headSize
                if head.spec.mask & localClientPID != 0, head.length >= 4, position + 4 <= end {
                    let processID = reply.loadUnaligned(fromByteOffset: position, as: UInt32.self)
                    return completion(processID == 0 ? nil : processID)
                }
                // Each value is padded to a multiple of 4 bytes.
                position += (Int(head.length) + 3) / 4 * 4
            }
            completion(nil)
        }
    }
}
