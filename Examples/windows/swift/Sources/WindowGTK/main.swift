// SPDX-License-Identifier: Apache-2.0
//
// A window of GTK 4 that shows what it receives, and what it was told while it was inactive. It need not say when it is
// active, as the service sees that.
import CGTK
import Carillon
import Foundation

/// What the window shows. GTK belongs to the main thread.
@MainActor struct Inbox {
    private let state, lines: UnsafeMutablePointer<GtkWidget>?
    private var isSuspended = false
    private var resumed = Date.distantPast

    init(title: String) {
        gtk_init()
        state = gtk_label_new(nil)
        lines = gtk_box_new(GTK_ORIENTATION_VERTICAL, 4)
        let window = UnsafeMutableRawPointer(gtk_window_new())!.assumingMemoryBound(to: GtkWindow.self)
        gtk_window_set_title(window, title)
        gtk_window_set_default_size(window, 320, 200)
        gtk_widget_set_margin_start(lines, 8)
        gtk_widget_set_margin_top(lines, 8)
        append(state)
        gtk_window_set_child(window, lines)
        gtk_window_present(window)
    }

    private func append(_ label: UnsafeMutablePointer<GtkWidget>?) {
        gtk_label_set_xalign(OpaquePointer(label), 0)
        gtk_box_append(UnsafeMutableRawPointer(lines)!.assumingMemoryBound(to: GtkBox.self), label)
    }

    mutating func setSuspended(_ isSuspended: Bool) {
        self.isSuspended = isSuspended
        // What was kept comes behind this, and was posted before it.
        if !isSuspended { resumed = Date() }
        showState(isSuspended ? "inactive" : "active", color: isSuspended ? "#6e7781" : "#1a7f37")
    }

    func showState(_ text: String, color: String) {
        guard String(cString: gtk_label_get_text(OpaquePointer(state))) != text else { return }
        gtk_label_set_markup(OpaquePointer(state), "<span size='large' weight='bold' color='\(color)'>\(text)</span>")
        say(text)
    }

    func show(_ name: String, _ text: String, posted: Date) {
        let line = "\(name): \(text)\(isSuspended || posted < resumed ? " (while inactive)" : "")"
        append(gtk_label_new(line))
        say(line)
    }
}

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    print(line)
    fflush(nil)
}

var inbox = Inbox(title: CommandLine.arguments.dropFirst().first ?? "GTK 4, Swift")
let center = DistributedNotificationCenter.default()
center.details = [.time]
for (name, behavior) in [("News", .hold), ("Level", .coalesce), ("Alarm", .deliverImmediately)]
    as [(String, DistributedNotificationCenter.SuspensionBehavior)]
{
    center.addObserver(forName: .init(name), object: nil, suspensionBehavior: behavior, queue: nil) { notification in
        let text = notification.userInfo?["text"] as? String ?? ""
        let posted = Origin.current?.date ?? .distantFuture
        MainActor.assumeIsolated { inbox.show(name, text, posted: posted) }
    }
}
let events = center.observeEvents { event in
    MainActor.assumeIsolated {
        switch event {
        case .connectionStateChanged(.connected): inbox.setSuspended(false)
        case .connectionStateChanged: inbox.showState("no notification center", color: "#6e7781")
        case .suspensionChanged(let isSuspended, _): inbox.setSuspended(isSuspended)
        default: break
        }
    }
}
while g_list_model_get_n_items(gtk_window_get_toplevels()) > 0 { g_main_context_iteration(nil, 1) }
