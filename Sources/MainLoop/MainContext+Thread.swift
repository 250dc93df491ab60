// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// Contexts of threads.
extension MainContext {
    /// The context of the calling thread: where something that shall happen on this thread is attached.
    ///
    /// It is the thread's default context in the sense of GLib, where one was pushed (``asThreadDefault(_:)``, or
    /// `g_main_context_push_thread_default` in C); else the one that is dispatching at this moment; on the main thread
    /// ``default``; and on any other thread a context of its own, made when it is first asked for, which does something
    /// once the thread runs it, and ends with the thread.
    public static var current: MainContext {
        let pointer = currentPointer
        if pointer == MainContext.default.pointer { return .default }
        if let own = ownContext.value, own.pointer == pointer { return own }
        return MainContext(owning: g_main_context_ref(pointer))
    }

    /// The calling thread holds it, or somebody who dispatches here.
    private static var currentPointer: OpaquePointer {
        if let pointer = g_main_context_get_thread_default() { return pointer }
        if let source = g_main_current_source(), let pointer = g_source_get_context(source) { return pointer }
        if isMainThread { return MainContext.default.pointer }
        if let own = ownContext.value { return own.pointer }
        let own = MainContext()
        ownContext.value = own
        return own.pointer
    }

    /// The object of a type of the calling thread's context (``current``), made when it is first asked for.
    ///
    /// Each thread remembers the last, so that asking again costs next to nothing.
    ///
    /// - Parameter make: makes it for the context; called with no lock held.
    package static func currentAttachment<Value: AnyObject & Sendable>(
        _ type: Value.Type, _ make: (MainContext) -> Value
    ) -> Value {
        let pointer = currentPointer
        let last = lastAttachment.value
        // The address may be that of a context that came after; the state is of one context only.
        if let last, last.pointer == pointer, last.type == type, !last.state.isEnded {
            return unsafeDowncast(last.object, to: type)
        }
        let context = current
        let object = context.attachment(type) { make(context) }
        lastAttachment.value = LastAttachment(pointer, context.state, type, object)
        return object
    }

    private final class LastAttachment {
        let pointer: OpaquePointer
        let state: ContextState
        let type: AnyObject.Type
        let object: AnyObject

        init(_ pointer: OpaquePointer, _ state: ContextState, _ type: AnyObject.Type, _ object: AnyObject) {
            self.pointer = pointer
            self.state = state
            self.type = type
            self.object = object
        }
    }

    private static let lastAttachment = ThreadLocal<LastAttachment>()

    /// Whether the calling thread dispatches a source of this context at the moment, and not one of another loop inside of it.
    package var isDispatching: Bool {
        g_main_current_source().map { g_source_get_context($0) == pointer } ?? false
    }

    /// Whether the calling thread is the one that the process began with.
    public static var isMainThread: Bool {
        carillon_is_main_thread() != 0
    }

    private static let ownContext = ThreadLocal<MainContext>()

    /// Makes this context the default of the calling thread while `body` runs, so that ``current``, and whatever in
    /// GLib and GIO asks for the thread's context, finds it.
    ///
    /// No other thread may be running the context.
    public func asThreadDefault<Result, Failure: Error>(
        _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        g_main_context_push_thread_default(pointer)
        defer { g_main_context_pop_thread_default(pointer) }
        return try body()
    }

    /// Has `action` run when the `GMainContext` ends, on the thread that releases it; at once when it is gone.
    package func atEnd(_ action: @escaping @Sendable () -> Void) {
        state.atEnd(action)
    }

    /// The context's only object of a type, made when it is first asked for; it is released when the context ends. Two
    /// threads that ask at once may both make one; one of them is dropped.
    package func attachment<Value: AnyObject & Sendable>(_ type: Value.Type, _ make: () -> Value) -> Value {
        // This object holds the context, so it is there.
        state.attachment(type, make)!
    }
}
