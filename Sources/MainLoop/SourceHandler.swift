// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// The functions of a custom `GSource`: GLib calls `prepare` before it polls, and `dispatch` when the source is ready.
/// Each kind of source in this module is a class that conforms.
///
/// All functions are called on the thread that runs the context, with no lock held.
protocol SourceHandler: AnyObject {
    typealias Source = UnsafeMutablePointer<GSource>

    /// Reports the readiness of the source before the loop polls.
    func prepare(_ source: Source) -> SourceReadiness

    /// Runs the work of the source.
    ///
    /// - Returns: whether the source shall stay attached.
    func dispatch(_ source: Source) -> Bool
}

/// A handler whose readiness GLib also checks after the poll, for sources that another thread can make ready. A handler
/// without `check` becomes ready after the poll only by its descriptors.
protocol CheckedSourceHandler: SourceHandler {
    /// Returns whether the source is ready. With false, the source still runs if one of its descriptors is ready.
    func check() -> Bool
}

/// The readiness of a source before the poll. A ready source keeps the loop from sleeping.
enum SourceReadiness {
    case ready
    case waiting
}

/// The default functions: a source that is never ready.
extension SourceHandler {
    func prepare(_ source: Source) -> SourceReadiness { .waiting }
    func dispatch(_ source: Source) -> Bool { true }
}

extension UnsafeMutablePointer<GSource> {
    /// Creates a source; the caller owns the reference. The source retains its handler until GLib frees the source,
    /// which happens with the last reference, on any thread.
    static func make(_ handler: any SourceHandler, priority: Int32) -> Self {
        let handling = Handling(handler: handler)
        let functions = handling.checked == nil ? sourceFunctions : checkedSourceFunctions
        let source = g_source_new(functions.pointer, guint(handlingOffset + MemoryLayout<Handling>.size))!
        source.handling.initialize(to: handling)
        g_source_set_priority(source, priority)
        return source
    }

    /// Attaches the source to a context. The thread that runs the context sees all earlier changes of the source.
    func attach(to context: OpaquePointer?) {
        // GLib's lock orders the accesses. The thread sanitizer does not see that, because GLib is not built with it.
        carillon_tsan_release(self)
        g_source_attach(self, context)
    }

    /// Tells the thread sanitizer that earlier changes by other threads are visible; each function of the source calls
    /// it first. The counterpart is in ``attach(to:)``.
    fileprivate func seeAll() {
        carillon_tsan_acquire(self)
    }

    /// The handler for which the source was created.
    var handler: any SourceHandler { handling.pointee.handler }

    /// Ensures that no new call of the handler begins. A call in progress runs to its end.
    func silence() {
        handling.pointee.isSilent.store(true, ordering: .releasing)
    }

    fileprivate var handling: UnsafeMutablePointer<Handling> {
        (UnsafeMutableRawPointer(self) + handlingOffset).assumingMemoryBound(to: Handling.self)
    }
}

/// The fields of a custom source, which are stored in memory behind GLib's own fields.
private struct Handling: ~Copyable {
    let handler: any SourceHandler
    /// The handler, if it has a `check` function; otherwise nil.
    let checked: (any CheckedSourceHandler)?
    /// Whether the handler must not be called any more.
    let isSilent = Atomic(false)

    init(handler: any SourceHandler) {
        self.handler = handler
        checked = handler as? any CheckedSourceHandler
    }

    /// The handler, if it may be called.
    var active: (any SourceHandler)? { isSilent.load(ordering: .acquiring) ? nil : handler }
}

/// The address of the function table that all sources without `check` share.
///
/// ``ContextState`` is the handler of such a source, its *anchor*. The anchor is never ready, and only holds the state
/// as long as the context lives. GLib finds the anchor among the sources of a context by two pointers: this address, and the
/// user data of the anchor's callback, which no other source has.
var customSourceFunctions: UnsafeMutablePointer<GSourceFuncs> { sourceFunctions.pointer }

/// The offset of ``Handling`` in a source: behind GLib's own struct. `g_source_new` allocates the space for both.
private let handlingOffset = MemoryLayout<GSource>.stride

/// A table of source functions. GLib keeps its address as long as a source of it lives; the table is never freed.
private struct SourceFunctions: @unchecked Sendable {
    // Sendable: written once, before other threads can see it.
    let pointer: UnsafeMutablePointer<GSourceFuncs>

    init(withCheck: Bool) {
        pointer = .allocate(capacity: 1)
        pointer.initialize(to: GSourceFuncs())
        pointer.pointee.prepare = { source, timeout in
            source!.seeAll()
            let readiness = source!.handling.pointee.active?.prepare(source!) ?? .waiting
            timeout?.pointee = readiness == .waiting ? -1 : 0
            return readiness == .ready ? 1 : 0
        }
        if withCheck {
            pointer.pointee.check = { source in
                source!.seeAll()
                let handling = source!.handling
                return handling.pointee.active != nil && handling.pointee.checked!.check() ? 1 : 0
            }
        }
        // A silenced source is removed.
        pointer.pointee.dispatch = { source, _, _ in
            source!.seeAll()
            return source!.handling.pointee.active?.dispatch(source!) ?? false ? 1 : 0
        }
        pointer.pointee.finalize = { source in
            source!.seeAll()
            source!.handling.deinitialize(count: 1)
        }
    }
}

private let sourceFunctions = SourceFunctions(withCheck: false)
private let checkedSourceFunctions = SourceFunctions(withCheck: true)
