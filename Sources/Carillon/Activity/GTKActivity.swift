// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The activity of a GTK 3 or GTK 4 application: whether one of its windows is active, which means that it has the
/// keyboard focus. GTK's signals trigger an evaluation of all windows, and its result is reported.
///
/// The library is not linked with GTK. It finds the functions by name in the GTK library that the process has loaded;
/// the types are those of the stable C interfaces of GTK and GObject. Threads: GTK's, the main thread.
enum GTKActivity {
    private typealias Pointer = UnsafeMutableRawPointer
    private typealias ListToplevels = @convention(c) () -> Pointer?
    private typealias FreeList = @convention(c) (Pointer?) -> Void
    private typealias IsTrue = @convention(c) (Pointer?) -> Int32
    private typealias TypeFromName = @convention(c) (UnsafePointer<CChar>) -> UInt
    private typealias TypeFunction = @convention(c) (UInt) -> UInt
    private typealias TypeName = @convention(c) (UInt) -> UnsafePointer<CChar>?
    private typealias IsOfType = @convention(c) (Pointer?, UInt) -> Int32
    private typealias Number = @convention(c) (Pointer?) -> Int32
    private typealias SignalLookup = @convention(c) (UnsafePointer<CChar>, UInt) -> UInt32
    private typealias EmissionHook = @convention(c) (Pointer?, UInt32, UnsafeRawPointer?, Pointer?) -> Int32
    private typealias GetData = @convention(c) (Pointer?, UnsafePointer<CChar>) -> Pointer?
    private typealias SetData = @convention(c) (Pointer?, UnsafePointer<CChar>, Pointer?) -> Void
    private typealias NotifyHandler = @convention(c) (Pointer?, Pointer?, Pointer?) -> Void
    private typealias Connect =
        @convention(c) (
            Pointer?, UnsafePointer<CChar>, NotifyHandler, Pointer?, Pointer?, UInt32
        ) -> UInt
    private typealias AddEmissionHook = @convention(c) (UInt32, UInt32, EmissionHook, Pointer?, Pointer?) -> UInt

    /// The layout of a node of a `GList`.
    private struct ListNode {
        var data: Pointer?
        var next: Pointer?
        var previous: Pointer?
    }

    /// The state for the C hooks. It is global, because no code would free a context that is passed to a hook.
    private struct HookState {
        /// The source whose action evaluates the windows; nil before the first call of ``follow(_:)``.
        var source: SignalledSource?
        /// The closures that receive the activity, one for each following center.
        var reports: [@Sendable (Bool) -> Void] = []
    }

    /// The key of a window's data that marks it as watched.
    private static let mark = "org.carillon.followed"
    /// The key of a window's data that marks it as having been active.
    private static let activeMark = "org.carillon.active-once"

    private static let followed = Locked(HookState())

    /// Reports the activity from now on. The hooks and the source are created once for all centers.
    static func follow(_ report: @escaping @Sendable (Bool) -> Void) throws(ActivityError) {
        let library = try initialisedLibrary()
        guard let listToplevels: ListToplevels = library.function("gtk_window_list_toplevels"),
            let isWindowActive: IsTrue = library.function("gtk_window_is_active"),
            let isVisible: IsTrue = library.function("gtk_widget_get_visible"),
            let freeList: FreeList = library.function("g_list_free"),
            let typeFromName: TypeFromName = library.function("g_type_from_name"),
            let canBeActive = focusability(in: library),
            let lookUp: SignalLookup = library.function("g_signal_lookup"),
            let getData: GetData = library.function("g_object_get_data"),
            let setData: SetData = library.function("g_object_set_data"),
            let connect: Connect = library.function("g_signal_connect_data"),
            let addHook: AddEmissionHook = library.function("g_signal_add_emission_hook")
        else { throw .toolkitNotLoaded(.gtk) }
        let windowType = typeFromName("GtkWindow")

        let isFirst = followed.withLock { followed in
            followed.reports.append(report)
            return followed.source == nil
        }
        guard isFirst else { return changed() }
        let evaluate: @Sendable () -> Void = {
            let toplevels = listToplevels()
            defer { freeList(toplevels) }
            // The application is inactive if no window is active and a visible one has been active before. A window
            // that is never active, such as a panel or a popup, does not make the application inactive.
            var (isActive, wasActive) = (false, false)
            var node = toplevels
            while let entry = node?.load(as: ListNode.self) {
                // The mark is stored in the window, so that a new window at the same address has no mark.
                if getData(entry.data, mark) == nil {
                    setData(entry.data, mark, Pointer(bitPattern: 1))
                    _ = connect(entry.data, "notify::is-active", { _, _, _ in GTKActivity.changed() }, nil, nil, 0)
                }
                if isVisible(entry.data) != 0 {
                    if isWindowActive(entry.data) != 0 {
                        isActive = true
                        setData(entry.data, activeMark, Pointer(bitPattern: 1))
                    } else if getData(entry.data, activeMark) != nil, canBeActive(entry.data) {
                        wasActive = true
                    }
                }
                node = entry.next
            }
            let reports = followed.withLock { $0.reports }
            for report in reports { report(isActive || !wasActive) }
        }
        followed.withLock {
            $0.source = SignalledSource(on: .default, priority: .default, action: evaluate)
        }
        // Emission hooks on the base class report when any window is shown or hidden. A shown window is then watched
        // for its own activity.
        for name in ["map", "unmap"] {
            _ = addHook(lookUp(name, windowType), 0, { _, _, _, _ in GTKActivity.hook() }, nil, nil)
        }
        changed()
    }

