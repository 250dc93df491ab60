import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// The interface of the wire contract as a table: decode, one call into the core, answer.
func centerInterface(of object: CenterObject) -> Interface {
    // The table belongs to the object; a strong reference here would keep both alive for ever.
    let handlers = CenterHandlers(object: object)
    return Interface(
        name: Wire.interface,
        methods: [
            Interface.Method(
                "AddObserver",
                in: [.init("name", "s"), .init("object", "s"), .init("options", "a{sv}")],
                out: [.init("observer", "t")],
                handler: handlers.addObserver),
            Interface.Method("RemoveObserver", in: [.init("observer", "t")], handler: handlers.removeObserver),
            Interface.Method(
                "RemoveObservers",
                in: [.init("name", "s"), .init("object", "s")],
                out: [.init("removed", "u")],
                handler: handlers.removeObservers),
            Interface.Method(
                "Post",
                in: [
                    .init("name", "s"), .init("object", "s"), .init("user_info", "a{sv}"), .init("options", "a{sv}"),
                ],
                out: [.init("receivers", "u")],
                handler: handlers.post),
            Interface.Method("SetSuspended", in: [.init("suspended", "b")], handler: handlers.setSuspended),
            Interface.Method("FollowActivity", handler: handlers.followActivity),
            Interface.Method("ListClients", out: [.init("clients", "aa{sv}")], handler: handlers.listClients),
            Interface.Method(
                "ListObservers", in: [.init("client", "s")], out: [.init("observers", "a(tsss)")],
                handler: handlers.listObservers),
            Interface.Method("ReloadConfiguration", handler: handlers.reloadConfiguration),
        ],
        signals: [
            Interface.Signal(
                "Notification",
                [
                    .init("name", "s"), .init("object", "s"), .init("user_info", "a{sv}"), .init("observers", "at"),
                    .init("poster", "s"), .init("serial", "t"), .init("sequence", "t"),
                ]),
            Interface.Signal(
                "Dropped", [.init("count", "t"), .init("observers", "at"), .init("reason", "s")]),
            Interface.Signal("SuspensionChanged", [.init("suspended", "b"), .init("cause", "s")]),
        ],
        properties: [
            Interface.Property("Version", "s", change: .never) { $0.append(Wire.softwareVersion) },
            Interface.Property("ActivitySource", "s", change: .announced) { handlers.writeActivitySource(to: &$0) },
            Interface.Property("ActivityState", "s", change: .announced) { handlers.writeActivityState(to: &$0) },
            Interface.Property("Limits", "a{sv}", change: .announced, write: handlers.writeLimits),
            Interface.Property("Statistics", "a{st}", change: .notAnnounced, write: handlers.writeStatistics),
        ])
}

/// The handlers behind the table, in its order.
private struct CenterHandlers {
    unowned let object: CenterObject

    private var center: DistributedCenter { object.center }

    func addObserver(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        let name = try arguments.readString()
        let about = try arguments.readString()
        let id = try mappingCenterErrors { () throws(CenterError) in
            let options = try ObserverOptions(from: &arguments)
            return try object.perform { effects throws(CenterError) in
                try center.addObserver(
                    of: call.sender, name: name, object: about, options: options, effects: &effects)
            }
        }
        call.reply { $0.append(id.rawValue) }
    }

    func removeObserver(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        let id = ObserverID(rawValue: try arguments.read())
        try mappingCenterErrors { () throws(CenterError) in
            try object.perform { effects throws(CenterError) in
                try center.removeObserver(id, of: call.sender, effects: &effects)
            }
        }
        call.reply()
    }

    func removeObservers(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        let name = try arguments.readString()
        let about = try arguments.readString()
        let removed = object.perform { effects in
            center.removeObservers(of: call.sender, name: name, object: about, effects: &effects)
        }
        call.reply { $0.append(UInt32(removed)) }
    }

