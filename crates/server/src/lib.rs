//! Shards on threads and their control plane: HTTP API, config, metrics, drain.
