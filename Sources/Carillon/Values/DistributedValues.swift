// SPDX-License-Identifier: Apache-2.0
import CarillonClient
import CarillonCollections
import CarillonMainLoop
import CarillonThreadDelivery
import CarillonWire
import Foundation
import Observation

/// The values of a name that the service keeps (R1), by their objects, as a collection that can be observed.
///
/// ```swift
/// let players = DistributedValues<Player>(named: .init("com.example.Player"))
/// try await players.refresh()
/// for (room, player) in players.values { print("\(room): \(player.title)") }
/// ```
///
/// It is to ``DistributedValue`` what a list is to one of its rows, and knows what that knows: it follows what any program posts
/// under the name, has what there is when it begins, before anything newer (R2), and asks anew by itself after a loss. **A removal
/// is told to nobody** (R1): a value stays here until ``refresh(isolation:)`` asks, or another one comes. A post that is
/// not retained counts as a value until then. To set one, use a ``DistributedValue`` of its object, or post a message with a
/// ``DistributedNotificationCenter/Retention``; it is here when its notification has come.
///
/// It is `Observable`: `withObservationTracking`, `Observations`, and whatever draws by them see its changes.
///
/// Threads: all members may be used from any thread. Posts of other programs change it where observers of the center run by
/// default, and ``refresh(isolation:)`` where it is called. No lock is held while observers are told.
///
/// It follows as long as somebody holds it. It keeps its center, and so its connection to the bus.
public final class DistributedValues<Value: Codable & Sendable>: Observable, Sendable {
    /// The center that it goes through.
    public let center: DistributedNotificationCenter
    /// The name of the notifications.
    public let name: Foundation.Notification.Name

    private struct Content: Equatable, Sendable {
        let value: Value
        let entries: [String: PropertyList]

        static func == (left: Content, right: Content) -> Bool { left.entries == right.entries }
    }

    private struct State: Sendable {
        var followed = FollowedValues<Content>()
        var error: DistributedNotificationError?
        var ownReading = OwnReading.none
    }

    private let state = Locked(State())
    private let target: any DeliveryTarget
    /// The error of an invalid name, for which the service is never asked.
    private let refusal: DistributedNotificationError?
    private let registrar = ObservationRegistrar()
    private let observations = Locked<[Observation]>([])

    /// Follows the values of a name from now on.
    ///
    /// - Parameters:
    ///   - name: not empty. One that is, is refused, as for an observer: logged, counted and reported; and it is the error of
    ///     all that is asked for here.
    ///   - suspensionBehavior: what happens to changes while the program is suspended.
    ///   - center: the one of the session, unless there is another.
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

    /// The values by their objects; the one without an object, if there is such, by the empty text.
    public var values: [String: Value] {
        registrar.access(self, keyPath: \.values)
        let contents = state.withLock { $0.followed.contents }
        return Dictionary(contents.map { ($0.object.text, $0.content.value) }, uniquingKeysWith: { $1 })
    }

    /// The value of an object; nil when there is none, or when it is not known yet.
    public subscript(object: String) -> Value? {
        registrar.access(self, keyPath: \.values)
        return state.withLock { $0.followed.content(of: ExactText(object))?.value }
    }

    /// The error of the last post that is no value of the type
    /// (``DistributedNotificationError/decodingFailed(type:reason:)``), which is logged and counted as well. Nil as soon as a
    /// proper one arrives, and with the next ``refresh(isolation:)``.
    public var error: DistributedNotificationError? {
        registrar.access(self, keyPath: \.error)
        return state.withLock { $0.error }
    }

    /// Asks the service what it keeps, and takes that over: also that some are gone, of which nobody is told (R1, R3).
    ///
    /// - Returns: what it keeps, but what is no value of the type, which is logged and counted, and stands in ``error``.
    /// - Throws: why the service does not tell.
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

