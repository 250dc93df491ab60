import CXCB

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// libxcb and its extension for resources, found while the service runs.
///
/// None of these functions blocks but ``connect``. A function that waits for a reply (`xcb_wait_…`, `xcb_…_reply`) is
/// not here, so that nothing can call it.
struct XCBLibrary: @unchecked Sendable {
    // Sendable: function pointers and the address of a constant, which never change.
    typealias Connection = OpaquePointer
    typealias Window = UInt32
    typealias Atom = UInt32

    struct Missing: Error, CustomStringConvertible {
        let description: String
    }

    let connect: @convention(c) (UnsafePointer<CChar>?, UnsafeMutablePointer<Int32>?) -> Connection?
    let disconnect: @convention(c) (Connection) -> Void
    let hasError: @convention(c) (Connection) -> Int32
    let fileDescriptor: @convention(c) (Connection) -> Int32
    let flush: @convention(c) (Connection) -> Int32
    let setup: @convention(c) (Connection) -> UnsafeRawPointer?
    let roots: @convention(c) (UnsafeRawPointer?) -> cxcb_screen_iterator
    let nextScreen: @convention(c) (UnsafeMutablePointer<cxcb_screen_iterator>) -> Void
    let internAtom: @convention(c) (Connection, UInt8, UInt16, UnsafePointer<CChar>) -> cxcb_cookie
    let changeWindowAttributes: @convention(c) (Connection, Window, UInt32, UnsafeRawPointer) -> cxcb_cookie
    let getProperty: @convention(c) (Connection, UInt8, Window, Atom, Atom, UInt32, UInt32) -> cxcb_cookie
    let queryExtension: @convention(c) (Connection, UInt16, UnsafePointer<CChar>) -> cxcb_cookie
    let prefetchExtension: @convention(c) (Connection, UnsafeMutableRawPointer) -> Void
    /// Does not block when the reply to a request behind ``prefetchExtension`` has come.
    let extensionData:
        @convention(c) (Connection, UnsafeMutableRawPointer) -> UnsafePointer<cxcb_query_extension_reply>?
    let resourceVersion: @convention(c) (Connection, UInt8, UInt8) -> cxcb_cookie
    let resourceClients: @convention(c) (Connection, UInt32, UnsafePointer<cxcb_res_client_id_spec>) -> cxcb_cookie
    let pollForEvent: @convention(c) (Connection) -> UnsafeMutablePointer<cxcb_event>?
    let pollForReply:
        @convention(c) (
            Connection, UInt32, UnsafeMutablePointer<UnsafeMutableRawPointer?>,
            UnsafeMutablePointer<UnsafeMutableRawPointer?>
        ) -> Int32
    /// `xcb_res_id`, which names the extension.
    let resourceExtension: UnsafeMutableRawPointer

    /// Loads the libraries. It reads files: call it where that may take its time.
    ///
    /// - Throws: ``Missing`` where they are not installed.
    init() throws(Missing) {
        func load(_ name: String) throws(Missing) -> UnsafeMutableRawPointer {
            // Never closed: the functions stay for the life of the process.
            guard let library = dlopen(name, RTLD_NOW | RTLD_LOCAL) else {
                throw Missing(description: dlerror().map { String(cString: $0) } ?? "there is no \(name)")
            }
            return library
        }
        let xcb = try load("libxcb.so.1")
        let resources = try load("libxcb-res.so.0")
        func find(_ name: String, _ library: UnsafeMutableRawPointer) throws(Missing) -> UnsafeMutableRawPointer {
            guard let symbol = dlsym(library, name) else { throw Missing(description: "libxcb has no \(name)") }
            return symbol
        }
        func function<Function>(_ name: String, of library: UnsafeMutableRawPointer) throws(Missing) -> Function {
            unsafeBitCast(try find(name, library), to: Function.self)
        }
        connect = try function("xcb_connect", of: xcb)
        disconnect = try function("xcb_disconnect", of: xcb)
        hasError = try function("xcb_connection_has_error", of: xcb)
        fileDescriptor = try function("xcb_get_file_descriptor", of: xcb)
        flush = try function("xcb_flush", of: xcb)
        setup = try function("xcb_get_setup", of: xcb)
        roots = try function("xcb_setup_roots_iterator", of: xcb)
        nextScreen = try function("xcb_screen_next", of: xcb)
        internAtom = try function("xcb_intern_atom", of: xcb)
        changeWindowAttributes = try function("xcb_change_window_attributes", of: xcb)
        getProperty = try function("xcb_get_property", of: xcb)
        queryExtension = try function("xcb_query_extension", of: xcb)
        prefetchExtension = try function("xcb_prefetch_extension_data", of: xcb)
        extensionData = try function("xcb_get_extension_data", of: xcb)
        pollForEvent = try function("xcb_poll_for_event", of: xcb)
        pollForReply = try function("xcb_poll_for_reply", of: xcb)
        resourceVersion = try function("xcb_res_query_version", of: resources)
        resourceClients = try function("xcb_res_query_client_ids", of: resources)
        resourceExtension = try find("xcb_res_id", resources)
    }
}
