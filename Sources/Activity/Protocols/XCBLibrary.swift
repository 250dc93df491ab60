// SPDX-License-Identifier: Apache-2.0
import CCarillonXCB

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// The functions of libxcb and its resource extension, loaded at run time with `dlopen`, so that the service also runs
/// without X11. The types come from the headers of libxcb. ``XCBConnector`` loads the library.
///
/// Only ``connect`` blocks, and ``extensionData`` if it is called too early. The functions that wait for a reply
/// (`xcb_wait_…`, `xcb_…_reply`) are left out, so that no code can call them.
struct XCBLibrary: @unchecked Sendable {
    // Sendable: function pointers and the address of a constant, which never change.
    typealias Connection = OpaquePointer
    typealias Window = xcb_window_t
    typealias Atom = xcb_atom_t

    /// The error if a library or a function is missing.
    struct Missing: Error, CustomStringConvertible {
        let description: String
    }

    let connect: xcb_connect_function
    let disconnect: xcb_disconnect_function
    let hasError: xcb_connection_has_error_function
    let fileDescriptor: xcb_get_file_descriptor_function
    let flush: xcb_flush_function
    let setup: xcb_get_setup_function
    let roots: xcb_setup_roots_iterator_function
    let nextScreen: xcb_screen_next_function
    let internAtom: xcb_intern_atom_function
    let changeWindowAttributes: xcb_change_window_attributes_function
    let getProperty: xcb_get_property_function
    let getWindowAttributes: xcb_get_window_attributes_function
    let queryTree: xcb_query_tree_function
    let queryExtension: xcb_query_extension_function
    let prefetchExtension: xcb_prefetch_extension_data_function
    /// Blocks until the data has arrived that ``prefetchExtension`` requested. The reply to any later request implies
    /// that it has arrived.
    let extensionData: xcb_get_extension_data_function
    let resourceVersion: xcb_res_query_version_function
    let resourceClients: xcb_res_query_client_ids_function
    let pollForEvent: xcb_poll_for_event_function
    let pollForReply: xcb_poll_for_reply_function
    /// `xcb_res_id`, which identifies the extension.
    let resourceExtension: UnsafeMutablePointer<xcb_extension_t>

    /// Loads the libraries. It reads files, so call it on a thread that may block.
    ///
    /// - Throws: ``Missing`` if a library is not installed.
    init() throws(Missing) {
        func load(_ name: String) throws(Missing) -> UnsafeMutableRawPointer {
            // The library is never closed; its functions are used until the process ends.
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
        queryTree = try function("xcb_query_tree", of: xcb)
        getWindowAttributes = try function("xcb_get_window_attributes", of: xcb)
        queryExtension = try function("xcb_query_extension", of: xcb)
        prefetchExtension = try function("xcb_prefetch_extension_data", of: xcb)
        extensionData = try function("xcb_get_extension_data", of: xcb)
        pollForEvent = try function("xcb_poll_for_event", of: xcb)
        pollForReply = try function("xcb_poll_for_reply", of: xcb)
        resourceVersion = try function("xcb_res_query_version", of: resources)
        resourceClients = try function("xcb_res_query_client_ids", of: resources)
        resourceExtension = try find("xcb_res_id", resources).assumingMemoryBound(to: xcb_extension_t.self)
    }
}
