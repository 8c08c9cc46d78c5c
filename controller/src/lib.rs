//! The reference CapacityBuffer, NodePool and NodeClaim controllers.
