//! One core's world, deterministic: connections, channels, subscribers, outbound queues, limits.
