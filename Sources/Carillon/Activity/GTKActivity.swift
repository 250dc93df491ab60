import MainLoop

/// The activity of a GTK 3 or GTK 4 application.
///
/// The functions are found by name in the library that the process has loaded; the types are those of GTK's and
/// GObject's C interfaces, which are stable. Threads: GTK's, the main thread.
enum GTKActivity {
    private typealias Pointer = UnsafeMutableRawPointer
    private typealias ListToplevels = @convention(c) () -> Pointer?
    private typealias FreeList = @convention(c) (Pointer?) -> Void
    private typealias IsTrue = @convention(c) (Pointer?) -> Int32
    private typealias TypeFromName = @convention(c) (UnsafePointer<CChar>) -> UInt
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

    /// `GList`.
    private struct ListNode {
        var data: Pointer?
        var next: Pointer?
        var previous: Pointer?
    }

    /// What the hooks reach, which C can't give a context that would be freed.
    private struct Followed {
        var source: SignalledSource?
        var reports: [@Sendable (Bool) -> Void] = []
    }

    private static let mark = "org.carillon.followed"

    private static let followed = Locked(Followed())

    static func follow(_ report: @escaping @Sendable (Bool) -> Void) throws(ActivityError) {
        guard let library = LoadedLibrary("libgtk-4.so.1", "libgtk-3.so.0"),
            let listToplevels: ListToplevels = library.function("gtk_window_list_toplevels"),
            let isWindowActive: IsTrue = library.function("gtk_window_is_active"),
            let isVisible: IsTrue = library.function("gtk_widget_get_visible"),
            let freeList: FreeList = library.function("g_list_free"),
            let typeFromName: TypeFromName = library.function("g_type_from_name"),
            let lookUp: SignalLookup = library.function("g_signal_lookup"),
            let getData: GetData = library.function("g_object_get_data"),
            let setData: SetData = library.function("g_object_set_data"),
            let connect: Connect = library.function("g_signal_connect_data"),
            let addHook: AddEmissionHook = library.function("g_signal_add_emission_hook")
        else { throw .toolkitNotLoaded(.gtk) }
        // Found by its name: the type is there once GTK was initialised.
        let windowType = typeFromName("GtkWindow")
        guard windowType != 0 else { throw .toolkitNotInitialised(.gtk) }

        let isFirst = followed.withLock { followed in
            followed.reports.append(report)
            return followed.source == nil
        }
        guard isFirst else { return changed() }
        let evaluate: @Sendable () -> Void = {
            let toplevels = listToplevels()
            defer { freeList(toplevels) }
            var (isActive, hasWindow) = (false, false)
            var node = toplevels
            while let entry = node?.load(as: ListNode.self) {
                // Marked at the window itself, so that another one at the same address is another one.
                if getData(entry.data, mark) == nil {
                    setData(entry.data, mark, Pointer(bitPattern: 1))
                    _ = connect(entry.data, "notify::is-active", { _, _, _ in GTKActivity.changed() }, nil, nil, 0)
                }
                if isVisible(entry.data) != 0 {
                    hasWindow = true
                    if isWindowActive(entry.data) != 0 { isActive = true }
                }
                node = entry.next
            }
            let reports = followed.withLock { $0.reports }
            for report in reports { report(isActive || !hasWindow) }
        }
        followed.withLock {
            $0.source = SignalledSource(on: .default, priority: .default, action: evaluate)
        }
        // Windows come and go, of any class, so the class is asked; each then tells about itself.
        for name in ["map", "unmap"] {
            _ = addHook(lookUp(name, windowType), 0, { _, _, _, _ in GTKActivity.hook() }, nil, nil)
        }
        changed()
    }

    private static func hook() -> Int32 {
        changed()
        return 1
    }

    /// Looks at the windows when what changes them now is done.
    private static func changed() {
        followed.withLock { $0.source }?.signal()
    }
}
