//! Typed resources, condition names and CRD generation for the CapacityBuffer API.
