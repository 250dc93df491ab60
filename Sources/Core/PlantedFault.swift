// SPDX-License-Identifier: Apache-2.0
#if CARILLON_PLANTED
    /// A fault that was once found in this project and is injected again, in builds that test whether the simulation
    /// finds it (E7): `tools/simulate --planted`. No other build has these faults.
    ///
    /// The code that a fault changes asks ``strikes(_:oneOf:)``. The raw value is the name of the fault on the command
    /// line. Each comment states the faulty behavior.
    package enum PlantedFault: String, CaseIterable {
        /// After a restart, the service assigns serials of the earlier process again.
        case reusedSerial = "reused-serial"
        /// The end of the connection to the bus counts as the end of the bus, so that the state is discarded.
        case stateErased = "state-erased"
        /// A barrier is never sent, and the service waits for it forever.
        case lostBarrier = "lost-barrier"
        /// A reply is accepted from any sender.
        case unverifiedSender = "unverified-sender"
        /// Registrations are not charged by their size.
        case uncountedObservers = "uncounted-observers"
        /// When a client is resumed, its held notifications are not flushed.
        case droppedFlush = "dropped-flush"
        /// A loss takes its sequence numbers, and no `Dropped` signal reports it.
        case unreportedHole = "unreported-hole"
        /// The departure of a client from the bus is not noticed.
        case missedDeparture = "missed-departure"
        /// Sent notifications are not removed from the recovery log.
        case sentStaysLogged = "sent-stays-logged"
        /// The effects of one event are carried out in reverse order.
        case wrongOrder = "wrong-order"
        /// Changes are written to the recovery log too late.
        case lateLog = "late-log"
        /// All calls are in one queue, without fairness among accounts.
        case unfairQueue = "unfair-queue"
        /// Posts for which the call queue has no space are lost without a report.
        case silentOverload = "silent-overload"
        /// When a channel ends, its unwritten frames are discarded.
        case discardedFrames = "discarded-frames"
        /// The unread messages in a channel that its client closed are not reported as lost.
        case unreportedChannelLoss = "unreported-channel-loss"
        /// When a channel ends, a partly written frame counts as written.
        case partialFrame = "partial-frame"
        /// A retained value is not written to the recovery log.
        case unloggedValue = "unlogged-value"
        /// A value with `while-connected` stays after the end of its poster's connection.
        case staleValue = "stale-value"
        /// An observer that asks for retained values does not get all of them.
        case incompleteReplay = "incomplete-replay"
        /// The origin of a notification is ignored, so that it replaces notifications of this session and of other
        /// origins.
        case originIgnored = "origin-ignored"
        /// The removal of a value removes the values of the same name and object from all origins.
        case otherOriginsRemoved = "other-origins-removed"
        /// The origin of a notification does not survive a restart of the service.
        case originForgotten = "origin-forgotten"
        /// A follower of wanted names that alone wants a name gets no signal when another client wants it too.
        case interestUnreported = "interest-unreported"
        /// Followers of wanted names or values get no signal from a new service.
        case newServiceUnreported = "new-service-unreported"
        /// Followers of values get no signal when a value is removed.
        case removalUnreported = "removal-unreported"
        /// After a refused post in a `PostMany` call, the next post is skipped and counts as accepted.
        case refusedPostTakesNext = "refused-post-takes-next"
        /// Policy is not applied to the names in a `PostMany` call.
        case batchWithoutPolicy = "batch-without-policy"
        /// Policy is not applied to the names of posts on a channel.
        case channelWithoutPolicy = "channel-without-policy"
        /// Policy is not applied to `host`, `user` and `all-sessions` of posts in a `PostMany` call or on a channel.
        case optionsWithoutPolicy = "options-without-policy"
        /// A prefix pattern matches names without the dot.
        case prefixWithoutDot = "prefix-without-dot"
        /// When a policy becomes stricter, observers that it no longer allows stay.
        case policyKeepsObservers = "policy-keeps-observers"
        /// A client gets no signal about observers that policy removed.
        case revocationUnreported = "revocation-unreported"
        /// An application in a sandbox sees all clients.
        case sandboxSeesAll = "sandbox-sees-all"
        /// An application in a sandbox gets the identity of posters.
        case sandboxGetsPosters = "sandbox-gets-posters"
        /// The user in an origin is ignored, so that values of several users of a host replace each other.
        case userIgnored = "user-ignored"
        /// The arrival of a barrier is accepted from any sender.
        case unverifiedBarrier = "unverified-barrier"
        /// The service waits forever for a barrier that the bus refused.
        case refusedBarrier = "refused-barrier"
        /// A Ping that the bus refused counts as answered.
        case refusedPing = "refused-ping"
        /// When the bus ends, the messages that a client left unread in a closed channel count as read.
        case resetCountsAsRead = "reset-counts-as-read"
        /// A client that left before the match rule for departures was active is not noticed.
        case departedBeforeRule = "departed-before-rule"
        /// An observer that registers late gets an expired value.
        case expiredReplayed = "expired-replayed"
        /// Expired values count against the limits, so that a new value is refused.
        case expiredTakesSpace = "expired-takes-space"
        /// The count of losses of a client stays after the client has left.
        case overflowCountStays = "overflow-count-stays"
        /// Checksums in the log are not verified.
        case checksumIgnored = "checksum-ignored"
        /// After a damaged recovery log, clients get no announcement of their suspension.
        case damageUnreported = "damage-unreported"
        /// After a damaged recovery log, serials and observer numbers are reused.
        case damageReusesNumbers = "damage-reuses-numbers"
        /// An override of another client's suspension does not survive a restart of the service.
        case overrideForgotten = "override-forgotten"
        /// A client that activity had suspended gets no announcement when the next process resumes it.
        case resumptionUnreported = "resumption-unreported"
        /// Activity has precedence over a client's own choice of suspension.
        case activityOverridesClient = "activity-overrides-client"
        /// Inactivity suspends a client although it ended during the delay.
        case lateInactivity = "late-inactivity"
        /// Notifications of other sessions are accepted without regard to the list `import`.
        case importWithoutPolicy = "import-without-policy"
        /// Notifications to another session that is slow are skipped.
        case slowSessionSkipped = "slow-session-skipped"
        /// Losses in the full queue for another session are not reported to that session.
        case sessionLossUnreported = "session-loss-unreported"
        /// Another session gets no report of the end of a value.
        case valueEndUnreported = "value-end-unreported"
        /// A session that joins does not get the present values.
        case missingValuesUnsent = "missing-values-unsent"
        /// A notification from another session is posted for the user that it states, and not for the verified one.
        case unverifiedUser = "unverified-user"
        /// The match rule for a session stays when the session leaves.
        case sessionStays = "session-stays"
        /// A notification from another session is sent to all sessions again.
        case importExported = "import-exported"
        /// A value of another session is retained even where the configuration forbids it.
        case forbiddenImportRetained = "forbidden-import-retained"
        /// Another session is sent names that it does not want.
        case unwantedExport = "unwanted-export"
        /// After the system bus has closed the connection, the service does not connect again.
        case systemBusNotReconnected = "system-bus-not-reconnected"
        // Faults of the bridge. Simulations of several machines (realms) find them: tools/simulate --realm --planted.
        /// Messages that were received from the broker and not posted yet are lost at an end of the bridge.
        case inboxForgotten = "bridge-inbox-forgotten"
        /// The bridge does not suspect a message whose topic makes the broker close the connection, and sends it
        /// forever.
        case topicUnchecked = "bridge-topic-unchecked"
        /// The bridge takes the presence of its own earlier process for that of another bridge.
        case ownRunMistaken = "bridge-own-run-mistaken"
        /// The queue for the broker is lost at a reload and at an end of the bridge.
        case queueForgotten = "bridge-queue-forgotten"
        /// After a reload, sequence numbers that were used are used again.
        case numbersReused = "bridge-numbers-reused"
        /// Values that the broker has lost are not published again.
        case valuesNotRepublished = "bridge-values-not-republished"
        /// Losses that were not reported yet are forgotten at an end of the bridge.
        case lossForgotten = "bridge-loss-forgotten"
        /// Values that end with their posters stay after their machine is gone.
        case presenceStays = "bridge-presence-stays"
        /// Values that ended while the bridge did not see it stay on other machines.
        case unseenEndsMissed = "bridge-unseen-ends-missed"
        /// A value whose post had no reply is posted again, over a later value.
        case staleValueReposted = "bridge-stale-value-reposted"
        /// The received sequence numbers of topics are forgotten at an end of the bridge.
        case sequencesForgotten = "bridge-sequences-forgotten"

        /// The injected fault; nil for none.
        nonisolated(unsafe) private static var planted: PlantedFault?  // a simulation has a single thread
        /// The number of calls of ``strikes(_:oneOf:)`` for it.
        nonisolated(unsafe) private static var occasions = 0  // a simulation has a single thread

        /// Injects this fault from now on, and no other; nil ends that.
        package static func plant(_ fault: PlantedFault?) {
            planted = fault
            occasions = 0
        }

        /// Whether the faulty behavior applies now.
        ///
        /// - Parameter count: it applies at one call of `count`, so that a run also has correct behavior.
        package static func strikes(_ fault: PlantedFault, oneOf count: Int = 1) -> Bool {
            guard planted == fault else { return false }
            occasions += 1
            return occasions % count == 0
        }
    }
#endif