    func post(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        let name = try arguments.readString()
        let about = try arguments.readString()
        var style = PostingStyle.now
        let receipt = try mappingCenterErrors { () throws(CenterError) in
            try center.checkPost(name: name, object: about)
            let userInfo = try WireUserInfo(of: call.message, at: &arguments, limits: center.limits)
            let options = try PostOptions(from: &arguments)
            style = options.postingStyle
            return try object.perform { effects throws(CenterError) in
                try center.post(
                    name: name, object: about, userInfo: userInfo, options: options, from: call.sender,
                    effects: &effects)
            }
        }
        if style == .whenIdle { object.turns.expectIdleness() }
        object.answer(call, with: receipt)
    }

    func setSuspended(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        let isSuspended = try arguments.read(Bool.self)
        try mappingCenterErrors { () throws(CenterError) in
            try object.perform { effects throws(CenterError) in
                try center.setSuspended(isSuspended, of: call.sender, effects: &effects)
            }
        }
        call.reply()
    }

    func followActivity(_ call: MethodCall) throws(BusError) {
        try mappingCenterErrors { () throws(CenterError) in
            try object.perform { effects throws(CenterError) in
                try center.followActivity(of: call.sender, effects: &effects)
            }
        }
        call.reply()
    }

    func reloadConfiguration(_ call: MethodCall) throws(BusError) {
        do throws(KeyFile.Fault) {
            try object.reloadConfiguration()
        } catch {
            throw BusError(name: "org.carillon.Error.InvalidConfiguration", message: error.description)
        }
        call.reply()
    }

    func listClients(_ call: MethodCall) throws(BusError) {
        object.clients.whenIdentified {
            call.reply { writer in
                writer.array(of: "a{sv}") { writer in
                    for client in center.clientStatuses { append(client, to: &writer) }
                }
            }
        }
    }

    private func append(_ client: ClientStatus, to writer: inout MessageWriter) {
        let process = object.clients.process(of: client.name)
        writer.array(of: "{sv}") { writer in
            writer.entry("name", client.name.rawValue)
            writer.entry("pid", process?.id ?? 0)
            writer.entry("process", process?.name ?? "")
            writer.entry("suspended", client.isSuspended)
            writer.entry("cause", client.cause.rawValue)
            writer.entry("observers", UInt32(client.observers))
            writer.entry("queued", UInt32(client.queued))
            writer.entry("delivered", client.delivered)
            writer.entry("dropped", client.dropped)
        }
    }

    func listObservers(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        // What is no name of a client has no observers.
        let client = ClientName(rawValue: try arguments.readString())
        let registrations = client.flatMap(center.registrations) ?? []
        call.reply { writer in
            writer.array(of: "(tsss)") { writer in
                for registration in registrations {
                    writer.structure { writer in
                        writer.append(registration.id.rawValue)
                        writer.append(registration.name ?? "")
                        writer.append(registration.object ?? "")
                        writer.append(registration.options.suspensionBehavior.rawValue)
                    }
                }
            }
        }
    }

    func writeActivitySource(to writer: inout MessageWriter) {
        writer.append(object.activity?.kind?.rawValue ?? "none")
    }

    func writeActivityState(to writer: inout MessageWriter) {
        writer.append((object.activity?.state ?? .off).rawValue)
    }

    func writeLimits(to writer: inout MessageWriter) {
        writer.array(of: "{sv}") { writer in
            for row in Limits.table { writer.entry(row.key.rawValue, center.limits[row.key]) }
        }
    }

    func writeStatistics(to writer: inout MessageWriter) {
        let statistics = center.statistics
        let counters: KeyValuePairs<String, UInt64> = [
            "posted": statistics.posted,
            "delivered": statistics.delivered,
            "queued": statistics.queued,
            "dropped": statistics.dropped,
            "clients": statistics.clients,
            "observers": statistics.observers,
            "unmatched": statistics.unmatched,
            "coalesced": statistics.coalesced,
            "queued-bytes": statistics.queuedBytes,
            "queued-posts": statistics.queuedPosts,
            "queued-post-bytes": statistics.queuedPostBytes,
            "refused": object.refused,
            "rejected": object.rejected,
        ]
        writer.array(of: "{st}") { writer in
            for (name, value) in counters {
                writer.dictEntry { writer in
                    writer.append(name)
                    writer.append(value)
                }
            }
        }
    }
}
