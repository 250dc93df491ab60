// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation
import Observation

/// The retained value of a name and an object (R1), as an observable property. It follows the posts of all programs,
/// and posts the values that are set here.
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
/// Programs that start later find the value, even after the program that set it has ended. The service keeps the
/// userInfo that a ``DistributedMessage`` of the type would have. Therefore programs in other languages read and set
/// it, and the command `carillon get` reads it.
///
/// The property is `Observable`: `withObservationTracking`, `Observations` and the views that use them see its changes.
/// A post that repeats the current value is not a change.
///
/// **Reading.** ``value`` is nil until the service has answered, and if there is no value; ``refresh(isolation:)``
/// waits for the answer. The property begins with the existing value, before any newer post (R2). It reads the value
/// again by itself after a loss, and from every new service instance. A post of the name and object that is not
/// retained counts as a value until the next refresh, because a notification does not show by default whether it is
/// retained.
///
/// **Removals are not announced** (R1). The value may have been removed, may have expired, or its poster may have left
/// the bus: ``value`` does not change until `refresh` reads it again, or a newer value arrives. A program whose end
/// matters to others registers an at-exit post
/// (``DistributedNotificationCenter/postAtExit(named:object:userInfo:options:coalescing:retention:isolation:)``).
///
/// **Writing.** A value that is set here is shown here at once. After the service's answer the value is read again, and
/// the result is shown: two programs that set it at the same time both show the value that was posted last.
/// ``set(_:isolation:)`` and ``remove(isolation:)`` wait for the answer and throw. An assignment to ``value`` reports a
/// failure as ``error``.
///
/// Threads: all members may be used from any thread. Setting or refreshing the value changes ``value`` where the call
/// is made. Posts of other programs change it where observers of the center run by default: on the main thread, unless
/// ``DistributedNotificationCenter/defaultDelivery`` had another value when this object was created. No lock is held
/// while observers are notified.
///
/// The property follows the value until it is released. It retains its center, and so the connection to the bus.
public final class DistributedValue<Value: Codable & Sendable>: Observable, Sendable {
    /// The center of the value.
    public let center: DistributedNotificationCenter
    /// The name of the value's notifications.
    public let name: Foundation.Notification.Name
    /// The object of the value's notifications; nil for none.
    public let object: String?
    /// The retention of values that are set here.
    public let retention: DistributedNotificationCenter.Retention

    /// A value with its wire representation, by which a repeated value is recognized.
    struct Content: Sendable {
        let value: Value
        let entries: [String: PropertyList]
    }

    /// The mutable state, under the lock.
    struct State: Sendable {
        var followed = FollowedValue<Content>()
        var error: DistributedNotificationError?
        /// The state of background reads.
        var backgroundRead = BackgroundRead.none

        /// Begins a change.
        ///
        /// - Parameter submit: the closure that sends the request of the change. If it throws, the change is undone.
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
    /// The delivery target of changes by other programs.
    let target: any DeliveryTarget
    /// The error of an invalid name or object, for which the service is never asked.
    let refusal: DistributedNotificationError?
    private let registrar = ObservationRegistrar()
    /// The observers of notifications and events, which end with this object.
    private let observations = Locked<[Observation]>([])

