// SPDX-License-Identifier: Apache-2.0
#if CARILLON_PLANTED
    /// A fault of a kind that was really found, in builds that test whether the simulation finds it (E7):
    /// `tools/simulate --planted`. No other build has these faults.
    package enum PlantedFault: String, CaseIterable {
        /// The service reuses numbers of an earlier process.
        case serialTwice = "serial-twice"
        /// The end of the connection counts as the end of the bus.
        case stateErased = "state-erased"
        /// A barrier is lost, and nothing waits for it.
        case lostBarrier = "lost-barrier"
        /// A reply is believed from any sender.
        case strangerBelieved = "stranger-believed"
        /// Registrations are not counted at their size.
        case uncountedObservers = "uncounted-observers"
        /// Resuming does not flush.
        case droppedFlush = "dropped-flush"
        /// A loss takes its sequence numbers, and is not announced.
        case holeWithoutWord = "hole-without-word"
        /// The departure of a client is missed.
        case missedDeparture = "missed-departure"
        /// Sent notifications are not removed from the log.
        case sentStaysLogged = "sent-stays-logged"
        /// The effects of one event are carried out in the wrong order.
        case wrongOrder = "wrong-order"
        /// Held notifications are written to the log too late.
        case lateLog = "late-log"
        /// Calls are served in the order of their arrival, without fairness among processes.
        case unfairQueue = "unfair-lines"
        /// Posts for which the service has no space are lost unannounced.
        case silentOverload = "silent-overload"
        /// The unwritten frames of a channel that ends are discarded.
        case forgottenFrames = "forgotten-frames"
        /// The unread messages in a channel that its client closed are not announced as lost.
        case silentCut = "silent-cut"
        /// A partly written frame counts as written.
        case halfFrame = "half-frame"
        /// A retained value is kept in memory only.
        case unkeptValue = "unkept-value"
        /// A value with `while-connected` outlives its poster's connection.
        case staleValue = "stale-value"
        /// An observer that asks for retained values does not get all of them.
        case valueWithheld = "value-withheld"
        /// A notification from outside replaces one of this session, or of another origin.
        case placeIgnored = "place-ignored"
        /// The removal of one value removes the values of all origins.
        case neighborsRemoved = "neighbors-removed"
        /// The origin of a notification does not survive a restart of the service.
        case placeForgotten = "place-forgotten"
        /// A follower of wanted names that was alone in wanting a name is not informed when another client wants it
        /// too.
        case wishUntold = "wish-untold"
        /// Followers of wanted names, or of values, are not informed of a new service.
        case newServiceUntold = "new-service-untold"
        /// Followers of values are not informed when a value has gone.
        case removalUntold = "removal-untold"
        /// A refused post takes the next post of its call with it, which counts as accepted.
        case refusedTakesNext = "refused-takes-next"
        /// Policy is not applied to the names in a `PostMany` call.
        case batchUnpoliced = "batch-unpoliced"
        /// Policy is not applied to the names of posts on a channel.
        case channelUnpoliced = "channel-unpoliced"
        /// Policy is not applied to `host`, `user` and `all-sessions` of posts in a `PostMany` call or on a channel.
        case optionsUnpoliced = "options-unpoliced"
        /// A prefix pattern matches names without the dot.
        case prefixWithoutDot = "prefix-without-dot"
        /// A policy that is tightened leaves the observers that it no longer allows.
        case policyKeepsObservers = "policy-keeps-observers"
        /// A client gets no announcement of the observers that policy took from it.
        case revocationUntold = "revocation-untold"
        /// An application in a sandbox sees all clients.
        case sandboxSeesAll = "sandbox-sees-all"
        /// An application in a sandbox gets the identity of posters.
        case sandboxIsToldPosters = "sandbox-is-told-posters"
        /// Values of several users of a host replace each other.
        case userIgnored = "user-ignored"
        /// A barrier counts as passed, whichever sender it has.
        case barrierBelieved = "barrier-believed"
        /// The service waits without end for a barrier that the bus refused.
        case refusedBarrier = "refused-barrier"
        /// A Ping that the bus refused counts as answered.
        case refusedPing = "refused-ping"
        /// A channel that its client reset counts as read when the bus goes.
        case resetForgotten = "reset-forgotten"
        /// A client that left before the general match rule was active is not looked for.
        case departedBeforeRule = "departed-before-rule"
        /// A late observer gets an expired value.
        case expiredGiven = "expired-given"
        /// An expired value takes space that a new one needs.
        case expiredTakesRoom = "expired-takes-room"
        /// The overflow count of a client stays when the client leaves.
        case overflowsStay = "overflows-stay"
        /// Checksums in the log are not verified.
        case checksumIgnored = "checksum-ignored"
        /// After a damaged log, clients get no announcement of their suspension.
        case damageUntold = "damage-untold"
        /// After a damaged log, numbers are reused.
        case damageReusesNumbers = "damage-reuses-numbers"
        /// An override of another client's suspension does not survive a restart of the service.
        case overrideForgotten = "override-forgotten"
        /// A client that was suspended by activity gets no announcement when the next process resumes it.
        case resumedUntold = "resumed-untold"
        /// Activity overrides a client's own choice of suspension.
        case activityOverWord = "activity-over-word"
        /// Inactivity that ended a moment ago still suspends.
        case lateInactivity = "late-inactivity"
        /// Notifications of other sessions are accepted with any name.
        case importUnpoliced = "import-unpoliced"
        /// A session that does not keep up is skipped.
        case busySessionPassedOver = "busy-session-passed-over"
        /// Losses for lack of space in a session's queue are not reported to it.
        case sessionLossUnreported = "session-loss-unreported"
        /// A session gets no report of the end of a value.
        case valueEndUntold = "value-end-untold"
        /// A session does not get the values that it lacks.
        case valuesUntold = "values-untold"
        /// A notification of another session is posted for the user that it claims.
        case claimBelieved = "claim-believed"
        /// The match rule for a session stays when the session leaves.
        case sessionStays = "session-stays"
        /// A notification of another session is exported again.
        case importGoesOut = "import-goes-out"
        /// A value of another session is retained even where the configuration forbids it.
        case importKept = "import-kept"
        /// A session is sent names that it does not want.
        case unwantedExport = "unwanted-export"
        /// The service does not connect to the system bus again after that has closed the connection.
        case systemBusGivenUp = "system-bus-given-up"
        // Faults of the bridge, found by realms: tools/simulate --realm --planted.
        /// Messages that were taken from the broker and not posted do not survive an end of the bridge.
        case inboxForgotten = "bridge-inbox-forgotten"
        /// The bridge does not check whether a topic is possible, and never gives up a message that ends the
        /// connection.
        case topicUnchecked = "bridge-topic-unchecked"
        /// The bridge takes an earlier run of its own for another bridge.
        case ownRunFeared = "bridge-own-run-feared"
        /// The queue for the broker survives neither a reload nor an end of the bridge.
        case queueForgotten = "bridge-queue-forgotten"
        /// A reload begins with the numbers of the last one.
        case numbersReused = "bridge-numbers-reused"
        /// Values that the broker lost are not published again.
        case valuesNotGivenAgain = "bridge-values-not-given-again"
        /// Losses that were not reported yet are forgotten at an end of the bridge.
        case lossForgotten = "bridge-loss-forgotten"
        /// Values that end with their posters stay when their machine is gone.
        case presenceStays = "bridge-presence-stays"
        /// Values that ended unseen stay.
        case endsUnseen = "bridge-ends-unseen"
        /// A value whose post had no reply is posted again over a later one.
        case oldValueAgain = "bridge-old-value-again"
        /// The sequence numbers received on topics do not survive an end of the bridge.
        case placesForgotten = "bridge-places-forgotten"

        // A simulation has a single thread.
        nonisolated(unsafe) private static var planted: PlantedFault?
        nonisolated(unsafe) private static var occasions = 0

        /// Plants this fault alone; nil for none.
        package static func plant(_ fault: PlantedFault?) {
            planted = fault
            occasions = 0
        }

        /// Whether this fault is planted and strikes now: at one of `count` occasions.
        package static func strikes(_ fault: PlantedFault, oneOf count: Int = 1) -> Bool {
            guard planted == fault else { return false }
            occasions += 1
            return occasions % count == 0
        }
    }
#endif
