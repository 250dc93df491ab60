// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation
import Observation

/// The value of a name and an object that the service keeps (R1), as a property: it follows what any program posts
/// there, and posts what it is set to.
///
/// ```swift
/// struct Player: Codable, Sendable {
///     var title: String
///     var isPlaying: Bool
/// }
///
/// let player = DistributedValue<Player>(named: .init("com.example.Player"))
/// player.value = Player(title: "Jeux", isPlaying: true)
/// print(player.value?.title ?? "nobody plays")
/// ```
///
/// A program that starts later finds it, also when the one that set it has ended. What is kept is the userInfo that a
/// ``DistributedMessage`` of the type would have, so programs in other languages, and the command `carillon get`, read
/// it and set it.
///
/// It is `Observable`: `withObservationTracking`, `Observations`, and whatever draws by them see its changes. A change
/// is told only where there is one: what arrives again as it was is none.
///
/// **What it knows.** ``value`` is nil until the service has told what it keeps, and when there is none;
/// ``refresh(isolation:)`` waits for the answer. It has what there is when it begins, before anything newer (R2). After
/// a loss, or when the service is another one, it asks anew by itself. **A removal is told to nobody** (R1), whether
/// somebody removed the value, its time was over, or its poster has left the bus: ``value`` stays what it was, until
/// `refresh` asks, or another one comes. Who wants to hear that a program is gone has that one post it
/// (``DistributedNotificationCenter/postAtExit(named:object:userInfo:options:coalescing:retention:isolation:)``). And what is
/// posted under the name and object without being retained counts as a value here until the next refresh, as a
/// notification does not tell.
///
/// **Writing.** What is set is what is read from then on, here. When the service has answered it is asked once more
/// what it keeps, and that is shown: of two programs that set it at once, both have the one that was posted last.
/// ``set(_:isolation:)`` and ``remove(isolation:)`` wait for the answer and throw; an assignment to ``value`` says what
/// is wrong in ``error``.
///
/// Threads: all members may be used from any thread. What is set, or refreshed, changes ``value`` where that is called.
/// What other programs do changes it where observers of the center run by default: on the main thread, unless
/// ``DistributedNotificationCenter/defaultDelivery`` said otherwise when this was made. No lock is held while observers
/// are told.
///
/// It follows as long as somebody holds it. It keeps its center, and so its connection to the bus.
public final class DistributedValue<Value: Codable & Sendable>: Observable, Sendable {
    /// The center that it goes through.
    public let center: DistributedNotificationCenter
    /// The name of the notifications.
    public let name: Foundation.Notification.Name
    /// The object of the notifications; nil for none.
    public let object: String?
    /// How long the service keeps what is set here.
    public let retention: DistributedNotificationCenter.Retention

    /// A value with what it is on the wire, by which one that comes again is known.
    struct Content: Sendable {
        let value: Value
        let entries: [String: PropertyList]
    }

    struct State: Sendable {
        var followed = FollowedValue<Content>()
        var error: DistributedNotificationError?
        var ownReading = OwnReading.none

        /// - Parameter submit: asks the service for what begins; what it throws undoes that.
        mutating func begin(
            _ content: Content?, _ submit: (_ number: UInt64) throws(DistributedNotificationError) -> Void
        ) throws(DistributedNotificationError) {
            let before = self
            error = nil
            do throws(DistributedNotificationError) {
                try submit(followed.begin(content))
            } catch {
                self = before
                throw error
            }
        }
    }

    let state = Locked(State())
    /// Where it changes by what others do.
    let target: any DeliveryTarget
    /// What is wrong with the name or the object: nothing is ever asked for those.
    let refusal: DistributedNotificationError?
    private let registrar = ObservationRegistrar()
    private let observations = Locked<[Observation]>([])

    /// Follows a value from now on.
    ///
    /// - Parameters:
    ///   - name: not empty. One that is, is refused, as for an observer: logged, counted and reported; and it is the
    ///     error of all that is asked for here.
    ///   - object: nil for the value without an object. The service has no observers of that alone, so this hears, and
    ///     reads, the values of the name with all objects, and passes over the others. Where there are many, give each
    ///     an object.
    ///   - retention: how long the service keeps what is set here. With `whileConnected` it is a word of presence, that
    ///     goes with this program; nobody sets it again when the bus is another one.
    ///   - suspensionBehavior: what happens to changes while the program is suspended. With `drop` there is nothing to
    ///     see then, but what is set here and what is refreshed.
    ///   - center: the one of the session, unless there is another.
    public init(
        named name: Foundation.Notification.Name, object: String? = nil,
        retention: DistributedNotificationCenter.Retention = .untilReplaced,
        suspensionBehavior: DistributedNotificationCenter.SuspensionBehavior = .coalesce,
        center: DistributedNotificationCenter = .default()
    ) {
        self.center = center
        self.name = name
        self.object = object?.isEmpty == true ? nil : object
        self.retention = retention
        target = center.target(for: nil)
        refusal = center.refusal(of: name, object: object)
        let key = ExactText(object ?? "")
        let notifications = center.observation(
            name: name, object: self.object, suspensionBehavior: suspensionBehavior, wantsRetained: true,
            on: DirectTarget()
        ) { [weak self] received in
            // Of any object, where it wants none.
            if ExactText(received.arrived.object) == key { self?.arrived(received) }
        }
        let events = center.observeEvents { [weak self] event in
            if case .mayHaveMissedNotifications(let gap) = event { self?.mayHaveMissed(gap) }
        }
        observations.withLock { $0 = [notifications, events] }
    }

