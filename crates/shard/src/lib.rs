//! One turn of a core: joins wire, hub and reactor; transports and the mesh between shards.
