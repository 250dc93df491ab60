// SPDX-License-Identifier: Apache-2.0
import CarillonActivity
import CarillonBusNames
import CarillonCore
import CarillonDBus
import CarillonMainLoop
import CarillonWire

/// The implementation of the D-Bus interface of the service: a table of its methods, and a handler for each.
///
/// ``CenterObject`` makes one, and its exporter dispatches calls by the table. A handler decodes the arguments, checks
/// policy, passes one event to the core, and replies. The members are the objects that the handlers use; `CenterObject`
/// owns them all.
struct CenterHandlers {
    unowned let driver: CenterDriver
    unowned let deliverySources: DeliverySources
    unowned let clients: ClientRegistry
    unowned let callers: Callers
    unowned let gate: PolicyGate
    unowned let refusals: RejectionLog
    unowned let revocations: PolicyRevocations
    /// The calls that are served in slices.
    unowned let parts: SlicedCalls
    unowned let postBatches: PostBatches
    unowned let channelPosts: ChannelPosts
    unowned let configuration: ConfigurationKeeper
    unowned let sessions: Sessions
    unowned let present: PresentConnections

    /// The table of methods, signals and properties. Calls are dispatched by it, and the introspection data is made
    /// from it.
    var interface: Interface {
        Interface(
            name: Wire.interface,
            methods: [
                method(AddObserver.self, needs: { .observe(name: $0.name) }, handler: addObserver),
                method(RemoveObserver.self, needs: { _ in .nothing }, handler: removeObserver),
                method(RemoveObservers.self, needs: { _ in .nothing }, handler: removeObservers),
                method(PostCall.self, needs: Self.postNeeds, answers: post),
                method(PostJSON.self, needs: Self.postNeeds, answers: postJSON),
                method(SetSuspended.self, needs: { _ in .nothing }, handler: setSuspended),
                method(FollowActivity.self, needs: { _ in .nothing }, handler: followActivity),
                method(
                    OverrideSuspension.self, needs: { _ in .session("override the suspension of clients") },
                    handler: overrideSuspension),
                method(ListClients.self, shows: listClients),
                method(ListPosters.self, shows: listPosters),
                method(ListObservers.self, shows: listObservers),
                method(ListObserversFrom.self, shows: listObserversFrom),
                // The policy check of each post is in ``PostBatches``.
                method(PostMany.self, needs: { (_: MethodCall) in .nothing }, answers: postBatches.begin),
                method(SetClientOptions.self, needs: Self.optionsNeed, handler: setClientOptions),
                method(GetClient.self, shows: getClient),
                method(Explain.self, shows: explain),
                method(
                    FollowInterest.self, needs: { _ in .session("follow what others observe") },
                    handler: followInterest),
                method(
                    FollowValues.self, needs: { _ in .session("follow the retained values") },
                    handler: followValues),
                method(Get.self, needs: Self.getNeeds, answers: get),
                method(RemoveRetained.self, needs: { .post(name: $0.name) }, inParts: removeRetained),
                method(RemoveRetainedFrom.self, needs: { .post(name: $0.name) }, handler: removeRetainedFrom),
                method(WithdrawPosts.self, needs: { _ in .nothing }, inParts: withdrawPosts),
                // The policy check of each post on a channel is in ``ChannelPosts``.
                method(OpenChannel.self, needs: { (_: MethodCall) in .nothing }, answers: channelPosts.open),
                method(
                    ReloadConfiguration.self,
                    needs: { (_: MethodCall) in .session("reload the configuration") },
                    answers: reloadConfiguration),
            ],
            signals: [
                Interface.Signal(NotificationSignal.self), Interface.Signal(DroppedSignal.self),
                Interface.Signal(SuspensionChangedSignal.self), Interface.Signal(NotificationsSignal.self),
                Interface.Signal(InterestChangedSignal.self), Interface.Signal(ValuesRemovedSignal.self),
                Interface.Signal(PostsRefusedSignal.self),
            ],
            properties: CenterProperties.table(properties))
    }

