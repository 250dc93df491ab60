/// What time it is, for whoever wants to know when something was posted. The center decides nothing by it.
public struct Clock {
    /// Microseconds since 1970 in UTC.
    public var time: () -> Int64

    public init(time: @escaping () -> Int64) {
        self.time = time
    }

    /// It is always 1970.
    public static var stopped: Clock { Clock { 0 } }
}
