// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonDBus

/// The D-Bus interface `org.carillon.Activity1`, by which the script in KWin and the extension of GNOME Shell report
/// the windows of the desktop: its names, and its messages as types with encoding and decoding.
///
/// ``ActivityReports`` serves it. It is documented in `dbus-interfaces/org.carillon.Activity1.xml`.
package enum ActivityInterface {
    package static let path: ObjectPath = "/org/carillon/Activity"
    package static let name: InterfaceName = "org.carillon.Activity1"

    /// The report of a change of focus, without the kind of the window. The script and the extension of this project
    /// send ``WindowFocused`` instead.
    package struct Focused: ActivityReport {
        /// The desktop's id of the window that has the focus now; empty if none has.
        package var window: String
        /// The process of the window; 0 if unknown.
        package var processID: Int32
        /// The application id, which is the name of its desktop file; empty if unknown.
        package var application: String

        package init(window: String, processID: Int32, application: String) {
            self.window = window
            self.processID = processID
            self.application = application
        }

        package static let member: MemberName = "Focused"
        package static let arguments: [Interface.Argument] = [
            .init("window", "s"), .init("pid", "i"), .init("application", "s"),
        ]

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try reader.readString()
            processID = try reader.read()
            application = try reader.readString()
        }

        package func append(to writer: inout MessageWriter) {
            writer.append(window)
            writer.append(processID)
            writer.append(application)
        }
    }

    /// The report of a change of focus, with the kind of the window and the window that it is transient for.
    package struct WindowFocused: ActivityReport {
        package var focused: Focused
        /// The kind of the window, as in ``ActivityWindow/Kind``; ignored if no window has the focus.
        package var kind: String
        /// The process of the window that this window is directly or indirectly transient for; 0 if there is none.
        package var ownerProcessID: Int32
        /// The application of that window; empty if unknown.
        package var ownerApplication: String

        package init(focused: Focused, kind: String, ownerProcessID: Int32 = 0, ownerApplication: String = "") {
            self.focused = focused
            self.kind = kind
            self.ownerProcessID = ownerProcessID
            self.ownerApplication = ownerApplication
        }

        package static let member: MemberName = "WindowFocused"
        package static let arguments =
            Focused.arguments + [.init("kind", "s"), .init("owner_pid", "i"), .init("owner_application", "s")]

        package init(from reader: inout MessageReader) throws(BusError) {
            focused = try Focused(from: &reader)
            kind = try reader.readString()
            ownerProcessID = try reader.read()
            ownerApplication = try reader.readString()
            guard focused.window.isEmpty || ActivityWindow.Kind(rawValue: kind) != nil else {
                throw .invalidArgs("'\(kind)' is not a kind of window")
            }
        }

        package func append(to writer: inout MessageWriter) {
            focused.append(to: &writer)
            writer.append(kind)
            writer.append(ownerProcessID)
            writer.append(ownerApplication)
        }
    }

    /// The report of a window that is part of the desktop itself, such as a panel. Its fields are those of ``Focused``.
    package struct ShellWindow: ActivityReport {
        package var window: String
        package var processID: Int32
        package var application: String

        package init(window: String, processID: Int32, application: String) {
            self.window = window
            self.processID = processID
            self.application = application
        }

        package static let member: MemberName = "ShellWindow"
        package static let arguments = Focused.arguments

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try reader.readString()
            processID = try reader.read()
            application = try reader.readString()
        }

        package func append(to writer: inout MessageWriter) {
            writer.append(window)
            writer.append(processID)
            writer.append(application)
        }
    }

    /// The report of a window and whether it is visible, sent for each window and after each change.
    package struct WindowVisibility: ActivityReport {
        package var window: ShellWindow
        /// The kind of the window, as in ``ActivityWindow/Kind``.
        package var kind: String
        /// Whether the window is minimised, or on a workspace that is not shown.
        package var isHidden: Bool

        package init(window: ShellWindow, kind: String, isHidden: Bool) {
            self.window = window
            self.kind = kind
            self.isHidden = isHidden
        }

        package static let member: MemberName = "WindowVisibility"
        package static let arguments = Focused.arguments + [.init("kind", "s"), .init("hidden", "b")]

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try ShellWindow(from: &reader)
            kind = try reader.readString()
            isHidden = try reader.read()
            guard ActivityWindow.Kind(rawValue: kind) != nil else {
                throw .invalidArgs("'\(kind)' is not a kind of window")
            }
        }

        package func append(to writer: inout MessageWriter) {
            window.append(to: &writer)
            writer.append(kind)
            writer.append(isHidden)
        }
    }

    /// The report that no reports follow, for example because the user disabled the extension.
    package struct Ended: ActivityReport {
        package init() {}

        package static let member: MemberName = "Ended"
        package static let arguments: [Interface.Argument] = []

        package init(from reader: inout MessageReader) throws(BusError) {}

        package func append(to writer: inout MessageWriter) {}
    }

    /// The report of a closed window.
    package struct Closed: ActivityReport {
        /// The id of the window.
        package var window: String

        package init(window: String) {
            self.window = window
        }

        package static let member: MemberName = "Closed"
        package static let arguments: [Interface.Argument] = [.init("window", "s")]

        package init(from reader: inout MessageReader) throws(BusError) {
            window = try reader.readString()
        }

        package func append(to writer: inout MessageWriter) {
            writer.append(window)
        }
    }

    /// The signal by which the service requests reports of the visibility of windows, from now on.
    package struct VisibilityRequested: Equatable, Sendable {
        package static let member: MemberName = "VisibilityRequested"

        package init() {}

        /// - Parameter desktop: The only receiver.
        package func signal(to desktop: UniqueName) -> Message {
            .signal(to: desktop, path: ActivityInterface.path, interface: ActivityInterface.name, member: Self.member)
        }
    }

    /// The signal by which the service requests a report of the current focus.
    package struct ReportRequested: Equatable, Sendable {
        package static let member: MemberName = "ReportRequested"

        package init() {}

        /// Nil if `message` is another message.
        package init?(_ message: Message) {
            guard message.isSignal(ActivityInterface.name, Self.member) else { return nil }
        }

        /// - Parameter desktop: The only receiver.
        package func signal(to desktop: UniqueName) -> Message {
            .signal(to: desktop, path: ActivityInterface.path, interface: ActivityInterface.name, member: Self.member)
        }
    }
}

/// A report of a desktop to the service: a method call without a result.
package protocol ActivityReport: Equatable, Sendable {
    /// The name of the method.
    static var member: MemberName { get }
    static var arguments: [Interface.Argument] { get }
    init(from reader: inout MessageReader) throws(BusError)
    func append(to writer: inout MessageWriter)
}

extension ActivityReport {
    /// Returns the message of the call. It does not start a service that is not running.
    ///
    /// - Parameter service: The receiver.
    package func call(to service: some BusName) -> Message {
        let message = Message.methodCall(
            to: service, path: ActivityInterface.path, interface: ActivityInterface.name, member: Self.member,
            startsService: false)
        var writer = MessageWriter(message)
        append(to: &writer)
        return message
    }
}
