// SPDX-License-Identifier: Apache-2.0
import CCarillonGLib

/// The contexts of threads.
extension MainContext {
    /// The context of the calling thread, for work that shall run on this thread. It is the first of these that exists:
    ///
    /// 1. the thread's default context in the sense of GLib, pushed by ``asThreadDefault(_:)``, or by
    ///    `g_main_context_push_thread_default` in C;
    /// 2. the context that is dispatching on this thread at this moment;
    /// 3. on the main thread, ``default``;
    /// 4. on any other thread, a context of its own. It is created on first use, works once the thread runs it, and
    ///    ends with the thread.
    public static var current: MainContext {
        let pointer = currentPointer
        if pointer == MainContext.default.pointer { return .default }
        if let own = ownContext.value, own.pointer == pointer { return own }
        return MainContext(owning: g_main_context_ref(pointer))
    }

    /// The pointer to ``current``. The context stays alive: the calling thread, or the loop that dispatches on it,
    /// holds a reference.
    private static var currentPointer: OpaquePointer {
        if let pointer = g_main_context_get_thread_default() { return pointer }
        if let source = g_main_current_source(), let pointer = g_source_get_context(source) { return pointer }
        if isMainThread { return MainContext.default.pointer }
        if let own = ownContext.value { return own.pointer }
        let own = MainContext()
        ownContext.value = own
        return own.pointer
    }

    /// Returns the object of a type on the calling thread's context (``current``), which is created on first use.
    ///
    /// Each thread caches the last object, so that a repeated call costs little. The notification queue of a thread is
    /// found in this way.
    ///
    /// - Parameter make: creates the object for the context; called with no lock held.
    package static func currentAttachment<Value: AnyObject & Sendable>(
        _ type: Value.Type, _ make: (MainContext) -> Value
    ) -> Value {
        let pointer = currentPointer
        let last = lastAttachment.value
        // The address of an ended context may be that of a newer one. The state belongs to one context, so it decides.
        if let last, last.pointer == pointer, last.type == type, !last.state.isEnded {
            return unsafeDowncast(last.object, to: type)
        }
        let context = current
        let object = context.attachment(type) { make(context) }
        lastAttachment.value = LastAttachment(pointer, context.state, type, object)
        return object
    }

    /// The cached result of ``currentAttachment(_:_:)``.
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

    /// Whether the calling thread is dispatching a source of this context, and not a source of another loop inside of
    /// it.
    package var isDispatching: Bool {
        g_main_current_source().map { g_source_get_context($0) == pointer } ?? false
    }

    /// Whether the calling thread is the first thread of the process.
    public static var isMainThread: Bool {
        carillon_is_main_thread() != 0
    }

    /// The calling thread's context of rule 4 of ``current``.
    private static let ownContext = ThreadLocal<MainContext>()

    /// Makes this context the default of the calling thread while `body` runs. ``current`` then returns it, and so do
    /// the functions of GLib and GIO that use the thread's context.
    ///
    /// No other thread may be running the context.
    public func asThreadDefault<Result, Failure: Error>(
        _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        g_main_context_push_thread_default(pointer)
        defer { g_main_context_pop_thread_default(pointer) }
        return try body()
    }

    /// Runs `action` when the `GMainContext` ends, on the thread that releases it, or at once when it is gone.
    package func atEnd(_ action: @escaping @Sendable () -> Void) {
        state.atEnd(action)
    }

    /// Returns the context's only object of a type, which is created on first use and released when the context ends.
    /// Two threads that call this at once may both create an object; one of them is discarded.
    package func attachment<Value: AnyObject & Sendable>(_ type: Value.Type, _ make: () -> Value) -> Value {
        // This object holds the context, so the context exists.
        state.attachment(type, make)!
    }
}