    private func arrived(_ received: Received) {
        let object = ExactText(received.arrived.object)
        let (place, isFull) = state.withLock {
            ($0.followed.arrived(object, serial: received.arrived.serial), $0.followed.isFull)
        }
        if isFull { readForItself() }
        guard let place else { return }
        deliver(byteCount: received.byteCount) { values in
            let content = values.content(
                of: received.userInfo, known: object, poster: received.arrived.poster.rawValue)
            values.update { state in
                if content != nil { state.error = nil }
                return [state.followed.take(content, of: object, at: place)].compactMap { $0 }
            }
        }
    }

    private func mayHaveMissed(_ gap: DistributedNotificationCenter.Gap) {
        if gap == .serviceChanged { state.withLock { $0.followed.serviceChanged() } }
        readForItself()
    }

    // MARK: Reading

    private struct Kept: Sendable {
        let answered: FollowedValues<Content>.Answered
        /// The newest of each object: some are of other sessions.
        let values: [ExactText: KeptValue]

        /// About how much memory it keeps.
        var byteCount: Int {
            values.values.reduce(256) { $0 + 256 + $1.userInfo.reduce(0) { $0 + 64 + $1.key.utf8.count } }
        }
    }

    private typealias Answer = Result<Kept, DistributedNotificationError>

    /// - Parameter rounds: how often, where something arrives meanwhile.
    private func read(rounds: Int = 3, _ completion: @escaping @Sendable (Answer) -> Void) {
        if let refusal { return completion(.failure(refusal)) }
        let reading = state.withLock { $0.followed.beginReading() }
        center.submit(
            .call(Get(name: name.rawValue, object: "")) { [self] result in
                do throws(ServiceError) {
                    var values: [ExactText: KeptValue] = [:]
                    for value in try result.get() { values[ExactText(value.object)] = value }
                    let serials = values.mapValues { $0.serial ?? 0 }
                    let answered = state.withLock {
                        $0.followed.answered(reading, serials: serials, isLast: rounds == 1)
                    }
                    guard let answered else { return read(rounds: rounds - 1, completion) }
                    completion(.success(Kept(answered: answered, values: values)))
                } catch {
                    state.withLock { $0.followed.failed(reading) }
                    completion(.failure(DistributedNotificationError(error)))
                }
            })
    }

    private func take(_ kept: Kept) {
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

    /// Reads without anybody who waits for it: one question at a time, whatever happens meanwhile.
    private func readForItself() {
        guard state.withLock({ $0.ownReading.begin() }) else { return }
        read { [weak self] answer in
            guard let self else { return }
            let isDue = state.withLock { $0.ownReading.end() }
            switch answer {
            case .success(let kept): deliver(byteCount: kept.byteCount) { $0.take(kept) }
            // With the next service it is asked again.
            case .failure(let error): Log.info("the values of \(name.rawValue) can't be read: \(error)")
            }
            if isDue { readForItself() }
        }
    }

    /// - Returns: nil for what is no value of the type.
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

    // MARK: Changes, and who is told

    /// Changes the state, and then tells observers what of it they see.
    ///
    /// - Parameter change: gives what has gone out of it.
    private func update(_ change: (inout State) -> [Content]) {
        let (released, isOther, isOtherError) = state.withLock { state in
            let (version, error) = (state.followed.version, state.error)
            let released = change(&state)
            return (released, version != state.followed.version, error != state.error)
        }
        if isOther { tell(\.values) }
        if isOtherError { tell(\.error) }
        // With no lock held: it may have a `deinit` of the program, which may come back here.
        withExtendedLifetime(released) {}
    }

    private func tell<Member>(_ member: KeyPath<DistributedValues, Member>) {
        registrar.willSet(self, keyPath: member)
        registrar.didSet(self, keyPath: member)
    }

    /// Has something done where what others do is seen.
    private func deliver(
        byteCount: Int = DeliveryQueue.assumedByteCount, _ work: @escaping @Sendable (DistributedValues) -> Void
    ) {
        let lost = target.deliver(byteCount: byteCount) { [weak self] in
            if let self { work(self) }
        }
        center.noteOverflow(lost)
    }
}