    /// Returns the GTK library that the program uses. Another version may be loaded as well, as the library of a
    /// plugin, and cannot be initialized in the same process.
    private static func initialisedLibrary() throws(ActivityError) -> LoadedLibrary {
        let libraries = ["libgtk-4.so.1", "libgtk-3.so.0"].map { LoadedLibrary($0) }
        guard let any = libraries.lazy.compactMap({ $0 }).first,
            let typeFromName: TypeFromName = any.function("g_type_from_name"),
            let parentType: TypeFunction = any.function("g_type_parent"),
            let typeName: TypeName = any.function("g_type_name")
        else { throw .toolkitNotLoaded(.gtk) }
        // GTK registers the type when it is initialized. The parent of the type shows the version: `GtkBin` in GTK 3.
        let windowType = typeFromName("GtkWindow")
        guard windowType != 0 else { throw .toolkitNotInitialised(.gtk) }
        let parent = typeName(parentType(windowType)).map { String(cString: $0) }
        guard let library = libraries[parent == "GtkBin" ? 1 : 0] else { throw .toolkitNotLoaded(.gtk) }
        return library
    }

    /// Returns a function that tells whether a window is an application's window that can have the keyboard focus. In
    /// GTK 4 all windows are. Nil if a function of GTK 3 is missing.
    private static func focusability(in library: LoadedLibrary) -> (@Sendable (Pointer?) -> Bool)? {
        guard let windowType: Number = library.function("gtk_window_get_window_type") else { return { _ in true } }
        guard let typeHint: Number = library.function("gtk_window_get_type_hint"),
            let acceptsFocus: IsTrue = library.function("gtk_window_get_accept_focus"),
            let isOfType: IsOfType = library.function("g_type_check_instance_is_a"),
            let typeFromName: TypeFromName = library.function("g_type_from_name")
        else { return nil }
        return { window in
            // Excluded windows: popups (1 is `GTK_WINDOW_POPUP`), windows drawn into memory, and windows in another
            // program's window.
            guard windowType(window) != 1, acceptsFocus(window) != 0 else { return false }
            for name in ["GtkOffscreenWindow", "GtkPlug"] {
                let type = typeFromName(name)
                if type != 0, isOfType(window, type) != 0 { return false }
            }
            return applicationHints.contains(typeHint(window))
        }
    }

    /// Of `GdkWindowTypeHint`: normal, dialog, toolbar, utility. The others are docks, desktops, notifications, splash
    /// screens, menus and tooltips.
    private static let applicationHints: Set<Int32> = [0, 1, 3, 5]

    /// The handler of an emission hook. The result 1 keeps the hook.
    private static func hook() -> Int32 {
        changed()
        return 1
    }

    /// Schedules an evaluation of the windows after the current change is complete.
    private static func changed() {
        followed.withLock { $0.source }?.signal()
    }
}
