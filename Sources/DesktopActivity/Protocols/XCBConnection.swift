import CXCB
import MainLoop

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// A connection to an X server, driven by the loop: requests, whose replies come to closures in their order, and events.
///
/// Nothing here blocks: replies and events are only polled for, and the few bytes of the requests fit into the socket.
/// Threads: all members on the thread that runs the context. After ``onEnd`` nothing more comes.
final class XCBConnection: PolledSourceDelegate {
    typealias Window = XCBLibrary.Window
    typealias Atom = XCBLibrary.Atom

    enum Event: Equatable {
        case propertyChanged(Window, Atom)
        case destroyed(Window)
    }

    var onEvent: ((Event) -> Void)?
    /// Called once when the server is gone.
    var onEnd: ((String) -> Void)?

    let root: Window
    private let library: XCBLibrary
    private let connection: XCBLibrary.Connection
    private var source: PolledSource?
    private var pending: [Pending] = []
    private var hasUnsent = false

    /// A request without a reply so far.
    private struct Pending {
        let sequence: UInt32
        /// Gets the reply, or nil for an error; valid only inside.
        let handle: (UnsafeRawPointer?) -> Void
    }

    /// Takes the connection over.
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

    // MARK: The loop

    /// Requests that were made outside of ``dispatch()`` are sent before the loop waits.
    func hasPendingWork() -> Bool { hasUnsent }

    func dispatch() {
        var hasProgress = true
        // Sending may read, and reading for one may find the other: until nothing is left, or the source gave up.
        while hasProgress, source != nil {
            hasProgress = false
            if hasUnsent {
                hasUnsent = false
                _ = library.flush(connection)
            }
            while source != nil, let event = library.pollForEvent(connection) {
                hasProgress = true
                handle(event.pointee)
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

    private func handle(_ event: cxcb_event) {
        // The highest bit says that another client sent it: nobody but the server tells of these.
        switch event.response_type {
        case 28: onEvent?(.propertyChanged(event.window, event.detail))
        case 17: onEvent?(.destroyed(event.detail))
        // Errors of requests without a reply are among them: a window that is gone already.
        default: break
        }
    }

    /// Replies come in the order of the requests, so only the first can have one.
    private func takeReply() -> Bool {
        guard let first = pending.first else { return false }
        var reply: UnsafeMutableRawPointer?
        var error: UnsafeMutableRawPointer?
        guard library.pollForReply(connection, first.sequence, &reply, &error) != 0 else { return false }
        pending.removeFirst()
        first.handle(reply)
        free(reply)
        free(error)
        return true
    }

    private func expect(_ cookie: cxcb_cookie, _ handle: @escaping (UnsafeRawPointer?) -> Void) {
        pending.append(Pending(sequence: cookie.sequence, handle: handle))
        hasUnsent = true
    }

    // MARK: Requests

    /// The number of a name; 0 when it failed.
    func atom(_ name: String, completion: @escaping (Atom) -> Void) {
        expect(library.internAtom(connection, 0, UInt16(name.utf8.count), name)) { reply in
            completion(reply?.load(as: cxcb_intern_atom_reply.self).atom ?? 0)
        }
    }

    /// Asks for ``Event/propertyChanged(_:_:)`` or ``Event/destroyed(_:)`` of a window.
    func select(propertyChanges: Bool, structure: Bool, of window: Window) {
        // PropertyChangeMask and StructureNotifyMask, as the value of CWEventMask.
        let mask: UInt32 = (propertyChanges ? 0x40_0000 : 0) | (structure ? 0x2_0000 : 0)
        _ = library.changeWindowAttributes(connection, window, 1 << 11, [mask])
        hasUnsent = true
    }

    /// The value of a property of 32-bit numbers; nil when the window or the property is not there.
    func numbers(_ property: Atom, of window: Window, limit: Int = 1, completion: @escaping ([UInt32]?) -> Void) {
        expect(library.getProperty(connection, 0, window, property, 0, 0, UInt32(limit))) { reply in
            guard let reply else { return completion(nil) }
            let header = reply.load(as: cxcb_get_property_reply.self)
            guard header.format == 32 else { return completion(nil) }
            let values = reply + MemoryLayout<cxcb_get_property_reply>.size
            completion(
                (0..<min(Int(header.value_len), limit)).map {
                    values.loadUnaligned(fromByteOffset: $0 * 4, as: UInt32.self)
                })
        }
    }

    /// The value of a property of text.
    func text(_ property: Atom, of window: Window, completion: @escaping (String?) -> Void) {
        expect(library.getProperty(connection, 0, window, property, 0, 0, 64)) { reply in
            guard let reply else { return completion(nil) }
            let header = reply.load(as: cxcb_get_property_reply.self)
            guard header.format == 8 else { return completion(nil) }
            let bytes = UnsafeRawBufferPointer(
                start: reply + MemoryLayout<cxcb_get_property_reply>.size, count: min(Int(header.value_len), 256))
            completion(String(decoding: bytes, as: UTF8.self))
        }
    }

    func isPresent(_ name: String, completion: @escaping (Bool) -> Void) {
        expect(library.queryExtension(connection, UInt16(name.utf8.count), name)) { reply in
            completion(reply.map { $0.load(as: cxcb_query_extension_reply.self).present != 0 } ?? false)
        }
    }

    /// Whether the server can tell the processes of its clients: X-Resource 1.2. Before ``processID(of:completion:)``.
    func prepareProcessIDs(completion: @escaping (Bool) -> Void) {
        library.prefetchExtension(connection, library.resourceExtension)
        // Any request will do: when its reply is there, that of the one before is there too, so that the next line does
        // not wait for it.
        isPresent("X-Resource") { [unowned self] isPresent in
            guard isPresent, let data = library.extensionData(connection, library.resourceExtension),
                data.pointee.present != 0
            else { return completion(false) }
            expect(library.resourceVersion(connection, 1, 2)) { reply in
                guard let version = reply?.load(as: cxcb_res_query_version_reply.self) else { return completion(false) }
                completion((version.server_major, version.server_minor) >= (1, 2))
            }
        }
    }

    /// The process of the client that has a window, as the kernel told the server; nil when it does not know.
    func processID(of window: Window, completion: @escaping (UInt32?) -> Void) {
        let localClientPID: UInt32 = 1 << 1
        var spec = cxcb_res_client_id_spec(client: window, mask: localClientPID)
        expect(library.resourceClients(connection, 1, &spec)) { reply in
            guard let reply else { return completion(nil) }
            let header = reply.load(as: cxcb_res_query_client_ids_reply.self)
            let end = 32 + Int(header.length) * 4
            var position = 32
            for _ in 0..<header.num_ids {
                guard position + 12 <= end else { break }
                let mask = reply.loadUnaligned(fromByteOffset: position + 4, as: UInt32.self)
                let length = Int(reply.loadUnaligned(fromByteOffset: position + 8, as: UInt32.self))
                if mask & localClientPID != 0, length >= 4, position + 16 <= end {
                    let processID = reply.loadUnaligned(fromByteOffset: position + 12, as: UInt32.self)
                    return completion(processID == 0 ? nil : processID)
                }
                position += 12 + (length + 3) / 4 * 4
            }
            completion(nil)
        }
    }
}
