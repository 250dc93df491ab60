// SPDX-License-Identifier: Apache-2.0
import CarillonMainLoop
import CarillonTestSupport
import Foundation
import LocalNotifications

/// The functions of GTK 3 that the scenario needs, looked up when it runs: nothing is linked with GTK.
private struct GTK {
    typealias Widget = UnsafeMutableRawPointer

    let library: UnsafeMutableRawPointer

    init?() {
        guard let library = dlopen("libgtk-3.so.0", RTLD_NOW | RTLD_GLOBAL) else { return nil }
        self.library = library
    }

    private func function<Function>(_ name: String, as type: Function.Type) -> Function {
        unsafeBitCast(dlsym(library, name)!, to: type)
    }

    func start() -> Bool {
        function(
            "gtk_init_check", as: (@convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Int32).self)(
                nil, nil) != 0
    }

    func window() -> Widget {
        function("gtk_window_new", as: (@convention(c) (Int32) -> Widget).self)(0)
    }

    func make(_ constructor: String) -> Widget {
        function(constructor, as: (@convention(c) () -> Widget).self)()
    }

    func call(_ name: String, _ widget: Widget) {
        function(name, as: (@convention(c) (Widget) -> Void).self)(widget)
    }

    func add(_ child: Widget, to parent: Widget) {
        function("gtk_container_add", as: (@convention(c) (Widget, Widget) -> Void).self)(parent, child)
    }

    func run(_ dialog: Widget) -> Int32 {
        function("gtk_dialog_run", as: (@convention(c) (Widget) -> Int32).self)(dialog)
    }

    func respond(_ dialog: Widget, _ response: Int32) {
        function("gtk_dialog_response", as: (@convention(c) (Widget, Int32) -> Void).self)(dialog, response)
    }

    typealias DrawHandler = @convention(c) (Widget, UnsafeMutableRawPointer, UnsafeMutableRawPointer) -> Int32

    func onDraw(_ widget: Widget, _ data: UnsafeMutableRawPointer, _ handler: @escaping DrawHandler) {
        typealias Connect =
            @convention(c) (
                Widget, UnsafePointer<CChar>, DrawHandler, UnsafeMutableRawPointer, UnsafeMutableRawPointer?, UInt32
            ) -> UInt
        _ = function("g_signal_connect_data", as: Connect.self)(widget, "draw", handler, data, nil, 0)
    }
}

private final class Counter {
    var count = 0
}

extension MainThreadProbe {
    /// M3: a GTK program goes on drawing and firing its timeouts while a modal dialogue runs; what is for the default
    /// mode arrives after it, what is for the dialogue's mode or the common modes during it.
    static func gtk() throws {
        guard let gtk = GTK() else { return printLine("skipped: there is no libgtk-3.so.0") }
        try require(gtk.start(), "GTK finds no display")
        let draws = Counter()
        let ticks = Counter()
        let window = gtk.window()
        let area = gtk.make("gtk_drawing_area_new")
        gtk.add(area, to: window)
        gtk.onDraw(area, Unmanaged.passUnretained(draws).toOpaque()) { _, _, data in
            Unmanaged<Counter>.fromOpaque(data).takeUnretainedValue().count += 1
            return 0
        }
        gtk.call("gtk_widget_show_all", window)
        let timer = EventSource.timer(milliseconds: 5, on: .default) {
            ticks.count += 1
            gtk.call("gtk_widget_queue_draw", area)
            return .keep
        }
        try run("the first frames") { draws.count >= 3 }

        let center = NotificationCenter()
        let events = Events()
        center.addObserver(forName: nil, object: nil, queue: nil) { events.add($0.name.rawValue) }
        center.addObserver(
            forName: Notification.Name("From a thread"), object: nil, context: .default, modes: [.default]
        ) { _ in events.add("From a thread, in the default mode") }
        center.addObserver(
            forName: Notification.Name("From a thread"), object: nil, context: .default
        ) { _ in events.add("From a thread, in the common modes") }
        let queue = NotificationQueue(notificationCenter: center)
        func enqueue(_ name: String, _ style: NotificationQueue.PostingStyle, _ modes: [RunLoopMode]?) {
            queue.enqueue(
                Notification(name: Notification.Name(name)), postingStyle: style, coalesceMask: .none, forModes: modes)
        }

        MainContext.default.pushMode(.modalPanel)
        enqueue("Default", .asap, nil)
        enqueue("Default, idle", .whenIdle, nil)
        enqueue("Modal", .asap, [.modalPanel])
        enqueue("Common, idle", .whenIdle, [.common])
        enqueue("Other", .asap, ["other"])
        Thread { center.post(name: Notification.Name("From a thread"), object: nil) }.start()
        let during: Set = ["Modal", "Common, idle", "From a thread", "From a thread, in the common modes"]
        let dialog = gtk.make("gtk_dialog_new")
        let (drawsBefore, ticksBefore) = (draws.count, ticks.count)
        let closer = EventSource.timer(milliseconds: 10, on: .default) {
            let isEnough = draws.count >= drawsBefore + 10 && ticks.count >= ticksBefore + 20
            guard isEnough, during.isSubset(of: events.all) else { return .keep }
            gtk.respond(dialog, 7)
            return .remove
        }
        try require(gtk.run(dialog) == 7, "the dialogue ended otherwise")
        gtk.call("gtk_widget_destroy", dialog)
        printLine("in the modal dialogue: \(draws.count - drawsBefore) frames, \(ticks.count - ticksBefore) timeouts")
        try require(Set(events.all) == during, "in the modal dialogue: \(events.all)")

        MainContext.default.popMode(.modalPanel)
        let after = during.union(["Default", "Default, idle", "From a thread, in the default mode"])
        try run("what is for the default mode") { events.count == after.count }
        try require(Set(events.all) == after, "after it: \(events.all)")
        withExtendedLifetime((timer, closer)) {}
    }
}
