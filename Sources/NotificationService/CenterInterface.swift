import BusNames
import DBus
import MainLoop
import NotificationCore
import NotificationWire

/// The interface of the wire contract as a table: one call into the core for each method.
func centerInterface(of object: CenterObject) -> Interface {
    // The table belongs to the object; a strong reference here would keep both alive for ever.
    let handlers = CenterHandlers(object: object)
    return Interface(
        name: Wire.interface,
        methods: [
            Interface.Method(AddObserver.self, handler: handlers.addObserver),
            Interface.Method(RemoveObserver.self, handler: handlers.removeObserver),
            Interface.Method(RemoveObservers.self, handler: handlers.removeObservers),
            Interface.Method(PostCall.self, answers: handlers.post),
            Interface.Method(SetSuspended.self, handler: handlers.setSuspended),
            Interface.Method(FollowActivity.self, handler: handlers.followActivity),
            Interface.Method(ListClients.self, answers: handlers.listClients),
            Interface.Method(ListObservers.self, handler: handlers.listObservers),
            Interface.Method(ReloadConfiguration.self, handler: handlers.reloadConfiguration),
        ],
        signals: [
            Interface.Signal(NotificationSignal.self), Interface.Signal(DroppedSignal.self),
            Interface.Signal(SuspensionChangedSignal.self),
        ],
        properties: CenterProperties.table(handlers.properties))
}

/// The handlers behind the table, in its order.
private struct CenterHandlers {
    unowned let object: CenterObject

    private var center: DistributedCenter { object.center }

    func addObserver(_ call: AddObserver, from client: UniqueName) throws(BusError) -> ObserverID {
        try perform { effects throws(CenterError) in
            try center.addObserver(
                of: client, name: call.name, object: call.object, options: call.options, effects: &effects)
        }
    }

    func removeObserver(_ call: RemoveObserver, from client: UniqueName) throws(BusError) {
        try perform { effects throws(CenterError) in
            try center.removeObserver(call.observer, of: client, effects: &effects)
        }
    }

    func removeObservers(_ call: RemoveObservers, from client: UniqueName) -> Int {
        object.perform { effects in
            center.removeObservers(of: client, name: call.name, object: call.object, effects: &effects)
        }
    }

    func post(_ call: MethodCall) throws(BusError) {
        let post = try mappingCenterErrors { () throws(CenterError) in
            try Post<WireUserInfo>(call.message, limits: center.limits, checking: center.checkPost)
        }
        let receipt = try perform { effects throws(CenterError) in
            try center.post(
                name: post.name, object: post.object, userInfo: post.userInfo, options: post.options,
                from: call.sender, effects: &effects)
        }
        if post.options.postingStyle == .whenIdle { object.turns.expectIdleness() }
        object.answer(call, with: receipt)
    }

    func setSuspended(_ call: SetSuspended, from client: UniqueName) throws(BusError) {
        try perform { effects throws(CenterError) in
            try center.setSuspended(call.isSuspended, of: client, effects: &effects)
        }
    }

    func followActivity(_: FollowActivity, from client: UniqueName) throws(BusError) {
        try perform { effects throws(CenterError) in
            try center.followActivity(of: client, effects: &effects)
        }
    }

    func listClients(_ call: MethodCall) {
        object.clients.whenIdentified {
            call.reply(to: ListClients.self, center.clientStatuses.map(listed))
        }
    }

    private func listed(_ client: ClientStatus) -> ListedClient {
        let process = object.clients.process(of: client.name)
        return ListedClient(
            name: client.name, processID: process?.id ?? 0, process: process?.name ?? "",
            isSuspended: client.isSuspended, cause: client.cause.rawValue, observers: UInt32(client.observers),
            queued: UInt32(client.queued), delivered: client.delivered, dropped: client.dropped)
    }

    func listObservers(_ call: ListObservers, from _: UniqueName) -> [ListedObserver] {
        // What is no name of a client has no observers.
        let registrations = ClientName(rawValue: call.client).flatMap(center.registrations) ?? []
        return registrations.map { registration in
            ListedObserver(
                id: registration.id, name: registration.name ?? "", object: registration.object ?? "",
                suspensionBehavior: registration.options.suspensionBehavior.rawValue)
        }
    }

    func reloadConfiguration(_: ReloadConfiguration, from _: UniqueName) throws(BusError) {
        do throws(KeyFile.Fault) {
            try object.reloadConfiguration()
        } catch {
            throw BusError(.invalidConfiguration, message: error.description)
        }
    }

    func properties() -> CenterProperties {
        let statistics = center.statistics
        return CenterProperties(
            version: Wire.softwareVersion, activitySource: object.activity?.kind?.rawValue ?? "none",
            activityState: (object.activity?.state ?? .off).rawValue,
            limits: NamedNumbers { center.limits[$0] },
            statistics: NamedNumbers { key in
                switch key {
                case .posted: statistics.posted
                case .delivered: statistics.delivered
                case .queued: statistics.queued
                case .dropped: statistics.dropped
                case .clients: statistics.clients
                case .observers: statistics.observers
                case .unmatched: statistics.unmatched
                case .coalesced: statistics.coalesced
                case .queuedBytes: statistics.queuedBytes
                case .queuedPosts: statistics.queuedPosts
                case .queuedPostBytes: statistics.queuedPostBytes
                case .refused: object.refused
                case .rejected: object.rejected
                }
            })
    }

    /// One call into the core, whose error is answered.
    private func perform<Result>(
        _ event: (inout [Effect]) throws(CenterError) -> Result
    ) throws(BusError) -> Result {
        try mappingCenterErrors { () throws(CenterError) in try object.perform(event) }
    }
}
