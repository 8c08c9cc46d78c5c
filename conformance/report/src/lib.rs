//! The result model of a conformance run and everything rendered from it.
