// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib
import Synchronization

/// The functions of a `GSource` of our own: what GLib asks it, and has it do. One kind of source is one class.
///
/// Called on the thread that runs the context, with no lock held.
protocol SourceHandler: AnyObject {
    typealias Source = UnsafeMutablePointer<GSource>

    /// Before the loop polls.
    func prepare(_ source: Source) -> SourceReadiness

    /// - Returns: whether the source shall stay.
    func dispatch(_ source: Source) -> Bool
}

/// One that is also asked after the poll. Others are left to their descriptors, if they have any.
protocol CheckedSourceHandler: SourceHandler {
    /// False leaves it to the descriptors of the source, if it has any: one that is ready will do.
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
    /// A new source, which belongs to the caller, and keeps its handler until it is finalized.
    ///
    /// GLib frees that when nobody holds the source any more, on whatever thread.
    static func make(_ handler: any SourceHandler, priority: Int32) -> Self {
        let handling = Handling(handler: handler)
        let functions = handling.checked == nil ? sourceFunctions : checkedSourceFunctions
        let source = g_source_new(functions.pointer, guint(handlingOffset + MemoryLayout<Handling>.size))!
        source.handling.initialize(to: handling)
        g_source_set_priority(source, priority)
        return source
    }

    /// Has a context ask it from now on, on whatever thread that runs: all that was done to it before is seen there.
    func attach(to context: OpaquePointer?) {
        // GLib's lock orders them. The thread sanitizer does not see that, as GLib is not built with it.
        carillon_tsan_release(self)
        g_source_attach(self, context)
    }

    /// On the thread that runs the context, before anything else.
    fileprivate func seeAll() {
        carillon_tsan_acquire(self)
    }

    /// What the source was made with.
    var handler: any SourceHandler { handling.pointee.handler }

    /// Sees to it that the handler is not called again, on whatever thread; a call that goes on is finished.
    func silence() {
        handling.pointee.isSilent.store(true, ordering: .releasing)
    }

    fileprivate var handling: UnsafeMutablePointer<Handling> {
        (UnsafeMutableRawPointer(self) + handlingOffset).assumingMemoryBound(to: Handling.self)
    }
}

/// The fields of a source of this kind behind those of GLib.
private struct Handling: ~Copyable {
    let handler: any SourceHandler
    /// The same, if it is one that is also asked after the poll.
    let checked: (any CheckedSourceHandler)?
    let isSilent = Atomic(false)

    init(handler: any SourceHandler) {
        self.handler = handler
        checked = handler as? any CheckedSourceHandler
    }

    /// The handler, if it is to be called.
    var active: (any SourceHandler)? { isSilent.load(ordering: .acquiring) ? nil : handler }
}

/// The functions that all sources have in common which are not asked after the poll: by them GLib finds such a source.
var customSourceFunctions: UnsafeMutablePointer<GSourceFuncs> { sourceFunctions.pointer }

/// It is stored behind GLib's own struct, which `g_source_new` allocates with the room for it.
private let handlingOffset = MemoryLayout<GSource>.stride

/// GLib keeps the address of the function table for as long as a source of it lives; this one lives for ever.
private struct SourceFunctions: @unchecked Sendable {
    // Sendable: written once, before anyone can see it.
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
        // One that is silent goes.
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
