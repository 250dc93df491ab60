// SPDX-License-Identifier: Apache-2.0
import CarillonCore

/// The center under test, driven by steps as the model is.
final class Subject {
    final class Payload: UserInfo {
        let post: Post
        var byteCount: Int { post.bytes }

        init(_ post: Post) {
            self.post = post
        }
    }

    private var center = DistributedCenter()
    private var outcomes = Outcomes()
    private var effects: [Effect] = []
    private var isBusy = false
    /// What the service keeps for the next one: changes, and what every client was sent.
    private var changes: [Change] = []
    private var counts: [ClientName: ClientCounts] = [:]
    private var misfits = 0
    /// The epochs of the moments of inactivity that began.
    private var moments: [Int: [UInt64]] = [:]

    init(remembersChanges: Bool) {
        center.remembersChanges = remembersChanges
        center.checksInvariants = false  // each step is followed by a check that can shrink
    }

    func checkInvariants() throws {
        try center.checkInvariants()
        if misfits > 0 { throw Misfits(count: misfits) }
    }

    /// Changes that were remembered and could not be restored.
    private struct Misfits: Error {
        let count: Int
    }

    /// - Parameter model: as it is before the step; it resolves what a step leaves open.
    func run(_ step: Step, beside model: ModelCenter) -> (Answer, Outcomes) {
        outcomes = Outcomes()
        effects.removeAll(keepingCapacity: true)
        let answer: Answer
        do throws(CenterError) {
            answer = try self.answer(to: step, beside: model)
            settle()
        } catch {
            answer = .refused(error)
        }
        for effect in effects { note(effect) }
        return (answer, outcomes)
    }

    private func answer(to step: Step, beside model: ModelCenter) throws(CenterError) -> Answer {
        switch step {
        case .observe(let client, let name, let object, let behavior, let mode):
            let id = try center.addObserver(
                of: Step.clients[client], name: Step.texts[name], object: Step.texts[object],
                options: ObserverOptions(suspensionBehavior: behavior, runLoopMode: mode), effects: &effects)
            return .numbers([id.rawValue])
        case .monitor(let client, let name, let object, let mode):
            let id = try center.addObserver(
                of: Step.clients[client], name: Step.texts[name], object: Step.texts[object],
                options: ObserverOptions(runLoopMode: mode, isMonitor: true), effects: &effects)
            return .numbers([id.rawValue])
        case .remove(let client, let pick):
            let id = ObserverID(rawValue: model.observer(at: pick))
            try center.removeObserver(id, of: Step.clients[client], effects: &effects)
        case .removeAll(let client, let name, let object):
            let removed = center.removeObservers(
                of: Step.clients[client], name: Step.texts[name], object: Step.texts[object], effects: &effects)
            return .numbers([UInt64(removed)])
        case .post(let poster, let name, let object, let bytes, let immediately, let times, let origin):
            var receivers: [UInt64] = []
            var options = PostOptions()
            options.deliverImmediately = immediately
            options.origin = Step.origins[origin]
            for _ in 0..<times {
                let post = Post(
                    serial: 0, name: name, object: object, bytes: bytes, poster: poster, origin: origin)
                receivers.append(
                    UInt64(
                        try center.post(
                            name: Step.texts[name], object: Step.texts[object], userInfo: Payload(post),
                            options: options, from: Step.clients[poster], effects: &effects
                        ).receivers))
                settle()
            }
            return .numbers(receivers)
        case .lose(let poster, let name, let object, let count):
            try center.checkPost(name: Step.texts[name], object: Step.texts[object])
            let reach = center.reach(
                ofPost: Step.texts[name], object: Step.texts[object], deliverImmediately: false)!
            var lost = [LostPost(count, reaching: reach, from: Step.clients[poster])]
            center.losePosts(&lost, effects: &effects)
        case .queue(let poster, let name, let object, let bytes, let immediately, let style, let coalescing):
            var options = PostOptions()
            options.deliverImmediately = immediately
            options.postingStyle = style
            options.coalescing = coalescing
            let post = Post(serial: 0, name: name, object: object, bytes: bytes, poster: poster)
            let receipt = try center.post(
                name: Step.texts[name], object: Step.texts[object], userInfo: Payload(post), options: options,
                from: Step.clients[poster], effects: &effects)
            return .numbers([UInt64(receipt.receivers)])
        case .withdraw(let poster, let name, let object):
            let count = center.withdrawPosts(
                of: Step.clients[poster], name: Step.texts[name], object: Step.texts[object], effects: &effects
            ).count
            return .numbers([UInt64(count)])
        case .postQueued(let style, let limit): center.postQueued(style, limit: limit, effects: &effects)
        case .busy: isBusy = true
        case .send(let lane, let limit):
            isBusy = limit != nil
            if let limit { center.sendReady(upTo: lane, limit: limit, effects: &effects) }
        case .override(let client, let isSuspended):
            _ = center.overrideSuspension(
                isSuspended.map { SuspensionOverride(isSuspended: $0) }, of: Step.clients[client], effects: &effects)
        case .setSuspended(let client, let isSuspended):
            try center.setSuspended(isSuspended, of: Step.clients[client], effects: &effects)
        case .tell(let client, let activity):
            center.setActivity(activity, of: Step.clients[client], effects: &effects)
        case .endMoment(let client, let isLate):
            guard let epoch = moments[client, default: []].dropLast(isLate ? 1 : 0).last else { break }
            center.inactivityTimerEnded(Step.clients[client], epoch: epoch, effects: &effects)
        case .automation(let isOn): center.setAutomaticSuspension(isOn, effects: &effects)
        case .followActivity(let client): try center.followActivity(of: Step.clients[client], effects: &effects)
        case .answer(let client, let times):
            for _ in 0..<times {
                center.clientAnswered(Step.clients[client], effects: &effects)
                settle()
            }
        case .backlogProbe(let client, let hasRead):
            center.backlogProbed(Step.clients[client], hasRead: hasRead, effects: &effects)
        case .batches(let client, let isWanted):
            try center.setOptions(
                ClientOptionsChange(batches: isWanted), of: Step.clients[client], effects: &effects)
        case .leave(let client): center.clientDisappeared(Step.clients[client], effects: &effects)
        case .limit(let key, let value):
            center.limits[key] = value
            center.limitsChanged(effects: &effects)
        case .restart: restart(beside: model)
        }
        return .nothing
    }

