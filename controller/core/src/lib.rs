//! Every decision of the reference controller as a pure function.
