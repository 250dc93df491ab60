import ThreadDelivery

/// An observer's registration, which ends when this object goes away, or with `cancel()` (C7).
///
/// Threads: any.
public typealias Observation = ThreadDelivery.Observation
