// SPDX-License-Identifier: Apache-2.0
// A program with a window of a toolkit that it finds at run time, as a program in Swift would have it linked. It follows
// its activity through the client library, and prints what it is given and told.
//
//   carillon-toolkit-window gtk3|gtk4|sdl2 TITLE
//
// gtk3-beside-4 and gtk4-beside-3 have the other GTK mapped, too. gtk3-popup, gtk3-offscreen, gtk3-dock,
// gtk3-notification and gtk3-unfocusable have a window of that kind instead.

import Carillon
import CarillonMainLoop
import Foundation

@main
struct ToolkitWindow {
    static func main() throws {
        guard CommandLine.arguments.count == 3 else { fatalError("carillon-toolkit-window gtk3|gtk4|sdl2 TITLE") }
        let (toolkit, title) = (CommandLine.arguments[1], CommandLine.arguments[2])
        let center = DistributedNotificationCenter.default()
        let queue = OperationQueue()
        for (name, behavior) in [
            ("drop", .drop), ("coalesce", .coalesce), ("hold", .hold), ("deliver-immediately", .deliverImmediately),
        ] as [(String, DistributedNotificationCenter.SuspensionBehavior)] {
            center.addObserver(
                forName: .init(name), object: nil, suspensionBehavior: behavior, queue: queue
            ) { say("got \(name) \($0.userInfo?["number"] ?? "")") }
        }
        let events = center.observeEvents { event in
            if case .suspensionChanged(let isSuspended, let cause) = event {
                say("\(isSuspended ? "suspended" : "resumed") \(cause)")
            }
        }
        if toolkit == "sdl2" { center.defaultDelivery = .ownQueue }
        switch toolkit {
        case "gtk3-beside-4":
            GTKWindow.mapOnly("libgtk-4.so.1")
            GTKWindow.open3(title)
        case "gtk4-beside-3":
            GTKWindow.mapOnly("libgtk-3.so.0")
            GTKWindow.open4(title)
        case _ where toolkit.hasPrefix("gtk3"): GTKWindow.open3(title, String(toolkit.dropFirst("gtk3-".count)))
        case "gtk4": GTKWindow.open4(title)
        case "sdl2": SDLWindow.open(title)
        default: fatalError("no toolkit \(toolkit)")
        }
        try center.followActivity(of: toolkit == "sdl2" ? .sdl2 : .gtk)
        center.flush(timeout: 300)
        say("ready")
        if toolkit == "sdl2" { SDLWindow.run() } else { EventLoop().run() }
        withExtendedLifetime(events) {}
    }
}

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    print(line)
    fflush(nil)
}

typealias Pointer = UnsafeMutableRawPointer

/// A function of a library that this program loads, which the library's documentation gives this type.
func function<Function>(_ library: String, _ name: String, _ type: Function.Type) -> Function {
    guard let handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL), let symbol = dlsym(handle, name) else {
        say("unavailable: \(String(cString: dlerror()))")
        exit(77)
    }
    return unsafeBitCast(symbol, to: type)
}

enum GTKWindow {
    /// Has the library in the process, as a plugin's would be.
    static func mapOnly(_ library: String) {
        guard dlopen(library, RTLD_NOW | RTLD_LOCAL) != nil else {
            say("unavailable: \(String(cString: dlerror()))")
            exit(77)
        }
    }

    static func open3(_ title: String, _ kind: String = "") {
        let library = "libgtk-3.so.0"
        function(library, "gtk_init", (@convention(c) (Pointer?, Pointer?) -> Void).self)(nil, nil)
        let window =
            kind == "offscreen"
            ? function(library, "gtk_offscreen_window_new", (@convention(c) () -> Pointer?).self)()
            : function(library, "gtk_window_new", (@convention(c) (Int32) -> Pointer?).self)(kind == "popup" ? 1 : 0)
        setTitle(library, window, title)
        let set = (@convention(c) (Pointer?, Int32) -> Void).self
        // GDK_WINDOW_TYPE_HINT_DOCK and _NOTIFICATION.
        if kind == "dock" { function(library, "gtk_window_set_type_hint", set)(window, 6) }
        if kind == "notification" { function(library, "gtk_window_set_type_hint", set)(window, 11) }
        if kind == "unfocusable" { function(library, "gtk_window_set_accept_focus", set)(window, 0) }
        function(library, "gtk_widget_show", (@convention(c) (Pointer?) -> Void).self)(window)
    }

    static func open4(_ title: String) {
        let library = "libgtk-4.so.1"
        function(library, "gtk_init", (@convention(c) () -> Void).self)()
        let window = function(library, "gtk_window_new", (@convention(c) () -> Pointer?).self)()
        setTitle(library, window, title)
        function(library, "gtk_window_present", (@convention(c) (Pointer?) -> Void).self)(window)
    }

    private static func setTitle(_ library: String, _ window: Pointer?, _ title: String) {
        let setTitle = function(
            library, "gtk_window_set_title", (@convention(c) (Pointer?, UnsafePointer<CChar>) -> Void).self)
        setTitle(window, title)
    }
}

enum SDLWindow {
    private static let library = "libSDL2-2.0.so.0"

    static func open(_ title: String) {
        _ = function(library, "SDL_Init", (@convention(c) (UInt32) -> Int32).self)(0x20)
        let create = function(
            library, "SDL_CreateWindow",
            (@convention(c) (UnsafePointer<CChar>, Int32, Int32, Int32, Int32, UInt32) -> Pointer?).self)
        _ = create(title, 0, 0, 200, 100, 0x4)
    }

    static func run() {
        // SDL tells of a lost focus when it is asked again a little later, as programs that draw do all the time.
        let wait = function(library, "SDL_WaitEventTimeout", (@convention(c) (Pointer?, Int32) -> Int32).self)
        // An SDL_Event has 56 bytes.
        let event = Pointer.allocate(byteCount: 64, alignment: 8)
        while true { _ = wait(event, 20) }
    }
}
