// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation
import Observation

/// The retained values of a name (R1) by their objects, as an observable collection.
///
/// ```swift
/// let players = DistributedValues<Player>(named: .init("com.example.Player"))
/// try await players.refresh()
/// for (room, player) in players.values { print("\(room): \(player.title)") }
/// ```
///
/// It is the collection of the values that ``DistributedValue`` presents one by one. It follows the posts of all
/// programs under the name. It begins with the existing values, before any newer post (R2), and reads the values again
/// by itself after a loss.
///
/// **Removals are not announced** (R1): a value stays in the collection until ``refresh(isolation:)`` reads the values
/// again, or a newer value arrives. Until then, a post that is not retained counts as a value.
///
/// To set a value, use a ``DistributedValue`` of its object, or post a message with a
/// ``DistributedNotificationCenter/Retention``. The value appears here when its notification arrives.
///
/// The collection is `Observable`: `withObservationTracking`, `Observations` and the views that use them see its
/// changes.
///
/// Threads: all members may be used from any thread. Posts of other programs change the collection where observers of
/// the center run by default, and ``refresh(isolation:)`` changes it where it is called. No lock is held while
/// observers are notified.
///
/// The collection follows the values until it is released. It retains its center, and so the connection to the bus.
public final class DistributedValues<Value: Codable & Sendable>: Observable, Sendable {
    /// The center of the values.
    public let center: DistributedNotificationCenter
    /// The name of the values' notifications.
    public let name: Foundation.Notification.Name

    /// A value with its wire representation, by which values are compared.
    private struct Content: Equatable, Sendable {
        let value: Value
        let entries: [String: PropertyList]

        static func == (left: Content, right: Content) -> Bool { left.entries == right.entries }
    }

    /// The mutable state, under the lock.
    private struct State: Sendable {
        var followed = FollowedValues<Content>()
        var error: DistributedNotificationError?
        /// The state of background reads.
        var backgroundRead = BackgroundRead.none
    }

    private let state = Locked(State())
    /// The delivery target of changes by other programs.
    private let target: any DeliveryTarget
    /// The error of an invalid name, for which the service is never asked.
    private let refusal: DistributedNotificationError?
    private let registrar = ObservationRegistrar()
    /// The observers of notifications and events, which end with this object.
    private let observations = Locked<[Observation]>([])

    /// Creates a collection that follows the values of a name from now on.
    ///
    /// - Parameters:
    ///   - name: the name; not empty. An empty name is refused as for an observer: the refusal is logged, counted and
    ///     reported. Every later request then throws this error.
    ///   - suspensionBehavior: the treatment of changes while the program is suspended.
    ///   - center: the center; that of the session by default.
    public init(
        named name: Foundation.Notification.Name,
        suspensionBehavior: DistributedNotificationCenter.SuspensionBehavior = .coalesce,
        center: DistributedNotificationCenter = .default
    ) {
        self.center = center
        self.name = name
        target = center.target(for: nil)
        refusal = center.refusal(of: name, object: nil)
        let notifications = center.observation(
            name: name, object: nil, suspensionBehavior: suspensionBehavior, wantsRetained: true, on: DirectTarget()
        ) { [weak self] in self?.arrived($0) }
        let events = center.observeEvents { [weak self] event in
            if case .mayHaveMissedNotifications(let gap) = event { self?.mayHaveMissed(gap) }
        }
        observations.withLock { $0 = [notifications, events] }
    }

    // MARK: The values

    /// The values by their objects. The key of a value without an object is the empty text.
    public var values: [String: Value] {
        registrar.access(self, keyPath: \.values)
        let contents = state.withLock { $0.followed.contents }
        return Dictionary(contents.map { ($0.object.text, $0.content.value) }, uniquingKeysWith: { $1 })
    }

    /// The value of an object; nil if there is none, or if it is not known yet.
    public subscript(object: String) -> Value? {
        registrar.access(self, keyPath: \.values)
        return state.withLock { $0.followed.content(of: ExactText(object))?.value }
    }

    /// The error of the last post that cannot be decoded as the type
    /// (``DistributedNotificationError/decodingFailed(type:reason:)``), which is also logged and counted. It becomes
    /// nil with the next valid post, and with the next ``refresh(isolation:)``.
    public var error: DistributedNotificationError? {
        registrar.access(self, keyPath: \.error)
        return state.withLock { $0.error }
    }

    /// Reads the values from the service, including removals, which are not announced otherwise (R1, R3).
    ///
    /// - Returns: the values. A value that cannot be decoded as the type is left out, and is logged, counted and
    ///   available as ``error``.
    /// - Throws: the reason why the service did not answer with the values.
    @discardableResult
    public func refresh(
        isolation: isolated (any Actor)? = #isolation
    ) async throws(DistributedNotificationError) -> [String: Value] {
        let answer = await PendingAnswer<Answer>.of(isolation: isolation, orCancelled: .failure(.cancelled)) {
            pending in
            read { [self] answer in
                guard !pending.answer(answer), case .success(let kept) = answer else { return }
                deliver(byteCount: kept.byteCount) { $0.take(kept) }
            }
        }
        take(try answer.get())
        return values
    }

    // MARK: Incoming notifications

