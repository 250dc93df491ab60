// SPDX-License-Identifier: Apache-2.0
#if CARILLON_PLANTED
    /// Faults of kinds that were really found, in builds that are made to see whether the simulation finds them (E7):
    /// `tools/simulate --planted`. No other build has them.
    package enum PlantedFault: String, CaseIterable {
        /// Numbers that an earlier process used up are given again.
        case serialTwice = "serial-twice"
        /// The end of the connection is taken for the end of the bus.
        case stateErased = "state-erased"
        /// A barrier gets lost, and nobody misses it.
        case lostBarrier = "lost-barrier"
        /// A reply is believed, whoever sent it.
        case strangerBelieved = "stranger-believed"
        /// Registrations are not counted at their size.
        case uncountedObservers = "uncounted-observers"
        /// Resuming does not flush.
        case droppedFlush = "dropped-flush"
        /// A loss takes its numbers, and is not told.
        case holeWithoutWord = "hole-without-word"
        /// A client's leaving is missed.
        case missedDeparture = "missed-departure"
        /// What has been sent is not taken out of the log.
        case sentStaysLogged = "sent-stays-logged"
        /// What one event decided is sent in the wrong order.
        case wrongOrder = "wrong-order"
        /// What is held gets into the log too late.
        case lateLog = "late-log"
        /// Calls are served in the order of their arrival, whosoever they are.
        case unfairLines = "unfair-lines"
        /// Posts for which there is no room are lost without a word.
        case silentOverload = "silent-overload"
        /// What a channel that ends had not written is forgotten.
        case forgottenFrames = "forgotten-frames"
        /// What lay unread in a channel that its client closed is not told as lost.
        case silentCut = "silent-cut"
        /// A frame of which a part was written counts as written.
        case halfFrame = "half-frame"
        /// A value that stays is kept in memory only.
        case unkeptValue = "unkept-value"
        /// What was kept while its poster is connected stays.
        case staleValue = "stale-value"
        /// Who wants the values that there are is not given all of them.
        case valueWithheld = "value-withheld"
        /// What is from outside takes the place of what is from here, or from another place.
        case placeIgnored = "place-ignored"
        /// The removal of one value removes those of all places.
        case neighborsRemoved = "neighbors-removed"
        /// Where something is from does not survive the process.
        case placeForgotten = "place-forgotten"
        /// Who was alone in wanting a name, and follows what others want, is not told when another wants it as well.
        case wishUntold = "wish-untold"
        /// Who follows what others want, or which values there are, is not told of a service that comes anew.
        case newServiceUntold = "new-service-untold"
        /// Who follows which values there are is not told that one has gone.
        case removalUntold = "removal-untold"
        /// A post that is refused takes the next one of its call with it, which counts as accepted.
        case refusedTakesNext = "refused-takes-next"
        /// Policy is not asked about the names in a call of many posts.
        case batchUnpoliced = "batch-unpoliced"
        /// Policy is not asked about the names of posts on a channel.
        case channelUnpoliced = "channel-unpoliced"
        /// Policy is not asked about `host`, `user` and `all-sessions` of posts in a call of many, nor on a channel.
        case optionsUnpoliced = "options-unpoliced"
        /// Names below another one are matched without the dot.
        case prefixWithoutDot = "prefix-without-dot"
        /// A policy that is tightened leaves the observers that it no longer allows.
        case policyKeepsObservers = "policy-keeps-observers"
        /// A client is not told of the observers that policy took from it.
        case revocationUntold = "revocation-untold"
        /// An application in a sandbox sees all clients.
        case sandboxSeesAll = "sandbox-sees-all"
        /// An application in a sandbox is told who posted.
        case sandboxIsToldPosters = "sandbox-is-told-posters"
        /// Values of several users of a host take the place of each other.
        case userIgnored = "user-ignored"
        /// A barrier counts as passed, whoever sent it.
        case barrierBelieved = "barrier-believed"
        /// A barrier that the bus refused is waited for without end.
        case refusedBarrier = "refused-barrier"
        /// A Ping that the bus refused counts as answered.
        case refusedPing = "refused-ping"
        /// A channel that its client reset counts as read when the bus goes.
        case resetForgotten = "reset-forgotten"
        /// A client that left before the general match rule was there is not looked for.
        case departedBeforeRule = "departed-before-rule"
        /// An observer that comes late is given a value whose time is over.
        case expiredGiven = "expired-given"
        /// A value whose time is over takes room that a new one needs.
        case expiredTakesRoom = "expired-takes-room"
        /// The count of overflows of a client stays when the client leaves.
        case overflowsStay = "overflows-stay"
        /// Checksums in the log are not looked at.
        case checksumIgnored = "checksum-ignored"
        /// Behind a damaged log clients are not told whether they are suspended.
        case damageUntold = "damage-untold"
        /// Behind a damaged log numbers are given again.
        case damageReusesNumbers = "damage-reuses-numbers"
        /// An override of another client's suspension does not survive the process.
        case overrideForgotten = "override-forgotten"
        /// A client that was suspended because of its application's activity is not told of its resumption by the next process.
        case resumedUntold = "resumed-untold"
        /// A client's own word does not hold over activity.
        case activityOverWord = "activity-over-word"
        /// Activity that ended a moment ago suspends, although it has begun again.
        case lateInactivity = "late-inactivity"
        /// Notifications of other sessions are taken whatever their names are.
        case importUnpoliced = "import-unpoliced"
        /// A session that does not keep up is passed over.
        case busySessionPassedOver = "busy-session-passed-over"
        /// Losses for want of room in a session are not reported to it.
        case sessionLossUnreported = "session-loss-unreported"
        /// A session is not told that a value has ended.
        case valueEndUntold = "value-end-untold"
        /// A session is not told the values that it lacks.
        case valuesUntold = "values-untold"
        /// A notification of another session is posted for the user that it names.
        case claimBelieved = "claim-believed"
        /// The match rule for a session stays when the session leaves.
        case sessionStays = "session-stays"
        /// A notification of another session goes out again.
        case importGoesOut = "import-goes-out"
        /// A value of another session stays, whatever the configuration says.
        case importKept = "import-kept"
        /// A session is sent names that it does not want.
        case unwantedExport = "unwanted-export"
        /// The system bus is not tried again when it has closed the connection.
        case systemBusGivenUp = "system-bus-given-up"
        // Those of the bridge, which realms find: tools/simulate --realm --planted.
        /// Messages that were taken from the broker and not posted do not survive an end.
        case inboxForgotten = "bridge-inbox-forgotten"
        /// Nobody asks whether a topic is possible, and nothing gives up a message that ends the connection.
        case topicUnchecked = "bridge-topic-unchecked"
        /// An earlier run of its own is taken for another bridge.
        case ownRunFeared = "bridge-own-run-feared"
        /// The queue for the broker does not survive a reload, nor an end.
        case queueForgotten = "bridge-queue-forgotten"
        /// A reload begins with the numbers of the last one.
        case numbersReused = "bridge-numbers-reused"
        /// A broker that lost values is not given them again.
        case valuesNotGivenAgain = "bridge-values-not-given-again"
        /// Losses that are not told yet are forgotten at an end.
        case lossForgotten = "bridge-loss-forgotten"
        /// Values that go with their posters stay when their machine is gone.
        case presenceStays = "bridge-presence-stays"
        /// Values that ended unseen stay.
        case endsUnseen = "bridge-ends-unseen"
        /// A value that had no answer is posted again over a later one.
        case oldValueAgain = "bridge-old-value-again"
        /// The numbers that were heard on topics do not survive an end.
        case placesForgotten = "bridge-places-forgotten"

        // A simulation has one thread.
        nonisolated(unsafe) private static var planted: PlantedFault?
        nonisolated(unsafe) private static var occasions = 0

        /// From now on there is this one, and no other.
        package static func plant(_ fault: PlantedFault?) {
            planted = fault
            occasions = 0
        }

        /// Whether this fault is there, and has its turn: at one of so many occasions.
        package static func strikes(_ fault: PlantedFault, oneOf count: Int = 1) -> Bool {
            guard planted == fault else { return false }
            occasions += 1
            return occasions % count == 0
        }
    }
#endif