    private func settle() {
        if !isBusy { center.sendAllReady(effects: &effects) }
    }

    private func note(_ effect: Effect) {
        func number(_ client: ClientName) -> Int { Step.clients.firstIndex(of: client)! }
        switch effect {
        case .deliver(let delivery): note(delivery)
        case .deliverTogether(let client, let batch):
            outcomes.append(.together(batch.count), for: number(client))
            batch.forEach(note)
        case .dropped(let client, let count, let observers, let reason, let sequence):
            outcomes.append(
                .dropped(count, observers: observers.map(\.rawValue), reason, sequence: sequence), for: number(client))
            counts[client]?.dropped += count
            counts[client]?.sequence = sequence
        case .suspensionChanged(let client, let isSuspended, let cause):
            outcomes.append(.suspensionChanged(isSuspended, cause), for: number(client))
        case .probe(let client): outcomes.append(.probed, for: number(client))
        case .backlogProbe(let client): outcomes.append(.backlogProbed, for: number(client))
        // Nobody has an interval in these sequences.
        case .export, .exportEnded, .sendAnswer, .revoked, .interestChanged, .valuesRemoved, .possibleLoss,
            .startIntervalTimer:
            break
        // Nor a channel, nor a value.
        case .watchDeparture: break
        case .probeReplies, .probeReplyBacklog, .sendReply: break
        case .startInactivityTimer(let client, let epoch, let milliseconds):
            moments[number(client), default: []].append(epoch)
            outcomes.append(.momentBegan(milliseconds: milliseconds), for: number(client))
        case .overflowed(let client, let reason): outcomes.append(.overflowed(reason), for: number(client))
        case .watch(let client): outcomes.append(.watched, for: number(client))
        case .forget(let client):
            outcomes.append(.forgotten, for: number(client))
        case .remember(let change):
            changes.append(change)
            if case .client(let name, let start) = change { counts[name] = start }
            if case .clientGone(let name) = change { counts[name] = nil }
        }
    }

    private func note(_ delivery: Delivery) {
        func number(_ client: ClientName) -> Int { Step.clients.firstIndex(of: client)! }
        // What arrives is the notification that was posted, with what the center added to it.
        let notification = delivery.notification
        let posted = (notification.userInfo as? Payload)?.post
        let post = Post(
            serial: notification.serial, name: posted?.name ?? -1, object: posted?.object ?? -1,
            bytes: posted?.bytes ?? -1, poster: number(notification.poster),
            origin: Step.origins.firstIndex(of: notification.identity?.origin) ?? -1)
        assert(Step.texts[post.name] == notification.name && Step.texts[post.object] == notification.object)
        outcomes.append(
            .delivered(post, observers: delivery.observers.ids.map(\.rawValue), sequence: delivery.sequence),
            for: number(delivery.client))
        counts[delivery.client]?.delivered += 1
        counts[delivery.client]?.sequence = delivery.sequence
    }

    /// Replays what was remembered into a new center. Every second time that is the shortest list of changes, as after
    /// a rewriting of the log.
    private func restart(beside model: ModelCenter) {
        // A service that ends in order sends what is ready first.
        center.sendAllReady(effects: &effects)
        for effect in effects { note(effect) }
        effects.removeAll(keepingCapacity: true)
        isBusy = false
        if model.last.serial % 2 == 0 {
            changes = []
            center.forEachRememberedChange { changes.append($0) }
        }
        let limits = center.limits
        let suspendsAutomatically = center.suspendsAutomatically
        moments = [:]
        center = DistributedCenter(limits: limits)
        center.checksInvariants = false
        center.setAutomaticSuspension(suspendsAutomatically, effects: &effects)
        center.remembersChanges = true
        for change in changes {
            var change = change
            if case .client(let name, let start) = change { change = .client(name, counts[name] ?? start) }
            if !center.restore(change) { misfits += 1 }
        }
        center.restoreNumbers(lastSerial: model.last.serial, lastObserver: model.last.observer)
        // The log is written anew then.
        if model.last.serial % 4 < 2 {
            changes = []
            center.forEachRememberedChange { changes.append($0) }
        }
        center.finishRestoring(effects: &effects)
    }

    var currentView: View {
        var view = View()
        let statistics = center.statistics
        for status in center.clientStatuses {
            view.clients[Step.clients.firstIndex(of: status.name)!] = View.Client(
                isSuspended: status.isSuspended, cause: status.cause, observers: status.observers,
                queued: status.queued, delivered: status.delivered, dropped: status.dropped)
        }
        view.posted = statistics.posted
        view.unmatched = statistics.unmatched
        view.delivered = statistics.delivered
        view.dropped = statistics.dropped
        view.coalesced = statistics.coalesced
        view.queued = statistics.queued
        view.queuedBytes = statistics.queuedBytes
        view.queuedPosts = statistics.queuedPosts
        view.queuedPostBytes = statistics.queuedPostBytes
        view.clientCount = statistics.clients
        view.observerCount = statistics.observers
        return view
    }
}