    // MARK: The value

    /// The value; nil when there is none, or when it is not known yet.
    ///
    /// Setting it posts it, and nil removes it; both return at once. What the service does not take is logged, counted
    /// and reported as an ``DistributedNotificationCenter/Event/postFailed(_:)``, and is ``error``; then this goes back
    /// to what the service keeps.
    public var value: Value? {
        get {
            registrar.access(self, keyPath: \.value)
            return state.withLock { $0.followed.shown?.value }
        }
        set {
            do throws(DistributedNotificationError) {
                try write(newValue) { [weak self, weak center] result in
                    guard case .failure(let error) = result else { return }
                    center?.noteFailedPosts(1, error)
                    self?.deliver { $0.note(error) }
                }
            } catch {
                center.noteRefusedPost(error)
                note(error)
            }
        }
    }

    /// What went wrong last without a caller to throw it to: something that was set by ``value`` and not kept, or what
    /// somebody posted here and what is no value of the type
    /// (``DistributedNotificationError/decodingFailed(type:reason:)``), which is logged and counted in
    /// ``DistributedNotificationCenter/Statistics/undecodable`` as well.
    ///
    /// Nil as soon as the value is set again or refreshed; the latter also as soon as a proper one arrives.
    public var error: DistributedNotificationError? {
        registrar.access(self, keyPath: \.error)
        return state.withLock { $0.error }
    }

    /// Sets the value, and waits until the service keeps it.
    ///
    /// ``value`` is the new one at once, and goes back if this throws.
    ///
    /// - Throws: why the service does not keep it. After ``DistributedNotificationError/disconnected(_:)`` it may.
    public func set(
        _ value: Value, isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) {
        try await written(value, isolation)
    }

    /// Removes the value, whoever set it, and waits until it is gone. Other programs are not told (R1).
    ///
    /// ``value`` is nil at once, and goes back if this throws. Something that is set here meanwhile takes the place of
    /// the value instead.
    ///
    /// - Throws: why the service does not do it. It can't remove the value without an object alone, so that is refused
    ///   while the name has values with objects.
    public func remove(isolation: isolated (any Actor)? = #isolation) async throws(DistributedNotificationError) {
        try await written(nil, isolation)
    }

    /// Asks the service what it keeps, and takes that over: also that there is nothing any more, of which nobody is
    /// told (R1, R3).
    ///
    /// What was posted before the value was removed, and still waits for this program, as it is suspended or does not
    /// read, comes afterwards, and counts as new.
    ///
    /// - Returns: what it keeps; nil for nothing.
    /// - Throws: why the service does not tell, and ``DistributedNotificationError/decodingFailed(type:reason:)`` for
    ///   what is no value of the type; ``value`` stays as it is then.
    @discardableResult
    public func refresh(
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Value? {
        let answer = await PendingAnswer<Answer?>.of(isolation: isolation, orCancelled: nil) { pending in
            read { [self] answer in if !pending.answer(answer) { deliver { $0.takeForItself(answer) } } }
        }
        guard let answer else { throw .cancelled }
        let value = try take(answer)?.value
        update { $0.error = nil }
        return value
    }

    // MARK: Changes, and who is told

    /// Changes the state, and then tells observers what of it they see.
    ///
    /// Behind the change: whoever is told may read on another thread before this one goes on, and would be told of nothing
    /// newer than what it saw.
    func update<Failure: Error>(_ change: (inout State) throws(Failure) -> Void) throws(Failure) {
        let (before, isOther, isOtherError) = try state.withLock { state throws(Failure) in
            let before = state
            try change(&state)
            return (
                before, before.followed.shown?.entries != state.followed.shown?.entries, before.error != state.error
            )
        }
        if isOther { tell(\.value) }
        if isOtherError { tell(\.error) }
        // The replaced value is released with no lock held: it may have a `deinit` of the program, which may come back here.
        withExtendedLifetime(before) {}
    }

    private func tell<Member>(_ member: KeyPath<DistributedValue, Member>) {
        registrar.willSet(self, keyPath: member)
        registrar.didSet(self, keyPath: member)
    }

    /// Has a change begin: from now on it is to be seen.
    ///
    /// - Parameter submit: asks the service for it, under the lock, so that what threads set at once reaches the
    ///   service in the order in which it holds here.
    func begin(
        _ content: Content?, _ submit: (_ number: UInt64) throws(DistributedNotificationError) -> Void
    ) throws(DistributedNotificationError) {
        try update { state throws(DistributedNotificationError) in try state.begin(content, submit) }
    }

    func note(_ error: DistributedNotificationError) {
        update { state in
            state.error = error
            state.followed.undoRefused()
        }
    }

    /// Has something done where what others do is seen. Threads: any; called with no lock held.
    func deliver(
        byteCount: Int = DeliveryQueue.assumedByteCount, _ work: @escaping @Sendable (DistributedValue) -> Void
    ) {
        let lost = target.deliver(byteCount: byteCount) { [weak self] in
            if let self { work(self) }
        }
        center.noteOverflow(lost)
    }
}