    /// Handles a notification on the bus thread. It gets its position there, and is decoded later where observers of
    /// the center run.
    private func arrived(_ received: ReceivedNotification) {
        let object = ExactText(received.arrived.object)
        let (position, isFull) = state.withLock {
            ($0.followed.arrived(object, serial: received.arrived.serial), $0.followed.isFull)
        }
        if isFull { readInBackground() }
        guard let position else { return }
        deliver(byteCount: received.byteCount) { values in
            let content = values.content(
                of: received.userInfo, known: object, poster: received.arrived.poster.rawValue)
            values.update { state in
                if content != nil { state.error = nil }
                return [state.followed.take(content, of: object, at: position)].compactMap { $0 }
            }
        }
    }

    /// Reads the values again, because a missed notification may have changed them.
    private func mayHaveMissed(_ gap: DistributedNotificationCenter.Gap) {
        if gap == .serviceChanged { state.withLock { $0.followed.serviceChanged() } }
        readInBackground()
    }

    // MARK: Reading

    /// The values that the service keeps, as a read returned them; they are not decoded yet.
    private struct ServiceValues: Sendable {
        let answered: FollowedValues<Content>.Answered
        /// The newest value of each object, regardless of its origin.
        let values: [ExactText: RetainedValueInfo]

        /// The approximate memory that the answer retains, in bytes.
        var byteCount: Int {
            values.values.reduce(256) { $0 + 256 + $1.userInfo.reduce(0) { $0 + 64 + $1.key.utf8.count } }
        }
    }

    private typealias Answer = Result<ServiceValues, DistributedNotificationError>

    /// Reads the values from the service.
    ///
    /// - Parameter rounds: the maximum number of attempts. An attempt is repeated if its answer may be out of date,
    ///   because a notification arrived meanwhile.
    private func read(rounds: Int = 3, _ completion: @escaping @Sendable (Answer) -> Void) {
        if let refusal { return completion(.failure(refusal)) }
        let reading = state.withLock { $0.followed.beginReading() }
        center.submit(
            .call(Get(name: name.rawValue, object: "")) { [self] result in
                do throws(ServiceError) {
                    var values: [ExactText: RetainedValueInfo] = [:]
                    for value in try result.get() { values[ExactText(value.object)] = value }
                    let serials = values.mapValues { $0.serial ?? 0 }
                    let answered = state.withLock {
                        $0.followed.answered(reading, serials: serials, isLast: rounds == 1)
                    }
                    guard let answered else { return read(rounds: rounds - 1, completion) }
                    completion(.success(ServiceValues(answered: answered, values: values)))
                } catch {
                    state.withLock { $0.followed.failed(reading) }
                    completion(.failure(DistributedNotificationError(error)))
                }
            })
    }

    /// Decodes the result of a read, and shows it.
    private func take(_ kept: ServiceValues) {
        update { state in
            state.error = nil
            return []
        }
        var contents: [ExactText: Content] = [:]
        for (object, value) in kept.values {
            contents[object] = content(of: value.userInfo, known: object, poster: value.poster ?? "")
        }
        update { $0.followed.take(contents, kept.answered) }
    }

    /// Starts a background read, for which no caller waits. One such read is in progress at a time.
    private func readInBackground() {
        guard state.withLock({ $0.backgroundRead.begin() }) else { return }
        read { [weak self] answer in
            guard let self else { return }
            let isDue = state.withLock { $0.backgroundRead.end() }
            switch answer {
            case .success(let kept): deliver(byteCount: kept.byteCount) { $0.take(kept) }
            // The values are read again from the next service instance.
            case .failure(let error): Log.info("the values of \(name.rawValue) can't be read: \(error)")
            }
            if isDue { readInBackground() }
        }
    }

    /// Decodes a userInfo. Known content of the object with the same entries is reused.
    ///
    /// - Returns: the content; nil if it cannot be decoded as the type.
    private func content(of entries: [String: PropertyList], known object: ExactText, poster: String) -> Content? {
        if let known = state.withLock({ $0.followed.content(of: object) }), known.entries == entries { return known }
        do {
            return Content(value: try MessageCoder.message(Value.self, from: entries), entries: entries)
        } catch {
            let reason = MessageCoder.describe(error)
            center.noteUndecodable(name.rawValue, from: poster, as: Value.self, reason)
            update { state in
                state.error = .decodingFailed(type: "\(Value.self)", reason: reason)
                return []
            }
            return nil
        }
    }

    // MARK: Changes and observation

    /// Changes the state, and then notifies observers of the visible changes.
    ///
    /// - Parameter change: the closure that changes the state, and returns the replaced contents.
    private func update(_ change: (inout State) -> [Content]) {
        let (released, isOther, isOtherError) = state.withLock { state in
            let (version, error) = (state.followed.version, state.error)
            let released = change(&state)
            return (released, version != state.followed.version, error != state.error)
        }
        if isOther { notifyObservers(\.values) }
        if isOtherError { notifyObservers(\.error) }
        // Released with no lock held: a value of the program may have a `deinit` that uses this object.
        withExtendedLifetime(released) {}
    }

    /// Notifies observers of a change that has happened.
    private func notifyObservers<Member>(_ member: KeyPath<DistributedValues, Member>) {
        registrar.willSet(self, keyPath: member)
        registrar.didSet(self, keyPath: member)
    }

    /// Runs a closure on the thread or queue where changes of other programs are shown.
    private func deliver(
        byteCount: Int = DeliveryQueue.assumedByteCount, _ work: @escaping @Sendable (DistributedValues) -> Void
    ) {
        let lost = target.deliver(byteCount: byteCount) { [weak self] in
            if let self { work(self) }
        }
        center.noteOverflow(lost)
    }
}