    /// Creates a property that follows a value from now on.
    ///
    /// - Parameters:
    ///   - name: the name; not empty. An empty name is refused as for an observer: the refusal is logged, counted and
    ///     reported. Every later request then throws this error.
    ///   - object: the object; nil for the value without an object. The service cannot register an observer of that
    ///     value alone. Therefore this property receives and reads the values of all objects of the name, and ignores
    ///     the others. If there are many, give each an object.
    ///   - retention: the retention of values that are set here. A value with `whileConnected` shows the presence of
    ///     this program, and ends with it. The library does not set it again on a new bus.
    ///   - suspensionBehavior: the treatment of changes while the program is suspended. With `drop`, only values that
    ///     are set here or refreshed are seen then.
    ///   - center: the center; that of the session by default.
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
            // Without an object, the observer receives the notifications of any object.
            if ExactText(received.arrived.object) == key { self?.arrived(received) }
        }
        let events = center.observeEvents { [weak self] event in
            if case .mayHaveMissedNotifications(let gap) = event { self?.mayHaveMissed(gap) }
        }
        observations.withLock { $0 = [notifications, events] }
    }

    // MARK: The value

    /// The value; nil if there is none, or if it is not known yet.
    ///
    /// Setting it posts the value, and setting it to nil removes the value; both return at once. A change that the
    /// service does not accept is logged and counted. It is reported as a
    /// ``DistributedNotificationCenter/Event/postFailed(_:)``, and is available as ``error``. The property then reverts
    /// to the value that the service keeps.
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
                center.reportRefusedPost(error)
                note(error)
            }
        }
    }

    /// The last error without a caller that could catch it. There are two kinds:
    ///
    /// - A value was set by ``value`` and not kept.
    /// - A post cannot be decoded as the type (``DistributedNotificationError/decodingFailed(type:reason:)``). It is
    ///   also logged, and counted in ``DistributedNotificationCenter/Statistics/undecodable``.
    ///
    /// The error becomes nil when the value is set or refreshed. A decoding error also becomes nil when a valid value
    /// arrives.
    public var error: DistributedNotificationError? {
        registrar.access(self, keyPath: \.error)
        return state.withLock { $0.error }
    }

    /// Sets the value, and waits until the service keeps it.
    ///
    /// ``value`` is the new value at once, and reverts if this method throws.
    ///
    /// - Throws: the reason why the service does not keep the value. After
    ///   ``DistributedNotificationError/disconnected(_:)`` the service may keep it nevertheless.
    public func set(
        _ value: Value, isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) {
        try await setAndWait(value, isolation)
    }

    /// Removes the value, regardless of its poster, and waits until it is removed. Other programs are not notified
    /// (R1).
    ///
    /// ``value`` is nil at once, and reverts if this method throws. A value that is set here meanwhile replaces the old
    /// value, and is not removed.
    ///
    /// - Throws: the reason why the service did not remove the value. The service cannot remove the value without an
    ///   object alone, so this removal is refused while the name has values with objects.
    public func remove(isolation: isolated (any Actor)? = #isolation) async throws(DistributedNotificationError) {
        try await setAndWait(nil, isolation)
    }

    /// Reads the value from the service, including its removal, which is not announced otherwise (R1, R3).
    ///
    /// A notification from before the removal may still be queued for this program, because the program is suspended or
    /// does not read. It arrives afterwards and counts as new.
    ///
    /// - Returns: the value; nil if there is none.
    /// - Throws: the reason why the service did not answer with the value, or
    ///   ``DistributedNotificationError/decodingFailed(type:reason:)`` if it cannot be decoded as the type. Then
    ///   ``value`` does not change.
    @discardableResult
    public func refresh(
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> Value? {
        let answer = await PendingAnswer<Answer?>.of(isolation: isolation, orCancelled: nil) { pending in
            read { [self] answer in if !pending.answer(answer) { deliver { $0.showBackgroundResult(answer) } } }
        }
        guard let answer else { throw .cancelled }
        let value = try take(answer)?.value
        update { $0.error = nil }
        return value
    }

    // MARK: Changes and observation

    /// Changes the state, and then notifies observers of the visible changes.
    ///
    /// The notice follows the change, because an observer may read on another thread before this method continues. It
    /// would otherwise read the old value, and miss the new one.
    func update<Failure: Error>(_ change: (inout State) throws(Failure) -> Void) throws(Failure) {
        let (before, isOther, isOtherError) = try state.withLock { state throws(Failure) in
            let before = state
            try change(&state)
            return (
                before, before.followed.shown?.entries != state.followed.shown?.entries, before.error != state.error
            )
        }
        if isOther { notifyObservers(\.value) }
        if isOtherError { notifyObservers(\.error) }
        // The replaced value is released with no lock held: it may have a `deinit` of the program that uses this
        // object.
        withExtendedLifetime(before) {}
    }

    /// Notifies observers of a change that has happened.
    private func notifyObservers<Member>(_ member: KeyPath<DistributedValue, Member>) {
        registrar.willSet(self, keyPath: member)
        registrar.didSet(self, keyPath: member)
    }

    /// Begins a change, which is shown from now on.
    ///
    /// - Parameter submit: the closure that sends the request of the change. It is called under the lock, so that the
    ///   service receives the changes of several threads in the order in which they take effect here.
    func begin(
        _ content: Content?, _ submit: (_ number: UInt64) throws(DistributedNotificationError) -> Void
    ) throws(DistributedNotificationError) {
        try update { state throws(DistributedNotificationError) in try state.begin(content, submit) }
    }

    /// Sets ``error``, and reverts the last change if it was refused.
    func note(_ error: DistributedNotificationError) {
        update { state in
            state.error = error
            state.followed.undoRefused()
        }
    }

    /// Runs a closure on the thread or queue where changes of other programs are shown: that of the center's observers
    /// when this object was created. Threads: any; called with no lock held.
    func deliver(
        byteCount: Int = DeliveryQueue.assumedByteCount, _ work: @escaping @Sendable (DistributedValue) -> Void
    ) {
        let lost = target.deliver(byteCount: byteCount) { [weak self] in
            if let self { work(self) }
        }
        center.noteOverflow(lost)
    }
}
