//! A crowd of terminals: pacing, measuring, reports.
