// SPDX-License-Identifier: Apache-2.0
import CarillonBusNames
import CarillonCollections
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The output of `carillon observe --popup`: shows notifications on the desktop, by calls to the notification server
/// `org.freedesktop.Notifications` on a connection of its own.
///
/// A newer notification replaces the popup of the same name and object. One call is pending at a time. Meanwhile the
/// latest notification of each name and object is queued.
final class Popups: NotificationOutput {
    /// The name and the object of a notification, of which there is at most one popup.
    private struct Key: Hashable {
        let name: ExactText
        let object: ExactText
    }

    private struct Popup {
        let title: String
        let body: String
    }

    /// The maximum number of queued popups, and of entries in `shown`.
    private static let maxPopups = 200

    private unowned let session: CommandSession
    private let onIdle: () -> Void
    private var connection: Connection?
    /// Whether the bus has registered the connection, by Hello.
    private var isConnected = false
    /// Whether a call to the notification server is pending.
    private var isCallPending = false
    /// The queued popups, whose order is that of `order`.
    private var waiting: [Key: Popup] = [:]
    private var order: [Key] = []
    /// The IDs that the notification server has assigned to popups, for their replacement.
    private var shown: [Key: UInt32] = [:]
    /// The reason why no popups can be shown; nil while they can.
    private var failure: String?
    /// Whether a popup was omitted, because the desktop shows them too slowly.
    private(set) var hasLost = false

    init(on session: CommandSession, onIdle: @escaping () -> Void) {
        self.session = session
        self.onIdle = onIdle
        do throws(BusError) {
            let connection = try Connection(address: try Connection.sessionBusAddress())
            self.connection = connection
            connection.onDisconnect = { [unowned self] in fail("the bus closed the connection") }
            connection.hello { [unowned self] result in
                switch result {
                case .success:
                    isConnected = true
                    next()
                case .failure(let error): fail(error.message)
                }
            }
        } catch {
            // It is reported with the first notification.
            failure = error.message
        }
    }

    var isBusy: Bool { failure == nil && (isCallPending || !waiting.isEmpty) }
    var hasFailed: Bool { failure != nil }

    func take(_ arrival: Arrival) {
        if let failure { return fail(failure) }
        let notification = arrival.notification
        let key = Key(name: ExactText(notification.name), object: ExactText(notification.object))
        let entries = arrival.userInfo.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value.readable)" }
        let lines = (notification.object.isEmpty ? [] : [notification.object]) + entries
        // The server interprets markup in the body, so the text is escaped.
        let popup = Popup(
            title: NotificationFormat.harmless(notification.name),
            body: lines.map { Self.escaped(NotificationFormat.harmless($0)) }.joined(separator: "\n"))
        if waiting.updateValue(popup, forKey: key) == nil { order.append(key) }
        if order.count > Self.maxPopups {
            let oldest = order.removeFirst()
            waiting[oldest] = nil
            hasLost = true
            printError("carillon: the desktop shows popups too slowly; one of \(oldest.name.text) is omitted")
        }
        next()
    }

    func abandon() -> Int {
        defer {
            waiting = [:]
            order = []
        }
        return waiting.count
    }

    /// Shows the first queued popup unless a call is pending.
    private func next() {
        guard isConnected, !isCallPending, let connection, !order.isEmpty else { return }
        let key = order.removeFirst()
        guard let popup = waiting.removeValue(forKey: key) else { return }
        isCallPending = true
        let message = Message.methodCall(
            to: "org.freedesktop.Notifications", path: "/org/freedesktop/Notifications",
            interface: "org.freedesktop.Notifications", member: "Notify")
        var writer = MessageWriter(message)
        // The application's name, the ID of the popup to replace (0 for none), no icon, title and body, no actions, no
        // hints, and the server's own time until the popup disappears.
        writer.append("carillon")
        writer.append(shown[key] ?? UInt32(0))
        writer.append("")
        writer.append(popup.title)
        writer.append(popup.body)
        writer.array(of: "s") { _ in }
        writer.array(of: "{sv}") { _ in }
        writer.append(Int32(-1))
        connection.call(message) { [unowned self] result in
            isCallPending = false
            switch result.flatMap({ reply in
                var reader = MessageReader(reply)
                return Result { () throws(BusError) in try reader.read(UInt32.self) }
            }) {
            case .success(let id):
                // The forgotten popups are not replaced any more: their next notifications get new popups.
                if shown.count >= Self.maxPopups { shown = [:] }
                shown[key] = id
                next()
                if !isBusy { onIdle() }
            case .failure(let error):
                fail(
                    error.meansNoService
                        ? "there is no notification server in this session (\(error.message))" : "\(error.message)")
            }
        }
    }

    /// Reports a failure, and ends the whole run.
    private func fail(_ reason: String) {
        failure = reason
        printError("carillon: --popup: \(NotificationFormat.harmless(reason))")
        session.finish(.unavailable)
    }

    private static func escaped(_ text: String) -> String {
        text.reduce(into: "") { result, character in
            switch character {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            default: result.append(character)
            }
        }
    }
}