    private var center: DistributedCenter { driver.center }

    // MARK: Rows of the method table

    // Every row states its need: the permission that policy checks (P2). All rows are made by these overloads, so no
    // method lacks the check. The label of the last argument tells the sort of handler. The need `.session` concerns
    // other programs: every process outside sandboxes has it, and no sandbox. Its text completes the error "may not".

    /// Makes a row whose handler returns the reply.
    private func method<Method: CenterMethod>(
        _: Method.Type, needs: @escaping (Method) -> PolicyGate.Need,
        handler: @escaping (Method, UniqueName) throws(BusError) -> Method.Reply
    ) -> Interface.Method {
        Interface.Method(Method.self) { [gate] method, client throws(BusError) in
            try gate.check(client) { needs(method) }
            return try handler(method, client)
        }
    }

    /// Makes a row whose handler sends the reply itself.
    private func method<Method: CenterMethod>(
        _: Method.Type, needs: @escaping (MethodCall) throws(BusError) -> PolicyGate.Need,
        answers handler: @escaping (MethodCall) throws(BusError) -> Void
    ) -> Interface.Method {
        Interface.Method(Method.self) { [gate] call throws(BusError) in
            try gate.check(call.sender) { () throws(BusError) in try needs(call) }
            try handler(call)
        }
    }

    /// Makes a row that is served in slices (``SlicedCalls``), and replies with the sum of their counts.
    ///
    /// - Parameter begin: returns a closure that serves the next slice.
    private func method<Method: CenterMethod>(
        _: Method.Type, needs: @escaping (Method) -> PolicyGate.Need,
        inParts begin: @escaping (Method, UniqueName) -> () -> (count: Int, isMore: Bool)
    ) -> Interface.Method where Method.Reply == Int {
        Interface.Method(Method.self) { [gate, unowned parts] call throws(BusError) in
            var arguments = call.arguments
            let method = try Method(from: &arguments)
            try call.expectNoDescriptors()
            try gate.check(call.sender) { needs(method) }
            let serve = begin(method, call.sender)
            var count = 0
            parts.begin(call) { _ in
                let part = serve()
                count += part.count
                if !part.isMore { call.reply(to: Method.self, count) }
                return !part.isMore
            }
        }
    }

    /// Makes a row that shows those clients that the caller may see. Its handler returns the reply.
    private func method<Method: CenterMethod>(
        _: Method.Type, shows handler: @escaping (Method, PolicyGate.Visibility) throws(BusError) -> Method.Reply
    ) -> Interface.Method {
        self.method(
            Method.self,
            shows: { (call: MethodCall, visibility: PolicyGate.Visibility) throws(BusError) in
                var arguments = call.arguments
                let method = try Method(from: &arguments)
                try call.expectNoDescriptors()
                call.reply(to: Method.self, try handler(method, visibility))
            })
    }

    /// Makes a row that shows those clients that the caller may see. Its handler sends the reply itself. If the caller
    /// wants no reply, the handler does not run, because its work may be long.
    private func method<Method: CenterMethod>(
        _: Method.Type, shows handler: @escaping (MethodCall, PolicyGate.Visibility) throws(BusError) -> Void
    ) -> Interface.Method {
        Interface.Method(Method.self) { [gate] call throws(BusError) in
            guard call.answer.isWanted else { return try call.expectNoDescriptors() }
            try handler(call, gate.visibility(of: call.sender))
        }
    }

    /// Returns the need of a post. An empty name needs nothing here, because the later check of the post refuses it.
    private static func postNeeds(_ call: MethodCall) throws(BusError) -> PolicyGate.Need {
        let name = try Post.nameAndObject(of: call.message).name
        return name.isEmpty ? .nothing : .post(name: name)
    }

    /// Returns the need of reading retained values: a client that may observe a name may read its values.
    private static func getNeeds(_ call: MethodCall) throws(BusError) -> PolicyGate.Need {
        var arguments = call.arguments
        return .observe(name: try Get(from: &arguments).name)
    }

