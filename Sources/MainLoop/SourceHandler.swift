// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// The functions of a `GSource` of this library, which GLib calls. Each kind of source is one class.
///
/// Called on the thread that runs the context, with no lock held.
protocol SourceHandler: AnyObject {
    typealias Source = UnsafeMutablePointer<GSource>

    /// Reports the readiness of the source before the loop polls.
    func prepare(_ source: Source) -> SourceReadiness

    /// Runs the work of the source.
    ///
    /// - Returns: whether the source shall stay attached.
    func dispatch(_ source: Source) -> Bool
}

/// A handler that is also asked after the poll. Other sources depend on their descriptors, if they have any.
protocol CheckedSourceHandler: SourceHandler {
    /// Returns whether the source is ready. With false, the source still runs if one of its descriptors is ready.
    func check() -> Bool
}

enum SourceReadiness {
    case ready
    case waiting
}

/// A source that is never ready.
extension SourceHandler {
    func prepare(_ source: Source) -> SourceReadiness { .waiting }
    func dispatch(_ source: Source) -> Bool { true }
}

extension UnsafeMutablePointer<GSource> {
    /// Creates a source, which belongs to the caller and keeps its handler until it is finalized.
    ///
    /// GLib frees the source with its last reference, on any thread.
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

    /// Makes earlier changes visible. Called first on the thread that runs the context.
    fileprivate func seeAll() {
        carillon_tsan_acquire(self)
    }

    /// The handler for which the source was created.
    var handler: any SourceHandler { handling.pointee.handler }

    /// Ensures that no thread calls the handler again; a call in progress is finished.
    func silence() {
        handling.pointee.isSilent.store(true, ordering: .releasing)
    }

    fileprivate var handling: UnsafeMutablePointer<Handling> {
        (UnsafeMutableRawPointer(self) + handlingOffset).assumingMemoryBound(to: Handling.self)
    }
}

/// The fields of a source of this kind, behind the fields of GLib.
private struct Handling: ~Copyable {
    let handler: any SourceHandler
    /// The handler, if it is also asked after the poll; otherwise nil.
    let checked: (any CheckedSourceHandler)?
    let isSilent = Atomic(false)

    init(handler: any SourceHandler) {
        self.handler = handler
        checked = handler as? any CheckedSourceHandler
    }

    /// The handler, if it may be called.
    var active: (any SourceHandler)? { isSilent.load(ordering: .acquiring) ? nil : handler }
}

/// The functions of all sources that are not asked after the poll, by which GLib finds such a source.
var customSourceFunctions: UnsafeMutablePointer<GSourceFuncs> { sourceFunctions.pointer }

/// The fields are stored behind GLib's own struct; `g_source_new` allocates the space for both.
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
