// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop

/// The activity of an SDL 2 application: whether one of its windows has the keyboard focus. SDL's focus events report
/// it.
///
/// The library is not linked with SDL. It finds SDL's functions by name if the process has loaded SDL; the numbers are
/// those of SDL 2's stable C interface. Threads: SDL calls an event watch on the thread that adds the event.
enum SDLActivity {
    private typealias EventFilter = @convention(c) (UnsafeMutableRawPointer?, UnsafeRawPointer?) -> Int32
    private typealias AddEventWatch = @convention(c) (EventFilter, UnsafeMutableRawPointer?) -> Void
    private typealias WasInit = @convention(c) (UInt32) -> UInt32
    private typealias GetKeyboardFocus = @convention(c) () -> UnsafeMutableRawPointer?

    /// `SDL_INIT_VIDEO`.
    private static let video: UInt32 = 0x20
    /// `SDL_WINDOWEVENT`, the type of an `SDL_WindowEvent`.
    private static let windowEvent: UInt32 = 0x200
    /// The offset of the event kind in an `SDL_WindowEvent`: its type, time and window are 32 bits each.
    private static let eventOffset = 12
    /// `SDL_WINDOWEVENT_FOCUS_GAINED` and `SDL_WINDOWEVENT_FOCUS_LOST`.
    private static let (focusGained, focusLost): (UInt8, UInt8) = (12, 13)

    /// The closures that receive the activity, one for each following center.
    private static let reports = Locked<[@Sendable (Bool) -> Void]>([])

    /// Reports the activity from now on. SDL gets one event watch for all centers.
    static func follow(_ report: @escaping @Sendable (Bool) -> Void) throws(ActivityError) {
        guard let library = LoadedLibrary("libSDL2-2.0.so.0"),
            let addEventWatch: AddEventWatch = library.function("SDL_AddEventWatch"),
            let wasInit: WasInit = library.function("SDL_WasInit"),
            let keyboardFocus: GetKeyboardFocus = library.function("SDL_GetKeyboardFocus")
        else { throw .toolkitNotLoaded(.sdl2) }
        guard wasInit(video) != 0 else { throw .toolkitNotInitialised(.sdl2) }
        let isFirst = reports.withLock { reports in
            reports.append(report)
            return reports.count == 1
        }
        // Without focus nothing is reported: an application without any window counts as active.
        if keyboardFocus() != nil { report(true) }
        guard isFirst else { return }
        addEventWatch({ _, event in SDLActivity.watch(event) }, nil)
    }

    /// Handles an SDL event. SDL ignores the result of a watch.
    private static func watch(_ event: UnsafeRawPointer?) -> Int32 {
        guard let event, event.load(as: UInt32.self) == windowEvent else { return 1 }
        let isActive: Bool
        switch event.load(fromByteOffset: eventOffset, as: UInt8.self) {
        case focusGained: isActive = true
        case focusLost: isActive = false
        default: return 1
        }
        for report in reports.withLock({ $0 }) { report(isActive) }
        return 1
    }
}