    /// Returns the need of changing options. A sandboxed client may not have the identity of posters in its
    /// notifications, because it may not see other clients (P2).
    private static func optionsNeed(_ call: SetClientOptions) -> PolicyGate.Need {
        #if CARILLON_PLANTED
            if PlantedFault.strikes(.sandboxGetsPosters) { return .nothing }
        #endif
        return call.change.details?.all.contains(where: \.isAboutPoster) == true
            ? .session("receive the identity of posters") : .nothing
    }

    // MARK: Methods in the table's order
    // Each serves the D-Bus method of its name.

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
        driver.perform { effects in
            center.removeObservers(of: client, name: call.name, object: call.object, effects: &effects)
        }
    }

    func post(_ call: MethodCall) throws(BusError) {
        let post = try Post(call.message, limits: center.limits, checking: center.checkPost)
        try call.expectNoDescriptors()
        // Two options need a permission of their own: an outside origin, and the delivery to all sessions. A sandbox
        // may use neither.
        try gate.check(post.options, ofPost: post.name, call.sender)
        try make(post, of: call)
    }

    func postJSON(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        let post = try PostJSON(from: &arguments).post(limits: center.limits, checking: center.checkPost)
        try call.expectNoDescriptors()
        // `PostJSON` has no argument for options, so there are no options to check.
        try make(post, of: call)
    }

    /// Makes a post, in slices if it replaces many queued posts, and replies.
    private func make(_ post: Post<WireUserInfo>, of call: MethodCall) throws(BusError) {
        guard try isCoalescedRemoved(for: post, from: call.sender) else {
            return parts.begin(call) { _ in
                do throws(BusError) {
                    guard try isCoalescedRemoved(for: post, from: call.sender) else { return false }
                    try accept(post, of: call)
                } catch {
                    refusals.note(call, error)
                    call.reply(with: error)
                }
                return true
            }
        }
        try accept(post, of: call)
    }

    /// Removes a slice of the queued posts that a coalescing post replaces. Returns whether the post may be made now.
    /// Most posts replace none, and need no event of the core for this.
    private func isCoalescedRemoved(for post: Post<WireUserInfo>, from poster: UniqueName) throws(BusError) -> Bool {
        guard !post.options.coalescing.isEmpty else { return true }
        return try driver.perform { effects throws(BusError) in
            try driver.removeCoalesced(for: post, from: poster, effects: &effects)
        }
    }

    /// Passes a post to the core, and replies after its deliveries.
    private func accept(_ post: Post<WireUserInfo>, of call: MethodCall) throws(BusError) {
        let receipt = try perform { effects throws(CenterError) in
            try center.post(
                name: post.name, object: post.object, userInfo: post.userInfo, options: post.options,
                from: call.sender, effects: &effects)
        }
        if post.options.postingStyle == .whenIdle { deliverySources.expectIdleness() }
        driver.answer(call, with: receipt)
        deliverySources.notePost(receivers: receipt.receivers)
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

    func overrideSuspension(_ call: OverrideSuspension, from author: UniqueName) throws(BusError) {
        let client = try clientName(call.client)
        let override = call.isSuspended.map {
            SuspensionOverride(isSuspended: $0, author: author, identity: callers.identity(of: author))
        }
        let isKnown = driver.perform { effects in
            center.overrideSuspension(override, of: client, effects: &effects)
        }
        guard isKnown else {
            throw BusError(
                name: BusError.nameHasNoOwnerName,
                message: "\(client) is not a client: it has registered no observer, or has left")
        }
    }

    private func clientName(_ text: String) throws(BusError) -> ClientName {
        guard let client = ClientName(rawValue: text) else {
            throw .invalidArgs("'\(text)' is not a unique name, such as ':1.42'")
        }
        return client
    }

    func listClients(_ call: MethodCall, _ visibility: PolicyGate.Visibility) throws(BusError) {
        try call.expectNoDescriptors()
        call.reply(to: ListClients.self, center.clientStatuses.filter { visibility.shows($0.name) }.map(listed))
    }

    /// Returns the entry of a client in the reply of ListClients.
    private func listed(_ client: ClientStatus) -> ListedClient {
        let process = clients.process(of: client.name)
        // Connections without observers are not watched, and are listed while they do not read their replies. Their
        // identity is known from their calls.
        let identity = callers[client.name]?.identity
        return ListedClient(
            name: client.name, processID: process?.id ?? identity?.processID ?? 0,
            process: process?.name ?? identity?.process ?? "",
            isSuspended: client.isSuspended, cause: client.cause.rawValue, observers: UInt32(client.observers),
            queued: UInt32(client.queued), delivered: client.delivered, dropped: client.dropped,
            flow: client.flow.rawValue, unconfirmed: UInt32(client.unconfirmed), posted: client.posted,
            userID: identity?.userID, application: identity?.application ?? "",
            hasChannel: driver.effects.channels[client.name] != nil)
    }

    func listPosters(_ call: MethodCall, _ visibility: PolicyGate.Visibility) throws(BusError) {
        var arguments = call.arguments
        let most = try ListPosters(from: &arguments).most
        try call.expectNoDescriptors()
        try present.ask { names in
            // Many requests of one caller may have waited for the same reply of the bus. The quota of unread replies,
            // which was checked when they arrived, is therefore checked again. A request beyond the quota gets an
            // error if `mayRefuse` finds space for one: errors may use 4 KiB more. Otherwise it gets no reply and is
            // logged. The error is that of all calls beyond the quota, and stands in `ChannelPosts`.
            guard center.isServed(call.sender) else {
                guard center.mayRefuse(call.sender) else { return refusals.noteUnserved(call.message, of: call.sender) }
                refusals.note(call, ChannelPosts.unread)
                return call.reply(with: ChannelPosts.unread)
            }
            // Posters that have left are left out, if the bus returned the present connections.
            let posters = center.posterStatuses(most: Int(most)) { name in
                visibility.shows(name) && names?.contains(name) != false
            }
            // The posters with the most posts come first. As many as fit into a reply are listed, the oldest connection
            // first.
            var room = Wire.maxAnswerBytes
            let busiest = posters.map(listed).prefix { poster in
                room -= poster.byteCount
                return room >= 0
            }
            call.reply(to: ListPosters.self, busiest.sorted { $0.name.isOlder(than: $1.name) })
        }
    }

    /// Returns the entry of a poster in the reply of ListPosters.
    private func listed(_ poster: PosterStatus) -> ListedPoster {
        let identity = poster.identity
        return ListedPoster(
            name: poster.name, processID: identity.processID ?? 0, process: identity.process ?? "",
            application: identity.application ?? "", userID: identity.userID, posted: poster.posted,
            refused: poster.refused)
    }

    func listObservers(_ call: ListObservers, _ visibility: PolicyGate.Visibility) throws(BusError) -> [ListedObserver]
    {
        let observers = registrations(of: call.client, visibility).map(ListedObserver.init)
        let size = observers.reduce(0) { $0 + $1.byteCount }
        guard size <= Wire.maxAnswerBytes else {
            throw BusError(
                .limitExceeded,
                message: "a reply has at most \(Wire.maxAnswerBytes) bytes, and this one would have about "
                    + "\(size); \(ListObserversFrom.member) returns the observers of \(call.client) in parts")
        }
        return observers
    }

    func listObserversFrom(_ call: ListObserversFrom, _ visibility: PolicyGate.Visibility) -> [ListedRegistration] {
        var observers: [ListedRegistration] = []
        var room = Wire.maxPageBytes
        for registration in registrations(of: call.client, visibility) where registration.id > call.after {
            guard observers.count < call.most else { break }
            let observer = ListedRegistration(registration)
            // The first entry always fits, because names and objects have limits.
            guard observers.isEmpty || observer.byteCount <= room else { break }
            room -= observer.byteCount
            observers.append(observer)
        }
        return observers
    }

    /// Returns the observers of a client; none if the text is not a client's name, or if the caller may not see the
    /// client.
    private func registrations(of client: String, _ visibility: PolicyGate.Visibility) -> [Registration] {
        guard let client = ClientName(rawValue: client), visibility.shows(client) else { return [] }
        return center.registrations(of: client) ?? []
    }

    func setClientOptions(_ call: SetClientOptions, from client: UniqueName) throws(BusError) {
        try perform { effects throws(CenterError) in
            try center.setOptions(call.change, of: client, effects: &effects)
        }
    }

    func getClient(_ call: GetClient, _ visibility: PolicyGate.Visibility) throws(BusError) -> KnownClient {
        let client = try clientName(call.client)
        guard visibility.shows(client), let identity = callers.identity(of: client) else {
            throw BusError(
                name: BusError.nameHasNoOwnerName,
                message: "\(client) has not called the service, or it has left more than a minute ago")
        }
        return KnownClient(name: client, identity: identity)
    }

    func explain(_ call: Explain, _ visibility: PolicyGate.Visibility) throws(BusError) -> [String] {
        let client = try clientName(call.client)
        if !call.name.isEmpty {
            try mappingCenterErrors { () throws(CenterError) in
                try center.checkPost(name: call.name, object: call.object)
            }
        }
        // A client that the caller may not see is reported as absent.
        guard visibility.shows(client),
            let explanation = center.explanation(of: client, name: call.name, object: call.object)
        else { return [ExplanationText.noClient(client)] }
        return ExplanationText(
            client: client, name: call.name, object: call.object, explanation: explanation,
            registrations: center.registrations(of: client) ?? [], process: clients.process(of: client),
            refusal: call.name.isEmpty ? nil : gate.refusal(toObserve: call.name, client),
            inactiveWhen: driver.effects.activity?.rule(for: client) ?? .unfocused,
            others: visibility.isWhole ? .known(active: driver.effects.activity?.activeApplication) : .withheld,
            now: driver.center.clock.time()
        ).sentences
    }

    func followInterest(
        _ call: FollowInterest, from client: UniqueName
    ) throws(BusError) -> DistributedCenter.Wanted {
        try perform { effects throws(CenterError) in
            try center.followInterest(
                of: client, after: call.after, most: Int(call.most), room: Wire.maxPageBytes,
                byteCount: FollowInterest.byteCount, effects: &effects)
        }
    }

    func followValues(
        _ call: FollowValues, from client: UniqueName
    ) throws(BusError) -> [FollowValues.Listed] {
        try perform { effects throws(CenterError) in
            try center.followValues(
                of: client, after: call.after, most: Int(call.most), room: Wire.maxPageBytes,
                byteCount: FollowValues.byteCount, effects: &effects)
        }.map(FollowValues.Listed.init)
    }

    func get(_ call: MethodCall) throws(BusError) {
        var arguments = call.arguments
        let get = try Get(from: &arguments)
        try call.expectNoDescriptors()
        guard call.answer.isWanted else { return }
        let values = driver.perform { effects in
            center.retainedValues(name: get.name, object: get.object, effects: &effects)
        }
        let isAllowed = gate.mayKnowPosters(call.sender)
        try Get.answer(call, with: values) { isAllowed || !$0.isAboutPoster }
    }

    /// Removes the values that were retained before the call. Other posters may retain values between two slices. The
    /// bound is the last serial before the call, so later slices leave these values alone.
    func removeRetained(_ call: RemoveRetained, from _: UniqueName) -> () -> (count: Int, isMore: Bool) {
        let newest = center.lastNumbers.serial
        return {
            driver.perform { effects in
                center.removeRetained(name: call.name, object: call.object, through: newest, effects: &effects)
            }
        }
    }

    func removeRetainedFrom(_ call: RemoveRetainedFrom, from _: UniqueName) throws(BusError) -> Int {
        try perform { effects throws(CenterError) in
            let key = NotificationKey(name: call.name, object: call.object, origin: try call.origin())
            return center.removeRetained(key, effects: &effects) ? 1 : 0
        }
    }

    /// Removes queued posts of the caller. No bound is needed: while the service runs, the caller's later calls and
    /// channel posts wait behind the last slice, so no newer post is in the queue.
    func withdrawPosts(_ call: WithdrawPosts, from poster: UniqueName) -> () -> (count: Int, isMore: Bool) {
        {
            driver.perform { effects in
                center.withdrawPosts(of: poster, name: call.name, object: call.object, effects: &effects)
            }
        }
    }

    /// Reads the configuration again. The reply is sent when all registrations that the new policy forbids are removed.
    func reloadConfiguration(_ call: MethodCall) throws(BusError) {
        try call.expectNoDescriptors()
        do throws(KeyFile.Fault) {
            try configuration.read()
        } catch {
            throw BusError(.invalidConfiguration, message: error.description)
        }
        revocations.serve(call, by: parts)
    }

    /// Returns the files and faults of the configuration. Readers in a sandbox get none, because paths are private.
    private func shownConfiguration(for reader: UniqueName?) -> ConfigurationProperty {
        let isAllowed = reader.map { gate.visibility(of: $0).isWhole } == true
        return ConfigurationProperty(
            files: isAllowed ? configuration.files : [],
            errors: isAllowed ? configuration.faults.map(\.description) : [])
    }

    /// Returns the properties of the D-Bus object, as far as the reader may see them.
    ///
    /// - Parameter reader: the client that reads the properties; nil for the signal `PropertiesChanged`, which goes to
    ///   all.
    func properties(for reader: UniqueName?) -> CenterProperties {
        let statistics = center.statistics
        return CenterProperties(
            version: Wire.softwareVersion, activitySource: driver.effects.activity?.kind?.rawValue ?? "none",
            activityState: (driver.effects.activity?.state ?? .off).rawValue,
            activityReason: driver.effects.activity?.reason ?? "",
            policy: reader.map(gate.shown) ?? PolicyProperty(), limits: NamedNumbers { center.limits[$0] },
            statistics: NamedNumbers { key in
                switch key {
                case .posted: statistics.posted
                case .delivered: statistics.delivered
                case .queued: statistics.queued
                case .dropped: statistics.dropped
                case .clients: statistics.clients
                case .observers: statistics.observers
                case .observerBytes: statistics.observerBytes
                case .memoryBytes: statistics.memoryBytes
                case .unmatched: statistics.unmatched
                case .coalesced: statistics.coalesced
                case .queuedBytes: statistics.queuedBytes
                case .intervalBytes: statistics.intervalBytes
                case .queuedPosts: statistics.queuedPosts
                case .lostPosts: statistics.lostPosts
                case .queuedPostBytes: statistics.queuedPostBytes
                case .inFlightBytes: statistics.inFlightBytes
                case .answerBytes: statistics.answerBytes
                case .waitingCallBytes: statistics.waitingCallBytes
                case .retained: statistics.retained
                case .retainedBytes: statistics.retainedBytes
                case .unretained: statistics.unretained
                case .displaced: statistics.displaced
                case .expired: statistics.expired
                case .channels: UInt64(driver.effects.channels.count)
                case .refused: refusals.refused
                case .rejected: refusals.rejected
                }
            },
            // A sandbox does not see the other sessions.
            sessions: reader.map { gate.visibility(of: $0).isWhole } == true ? sessions.shown : [:],
            configuration: shownConfiguration(for: reader))
    }

    /// Passes one event to the core. An error of the core becomes the D-Bus error of the reply.
    private func perform<Result>(
        _ event: (inout [Effect]) throws(CenterError) -> Result
    ) throws(BusError) -> Result {
        try mappingCenterErrors { () throws(CenterError) in try driver.perform(event) }
    }
}
