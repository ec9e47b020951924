//! What this machine allows: probes and the budget of a machine.
